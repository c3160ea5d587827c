"""``cdk-sagas diff`` of whole systems: what a deployment would lose is found, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, CfnResource, Duration, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from constructs import IConstruct

from constructs_lib import (
    CallbackIntegration,
    DirectFunction,
    DirectOperation,
    EventIntake,
    HttpTransactionApi,
    IdempotencyTable,
    LedgerTable,
    Operation,
    Outbox,
    PayloadBucket,
    SagaStateMachine,
    Step,
    StepFunction,
    StepGroup,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
    Versions,
)
from constructs_lib.cli.main import main
from saga_runtime.http.key_source import KeySource
from tests.constructs.support.factories import AppFactory, context
from tests.constructs.support.integrations import job, own, saga_of
from tests.constructs.support.sagas import FUNCTIONS

Build = Callable[[Stack], Any]


def _saga(stack: Stack, *, requests: str = "Requests", fn: StepFunction | None = None, **options: Any) -> Any:
    times = {name: options.pop(name) for name in ("remember_for", "replay_for", "due_shards") if name in options}
    table = IdempotencyTable(stack, requests, **times)
    step = Step.atomic("Move", fn=fn or own(stack, "Move"))
    return SagaStateMachine(stack, "Pay", requests=table, steps=[step], **options)


def _operated(stack: Stack, name: str = "payments", **options: Any) -> None:
    TransactionApi(stack, "Api", operations={name: Operation(saga=_saga(stack), **options)})


def _with_ledger(stack: Stack, id: str, *, holds: bool = False) -> LedgerTable:
    ledger = LedgerTable(stack, id, holds=holds)
    _saga(stack, fn=own(stack, "Move", environment=ledger.environment))
    return ledger


def _posting_to(stack: Stack, which: int) -> None:
    ledgers = [LedgerTable(stack, "Euros"), LedgerTable(stack, "Points")]
    _saga(stack, fn=own(stack, "Move", environment=ledgers[which].environment))


def _reconciled(stack: Stack, id: str = "Reconciler") -> None:
    TimeoutReconciler(stack, id, sagas=[_saga(stack)])


def _one_of_two_reconciled(stack: Stack, *, both: bool) -> None:
    saga, other = _saga(stack), saga_of(stack, Step.atomic("Move", fn=own(stack, "Other")), id="Refund")
    TimeoutReconciler(stack, "Reconciler", sagas=[saga, other] if both else [other])


def _by_lambda(stack: Stack, authorizer: str) -> None:
    function = own(stack, authorizer).function
    by = apigateway.TokenAuthorizer(stack, f"{authorizer}Authorizer", handler=function)
    operations = {"payments": _saga(stack)}
    TransactionApi(stack, "Api", operations=operations, authorizer=by, identity="context:tenant", snap_start=True)


def _by_pool(stack: Stack, pool: str) -> None:
    pools = [cognito.UserPool(stack, pool)]
    by = apigateway.CognitoUserPoolsAuthorizer(stack, "Authorizer", cognito_user_pools=pools)
    TransactionApi(stack, "Api", operations={"payments": _saga(stack)}, authorizer=by, identity="jwt")


def _http(stack: Stack, issuer: str) -> None:
    by = authorizers.HttpJwtAuthorizer("Authorizer", issuer, jwt_audience=["shop"])
    api = apigatewayv2.HttpApi(stack, "HttpApi")
    HttpTransactionApi(stack, "Api", api=api, operations={"payments": _saga(stack)}, authorizer=by, identity="jwt")


def _with_payloads(stack: Stack, id: str = "Payloads", keep_days: int = 430) -> None:
    saga = _saga(stack, payloads=PayloadBucket(stack, id, keep_days=keep_days))
    TransactionApi(stack, "Api", operations={"payments": saga})


def _one_of_two_with_payloads(stack: Stack, *, both: bool) -> None:
    bucket = PayloadBucket(stack, "Payloads")
    saga = _saga(stack, payloads=bucket if both else None)
    other = saga_of(stack, Step.atomic("Move", fn=own(stack, "Other")), id="Refund", payloads=bucket)
    TransactionApi(stack, "Api", operations={"payments": saga, "refunds": other})


def _with_callback(stack: Stack, *, id: str = "Warehouse", tokens: str = "Tokens") -> None:
    via = CallbackIntegration(stack, id, fn=own(stack, "HandOver"), tokens=TokenTable(stack, tokens))
    saga_of(stack, job(via), id="Pay")


def _with_intake(stack: Stack, id: str) -> None:
    _saga(stack)
    fn = StepFunction(stack, "Take", code=FUNCTIONS, handler="intake.handler")
    EventIntake(stack, id, fn=fn, operation="take", requests=IdempotencyTable(stack, "Taken"))


def _direct(stack: Stack, remember_for: Duration) -> None:
    _saga(stack)
    fn = DirectFunction(stack, "Direct", code=FUNCTIONS, handler="direct.handler")
    table = IdempotencyTable(stack, "DirectRequests", remember_for=remember_for, replay_for=Duration.days(2))
    TransactionApi(stack, "Api", operations={"quotes": DirectOperation(fn=fn, requests=table, previous=None)})


def _named(stack: Stack, name: str) -> None:
    table = _saga(stack).requests.table.node.default_child
    assert isinstance(table, dynamodb.CfnGlobalTable)
    table.table_name = name


def _published(stack: Stack, *, phase: bool, versions: Versions | None) -> None:
    fn = own(stack, "Move")
    fee = [Step.express("Fees", steps=[Step.atomic("Fee", fn=own(stack, "Fee"))])] if phase else []
    steps: list[Step | StepGroup] = [Step.atomic("Move", fn=fn, pivot=True), *fee]
    SagaStateMachine(stack, "Pay", requests=IdempotencyTable(stack, "Requests"), steps=steps, versions=versions)


def _renamed(of: Callable[[SagaStateMachine], IConstruct]) -> Build:
    """The saga, with another logical id of one of its resources."""

    def build(stack: Stack) -> None:
        resource = of(_saga(stack)).node.default_child
        assert isinstance(resource, CfnResource)
        resource.override_logical_id("Another")

    return build


def _with_outbox(stack: Stack, id: str) -> None:
    outbox = Outbox(stack, id, bus=events.EventBus(stack, "Bus"), source="shop")
    _saga(stack, fn=own(stack, "Move", environment=outbox.environment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change of one stack."""

    old: Build
    new: Build
    says: tuple[str, ...]
    status: int = 1


