"""Metrics by method: the name, the service and the unit under which our functions emit them; and grants by intent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

import constructs_lib
from constructs_lib import (
    EventIntake,
    ExecutionWatch,
    HttpTransactionApi,
    IdempotencyTable,
    LedgerTable,
    Migration,
    Outbox,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
    Unit,
    WatchedMachine,
)
from saga_runtime.migration import Concern, Layout
from saga_runtime.protocol import Metric
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.integrations import integration, job, saga_of
from tests.constructs.support.sagas import FUNCTIONS, plain_function, saga, step_function

OF_AWS = {"ExecutionsStarted", "ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted"}
ARGUMENTS: dict[str, tuple[Any, ...]] = {"metric_money_in_flight": ("EUR",)}


@pytest.fixture
def everything(stack: Stack) -> list[Construct]:
    """Every construct that has metrics."""
    made = saga(stack)
    api = TransactionApi(stack, "Api", operations={"moves": made})
    text = dynamodb.AttributeType.STRING
    first, second = (dynamodb.Attribute(name=name, type=text) for name in ("pk", "sk"))
    table = dynamodb.TableV2(stack, "Table", partition_key=first, sort_key=second)
    concern = Concern(name="cash", item="#cash", attributes={"cash": "cash"})
    layout = Layout(name="split", old_item="customer", groups=((concern,),))
    fn = StepFunction(stack, "Credit", code=FUNCTIONS, handler="intake.handler")
    machine = sfn.StateMachine(stack, "Nightly", definition_body=sfn.DefinitionBody.from_string("{}"))
    watched = WatchedMachine(machine=machine, on_timeout=plain_function(stack, "Release"))
    via = integration(stack)
    assert isinstance(via.tokens, Construct)
    return [
        made,
        api,
        via,
        via.tokens,
        TimeoutReconciler(stack, "Reconciler", sagas=[made, saga_of(stack, job(via), id="Jobs")]),
        Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop"),
        EventIntake(stack, "Intake", operation="stripe", fn=fn, requests=IdempotencyTable(stack, "Requests")),
        LedgerTable(stack, "Ledger", holds=True),
        Migration(stack, "Move", table=table, layout=layout, phase=1, writers=[step_function(stack, "Writer")]),
        ExecutionWatch(stack, "Watch", machines=[watched]),
    ]


def _parts(metric: Any) -> Iterator[cloudwatch.Metric]:
    if isinstance(metric, cloudwatch.MathExpression):
        for part in metric.using_metrics.values():
            yield from _parts(part)
    else:
        yield metric


def _metrics(construct: Construct) -> dict[str, list[cloudwatch.Metric]]:
    found = {}
    for name in dir(type(construct)):
        if name.startswith("metric_"):
            given = ("moves",) if isinstance(construct, TransactionApi) else ARGUMENTS.get(name, ())
            found[f"{type(construct).__name__}.{name}"] = list(_parts(getattr(construct, name)(*given)))
    return found


def test_each_metric_has_name_and_service_under_which_it_is_emitted(stack: Stack, everything: list[Construct]) -> None:
    metrics = {name: parts for construct in everything for name, parts in _metrics(construct).items()}
    emitted = {
        function.properties["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        for function in Cloud(stack).of_type("AWS::Lambda::Function")
        if "Environment" in function.properties
    }

    (ledger,) = [construct for construct in everything if isinstance(construct, LedgerTable)]
    emitted.add(ledger.table_name)  # of what its functions share

    assert len(metrics) > 40
    for name, parts in metrics.items():
        assert parts, name
        for part in parts:
            if part.namespace == "CdkSagas":
                assert part.metric_name in set(Metric), name
                assert (part.dimensions or {})["service"] in emitted, name
            else:
                assert part.namespace in ("AWS/States", "AWS/SQS"), name
                assert part.namespace == "AWS/SQS" or part.metric_name in OF_AWS, name


def test_every_construct_that_has_metrics_is_among_them(everything: list[Construct]) -> None:
    with_metrics = {
        name
        for name in constructs_lib.__all__
        if any(member.startswith("metric_") for member in dir(getattr(constructs_lib, name)))
    }
    assert with_metrics == {*(type(construct).__name__ for construct in everything), HttpTransactionApi.__name__}


def test_a_metric_of_an_unknown_operation_is_refused(stack: Stack) -> None:
    api = TransactionApi(stack, "Api", operations={"moves": saga(stack)})

    with pytest.raises(ValueError, match=r"^operation must be one of moves, got 'move'; name one of this API"):
        api.metric_reserved("move")


def test_a_ledger_without_sweeper_has_no_metric_of_one(stack: Stack) -> None:
    ledger = LedgerTable(stack, "Ledger")

    with pytest.raises(ValueError, match=r"^Test/Ledger must have a sweeper for this metric, got none; declare holds"):
        ledger.metric_oldest_unswept()
    assert (ledger.metric_suspended().dimensions or {})["service"] == ledger.table_name


def test_money_in_flight_is_measured_in_units_that_there_are(stack: Stack) -> None:
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga(stack)])

    assert (reconciler.metric_money_in_flight(Unit("POINT", 0)).dimensions or {})["currency"] == "POINT"
    with pytest.raises(ValueError, match=r"^unit must be an ISO 4217 code or a Unit, got 'XYZ'"):
        reconciler.metric_money_in_flight("XYZ")


# ---- grants by intent -----------------------------------------------------------------------------------------------


@pytest.fixture
def caller(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def _granted(stack: Stack) -> set[str]:
    return {action for action, _ in Cloud(stack).permissions("Caller")}


def test_a_reader_of_a_ledger_posts_nothing(stack: Stack, caller: iam.Role) -> None:
    LedgerTable(stack, "Ledger").grant_read(caller)
    assert _granted(stack) == {"dynamodb:BatchGetItem"}


def test_an_auditor_reads_a_ledger_whole(stack: Stack, caller: iam.Role) -> None:
    LedgerTable(stack, "Ledger").grant_audit(caller)
    assert _granted(stack) == {"dynamodb:Scan", "cloudformation:DescribeStacks"}


def test_a_job_that_runs_once_reaches_no_record_of_a_request(stack: Stack, caller: iam.Role) -> None:
    IdempotencyTable(stack, "Requests").grant_once(caller)

    (statement,) = Cloud(stack).statements("Caller")
    assert statement.condition == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["once#*"]}}
    assert _granted(stack) == {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DescribeTable"}


def test_an_operator_who_holds_a_reconciler_writes_its_hold_alone(stack: Stack, caller: iam.Role) -> None:
    TimeoutReconciler(stack, "Reconciler", sagas=[saga(stack)]).grant_hold(caller)

    written = {
        resource
        for action, resource in Cloud(stack).permissions("Caller")
        if action in ("dynamodb:PutItem", "dynamodb:DeleteItem")
    }
    assert written == {"${Reconciler/Hold/Table.Arn}"}
