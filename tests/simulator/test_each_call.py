"""Each call of each way of the examples is broken in each way, and executions end before each state.

A run of the tests takes every third fault, from one of the first three on, which it draws; ``make samples`` takes all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import (
    Climate,
    Deployment,
    Event,
    Intent,
    Planned,
    Trouble,
    World,
    break_each_call,
    simulate,
)
from constructs_lib.testing.simulator.checks.findings import Finding
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.run import START, RunResult
from saga_runtime.protocol import StepStatus
from tests.sampling import a_third

from .conftest import Deployed
from .drawn.assembly import drawn_assembly
from .drawn.sagas import DrawnSaga, DrawnStep
from .drawn.workload import Drawn
from .examples import EXAMPLES
from .workloads.carts import UNANSWERED
from .workloads.faces import Faces, Unreserved
from .workloads.transfers import Transfers, Weakened

pytestmark = pytest.mark.proof

WAYS: Final = (
    ("funds_transfer", 19, "COMPLETED"),  # within one ledger
    ("funds_transfer", 2, "COMPLETED"),  # to the partner
    ("funds_transfer", 17, "FAILED"),  # refused by the partner
    ("order_processing", 0, "COMPLETED"),
    ("order_processing", 1, "FAILED"),  # the card is declined
    ("order_processing", 6, "FAILED"),  # unknown goods
    ("agentic_payout", 2, "COMPLETED"),
    ("agentic_payout", 0, "FAILED"),  # more than the agent may spend
    ("cart_fulfilment", 1, "COMPLETED"),
    ("cart_fulfilment", 3, "FAILED"),  # the card is declined
)
"""Seeds whose first intent goes each way."""
INVESTIGATED: Final = {"cart_fulfilment": len(UNANSWERED)}
"""Sagas that events begin in each run, and that complete."""


@pytest.mark.parametrize(("name", "seed", "status"), WAYS, ids=str)
def test_saga_keeps_its_promise_with_any_broken_call(name: str, seed: int, status: str, deployed: Deployed) -> None:
    _, parts = part = a_third()
    report = break_each_call(deployed(name), EXAMPLES[name].workload(), seed=seed, part=part)

    report.require_kept()
    statuses = Counter(report.statuses)
    statuses["COMPLETED"] -= INVESTIGATED.get(name, 0) * report.runs
    assert statuses.most_common(1)[0][0] == status
    assert report.runs > 70 / parts
    # Each kind was tried: a plan for a call that is not made would break nothing.
    assert {kind for _, kind in report.coverage.faults} >= {*map(str, _TRIED)}


def test_direct_operations_have_their_effect_once_with_any_broken_call(deployed: Deployed) -> None:
    _, parts = part = a_third()
    report = break_each_call(deployed("wallet"), Faces(), seed=2, part=part)

    report.require_kept()
    assert set(report.statuses) == {"COMPLETED", "FAILED"}
    assert report.runs > 600 / parts


def test_direct_operation_without_its_reservation_is_found(deployed: Deployed) -> None:
    deployment = deployed("wallet")
    of = [_named(deployment, "TerminalPaymentsFunction")]
    report = break_each_call(deployment, Unreserved(), seed=2, of=of, drawn=10)
    kinds = {finding.kind for run in report.violated for finding in run.findings}
    assert {"each request of a face has its effect once, and one response"} < kinds


_TRIED: Final = (
    *(Trouble.KILL_BEFORE, Trouble.KILL_AFTER, Trouble.LOSE_REQUEST, Trouble.LOSE_ANSWER, Trouble.HOLD),
    *(Trouble.LATE_REQUEST, Event.STOP, Event.TIME_OUT),
)


def _named(deployment: Deployment, part: str) -> str:
    """Physical name of the function or state machine that has a part in its name."""
    blueprint = deployment.blueprint
    (found,) = (name for name in (*blueprint.functions, *(m.name for m in blueprint.machines.values())) if part in name)
    return found


@pytest.mark.parametrize(
    ("of", "what", "how", "times"),
    [
        ("TransferStateMachine", "Settle completed", Event.STOP, 1),  # taken over, and completed
        ("TransferStateMachine", "Debit", Event.TIME_OUT, 1),  # taken over, and undone
        ("ApiGatekeepertransfers", "stepfunctions:StartExecution", Trouble.KILL_BEFORE, 40),  # started
    ],
    ids=str,
)
def test_reconciler_that_dies_at_any_call_loses_no_saga(
    of: str, what: str, how: Event | Trouble, times: int, deployed: Deployed
) -> None:
    deployment = deployed("funds_transfer")
    interrupted = Planned(of=_named(deployment, of), what=what, nth=1, how=how, times=times)
    reconciler = _named(deployment, "ReconcilerFunction")

    report = break_each_call(deployment, Transfers(), seed=2, after=[interrupted], of=[reconciler], part=a_third())

    report.require_kept()
    calls = {where.partition(" ")[2] for where, _ in report.coverage.faults if where.startswith(reconciler)}
    assert {"dynamodb:Query", "dynamodb:GetItem", "stepfunctions:StartExecution"} <= calls


class _Contradicted(Drawn):
    """A job whose provider refuses it, and does it after all."""

    late = False

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        contradicts = {Event.PROVIDER_CONTRADICTS: 1.0}
        world.weather.climate = replace(world.weather.climate, events=contradicts, ends=START + 3_600 * SECOND)

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        return replace(intent, body={**intent.body, "behave": {}})

    def audit(self, world: World) -> Iterable[Invariant]:
        self.late |= any(StepStatus.APPLIED_LATE in seen for seen in world.rows_seen.values())
        yield from super().audit(world)


def test_reconciler_that_dies_at_any_call_compensates_each_late_effect() -> None:
    job = DrawnStep(name="S1", kind="job", undo=True)
    saga = DrawnSaga(nodes=(job, DrawnStep(name="S2", kind="atomic", pivot=True)))
    workload = _Contradicted([saga], only=[0])
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment:
        reconciler = _named(deployment, "Reconciler0")
        report = break_each_call(deployment, workload, of=[reconciler], part=a_third())

    report.require_kept()
    assert workload.late
    calls = {where.partition(" ")[2] for where, _ in report.coverage.faults if where.startswith(reconciler)}
    assert {"dynamodb:Query", "stepfunctions:DescribeExecution", "stepfunctions:StartExecution"} <= calls


def test_missing_condition_is_found(deployed: Deployed) -> None:
    deployment = deployed("funds_transfer")
    report = break_each_call(deployment, Weakened(), seed=2, of=[_named(deployment, "CreditFunction")])
    kinds = {finding.kind for run in report.violated for finding in run.findings}
    assert kinds & {"each step is done and undone once", "log and ledger agree"}


def test_changed_response_is_a_finding(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deployed("funds_transfer")
    call = (_named(deployment, "DebitFunction"), "dynamodb:TransactWriteItems")

    def run(*_: object, climate: Climate, seed: int = 0, **__: object) -> RunResult:
        broken = climate.planned
        lasting = bool(broken) and broken is not None and broken[0].times > 1
        result = RunResult(seed=seed, sagas=1, met={call: 1}, responses=[(500 if broken else 200, "")])
        result.findings = [Finding("promise", "lasting")] if lasting else []
        return result

    monkeypatch.setattr("constructs_lib.testing.simulator.enumeration.simulate_once", run)
    report = break_each_call(deployment, Transfers())
    kinds = [finding.kind for found in report.violated for finding in found.findings]
    # A fault that lasts may change an answer.
    assert Counter(kinds) == {"one fault changes no answer": 5, "promise": 3}


def test_parts_are_all_faults_together(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[Planned] = []
    met = {(_named(deployed("funds_transfer"), f"{name}Function"), "dynamodb:Query"): 2 for name in ("Debit", "Credit")}

    def run(*_: object, climate: Climate, seed: int = 0, **__: object) -> RunResult:
        broken.extend(climate.planned or ())
        return RunResult(seed=seed, sagas=1, met=met, responses=[(200, "")])

    def faults(part: tuple[int, int]) -> list[Planned]:
        broken.clear()
        break_each_call(deployed("funds_transfer"), Transfers(), part=part)
        return list(broken)

    monkeypatch.setattr("constructs_lib.testing.simulator.enumeration.simulate_once", run)
    every, parts = faults((0, 1)), [faults((number, 3)) for number in range(3)]
    assert len(every) == 2 * 2 * 8
    assert sorted(map(repr, every)) == sorted(repr(planned) for part in parts for planned in part)
    assert [len({planned.how for planned in part}) for part in parts] == [len({planned.how for planned in every})] * 3


@pytest.mark.parametrize("part", [(3, 3), (-1, 3), (0, 0), (0, True), [0, 1], 1])
def test_part_that_there_is_not_is_refused(part: Any, deployed: Deployed) -> None:
    with pytest.raises(ValueError, match="part must be a number from 0 on and of how many, got"):
        break_each_call(deployed("funds_transfer"), Transfers(), part=part)


def test_call_is_broken_as_often_as_planned(deployed: Deployed) -> None:
    deployment = deployed("funds_transfer")
    planned = Planned(
        of=_named(deployment, "DebitFunction"),
        what="dynamodb:TransactWriteItems",
        nth=1,
        how=Trouble.KILL_AFTER,
        times=2,
    )
    report = simulate(deployment, Transfers(), sagas=1, seed=2, climate=Climate(planned=(planned,)))
    report.require_kept()
    assert report.faults == 2
    assert list(report.coverage.faults) == [(f"{planned.of} {planned.what}", "kill after")]
