"""A stack's manifest names what commands look for: every saga, table, function, rule, source and queue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import NestedStack, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib import (
    EventIntake,
    ExecutionWatch,
    IdempotencyTable,
    LedgerTable,
    Outbox,
    Step,
    TimeoutReconciler,
    WatchedMachine,
)
from constructs_lib.cli.shared.manifest import Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.shared.manifest_format import OUTPUT, VERSION, QueueRole
from saga_runtime.protocol import CallField
from saga_runtime.recovery.saga_reconciler import served_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import WarehouseStack, integration, job, own, saga_of
from tests.local.kinds.stack import KindsStack

_MEASURED_BYTES = 450_000
"""Outputs of this size together were accepted: github.com/aws-amplify/amplify-backend/pull/946, howbigcanoutputbe2."""


def text_of(stack: Stack) -> str:
    """The manifest's text, with the logical ids of references in the place of names."""
    return _flat(Cloud(stack).template["Outputs"][OUTPUT]["Value"])


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return value
    ((function, argument),) = value.items()
    match function:
        case "Fn::Join":
            return str(argument[0]).join(map(_flat, argument[1]))
        case "Ref":
            return f"{argument}"
        case "Fn::GetAtt":
            return ".".join(argument)
        case _:
            return json.dumps(argument).replace('"', "'")


def manifest_of(*stacks: Stack) -> Manifest:
    """Manifests of stacks, as a command reads them."""
    texts = {stack.stack_name: text_of(stack) for stack in stacks}
    return read_manifest(client(texts), list(texts))


def client(texts: Mapping[str, str]) -> Any:
    """CloudFormation, with stacks of these manifests."""

    def describe_stacks(StackName: str) -> Any:  # noqa: N803 - AWS's own name
        return {"Stacks": [{"Outputs": [{"OutputKey": OUTPUT, "OutputValue": texts[StackName]}]}]}

    return SimpleNamespace(describe_stacks=describe_stacks)


class BusyStack(WarehouseStack):
    """A saga with jobs, an intake, an outbox, a ledger and a watch, each with what it brings."""

    def __init__(self, scope: Any, id: str) -> None:
        super().__init__(scope, id)
        bus = events.EventBus(self, "Events")
        requests = IdempotencyTable(self, "Answers")
        intake = EventIntake(self, "Intake", fn=own(self, "Take"), operation="take", requests=requests)
        intake.add_event_rule("Taken", bus=bus, pattern=events.EventPattern(source=["shop"]))
        Outbox(self, "Outbox", bus=bus, source="shop")
        LedgerTable(self, "Ledger", holds=True)
        machine = sfn.StateMachine(
            self, "Old", definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(self, "Pass"))
        )
        watched = WatchedMachine(machine=machine, on_timeout=own(self, "Called"))
        ExecutionWatch(self, "Watch", machines=[watched])
        TimeoutReconciler(self, "Reconciler", sagas=[self.saga])


@pytest.fixture(scope="module")
def busy(new_app: AppFactory) -> Stack:
    return BusyStack(new_app(), "Busy")