DAYS: Final = Duration.days
CASES: Final = {
    "Requests": Case(
        old=_operated,
        new=lambda stack: TransactionApi(stack, "Api", operations={"payments": _saga(stack, requests="Other")}),
        says=(
            "  IdempotencyTable Requests/Requests",
            "sagas in flight cannot settle",
            "operation Requests/payments is changed in ways that not all retried keys survive",
            "a key retried within 400 d is a new request",
        ),
    ),
    "Named": Case(
        old=lambda stack: _named(stack, "first"),
        new=lambda stack: _named(stack, "second"),
        says=("  IdempotencyTable Named/RequestsTable", " (first) -> Named/RequestsTable", " (second): "),
    ),
    "Log": Case(old=_saga, new=_renamed(lambda saga: saga.log.table), says=("  saga log Log/Pay", "-> Log/Another")),
    "Machine": Case(
        old=_saga,
        new=_renamed(lambda saga: saga.state_machine),
        says=("  state machine Machine/PayStateMachine", "-> Machine/Another: executions continue in the old one"),
    ),
    "Recovery": Case(
        old=_saga,
        new=_renamed(lambda saga: saga.recovery_machine),
        says=("  recovery machine Recovery/Pay", "-> Recovery/Another"),
    ),
    "Parked": Case(
        old=_saga,
        new=_renamed(lambda saga: saga.operators),
        says=("  operators' queue Parked/PayOperators", "-> Parked/Another", "messages of parked sagas"),
    ),
    "Called": Case(
        old=_saga,
        new=lambda stack: _saga(stack, fn=own(stack, "Other")),
        says=("  note: Called/MoveFunction", " is not called any more: sagas in flight that reach it fail at it"),
        status=0,
    ),
    "Published": Case(
        old=lambda stack: _published(stack, phase=True, versions=Versions()),
        new=lambda stack: _published(stack, phase=False, versions=Versions()),
        says=(
            "  Published/FeeFunction",
            "  Published/PayFees",
            " is not called any more: sagas that the alias starts in a version of before fail at it",
        ),
    ),
    "NotPublished": Case(
        old=lambda stack: _published(stack, phase=True, versions=Versions()),
        new=lambda stack: _published(stack, phase=True, versions=None),
        says=("NotPublished/Pay is unchanged",),
        status=0,
    ),
    "Ledger": Case(
        old=lambda stack: _with_ledger(stack, "Ledger"),
        new=lambda stack: _with_ledger(stack, "Other"),
        says=("stack Ledger is changed", "  LedgerTable Ledger/LedgerTable", "-> Ledger/OtherTable", "balances stay"),
    ),
    "Holds": Case(
        old=lambda stack: _with_ledger(stack, "Ledger", holds=True),
        new=lambda stack: _with_ledger(stack, "Ledger"),
        says=("  index due of LedgerTable Holds/LedgerTable", " -> none: open holds are not found"),
    ),
    "LedgerOfStep": Case(
        old=lambda stack: _posting_to(stack, 0),
        new=lambda stack: _posting_to(stack, 1),
        says=("  LedgerTable of LedgerOfStep/MoveFunction", " LedgerOfStep/EurosTable", "-> LedgerOfStep/PointsTable"),
    ),
    "Operation": Case(
        old=_operated,
        new=lambda stack: _operated(stack, "payouts"),
        says=("operation Operation/payments is changed", "  operation payments -> payouts: a key retried within 400 d"),
    ),
    "Identity": Case(
        old=_operated,
        new=lambda stack: _by_pool(stack, "Pool"),
        says=("  identity iam -> jwt: a key retried within 400 d is a new request",),
    ),
    "Lambda": Case(
        old=_operated,
        new=lambda stack: _by_lambda(stack, "First"),
        says=("  identity iam -> context:tenant: ",),
    ),
    "Pool": Case(
        old=lambda stack: _by_pool(stack, "Pool"),
        new=lambda stack: _by_pool(stack, "Other"),
        says=("  issuer of callers' tokens Pool/Pool", "-> Pool/Other"),
    ),
    "Issuer": Case(
        old=lambda stack: _http(stack, "https://one.example"),
        new=lambda stack: _http(stack, "https://two.example"),
        says=("  issuer of callers' tokens https://one.example -> https://two.example: ",),
    ),
    "Authorizer": Case(
        old=lambda stack: _by_lambda(stack, "First"),
        new=lambda stack: _by_lambda(stack, "Second"),
        says=(
            "operation Authorizer/payments is changed in ways that everything in it survives",
            "  note: authorizer Authorizer/FirstFunction",
        ),
        status=0,
    ),
    "KeySource": Case(
        old=_operated,
        new=lambda stack: _operated(stack, key_source=KeySource.natural("/order_id")),
        says=("  key_source the header -> ", "/order_id"),
    ),
    "Reconciler": Case(
        old=_reconciled,
        new=_saga,
        says=("  TimeoutReconciler Reconciler/ReconcilerFunction", "-> none: sagas in flight that are interrupted"),
    ),
    "Reconciled": Case(
        old=lambda stack: _one_of_two_reconciled(stack, both=True),
        new=lambda stack: _one_of_two_reconciled(stack, both=False),
        says=("  TimeoutReconciler Reconciled/ReconcilerFunction", "-> none: sagas in flight that are interrupted"),
    ),
    "Hold": Case(
        old=_reconciled,
        new=lambda stack: _reconciled(stack, "Other"),
        says=("  hold table Hold/ReconcilerHold", "-> Hold/OtherHold", "a hold that operators have placed"),
    ),
    "Remember": Case(
        old=_saga,
        new=lambda stack: _saga(stack, remember_for=DAYS(90)),
        says=("  remember_for 400 d -> 90 d: ", "a retry after that is a new request"),
    ),
    "Direct": Case(
        old=lambda stack: _direct(stack, DAYS(90)),
        new=lambda stack: _direct(stack, DAYS(45)),
        says=("operation Direct/quotes is changed", "  remember_for 90 d -> 45 d: "),
    ),
    "Replay": Case(
        old=_saga,
        new=lambda stack: _saga(stack, replay_for=DAYS(1)),
        says=("Replay/Pay is changed in ways that all sagas", "  note: replay_for 7 d -> 1 d: ", "gets 410"),
        status=0,
    ),
    "Shards": Case(
        old=_saga,
        new=lambda stack: _saga(stack, due_shards=8),
        says=("  due_shards 16 -> 8: records in shards 8 to 15 are not found",),
    ),
    "Rows": Case(
        old=_saga,
        new=lambda stack: _saga(stack, log_retention_days=100),
        says=("  note: log_retention_days 400 -> 100: ",),
        status=0,
    ),
    "Payloads": Case(
        old=_with_payloads,
        new=lambda stack: _with_payloads(stack, "Other"),
        says=("  PayloadBucket Payloads/PayloadsBucket", "-> Payloads/OtherBucket", "payloads stay in the old bucket"),
    ),
    "PayloadsOfOne": Case(
        old=lambda stack: _one_of_two_with_payloads(stack, both=True),
        new=lambda stack: _one_of_two_with_payloads(stack, both=False),
        says=("  PayloadBucket of PayloadsOfOne/ApiGatekeeperpayments", "-> none: payloads stay in the old bucket"),
    ),
    "Expiry": Case(
        old=lambda stack: _with_payloads(stack, keep_days=900),
        new=_with_payloads,
        says=("  keep_days of Expiry/PayloadsBucket", " 900 -> 430: payloads older than 430 d are deleted at once"),
    ),
    "Tokens": Case(
        old=_with_callback,
        new=lambda stack: _with_callback(stack, tokens="Other"),
        says=("  TokenTable Tokens/TokensTable", "-> Tokens/OtherTable", "callbacks that wait"),
    ),
    "Jobs": Case(
        old=_with_callback,
        new=lambda stack: _with_callback(stack, id="Other"),
        says=("  queue of a CallbackIntegration Jobs/Warehouse", "are not dispatched"),
    ),
    "Events": Case(
        old=lambda stack: _with_intake(stack, "Intake"),
        new=lambda stack: _with_intake(stack, "Other"),
        says=("  queue of an EventIntake Events/Intake", "-> Events/Other"),
    ),
    "Outbox": Case(
        old=lambda stack: _with_outbox(stack, "Outbox"),
        new=lambda stack: _with_outbox(stack, "Other"),
        says=("  Outbox Outbox/OutboxTable", "-> Outbox/OtherTable"),
    ),
}


