"""Operators of a run hold reconcilers, and release them; nothing that is held is recovered meanwhile."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

import pytest

from constructs_lib.testing.simulator import Climate, Deployment, Event
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.run import START, RunResult, simulate_once

from .beyond_examples.workloads import Hosted, Operated
from .conftest import Deployed
from .drawn.assembly import drawn_assembly
from .drawn.sagas import drawn_saga
from .drawn.workload import Drawn
from .examples import assembly_of
from .paths import STACKS
from .workloads.transfers import Transfers

pytestmark = pytest.mark.proof

_LINE: Final = re.compile(
    r"(?P<moment>\d\d \d\d:\d\d:\d\d\.\d{3})  (?:"
    r"operator +(?P<act>holds|releases) (?P<held>every saga|\S+): done"
    r"|\S*Reconciler\S* +states:StartExecution .*?(?P<saga>[a-z2-7]{26}-\w+))"
)
_LOOKS_END: Final = timedelta(minutes=1)
"""After it, no action is under way that began before a hold."""


def _stopped(deployed: Deployed, seed: int) -> RunResult:
    """A run in which many executions are stopped, and nothing else goes wrong."""
    climate = Climate(events={Event.STOP: 0.8}, ends=START + 3_600 * SECOND)
    return simulate_once(
        deployed("funds_transfer"), Transfers(), seed, sagas=10, coverage=Coverage(), climate=climate, traced=True
    )


def test_what_is_held_is_recovered_only_after_its_release(deployed: Deployed) -> None:
    recovered = held_then = 0
    for seed in range(20):
        result = _stopped(deployed, seed)
        assert not result.findings
        held: dict[str, datetime] = {}
        ever: set[str] = set()
        for found in filter(None, map(_LINE.match, result.trace)):
            moment = datetime.strptime(f"{found['moment']}+0000", "%d %H:%M:%S.%f%z")
            if found["act"] == "holds":
                held[found["held"]] = moment
                ever.add(found["held"])
            elif found["act"] == "releases":
                del held[found["held"]]
            else:
                for name in {"every saga", found["saga"]} & held.keys():
                    assert moment - held[name] <= _LOOKS_END, found[0]
                recovered += 1
                held_then += bool({"every saga", found["saga"]} & ever)
        assert not held
    assert recovered > held_then > 0


@pytest.mark.parametrize("cancels", [False, True])
def test_operators_who_ask_a_function_break_nothing(cancels: bool) -> None:
    """Operators propose, confirm, repair and resume by its function, whatever else goes wrong."""
    workload = Operated(Hosted(), cancels=cancels)
    with Deployment.of_assembly(assembly_of(STACKS["step host, operated"])) as deployment:
        for seed in range(20):
            assert simulate_once(deployment, workload, seed, sagas=6, coverage=Coverage()).findings == [], seed

    assert workload.answered["repaired"] > 100
    assert (workload.answered["cancelled"] > 10) is cancels


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("first", range(0, 8, 4))
def test_operators_who_ask_about_drawn_sagas_break_nothing(first: int, cancels: bool) -> None:
    """One operator proposes and repairs, another confirms; they resume several parked sagas by one list."""
    sagas = [drawn_saga(first + number) for number in range(4)]
    workload = Operated(Drawn(sagas), cancels=cancels)
    with Deployment.of_assembly(drawn_assembly(sagas, operated=True)) as deployment:
        for seed in range(first, first + 6):
            assert simulate_once(deployment, workload, seed, sagas=10, coverage=Coverage()).findings == [], seed

    assert workload.answered["repaired"] > 0
    assert (workload.answered["cancelled"] > 0) is cancels