def resources(stack: Stack, type_: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, resource in Cloud(stack).template["Resources"].items():
        if resource["Type"] == type_:
            yield name, resource.get("Properties", {})


@pytest.mark.parametrize("which", ["busy", "reference_stack", "kinds_stack"])
def test_every_rule_source_dead_letter_queue_and_alarm_is_named(which: str, request: pytest.FixtureRequest) -> None:
    stack: Stack = request.getfixturevalue(which)
    manifest = manifest_of(stack)
    rules = {one.logical_id for one in Cloud(stack).of_type("AWS::Events::Rule") if "/" in one.path}  # not its own
    queues = {
        one.logical_id
        for one in Cloud(stack).of_type("AWS::SQS::Queue")
        if "/" in one.path and "RedrivePolicy" not in one.properties
    }
    sources = {
        name
        for name, source in resources(stack, "AWS::Lambda::EventSourceMapping")
        if "FilterCriteria" not in source  # an outbox's stream, which its schedule does without
    }

    assert rules == {rule.name for rule in manifest.rules}
    assert sources == {source.uuid for source in manifest.sources}
    assert queues == set(manifest.dead_letters) | {one.operators for one in manifest.served}
    called = {rule.function for rule in manifest.rules} | {source.function for source in manifest.sources}
    assert called - {""} <= set(manifest.functions)
    assert {one.logical_id for one in Cloud(stack).of_type("AWS::CloudWatch::Alarm")} == set(manifest.alarms)


def test_dead_letters_of_a_queue_name_the_queue_that_takes_them_back(busy: Stack) -> None:
    cloud = Cloud(busy)
    poured = {
        "Intake/Parked": "Intake/Kept",
        "Watch/DeadLetters": "Watch/Queue",
        "Reconciler/DeadLetters": "Reconciler/Queue",
    }

    assert manifest_of(busy).taken_back_by == {
        cloud.one(dead).logical_id: f"{cloud.one(queue).logical_id}.QueueName" for dead, queue in poured.items()
    }


def test_roles_are_those_that_operators_know(busy: Stack) -> None:
    manifest = manifest_of(busy)

    assert {role for role in manifest.functions.values() if role} == {
        "the dispatcher of callbacks",
        "the event intake",
        "the publisher of the outbox",
        "the reconciler",
        "the sweeper of the ledger",
        "the sweeper of tokens",
        "the watch over state machines",
    }
    assert set(manifest.dead_letters.values()) == set(QueueRole)


@pytest.mark.parametrize("which", ["busy", "reference_stack", "kinds_stack"])
def test_sagas_and_their_reconcilers_have_the_same_names(which: str, request: pytest.FixtureRequest) -> None:
    manifest = manifest_of(request.getfixturevalue(which))
    said = {saga.served.machine: saga.served for saga in manifest.sagas}

    for reconciler in manifest.reconcilers:
        for served in reconciler.serves:
            assert (served.requests, served.log, served.days, served.shards, served.operators) == (
                said[served.machine].requests,
                said[served.machine].log,
                said[served.machine].days,
                said[served.machine].shards,
                said[served.machine].operators,
            )


def test_steps_are_those_whose_functions_are_called_with_a_row(kinds_stack: KindsStack) -> None:
    manifest = manifest_of(kinds_stack)

    called: dict[str, set[tuple[str, str, int]]] = {}
    for one in kinds_stack.node.find_all():
        definition = getattr(one, "definition", None)
        if isinstance(definition, Mapping):
            called.setdefault(one.node.path, set()).update(_called(definition))
            for phase in getattr(one, "phase_definitions", {}).values():
                called[one.node.path].update(_called(phase))
    for saga in manifest.sagas:
        declared = {
            (step.name, str(step.declared.side), step.declared.grace_ms // 1_000)
            for step in saga.steps.values()
            if step.declared is not None
        }
        assert called[saga.path] <= declared, saga.path
    assert manifest.sagas


def _called(value: Any) -> Iterator[tuple[str, str, int]]:
    """Steps, sides and graces in the events of functions."""
    if isinstance(value, Mapping):
        if CallField.STEP in value and CallField.SIDE in value and CallField.LOG_TABLE in value:
            provider = value.get(CallField.PROVIDER)
            grace = provider["grace"] if isinstance(provider, Mapping) else 0
            yield str(value[CallField.STEP]), str(value[CallField.SIDE]), grace
        for each in value.values():
            yield from _called(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _called(each)


def test_systems_of_nested_stacks_are_in_the_manifest_of_their_root(new_app: AppFactory) -> None:
    root = Stack(new_app(), "Root")
    inner = NestedStack(root, "Inner")
    deeper = NestedStack(inner, "Deeper")
    for scope in (root, inner, deeper):
        saga_of(scope, Step.atomic("Move", fn=own(scope, "Move")))

    paths = [saga.path for saga in manifest_of(root).sagas]

    assert [path.partition("/")[0] for path in paths] == ["Root"] * 3
    assert len(set(paths)) == 3
    assert OUTPUT not in Cloud(inner).template.get("Outputs", {})


def test_a_reconciler_of_another_stack_names_its_sagas(new_app: AppFactory) -> None:
    app = new_app()
    there, here = Stack(app, "There"), Stack(app, "Here")
    saga = saga_of(there, Step.atomic("Move", fn=own(there, "Move")))
    TimeoutReconciler(here, "Reconciler", sagas=[saga])

    alone, both = manifest_of(there), manifest_of(there, here)

    assert (len(alone.sagas), alone.reconcilers) == (1, ())
    assert len(both.reconcilers) == 1
    assert both.said == "stacks There, Here"


def test_late_effects_are_looked_for_where_the_reconciler_looks(busy: Stack) -> None:
    (reconciler,) = manifest_of(busy).reconcilers
    functions = dict(resources(busy, "AWS::Lambda::Function"))
    told = functions[reconciler.function]["Environment"]["Variables"]["CDK_SAGAS_RECONCILED"]

    assert served_of(_flat(told)) == reconciler.serves
    assert any(served.tokens for served in reconciler.serves)


@pytest.mark.parametrize("which", ["busy", "kinds_stack"])
def test_a_manifest_is_far_from_the_size_that_cloudformation_accepted(
    which: str, request: pytest.FixtureRequest
) -> None:
    assert len(text_of(request.getfixturevalue(which))) < _MEASURED_BYTES // 10


def test_a_stack_without_a_system_has_no_manifest(stack: Stack) -> None:
    sqs.Queue(stack, "Queue")

    assert "Outputs" not in Cloud(stack).template


# What a command refuses.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", f"output {OUTPUT} of stack Shop must be a JSON object, got ''; deploy it again"),
        ("[1]", "must be a JSON object, got '[1]'"),
        ("{}", f"the manifest of stack Shop must have version {VERSION}, got None; use the release"),
        ('{"version": 0}', f"must have version {VERSION}, got 0; use the release of cdk-sagas that deployed it"),
        ('{"version": 1, "sagas": [{}]}', "must be a manifest of version 1, got one that lacks"),
        ('{"version": 1, "sagas": 7}', "must be a manifest of version 1, got one that lacks"),
    ],
)
def test_a_manifest_of_another_form_is_refused(text: str, why: str) -> None:
    with pytest.raises(CommandError) as refused:
        read_manifest(client({"Shop": text}), ["Shop"])

    assert why in str(refused.value)


def test_a_stack_without_the_output_is_refused() -> None:
    none: Any = SimpleNamespace(describe_stacks=lambda **_: {"Stacks": [{"StackName": "Shop"}]})

    with pytest.raises(CommandError, match="stack Shop must have the output CdkSagas, got none; name the root stack"):
        read_manifest(none, ["Shop"])


def test_jobs_and_integrations_are_named(new_app: AppFactory) -> None:
    stack = Stack(new_app(), "Jobs")
    warehouse = integration(stack)
    saga_of(
        stack, job(warehouse, compensate=own(stack, "Cancel")), Step.atomic("Pay", fn=own(stack, "Pay"), pivot=True)
    )

    manifest = manifest_of(stack)

    assert [saga.has_jobs for saga in manifest.sagas] == [True]
    assert [one.path for one in manifest.integrations] == [warehouse.node.path]
    assert manifest.integrations[0].tokens in manifest.sweepers