def _busy(stack: Stack, *, later: bool, code: Path) -> None:
    """Everything, and later with harmless changes."""
    stack.template_options.description = "later" if later else "earlier"
    ledger = LedgerTable(stack, "Ledger")
    move = StepFunction(stack, "Move", code=code, handler="plain.handler", environment=ledger.environment)
    saga = _saga(
        stack,
        fn=move,
        payloads=PayloadBucket(stack, "Payloads", keep_days=500 if later else 430),
        remember_for=DAYS(500 if later else 400),
        due_shards=32 if later else 16,
    )
    operations = {"payments": saga, **({"payouts": saga} if later else {})}
    TransactionApi(stack, "Api", operations=operations, rate_limit=50 if later else 20)
    via = CallbackIntegration(stack, "Warehouse", fn=own(stack, "HandOver"))
    sagas = [saga, saga_of(stack, job(via), id="Pick")]
    TimeoutReconciler(stack, "Reconciler", sagas=sagas)
    if later:
        LedgerTable(stack, "Points")
        TokenTable(stack, "Tokens")
        metric = cloudwatch.Metric(namespace="N", metric_name="M")
        cloudwatch.Alarm(stack, "Added", metric=metric, threshold=1, evaluation_periods=1)


def _stacks(app: App, side: str, code: Path) -> str:
    for name, case in CASES.items():
        getattr(case, side)(Stack(app, name))
    _busy(Stack(app, "Busy"), later=side == "new", code=code)
    return app.synth().directory


