"""Every argument of every public construct and factory, with a value of a wrong type: an error of ours names it."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack, Token
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

import constructs_lib
from constructs_lib import (
    AdyenSignature,
    CallbackIntegration,
    Compliance,
    ContinueWith,
    DirectFunction,
    DirectOperation,
    Effect,
    EventIntake,
    ExecutionWatch,
    FunctionOptions,
    HmacSignature,
    HttpTransactionApi,
    IdempotencyTable,
    LedgerTable,
    Migration,
    MoneyField,
    Notify,
    Operation,
    OperatorAccess,
    Outbox,
    OwnSignature,
    PaddleSignature,
    PayloadBucket,
    Provider,
    Retry,
    RuntimeFunction,
    SagaMonitoring,
    SagaStateMachine,
    StandardWebhooks,
    Step,
    StepFunction,
    StepHost,
    StripeSignature,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
    Versions,
    WatchedMachine,
)
from saga_runtime.migration import Concern, Layout
from tests.constructs.support.sagas import FUNCTIONS, plain_function, saga, step_function

LAYOUT = Layout(
    name="split", old_item="all", groups=((Concern(name="POINT", item="POINT", attributes={"points": "points"}),),)
)
MADE_BY_OTHERS = {"ApprovalPage", "DirectReceiver", "Step", "StepGroup", "Webhook"}
"""Public for their attributes; ``CallbackIntegration`` and the factories of ``Step`` make them."""
OF_THE_RUNTIME = {"Backoff", "CollectingAccounts", "KeySource", "Unit"}
"""Values that functions make, too: ``tests/unit`` gives them wrong types, and ``Invalid`` refuses these."""


class World:
    """Values of every type that an argument may be of."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.stack = stack = Stack(app, "Test")
        self.fn = plain_function(stack, "Function")
        self.own = step_function(stack)
        self.direct = DirectFunction(stack, "Direct", code=FUNCTIONS, handler="direct.handler")
        self.intake = StepFunction(stack, "Intake", code=FUNCTIONS, handler="intake.handler")
        self.receiver = step_function(stack, "Receiver")
        self.key = kms.Key(stack, "Key")
        self.table = dynamodb.TableV2(
            stack, "Table", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        self.fifo = sqs.Queue(stack, "Fifo", fifo=True)
        self.http = apigatewayv2.HttpApi(stack, "Http")
        self.bus = events.EventBus(stack, "Bus")
        self.secret = secretsmanager.Secret(stack, "Secret")
        self.hexadecimal = secretsmanager.Secret.from_secret_name_v2(stack, "Hexadecimal", "adyen")
        self.saga = saga(stack)
        self.reconciler = TimeoutReconciler(stack, "OfOperators", sagas=[self.saga])
        self.left = saga(stack, "Left")
        self.requests = IdempotencyTable(stack, "Requests")
        self.via: Any = CallbackIntegration(stack, "Carrier", fn=self.own)
        pass_ = sfn.DefinitionBody.from_string('{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}')
        self.machine = sfn.StateMachine(stack, "Machine", definition_body=pass_)
        self.provider = Provider(verify=True)
        self.step = Step.atomic("Inner", fn=self.fn)


Given = Callable[[World], dict[str, Any]]
FACTORIES: dict[str, tuple[Callable[..., Any], Given]] = {
    "CallbackIntegration": (CallbackIntegration, lambda _: {"tokens": None}),
    "CallbackIntegration.add_approval_page": (CallbackIntegration.add_approval_page, lambda w: {"self": w.via}),
    "CallbackIntegration.add_direct_receiver": (CallbackIntegration.add_direct_receiver, lambda w: {"self": w.via}),
    "CallbackIntegration.add_event_rule": (
        CallbackIntegration.add_event_rule,
        lambda w: {"self": w.via, "bus": w.bus, "pattern": events.EventPattern(source=["a"]), "fn": w.receiver},
    ),
    "CallbackIntegration.add_webhook": (
        CallbackIntegration.add_webhook,
        lambda w: {"self": w.via, "fn": w.receiver, "scheme": StandardWebhooks(secrets=[w.secret])},
    ),
    "Compliance": (Compliance, lambda w: {"log_key": w.key}),
    "DirectFunction": (DirectFunction, lambda _: {"code": FUNCTIONS, "handler": "direct.handler"}),
    "DirectOperation": (DirectOperation, lambda w: {"fn": w.direct, "requests": w.requests, "previous": None}),
    "EventIntake": (EventIntake, lambda w: {"operation": "stripe", "fn": w.intake, "requests": w.requests}),
    "ContinueWith": (ContinueWith, lambda _: {}),
    "FunctionOptions": (FunctionOptions, lambda _: {}),
    "HmacSignature": (HmacSignature, lambda w: {"secrets": [w.secret], "header": "X-Sign"}),
    "HttpTransactionApi": (
        HttpTransactionApi, lambda w: {"api": w.http, "operations": {"moves": w.saga}},
    ),
    "IdempotencyTable": (IdempotencyTable, lambda _: {}),
    "LedgerTable": (LedgerTable, lambda _: {}),
    "Migration": (
        Migration, lambda w: {"table": w.table, "layout": LAYOUT, "phase": 1, "writers": [w.own]},
    ),
    "MoneyField": (MoneyField, lambda _: {"amount": "/amount", "currency": "/currency"}),
    "Notify": (Notify, lambda w: {"queue": w.fifo}),
    "Operation": (Operation, lambda w: {"saga": w.saga}),
    "Outbox": (Outbox, lambda w: {"bus": w.bus, "source": "shop"}),
    "PayloadBucket": (PayloadBucket, lambda _: {}),
    "Provider": (Provider, lambda _: {"verify": True}),
    "Retry": (Retry, lambda _: {}),
    "Versions": (Versions, lambda _: {}),
    "RuntimeFunction": (
        RuntimeFunction,
        lambda _: {"code": lambda_.Code.from_inline("x"), "handler": "index.handler", "description": "d"},
    ),
    "SagaMonitoring": (SagaMonitoring, lambda _: {}),
    "SagaStateMachine": (SagaStateMachine, lambda w: {"requests": w.requests, "steps": [w.step]}),
    "AdyenSignature": (AdyenSignature, lambda w: {"secrets": [w.hexadecimal]}),
    "OwnSignature": (OwnSignature, lambda w: {"secrets": [w.secret], "function": "checks.verify"}),
    "PaddleSignature": (PaddleSignature, lambda w: {"secrets": [w.secret]}),
    "StandardWebhooks": (StandardWebhooks, lambda w: {"secrets": [w.secret]}),
    "StepFunction": (StepFunction, lambda _: {"code": FUNCTIONS, "handler": "plain.handler"}),
    "StepHost": (StepHost, lambda w: {"apply": w.fn, "provider": w.provider, "verify": w.fn}),
    "StripeSignature": (StripeSignature, lambda w: {"secrets": [w.secret]}),
    "ExecutionWatch": (
        ExecutionWatch,
        lambda w: {"machines": [lib.WatchedMachine(machine=w.machine, on_timeout=w.fn)]},
    ),
    "OperatorAccess": (
        OperatorAccess,
        lambda w: {"reconciler": w.reconciler},
    ),
    "TimeoutReconciler": (TimeoutReconciler, lambda w: {"sagas": [w.left]}),
    "TokenTable": (TokenTable, lambda _: {}),
    "TransactionApi": (TransactionApi, lambda w: {"operations": {"moves": w.saga}}),
    "WatchedMachine": (WatchedMachine, lambda w: {"machine": w.machine, "on_timeout": w.fn}),
    "Step.atomic": (Step.atomic, lambda w: {"fn": w.fn}),
    "Step.callback": (
        Step.callback,
        lambda w: {"via": w.via, "provider": w.provider, "timeout": Duration.hours(2), "heartbeat": Duration.hours(1)},
    ),
    "Step.child": (Step.child, lambda w: {"steps": [w.step], "timeout": Duration.minutes(5)}),
    "Step.custom": (Step.custom, lambda _: {"state": {"Type": "Pass"}}),
    "Step.dynamodb": (
        Step.dynamodb, lambda w: {"table": w.table, "writes": [{"Put": {"Item": {"id": {"S": "a"}}}}]},
    ),
    "Step.event": (Step.event, lambda w: {"bus": w.bus, "source": "shop", "detail_type": "Paid"}),
    "Step.express": (Step.express, lambda w: {"steps": [w.step]}),
    "Step.external": (Step.external, lambda w: {"fn": w.fn, "provider": w.provider}),
    "Step.map": (Step.map, lambda w: {"items": "$request.i", "key": "$item.k", "steps": [w.step]}),
    "Step.notify": (Step.notify, lambda w: {"queue": w.fifo}),
    "Step.parallel": (Step.parallel, lambda w: {"branches": [[w.step], [Step.atomic("Other", fn=w.fn)]]}),
    "Step.read_only": (Step.read_only, lambda w: {"fn": w.fn}),
    "Step.service": (
        Step.service,
        lambda w: {"service": "s3", "action": "getObject", "parameters": {}, "effect": Effect.READ, "policies": []},
    ),
    "Step.wait_for": (
        Step.wait_for, lambda w: {"via": w.via, "timeout": Duration.hours(2), "heartbeat": Duration.hours(1)},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(new_app: Callable[[], Any]) -> World:
    return World(new_app())


def test_every_public_construct_and_factory_is_among_them() -> None:
    public = {
        name
        for name in constructs_lib.__all__
        if inspect.isclass(kind := getattr(constructs_lib, name))
        and not issubclass(kind, Enum)
        and not getattr(kind, "_is_protocol", False)
    }
    factories = {f"Step.{name}" for name, made in vars(Step).items() if isinstance(made, staticmethod)}
    adding = {f"CallbackIntegration.{name}" for name in vars(CallbackIntegration) if name.startswith("add_")}

    assert set(FACTORIES) == (public - MADE_BY_OTHERS - OF_THE_RUNTIME) | factories | adding


def _runs(factory: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose signature a call has: of a construct, the constructor."""
    return factory.__init__ if inspect.isclass(factory) and issubclass(factory, Construct) else factory


def _arguments() -> Iterator[tuple[str, str]]:
    for name, (factory, _) in FACTORIES.items():
        for argument in inspect.signature(_runs(factory)).parameters:
            if argument != "self":
                yield name, argument


def _whole(factory: Callable[..., Any], given: dict[str, Any], world: World) -> dict[str, Any]:
    """The arguments together with those that only name a place."""
    wanted = inspect.signature(_runs(factory)).parameters
    unique = f"Id{len(list(world.stack.node.find_all()))}"
    named = {"scope": world.stack, "id": unique, "name": "Named"}
    return {**{name: value for name, value in named.items() if name in wanted}, **given}


@pytest.mark.proof
@pytest.mark.parametrize(("name", "argument"), list(_arguments()))
def test_a_wrong_type_is_refused_by_name_value_and_remedy(world: World, name: str, argument: str) -> None:
    factory, given = FACTORIES[name]

    class Wrong:
        pass

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        factory(**{**_whole(factory, given(world), world), argument: Wrong()})

    assert re.fullmatch(rf"{argument} of .* must be .*, got a Wrong; .+", str(raised.value)), str(raised.value)


@pytest.mark.parametrize("name", FACTORIES)
def test_the_arguments_of_these_tests_are_taken(world: World, name: str) -> None:
    factory, given = FACTORIES[name]

    factory(**_whole(factory, given(world), world))


def _hint(factory: Callable[..., Any], argument: str) -> Any:
    return typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory).get(argument)


def _options(hint: Any) -> list[Any]:
    return list(typing.get_args(hint)) if isinstance(hint, types.UnionType) else [hint]


@pytest.mark.parametrize(
    ("name", "argument"),
    [(n, a) for n, a in _arguments() if Duration in _options(_hint(FACTORIES[n][0], a))],
)
def test_a_number_is_refused_as_a_duration(world: World, name: str, argument: str) -> None:
    factory, given = FACTORIES[name]

    with pytest.raises(
        ValueError, match=rf"^{argument} of .* must be a Duration.*, got 10; write Duration.seconds\(10\)$"
    ):
        factory(**{**_whole(factory, given(world), world), argument: 10})


ONE_ONLY = {"CallbackIntegration.add_approval_page", "Migration"}
"""What there can be one of: a world of its own for each."""
RESOLVED_LATER = {
    "batch_size",
    "burst_limit",
    "max_concurrency",
    "max_receives",
    "memory_mib",
    "rate_limit",
    "rate_per_address",
    "reserved_concurrency",
}
"""Numbers that only the template has: the deployment may resolve them."""
KNOWN = {("Step.map", "max_concurrency"), ("TransactionApi", "rate_per_address")}
"""Of these names, a number with which the synth calculates, and one that needs a web ACL."""
WITH_ANOTHER = {"compensate_timeout", "every", "expected_duration", "longest_timeout"}
"""Durations that are not read, or not allowed, without another argument."""


def _numbers(*, later: bool) -> list[tuple[str, str]]:
    numbers = [(n, a) for n, a in _arguments() if {int, float}.intersection(_options(_hint(FACTORIES[n][0], a)))]
    return [(n, a) for n, a in numbers if (a in RESOLVED_LATER and (n, a) not in KNOWN) is later]


@pytest.mark.parametrize(("name", "argument"), _numbers(later=True))
def test_a_token_for_a_number_of_the_template_is_taken(new_app: Callable[[], Any], name: str, argument: str) -> None:
    factory, given = FACTORIES[name]
    world = World(new_app())

    factory(**{**_whole(factory, given(world), world), argument: Token.as_number({"Ref": "Number"})})


@pytest.mark.parametrize(("name", "argument"), _numbers(later=False))
def test_a_token_for_another_number_is_refused(
    world: World, new_app: Callable[[], Any], name: str, argument: str
) -> None:
    factory, given = FACTORIES[name]
    where = World(new_app()) if name in ONE_ONLY else world

    with pytest.raises(ValueError, match=rf"^.*\b({argument}|HTTP status|waf)\b.* must be .*") as raised:
        factory(**{**_whole(factory, given(where), where), argument: Token.as_number({"Ref": "Number"})})

    assert "e+289" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "argument"),
    [(n, a) for n, a in _arguments() if Duration in _options(_hint(FACTORIES[n][0], a)) and a not in WITH_ANOTHER],
)
@pytest.mark.parametrize("unit", [Duration.seconds, Duration.days])
def test_a_token_for_a_duration_is_refused(
    world: World, new_app: Callable[[], Any], name: str, argument: str, unit: Callable[[float], Duration]
) -> None:
    factory, given = FACTORIES[name]
    where = World(new_app()) if name in ONE_ONLY else world
    token = unit(Token.as_number({"Ref": "Number"}))

    with pytest.raises(ValueError, match=rf"^{argument}.* must be known at synth, got a token; choose a duration$"):
        factory(**{**_whole(factory, given(where), where), argument: token})


@pytest.mark.parametrize(
    ("name", "argument"),
    [(n, a) for n, a in _arguments() if a in {"refusals", "transient"}],
)
def test_names_are_a_list_of_texts(world: World, name: str, argument: str) -> None:
    factory, given = FACTORIES[name]

    class SoldOut(Exception):
        pass

    wrong: Mapping[str, tuple[Any, str]] = {
        "a text": ("SoldOut", f"{argument} of step Named must be a list of str, got 'SoldOut'; write ['SoldOut']"),
        "a class": (
            SoldOut, f"{argument} of step Named must be a list of str, got the class SoldOut; write ['SoldOut']",
        ),
        "a class in a list": (
            [SoldOut], f"{argument}[0] of step Named must be a str, got the class SoldOut; write its name, 'SoldOut'",
        ),
        "a set": (
            {"SoldOut"}, f"{argument} of step Named must be a list of str, got {{'SoldOut'}}; pass a list of str",
        ),
    }  # fmt: skip
    for value, message in wrong.values():
        with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
            factory(**{**_whole(factory, given(world), world), argument: value})
        assert str(raised.value) == message


WRONG: dict[str, Any] = {"api": 1, "operations": {}}
NONE: dict[str, Any] = {}


def test_an_argument_that_there_is_not_is_named_with_its_construct(world: World) -> None:
    with pytest.raises(TypeError, match=r"^TransactionApi.__init__\(\) got an unexpected keyword argument 'api'$"):
        constructs_lib.TransactionApi(world.stack, "Api", **WRONG)
    with pytest.raises(TypeError, match=r"^Step.wait_for\(\) missing a required argument: 'via'$"):
        Step.wait_for("Answer", **NONE)


lib: Any = constructs_lib
"""As an app without a type checker sees it."""


def _direct(world: World, schema: Mapping[str, Any]) -> Any:
    return lib.DirectFunction(world.stack, "B7", code=FUNCTIONS, handler="direct.handler", schema=schema)


SLIPS: dict[str, tuple[Callable[[World], Any], str]] = {
    "an imported table": (
        lambda w: lib.SagaStateMachine(
            w.stack, "A", requests=dynamodb.TableV2.from_table_name(w.stack, "Theirs", "theirs"), steps=[w.step]
        ),
        "requests of SagaStateMachine A must be an IdempotencyTable, got a TableBaseV2; pass an IdempotencyTable",
    ),
    "an asset": (
        lambda w: lib.StepFunction(w.stack, "B", code=lambda_.Code.from_asset(str(FUNCTIONS)), handler="plain.handler"),
        "code of StepFunction B must be a str or a Path, got an AssetCode; pass the path of a folder",
    ),
    "a code of another kind": (
        lambda w: lib.StepFunction(w.stack, "B1", code=lambda_.Code.from_inline("x"), handler="plain.handler"),
        "code of StepFunction B1 must be a str or a Path, got an InlineCode; pass a path",
    ),
    "a file's number": (
        lambda w: lib.SagaStateMachine(w.stack, "B2", requests=w.requests, steps=[w.step], definition_file=5),
        "definition_file of SagaStateMachine B2 must be a str or a Path or None, got 5; pass a path",
    ),
    "a text for a schema": (
        lambda w: lib.Operation(saga=w.saga, schema="x"),
        "schema of Operation must be a dict or None, got 'x'; pass a dict",
    ),
    "a text for an output": (
        lambda _: lib.ContinueWith(output="x"),
        "output of ContinueWith must be a dict, got 'x'; pass a dict",
    ),
    "a role's ARN": (
        lambda w: lib.IdempotencyTable(w.stack, "B3").grant_once("arn:aws:iam::111111111111:role/Jobs"),
        (
            "grantee of B3.grant_once must be an IGrantable, got 'arn:aws:iam::111111111111:role/Jobs'; "
            "pass a role, or import one with iam.Role.from_role_arn"
        ),
    ),
    "a text for a state": (
        lambda _: lib.Step.custom("Pause", state="Wait"),
        "state of step Pause must be a dict, got 'Wait'; pass a dict",
    ),
    "one write": (
        lambda w: lib.Step.dynamodb("Mark", table=w.table, writes={"Put": {}}),
        "writes of step Mark must be a list of dicts, got {'Put': {}}; put it into a list",
    ),
    "one saga": (
        lambda w: lib.TimeoutReconciler(w.stack, "C", sagas=w.saga),
        ("sagas of TimeoutReconciler C must be a list of SagaStateMachine, got a SagaStateMachine; put it into a list"),
    ),
    "one secret": (
        lambda w: lib.StandardWebhooks(secrets=w.secret),
        "secrets of StandardWebhooks must be a list of ISecret, got a Secret; put it into a list",
    ),
    "a secret's text": (
        lambda _: lib.StandardWebhooks(secrets=["whsec_x"]),
        (
            "secrets[0] of StandardWebhooks must be an ISecret, got 'whsec_x'; keep it in Secrets Manager, and pass a "
            "secretsmanager.Secret"
        ),
    ),
    "a topic": (
        lambda w: lib.SagaMonitoring(w.stack, "D1", alarm_actions=[sns.Topic(w.stack, "Topic")]),
        (
            "alarm_actions[0] of SagaMonitoring D1 must be an IAlarmAction, got a Topic; write SnsAction(topic), of "
            "aws_cdk.aws_cloudwatch_actions"
        ),
    ),
    "a construct around a table": (
        lambda w: lib.Step.dynamodb("Mark", table=w.requests, writes=[]),
        "table of step Mark must be an ITableV2, got an IdempotencyTable; pass its .table",
    ),
    "a construct around a function": (
        lambda w: lib.StepHost(w.stack, "D", apply=w.own, provider=w.provider),
        "apply of StepHost D must be an IFunction, got a StepFunction; pass its .function",
    ),
    "an effect as a text": (
        lambda w: lib.Step.custom("Mine", state={"Type": "Pass"}, effect="read"),
        "effect of step Mine must be an Effect, got 'read'; write Effect.READ or Effect.IDEMPOTENT",
    ),
    "a class as an error's name": (
        lambda w: lib.Step.atomic("Pay", fn=w.fn, on_error={ValueError: lib.Notify(queue=w.fifo)}),
        "on_error of step Pay must be a str, got the class ValueError; write its name, 'ValueError'",
    ),
    "a status as a text": (
        lambda w: lib.SagaStateMachine(
            w.stack, "E", requests=w.requests, steps=[w.step], http_status_by_error={"Declined": "402"}
        ),
        "http_status_by_error['Declined'] of SagaStateMachine E must be an int, got '402'; pass an int",
    ),
    "a truth as a number": (
        lambda w: lib.PayloadBucket(w.stack, "F", keep_days=True),
        "keep_days of PayloadBucket F must be an int, got True; pass an int",
    ),
    "a variable that is a number": (
        lambda w: lib.StepFunction(w.stack, "G", code=FUNCTIONS, handler="plain.handler", environment={"N": 1}),
        "environment['N'] of StepFunction G must be a str, got 1; pass a str",
    ),
    "a queue's address": (
        lambda w: w.via.add_webhook("H", fn=w.own, scheme=lib.StandardWebhooks(secrets=[w.secret]), path=3),
        "path of Carrier.add_webhook H must be a str or None, got 3; pass a str",
    ),
    "a schema with a token": (
        lambda w: _direct(w, {"properties": {"to": {"const": Token.as_string({"Ref": "To"})}}}),
        (
            "schema of DirectFunction B7 must be known at synth, got a token: no deployment resolves this file; "
            "write the value"
        ),
    ),
    "a schema with a token for a number": (
        lambda w: _direct(w, {"items": [{"maximum": Token.as_number({"Ref": "Most"})}]}),
        (
            "schema of DirectFunction B7 must be known at synth, got a token: no deployment resolves this file; "
            "write the value"
        ),
    ),
    "a token for a file": (
        lambda w: lib.SagaStateMachine(
            w.stack, "B4", requests=w.requests, steps=[w.step], definition_file=Token.as_string({"Ref": "File"})
        ),
        "definition_file must be known at synth, got a token; write a path",
    ),
    "a snapshot": (
        lambda w: lib.LedgerTable(w.stack, "B5", removal_policy=RemovalPolicy.SNAPSHOT),
        (
            "removal_policy of LedgerTable B5 must be RETAIN, RETAIN_ON_UPDATE_OR_DELETE or DESTROY, got SNAPSHOT: "
            "CloudFormation makes no snapshot of these resources; choose RETAIN, and back up tables"
        ),
    ),
    "a table's ARN": (
        lambda w: lib.LedgerTable.from_table_name(w.stack, "B6", table_name="arn:aws:dynamodb:eu-west-1:1:table/t"),
        "table_name of Test/B6 must be the name of a table, got 'arn:aws:dynamodb:eu-west-1:1:table/t'; pass it",
    ),
    "long construct ids": (
        lambda w: lib.StepFunction(w.stack, "L" * 251, code=FUNCTIONS, handler="plain.handler"),
        (
            f"path of Test/{'L' * 251} must have at most 255 characters with the stack's name, got 256: CloudWatch "
            "takes no longer dimension; shorten the construct ids"
        ),
    ),
    "a long text": (
        lambda w: lib.Retry(in_doubt_cap="x" * 90),
        f"in_doubt_cap of Retry must be an int, got '{'x' * 58}…; pass an int",
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_named_with_the_way_out(world: World, slip: str) -> None:
    make, message = SLIPS[slip]

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        make(world)

    assert str(raised.value) == message


IMPORTED: dict[str, Callable[[World], Any]] = {
    "a key": lambda w: lib.LedgerTable(
        Stack(w.app, "Here", env={"account": "111111111111", "region": "eu-west-1"}), "Ledger",
        encryption_key=kms.Key.from_key_arn(w.stack, "ByArn", "arn:aws:kms:eu-west-1:111111111111:key/1234"),
    ),
    "a queue": lambda w: lib.Notify(
        queue=sqs.Queue.from_queue_arn(w.stack, "Q", "arn:aws:sqs:eu-west-1:111111111111:theirs.fifo")
    ),
    "a secret": lambda w: StandardWebhooks(
        secrets=[secretsmanager.Secret.from_secret_name_v2(w.stack, "S", "theirs")]
    ),
    "a bus": lambda w: lib.Step.event(
        "Announce", bus=events.EventBus.from_event_bus_name(w.stack, "B", "b"), source="s", detail_type="d"
    ),
    "a bucket": lambda w: lib.PayloadBucket(
        w.stack, "Logged", access_logs=s3.Bucket.from_bucket_name(w.stack, "Logs", "theirs")
    ),
    "a state machine": lambda w: lib.WatchedMachine(
        machine=sfn.StateMachine.from_state_machine_arn(
            w.stack, "M", "arn:aws:states:eu-west-1:111111111111:stateMachine:x"
        ),
        on_timeout=w.own,
    ),
    "a function": lambda w: lib.Step.atomic(
        "Pay",
        fn=lambda_.Function.from_function_arn(
            w.stack, "TheirFunction", "arn:aws:lambda:eu-west-1:111111111111:function:theirs"
        ),
        fn_timeout=Duration.seconds(9),
    ),
    "an alias": lambda w: lib.Step.atomic(
        "Pay",
        fn=lambda_.Alias(w.stack, "Live", alias_name="live", version=w.fn.current_version),
        fn_timeout=Duration.seconds(9),
    ),
    "a table": lambda w: lib.Step.dynamodb(
        "Mark",
        table=dynamodb.TableV2.from_table_name(w.stack, "T", "theirs"),
        writes=[{"Put": {"Item": {"id": {"S": "a"}}}}],
    ),
    "a pool's authorizer": lambda w: lib.TransactionApi(
        w.stack,
        "Pooled",
        operations={"moves": w.saga},
        identity="jwt",
        authorizer=apigateway.CognitoUserPoolsAuthorizer(
            w.stack, "Authorizer", cognito_user_pools=[cognito.UserPool(w.stack, "Pool")]
        ),
    ),
    "a policy": lambda w: lib.Step.service(
        "Look",
        service="s3",
        action="getObject",
        parameters={},
        effect=Effect.READ,
        policies=(iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"]),),
    ),
    "a path": lambda w: lib.StepFunction(w.stack, "ByPath", code=Path(FUNCTIONS), handler="plain.handler"),
    "a token for a number": lambda w: lib.RuntimeFunction(
        w.stack,
        "Later",
        code=lambda_.Code.from_inline("x"),
        handler="index.handler",
        description="d",
        memory_mib=Token.as_number({"Ref": "Memory"}),
    ),
    "a dict for a struct": lambda w: w.via.add_event_rule("R", bus=w.bus, pattern={"source": ["a"]}, fn=w.receiver),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPORTED)
def test_imported_resources_are_accepted(world: World, case: str) -> None:
    IMPORTED[case](world)


IMPORTING: dict[str, Callable[[Stack], Any]] = {
    "IdempotencyTable": lambda s: IdempotencyTable.from_table_name(s, "TheirRequests", table_name="theirs"),
    "LedgerTable": lambda s: LedgerTable.from_table_name(s, "TheirLedger", table_name="theirs"),
    "SagaStateMachine": lambda s: SagaStateMachine.from_operation(s, "TheirSaga", operation="moves", api_id="abc"),
    "TokenTable": lambda s: TokenTable.from_table_name(
        s, "TheirTokens", table_name="theirs", sweeper_role_name="sweeper", service="tokens"
    ),
}


def test_every_grant_refuses_a_grantee_of_a_wrong_type(new_app: Callable[[], Any]) -> None:
    world = World(new_app())
    for factory, given in FACTORIES.values():
        if (inspect.isclass(factory) and issubclass(factory, Construct)) or factory.__name__.startswith("add_"):
            factory(**_whole(factory, given(world), world))
    for imported in IMPORTING.values():
        imported(world.stack)

    refused = set[Callable[..., Any]]()
    for construct in world.stack.node.find_all():
        for name in _grants(type(construct)):
            refused.add(getattr(type(construct), name))
            grant = getattr(construct, name)
            argument = next(iter(inspect.signature(grant).parameters))
            more = {"key_prefix": "theirs"} if name == "grant_powertools" else {}
            for wrong in ("arn:aws:iam::111111111111:role/Theirs", None, object()):
                with pytest.raises(ValueError, match=rf"^{argument} of .*\.{name} must be an? .*, got .*; .+"):
                    grant(wrong, **more)

    assert refused == {getattr(kind, name) for kind in _kinds_of(Construct) for name in _grants(kind)}


def _grants(kind: type) -> list[str]:
    """Methods that grant, of a class of ours."""
    if not kind.__module__.startswith("constructs_lib."):
        return []
    ours = [base for base in kind.__mro__ if base.__module__.startswith("constructs_lib.")]
    return sorted({name for base in ours for name in vars(base) if re.fullmatch("grant_(?!principal).*", name)})


def _kinds_of(kind: type) -> set[type]:
    """A class and its subclasses."""
    further: list[type] = type.__subclasses__(kind)
    return {kind}.union(*(_kinds_of(one) for one in further))
