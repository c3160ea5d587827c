"""Lists of executions that run: read when one by one would take too many calls, once, and from where they stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from benchmarks.reconciler import QUOTAS
from benchmarks.reconciler_open import DEAD, measured
from saga_runtime.recovery.running import ASKED_ONE_BY_ONE, PAGE, SPARE_MS, Running

MACHINE, OTHER = "arn:aws:states:eu-west-1:1:stateMachine:A", "arn:aws:states:eu-west-1:1:stateMachine:B"
HOUR_MS = 3_600_000


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "ListExecutions")


@dataclass
class States:
    """Step Functions, as far as it lists.

    Attributes:
        names: executions that run, by state machine.
        refused: what the calls to come raise; None: nothing.
        asked: state machine and page of each call.
    """

    names: dict[str, list[str]] = field(default_factory=dict)
    refused: list[ClientError | None] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def list_executions(self, **asked: Any) -> Any:
        """ListExecutions."""
        assert (asked["statusFilter"], asked["maxResults"]) == ("RUNNING", PAGE)
        first = int(asked.get("nextToken", 0))
        self.asked.append((asked["stateMachineArn"], str(first)))
        refused = self.refused.pop(0) if self.refused else None
        if refused is not None:
            raise refused
        names = self.names.get(asked["stateMachineArn"], [])
        more = {"nextToken": str(first + PAGE)} if first + PAGE < len(names) else {}
        return {"executions": [{"name": name} for name in names[first : first + PAGE]], **more}


def running(states: States, remaining_ms: Callable[[], int] = lambda: HOUR_MS) -> Running:
    client: Any = states
    return Running(step_functions=lambda: client, remaining_ms=remaining_ms, lock=threading.Lock())


def past_the_first(found: Running, machine: str = MACHINE) -> None:
    """Ask for as many as are asked for one by one."""
    for n in range(ASKED_ONE_BY_ONE):
        assert not found.includes(machine, f"first-{n}")


def test_few_executions_are_never_listed() -> None:
    states = States({MACHINE: ["first-0"]})

    past_the_first(running(states))

    assert states.asked == []


def test_many_executions_are_listed_once() -> None:
    names = [f"e-{n:05d}" for n in range(2 * PAGE + 1)]
    states = States({MACHINE: names})
    found = running(states)
    past_the_first(found)

    assert all(found.includes(MACHINE, name) for name in names)
    assert not found.includes(MACHINE, "ended")
    assert [page for _, page in states.asked] == ["0", str(PAGE), str(2 * PAGE)]
    assert (found.known, found.pages) == (len(names), 3)


def test_each_state_machine_has_its_own_list() -> None:
    states = States({MACHINE: ["a"], OTHER: ["b"]})
    found = running(states)
    past_the_first(found)

    assert (found.includes(MACHINE, "a"), found.includes(OTHER, "b")) == (True, False)
    assert states.asked == [(MACHINE, "0")]


def test_a_refused_list_continues_from_the_refused_page() -> None:
    names = [f"e-{n:05d}" for n in range(PAGE + 1)]
    states = States({MACHINE: names}, refused=[None, refusal("ThrottlingException"), None])
    found = running(states)
    past_the_first(found)

    with pytest.raises(ClientError):
        found.includes(MACHINE, names[-1])

    assert found.includes(MACHINE, names[-1])
    assert [page for _, page in states.asked] == ["0", str(PAGE), str(PAGE)]


def test_of_a_state_machine_that_is_gone_nothing_is_listed() -> None:
    states = States(refused=[refusal("StateMachineDoesNotExist")])
    found = running(states)
    past_the_first(found)

    assert not found.includes(MACHINE, "a")
    assert not found.includes(MACHINE, "b")
    assert len(states.asked) == 1


def test_list_that_is_denied_is_an_error() -> None:
    found = running(States(refused=[refusal("AccessDeniedException")]))
    past_the_first(found)

    with pytest.raises(ClientError):
        found.includes(MACHINE, "a")


def test_no_page_is_requested_when_the_time_is_up() -> None:
    states = States({MACHINE: ["a"]})
    found = running(states, remaining_ms=lambda: SPARE_MS - 1)
    past_the_first(found)

    assert not found.includes(MACHINE, "a")
    assert states.asked == []


def test_threads_share_one_list() -> None:
    states = States({MACHINE: ["a"]})
    found = running(states)
    past_the_first(found)
    threads = [threading.Thread(target=found.includes, args=(MACHINE, "a")) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(states.asked), found.known) == (1, 12)


# Sagas that wait for days, and dead ones among them; a sweep each minute, in virtual time.

FEW = {**QUOTAS, "DescribeExecution": (20, 1)}
"""For as many sagas as a test can run what the default quotas are for tens of thousands."""


@pytest.mark.proof
def test_running_sagas_starve_dead_ones_if_each_is_described() -> None:
    found = measured(2_000, quotas=FEW, lists=False, minutes=18)

    assert found["complete_looks"] < found["looks"] / 2
    assert found["found"] < DEAD
    assert found["oldest_overdue_seconds"] > 300


@pytest.mark.proof
def test_dead_sagas_are_found_within_two_looks_among_thousands_that_run() -> None:
    found = measured(2_000, quotas=FEW, minutes=18)

    assert (found["complete_looks"], found["found"]) == (found["looks"], DEAD)
    assert found["found_after_minutes"]["last"] <= 2
    assert found["oldest_overdue_seconds"] <= 120
