"""Faults in AWS, drawn from a seed: failing calls and ends of executions; and the report of the plan.

Everything is decided per call: whether the n-th call of an operation by a function is hit, and how, is the same in each
run with this seed, and so is the n-th time that a state is reached. The saga that makes the n-th call depends on how
the machine interleaves them, and is not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from constructs_lib.testing import Fault, Share, StopAt
from constructs_lib.testing.fault_plan import CONFLICTING_CALLS, Action, Attempts, Moment, Planned, StopStatus
from constructs_lib.testing.faults import FaultReport

from .world import Machine

SHARE: Final = 0.05
"""Of all AWS calls."""
CONFLICT_SHARE: Final = 0.01
"""Faults of writes, in addition."""
STOP_SHARE: Final = 0.006
"""Of the times that a state is reached, and of the times that it is left."""
HELD_SECONDS: Final = 3.0
"""How long an answer is held back, in the emulator's time."""
_DELAY_OF_STATES: Final = 0.002

#: Of 100 faults in functions: action, moment, attempts, seconds of a delay (None: until the caller is gone).
_OF_FUNCTIONS: Final[Sequence[tuple[int, Action, Moment, Attempts, float | None]]] = (
    (8, Action.KILL, Moment.BEFORE, Attempts.FIRST, None),
    (8, Action.KILL, Moment.AFTER, Attempts.FIRST, None),
    (7, Action.DROP, Moment.BEFORE, Attempts.FIRST, None),
    (7, Action.DROP, Moment.AFTER, Attempts.FIRST, None),
    (5, Action.DROP, Moment.BEFORE, Attempts.ALL, None),
    (5, Action.DROP, Moment.AFTER, Attempts.ALL, None),
    (7, Action.DELAY, Moment.BEFORE, Attempts.FIRST, HELD_SECONDS),
    (7, Action.DELAY, Moment.AFTER, Attempts.FIRST, HELD_SECONDS),
    (2, Action.DELAY, Moment.BEFORE, Attempts.FIRST, None),
    (1, Action.DELAY, Moment.AFTER, Attempts.FIRST, None),
    (10, Action.THROTTLE, Moment.BEFORE, Attempts.FIRST, None),
    (8, Action.THROTTLE, Moment.BEFORE, Attempts.ALL, None),
    (7, Action.ERROR, Moment.BEFORE, Attempts.FIRST, None),
    (7, Action.ERROR, Moment.AFTER, Attempts.FIRST, None),
    (5, Action.ERROR, Moment.BEFORE, Attempts.ALL, None),
    (6, Action.ERROR, Moment.AFTER, Attempts.ALL, None),
)
#: Of 100 faults in the calls of state machines. Delays are separate: they are planned for each machine.
_OF_STATES: Final[Sequence[tuple[int, Action, Moment]]] = (
    (22, Action.DROP, Moment.BEFORE),
    (22, Action.DROP, Moment.AFTER),
    (20, Action.ERROR, Moment.BEFORE),
    (20, Action.ERROR, Moment.AFTER),
    (16, Action.THROTTLE, Moment.BEFORE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One thing that went wrong.

    Attributes:
        at: when, in the emulator's time.
        kind: what happened: `kill before`, `stopped`, …
        caller: function or state machine, by its physical name.
        call: which call, or which state.
    """

    at: datetime
    kind: str
    caller: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """All faults of a run.

    Attributes:
        calls: AWS calls that functions and state machines made while faults were planned, without retries by SDKs.
        faults: calls that were hit, by fault.
        stops: executions that were ended, by how.
        hits: of both, as far as they are reported one by one.
        troubles: requests, jobs and events of providers that were hit, by provider and action.
        suppressed: first letters of the sagas whose status events were lost.
    """

    calls: Mapping[str, int]
    faults: Mapping[str, int]
    stops: Mapping[str, int]
    hits: Sequence[Hit]
    troubles: Mapping[str, Mapping[str, int]]
    suppressed: str

    @property
    def share(self) -> float:
        """Share of all calls that were hit."""
        return sum(self.faults.values()) / max(1, sum(self.calls.values()))


def planned(machines: Sequence[Machine], seed: int, share: float, stops: float) -> list[Planned]:
    """The faults in AWS: of functions, of state machines, and where executions end."""
    faults: list[Planned] = []
    standard = [machine for machine in machines if not machine.express]
    for machine in standard:
        faults += [
            Fault(
                function=f"states:{machine.name}", call="*", action=Action.DELAY, moment=moment, seconds=HELD_SECONDS,
                on=Share(_DELAY_OF_STATES, seed * 1_000 + number),
            )
            for number, moment in enumerate(Moment)
        ]  # fmt: skip
    for number, (part, action, moment, attempts, seconds) in enumerate(_OF_FUNCTIONS):
        spent = sum(one[0] for one in _OF_FUNCTIONS[:number]) / 100
        faults.append(
            Fault(
                function="*", call="*", action=action, moment=moment, attempts=attempts, seconds=seconds,
                on=Share(_alone(share, part / 100, spent), seed * 1_000 + 100 + number),
            )
        )  # fmt: skip
    for number, (part, action, moment) in enumerate(_OF_STATES):
        spent = sum(one[0] for one in _OF_STATES[:number]) / 100
        faults.append(
            Fault(
                function="states:*", call="*", action=action, moment=moment,
                on=Share(_alone(share, part / 100, spent), seed * 1_000 + 200 + number),
            )
        )  # fmt: skip
    for number, call in enumerate(sorted(CONFLICTING_CALLS)):
        faults += [
            Fault(
                function=caller,
                call=call,
                action=Action.CONFLICT,
                on=Share(CONFLICT_SHARE, seed * 1_000 + 300 + number),
            )
            for caller in ("*", "states:*")
        ]
    return [*faults, *_planned_stops(machines, seed, stops)]


def _planned_stops(machines: Sequence[Machine], seed: int, share: float) -> Iterator[StopAt]:
    """At the door of every state: ended as if by a person, or because it took too long."""
    ways = ((Moment.BEFORE, StopStatus.ABORTED), (Moment.BEFORE, StopStatus.TIMED_OUT),
            (Moment.AFTER, StopStatus.ABORTED), (Moment.AFTER, StopStatus.TIMED_OUT))  # fmt: skip
    for machine in machines:
        if machine.express:
            continue
        for state in machine.states:
            draw = random.Random(f"{seed}/{machine.name}/{state}")
            for moment, status in draw.sample(ways, 2):
                on = Share(share, draw.getrandbits(48))
                yield StopAt(machine=machine.name, state=state, moment=moment, status=status, on=on)


def _alone(share: float, part: float, spent: float) -> float:
    """The probability that makes a fault hit its part of a share, when those before it have taken theirs."""
    return share * part / (1 - share * spent)


# --- The emulator's report


def _name(fault: Fault) -> str:
    if fault.action in {Action.THROTTLE, Action.CONFLICT}:
        return str(fault.action)
    return f"{fault.action} {fault.moment}"


def calls_of(report: FaultReport) -> dict[str, int]:
    """Calls of functions and of state machines: a fault that matches every call counts them."""
    found = {"functions": 0, "state machines": 0}
    for outcome in report.outcomes:
        fault = outcome.planned
        if isinstance(fault, Fault) and fault.call == "*" and fault.function in {"*", "states:*"}:
            kind = "state machines" if fault.is_of_state_machine else "functions"
            found[kind] = max(found[kind], outcome.matched)
    return found


def faults_of(report: FaultReport) -> dict[str, int]:
    found: Counter[str] = Counter()
    for outcome in report.outcomes:
        if isinstance(outcome.planned, Fault):
            found[_name(outcome.planned)] += outcome.fired
    return {name: count for name, count in sorted(found.items()) if count}


def stops_of(report: FaultReport) -> dict[str, int]:
    found: Counter[str] = Counter()
    for outcome in report.outcomes:
        if isinstance(outcome.planned, StopAt):
            found[_how(outcome.planned)] += outcome.fired
    return {name: count for name, count in sorted(found.items()) if count}


def _how(stop: StopAt) -> str:
    return "timed out" if stop.status == StopStatus.TIMED_OUT else "stopped"


def hits_of(report: FaultReport) -> Iterator[Hit]:
    for outcome in report.outcomes:
        fault = outcome.planned
        kind = _name(fault) if isinstance(fault, Fault) else _how(fault)
        for firing in outcome.firings:
            yield Hit(at=firing.at, kind=kind, caller=firing.caller, call=firing.call)