@pytest.fixture(scope="module")
def assemblies(new_app: AppFactory, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """All cases in two assemblies, a stack for each."""
    changed = tmp_path_factory.mktemp("code")
    (changed / "plain.py").write_text((FUNCTIONS / "plain.py").read_text("utf-8") + "\nCHANGED = True\n", "utf-8")
    return {"old": _stacks(new_app(), "old", FUNCTIONS), "new": _stacks(new_app(), "new", changed)}


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
def test_loss_is_found(assemblies: Mapping[str, str], capsys: pytest.CaptureFixture[str], name: str) -> None:
    case = CASES[name]

    assert main(["diff", assemblies["old"], assemblies["new"], "--saga", f"{name}/Pay"]) == case.status

    said = capsys.readouterr().out
    assert [part for part in case.says if part not in said] == []


def test_harmless_changes_are_quiet(assemblies: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", assemblies["old"], assemblies["new"], "--saga", "Busy/Pay"]) == 0
    assert capsys.readouterr().out == "Busy/Pay is unchanged\n"


@pytest.mark.parametrize("side", ["old", "new"])
def test_same_assembly_is_unchanged(
    assemblies: Mapping[str, str], capsys: pytest.CaptureFixture[str], side: str
) -> None:
    assert main(["diff", assemblies[side], assemblies[side]]) == 0
    assert {line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()} == {"is unchanged"}


def test_document_names_sagas_operations_and_stacks(
    assemblies: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", assemblies["old"], assemblies["new"], "--json"]) == 1

    found = json.loads(capsys.readouterr().out)
    lost = {one.get("saga") or one.get("operation") or one["stack"] for one in found if not one["survives"]}
    assert {name.partition("/")[0] for name in lost} == {name for name, case in CASES.items() if case.status}
    (quotes,) = (one for one in found if one.get("operation") == "Direct/quotes")
    assert quotes["changes"][0]["what"] == "remember_for 90 d -> 45 d"
    assert {name for name in lost if "/" not in name} >= {"Ledger", "Tokens", "Payloads"}


def _spread(app: App, *, nested: str = "Inner", env: Environment | None = None, name: str | None = None) -> str:
    """A request table in another stack, a ledger in a nested one, and all that in a stage."""
    stage = Stage(app, "Prod", env=env)
    tables, shop = Stack(stage, "Tables"), Stack(stage, "Shop", stack_name=name)
    ledger = LedgerTable(NestedStack(shop, nested), "Ledger")
    requests = IdempotencyTable(tables, "Requests")
    move = own(shop, "Move", environment=ledger.environment)
    saga_of(shop, Step.atomic("Move", fn=move), id="Pay", requests=requests)
    return app.synth().directory


@pytest.fixture
def app_of(tmp_path: Path) -> Callable[[str, str], App]:
    def made(name: str, references: str = "strong") -> App:
        settings = {**context(), "@aws-cdk/core:defaultCrossStackReferences": references}
        return App(outdir=str(tmp_path / name), context=settings, analytics_reporting=False)

    return made


AppOf = Callable[..., App]


@pytest.mark.parametrize("references", ["strong", "weak"])
def test_references_between_stacks_are_followed(
    app_of: AppOf, capsys: pytest.CaptureFixture[str], references: str
) -> None:
    old = _spread(app_of("old"))

    assert main(["diff", old, _spread(app_of("same", references))]) == 0
    assert capsys.readouterr().out == "Prod/Shop/Pay is unchanged\n"
    assert main(["diff", old, _spread(app_of("new", references), nested="Other")]) == 1
    said = capsys.readouterr().out
    assert "stack Prod-Shop is changed" in said
    assert "  LedgerTable Prod-Shop/InnerNestedStack" in said


def test_stack_elsewhere_or_of_another_name_is_another_one(app_of: AppOf, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = (Environment(account="111111111111", region=region) for region in ("eu-west-1", "us-east-1"))
    old = _spread(app_of("old"), env=here)

    assert main(["diff", old, _spread(app_of("unknown"))]) == 0
    assert main(["diff", old, _spread(app_of("there"), env=there)]) == 1
    assert "  environment aws://111111111111/eu-west-1 -> aws://111111111111/us-east-1: " in capsys.readouterr().out
    assert main(["diff", old, _spread(app_of("named"), env=here, name="Other")]) == 1
    said = capsys.readouterr().out
    assert "stack Prod-Shop is changed" in said
    assert "  stack -> none: " in said
    assert "  saga log Prod-Shop/PayLogTable" in said


def test_stack_in_several_regions_is_several(app_of: AppOf, capsys: pytest.CaptureFixture[str]) -> None:
    def regions(app: App, changed: str) -> str:
        for region in ("eu-west-1", "us-east-1"):
            env = Environment(account="111111111111", region=region)
            _saga(Stack(app, region, stack_name="Shop", env=env), requests=changed if region == "us-east-1" else "R")
        return app.synth().directory

    assert main(["diff", regions(app_of("old"), "R"), regions(app_of("new"), "Other")]) == 1
    said = capsys.readouterr().out
    assert "eu-west-1/Pay is unchanged" in said
    assert "  IdempotencyTable Shop@111111111111/us-east-1/R" in said


WRONG: Final = {
    '{"version":2}': "got version 2",
    "[]": "got version []",
    "no JSON": "got something else",
    '{"version":1,"sagas":[{"path":"Test/Pay"}]}': "got one that lacks requests",
    '{"version":1,"ledgers":[{}]}': "got one that lacks table",
    '{"version":1}': "must have saga Test/Pay in its output CdkSagas",
    "": "must have saga Test/Pay in its output CdkSagas",
}


@pytest.mark.parametrize("text", WRONG)
def test_unknown_manifest_is_refused(app_of: AppOf, capsys: pytest.CaptureFixture[str], text: str) -> None:
    app = app_of("old")
    _saga(Stack(app, "Test"))
    folder = Path(app.synth().directory)
    file = folder / "Test.template.json"
    template = json.loads(file.read_text("utf-8"))
    template["Outputs"] = {"CdkSagas": {"Value": text}} if text else {}
    file.write_text(json.dumps(template), "utf-8")

    assert main(["diff", str(folder), str(folder)]) == 1

    said = capsys.readouterr().err
    assert WRONG[text] in said
    assert "again with this release of cdk-sagas" in said
    assert said.count("\n") == 1
