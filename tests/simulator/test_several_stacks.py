"""Stacks of one app run together: they share tables, refer to each other, and have equal names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest
from aws_cdk import App, CfnOutput, Environment, Fn, Stack, Stage
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns

from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)
from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import (
    Deployment,
    Intent,
    Workload,
    World,
    break_each_call,
    simulate,
    unused_grants,
)
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.deployment.blueprint import ApiSpec, RouteSpec
from constructs_lib.testing.simulator.errors import NotSimulatedError
from constructs_lib.testing.simulator.faults.climate import CALM
from constructs_lib.testing.simulator.report import SimulationReport
from constructs_lib.testing.simulator.run import simulate_once
from examples.funds_transfer.stack import FundsTransferStack

from .small_stack import FUNCTIONS, Transfers
from .support import RETURN, blueprint

BRANCHES: Final = ("East", "West")


def add_branch(
    scope: Any, name: str, operation: str, ledger: LedgerTable, requests: IdempotencyTable, *, may_post: bool = True
) -> Stack:
    """Add a stack with a saga, its API and a secret, whose ids are those of every branch."""
    stack = Stack(scope, name)
    move = StepFunction(
        stack, "TransferFunction", code=FUNCTIONS, handler="transfer.handler", environment=ledger.environment
    )
    if may_post:
        ledger.grant_post(move)
    saga = SagaStateMachine(stack, "Transfer", requests=requests, steps=[Step.atomic("Transfer", fn=move)])
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])
    TransactionApi(stack, "Api", operations={operation: saga}, cloud_watch_role=False)
    CfnOutput(stack, "SecretArn", value=secretsmanager.Secret(stack, "Secret").secret_arn)
    return stack


def branches(scope: Any, *, apart: bool = True, may_post: bool = True) -> list[Stack]:
    """Add two branches that share a ledger and, if they are not apart, a request table: then operations differ."""
    data = Stack(scope, "Data")
    ledger, shared = LedgerTable(data, "Ledger"), IdempotencyTable(data, "Requests")
    CfnOutput(data, "LedgerTableName", value=ledger.table.table_name)
    tables = {name: IdempotencyTable(data, f"{name}Requests") if apart else shared for name in BRANCHES}
    return [
        data,
        *(
            add_branch(scope, name, operation_of(name, apart=apart), ledger, tables[name], may_post=may_post)
            for name in BRANCHES
        ),
    ]


def operation_of(branch: str, *, apart: bool) -> str:
    """Name of a branch's operation."""
    return "transfers" if apart else f"transfers-{branch.lower()}"


class Branches(Transfers):
    """Transfers at both branches; clients use some keys at both."""

    def __init__(self, *, apart: bool = True) -> None:
        self._apart = apart

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        arns = {world.output("SecretArn", stack=name) for name in BRANCHES}
        assert len(arns) == len({world.secrets.signing(arn) for arn in arns}) == 2

    def intent(self, number: int, random: Random) -> Intent:
        key = random.choice((None, "shared-1", "shared-2"))
        body = {"from": "alice", "to": "bob", "amount": random.choice((1, 50, 5_000)), "currency": "EUR"}
        branch = random.choice(BRANCHES)
        return Intent(operation=operation_of(branch, apart=self._apart), body=body, stack=branch, key=key)

    def audit(self, world: World) -> Iterable[Invariant]:
        entries = [item for item in world.table(world.output("LedgerTableName")) if item["kind"]["S"] == "entry"]
        yield Invariant(name="the branches' ledger is read", checked=len(entries))


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    app = App()
    branches(app)
    with Deployment.of_stack(app) as made:
        yield made


@pytest.mark.parametrize("apart", [False, True], ids=["one request table", "each its own"])
def test_branches_keep_their_promise(apart: bool) -> None:
    app = App()
    branches(app, apart=apart)

    report = simulate(app, Branches(apart=apart), sagas=100)

    report.require_kept()
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    assert {machine.partition("-")[0] for machine, _ in report.coverage.states} == {*BRANCHES}
    assert report.faults > report.sagas


class _Everywhere(Branches):
    """One key at both branches."""

    def intent(self, number: int, random: Random) -> Intent:
        body = {"from": "alice", "to": "bob", "amount": 1, "currency": "EUR"}
        return Intent(operation="transfers", body=body, stack=BRANCHES[number % 2], key=f"order-{number // 2}")

    def audit(self, world: World) -> Iterable[Invariant]:
        sagas = [record["saga_id"]["S"] for table in world.parts.requests for record in world.records(table)]
        moments = {saga.partition("-")[2][:-4] for saga in sagas}
        yield Invariant(name="two sagas begin in one millisecond", checked=len(sagas) - len(moments))


def test_requests_at_both_branches_under_one_key_at_one_moment_are_two_sagas(deployment: Deployment) -> None:
    run = simulate_once(deployment, _Everywhere(), 0, sagas=20, coverage=Coverage(), climate=CALM, begins=[0] * 20)

    assert run.findings == []
    assert run.checked["two sagas begin in one millisecond"] > 0
    assert set(run.answers) == {200}


def test_a_stack_is_simulated_with_what_it_depends_on_and_nothing_else() -> None:
    app = App()
    _, _, west = branches(app)

    with Deployment.of_stack(west) as made:
        assert [*made.blueprint.outputs] == ["Data", "West"]
        simulate(made, Transfers(), sagas=20).require_kept()


