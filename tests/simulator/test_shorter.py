"""A failed run becomes shorter: what it does not need is left out."""

from __future__ import annotations

from constructs_lib.testing.simulator import Climate, Event, Outage, Trouble
from constructs_lib.testing.simulator.checks.findings import Finding
from constructs_lib.testing.simulator.run import RunResult

from .shorter import Budget, Failure, shorter, shortest

_OUTAGES = (Outage(what="dynamodb", begins=0, ends=1, how=Trouble.THROTTLE),)
_EVERYTHING = Climate(
    troubles=dict.fromkeys(Trouble, 0.1),
    events=dict.fromkeys(Event, 0.1),
    outages=_OUTAGES,
    index_lag=1,
    commit_delay=1,
    secret_lag=1,
    skew=1,
    page=1,
)


def _found(clients: int = 10) -> Failure:
    return Failure(seed=0, clients=clients, climate=_EVERYTHING, effort=clients, result=_result(0, clients, "promise"))


def _result(seed: int, clients: int, *kinds: str) -> RunResult:
    result = RunResult(seed=seed, sagas=clients, steps=1)
    result.findings = [Finding(kind, "it moved twice") for kind in kinds]
    result.trace = ["a line"] * (20 - seed % 20)
    return result


def test_only_what_a_failure_needs_is_left() -> None:
    def run(failure: Failure) -> RunResult:
        climate = failure.climate
        needed = {Event.STOP, Event.REDRIVE} <= climate.events.keys() and Trouble.HOLD in climate.troubles
        fails = needed and climate.skew and failure.clients >= 2 and failure.seed % 3 == 0
        return _result(failure.seed, failure.clients, *(["promise"] if fails else ["another"]))

    less = shorter(_found(), run, Budget(100_000))

    needs = {Event.STOP: 0.1, Event.REDRIVE: 0.1}
    assert less.clients == 2
    assert less.climate == Climate(events=needs, troubles={Trouble.HOLD: 0.1}, skew=1)
    assert less.kinds == {"promise"}


def test_shortest_trace_of_the_next_seeds_is_taken() -> None:
    def run(failure: Failure) -> RunResult:
        return _result(failure.seed, failure.clients, "promise")

    assert len(shortest(_found(clients=1), run, Budget(100)).result.about()) == 1
    # Only three more runs are paid for.
    assert len(shortest(_found(clients=1), run, Budget(3)).result.about()) == 18


def test_failure_that_needs_everything_stays() -> None:
    def run(failure: Failure) -> RunResult:
        fails = failure.climate == _EVERYTHING and failure.clients == 10
        return _result(failure.seed, failure.clients, *(["promise"] if fails else []))

    assert shorter(_found(), run, Budget(100_000)) == _found()