def test_a_stage_is_simulated_with_its_stacks_as_if_it_were_here() -> None:
    app = App()
    stages = [
        Stage(app, region, env=Environment(account="111111111111", region=region))
        for region in ("eu-west-1", "us-west-2")
    ]
    stacks = [FundsTransferStack(stage, "FundsTransfer") for stage in stages]

    for one in (stages[0], stacks[1]):
        simulate(one, Transfers(), sagas=20).require_kept()
    with pytest.raises(NotSimulatedError, match="stacks must be for one region, got eu-west-1 and us-west-2; simulate"):
        simulate(app, Transfers(), sagas=1)


def test_stacks_of_one_name_are_refused() -> None:
    app = App()
    for stage in ("Test", "Prod"):
        Stack(Stage(app, stage), "Same", stack_name="same")

    with pytest.raises(NotSimulatedError, match="stacks must have different names, got same twice; give one stage"):
        simulate(app, Transfers(), sagas=1)


def test_what_no_stack_exports_is_refused() -> None:
    stack = Stack(App(), "Importing")
    sns.Topic(stack, "Topic", display_name=Fn.import_value("Elsewhere:Name"))

    with pytest.raises(NotSimulatedError, match="stack Importing imports Elsewhere:Name, which no stack before it"):
        simulate(stack, Transfers(), sagas=1)


class _Unnamed(Branches):
    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), stack=None)


class _Elsewhere(Branches):
    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), stack="Data")


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (_Unnamed(), r"stack of an Intent must be one of \['East', 'West'\], whose APIs have transfers, got"),
        (_Elsewhere(), "operation of an Intent must be one of a REST API or an HTTP API of Data, got 'transfers'"),
    ],
)
def test_request_whose_stack_is_not_clear_is_refused(deployment: Deployment, workload: Workload, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        simulate(deployment, workload, sagas=1)


def test_route_that_takes_any_path_makes_no_operation_unclear() -> None:
    made = blueprint(echo=RETURN)
    of_all = RouteSpec(method="ANY", path="$default", function="echo", authorization="NONE")
    own = RouteSpec(method="POST", path="/transfers", function="echo", authorization="NONE")
    made.apis["site"] = ApiSpec(id="site", stage="$default", routes=(of_all,), http=True, stack="Site")
    made.apis["api"] = ApiSpec(id="api", stage="prod", routes=(own,), stack="Money")

    with Deployment(made) as deployment:
        simulate_once(deployment, _Plain(), 1, sagas=1, coverage=Coverage(), climate=CALM)


class _Plain(Workload):
    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="transfers", body={})


class _Asking(Branches):
    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        with pytest.raises(
            KeyError, match=r"stack must be one of \['East', 'West'\], of which each has an output SecretA"
        ):
            world.output("SecretArn")
        with pytest.raises(KeyError, match="Data has an output SecretArn; there are"):
            world.output("SecretArn", stack="Data")


def test_output_of_several_stacks_is_asked_for_by_stack(deployment: Deployment) -> None:
    simulate(deployment, _Asking(), sagas=1)


class _First(Branches):
    """A transfer at the second branch."""

    def intent(self, number: int, random: Random) -> Intent:
        body = {"from": "alice", "to": "bob", "amount": 50, "currency": "EUR"}
        return Intent(operation="transfers", body=body, stack="West")


def test_calls_of_a_saga_are_broken_across_stacks(deployment: Deployment) -> None:
    report = break_each_call(deployment, _First(), part=(0, 8))

    report.require_kept()
    assert {where.partition("-")[0] for where, _ in report.coverage.faults if "-" in where} >= {"West"}
    assert not any(where.startswith("East-") for where, _ in report.coverage.faults)


def test_unused_grants_are_those_of_every_stack() -> None:
    app = App()
    branches(app)

    assert {grant.role.partition("-")[0] for grant in unused_grants(app, _First())} == {*BRANCHES}


@pytest.fixture(scope="module")
def unable() -> Iterator[Deployment]:
    """The branches, whose functions may not post."""
    app = App()
    branches(app, may_post=False)
    with Deployment.of_stack(app) as made:
        yield made


def test_a_role_needs_its_right_on_a_table_of_another_stack(unable: Deployment) -> None:
    assert "permission" in _kinds(simulate(unable, Branches(), sagas=20))


class _Denied(Branches):
    """Transfers; notes machines whose step was not allowed to do something."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: set[str] = set()

    def audit(self, world: World) -> Iterable[Invariant]:
        denied = {saga for saga, by_step in world.functions.raised.items() if "AccessDenied" in str(by_step)}
        executions = world.machines.executions.values()
        self.machines |= {execution.machine.name for execution in executions if execution.name in denied}
        return super().audit(world)


def test_a_release_changes_every_stack(deployment: Deployment, unable: Deployment) -> None:
    workload = _Denied()
    simulate(deployment, workload, sagas=60, releases=[deployment]).require_kept()
    assert workload.machines == set()

    simulate(deployment, workload, sagas=100, releases=[unable])
    assert {machine.partition("-")[0] for machine in workload.machines} == {*BRANCHES}


def _kinds(report: SimulationReport) -> set[str]:
    return {finding.kind for run in report.violated for finding in run.findings}
