"""Decides which calls are hit, counts them, and remembers what happened. Knows nothing of HTTP or of the emulator."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from constructs_lib.testing.fault_plan import Attempts, Fault, Moment, Planned, StopAt, contains, to_wire
from constructs_lib.testing.fault_schedules import Occurrence

#: Firings of a fault that are listed one by one; further ones are only counted.
_FIRINGS_TOLD: Final = 1000
#: How many logical calls are remembered, so that their retries are known as such.
_LOGICAL_CALLS_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt of a call, as it arrives.

    Attributes:
        caller: Physical name of the function, or `states:` and that of the state machine.
        call: Service and operation.
        body: The request.
        logical_id: What all attempts of one logical call have in common; None if nothing ever repeats it.
        attempt: 1 for the first attempt.
        request_id: The caller's Lambda invocation.
        execution: Name of the Step Functions execution that the caller works for, where that is known.
        state: Name of the state that makes the call, for a state machine.
    """

    caller: str
    call: str
    body: bytes = b""
    logical_id: str | None = None
    attempt: int = 1
    request_id: str | None = None
    execution: str | None = None
    state: str | None = None


@dataclass(slots=True, kw_only=True)
class Record:
    """Data that a recording keeps of a call."""

    at: float
    caller: str
    call: str
    logical_id: str | None
    attempt: int
    request_id: str | None
    execution: str | None
    state: str | None
    status: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One time that a fault hit a call (or an execution)."""

    at: float
    caller: str
    call: str
    request_id: str | None
    execution: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Decision about a call.

    Attributes:
        fault: The fault that hits it, if any.
        fault_id: Its id.
        note: Reports to the recordings how the call ended.
    """

    fault: Fault | None
    fault_id: str | None
    note: Callable[[int | None], None]


@dataclass(slots=True, kw_only=True)
class _Entry:
    planned: Planned
    number: int = 0
    caller_numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    selected: OrderedDict[str, bool] = field(default_factory=OrderedDict)
    fired: int = 0
    attempts: int = 0
    shadowed: int = 0
    firings: list[Firing] = field(default_factory=list)

    def counts(self, caller: str, call: str) -> bool:
        """Count one more logical call, and return whether it is hit."""
        self.number += 1
        key = (caller, call)
        self.caller_numbers[key] = self.caller_numbers.get(key, 0) + 1
        occurrence = Occurrence(number=self.number, caller=caller, call=call, caller_number=self.caller_numbers[key])
        return self.planned.on.selects(occurrence)

    def hit(self, firing: Firing) -> None:
        self.fired += 1
        self.attempts += 1
        if len(self.firings) < _FIRINGS_TOLD:
            self.firings.append(firing)


@dataclass(slots=True, kw_only=True)
class _Recording:
    """Calls so far, of those whose body contains a text."""

    containing: str | None
    records: list[Record] = field(default_factory=list)


class FaultEngine:
    """The plan, its counters and the open recordings. Every method may be called from any thread.

    Attributes:
        armed: Whether there is anything to look for; false costs a call nothing.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.armed = False
        self._now = now
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._entries: dict[str, _Entry] = {}
        self._recordings: dict[str, _Recording] = {}

    def plan(self, planned: list[Planned]) -> list[str]:
        """Add to the plan, and return the ids."""
        with self._lock:
            ids = [f"fault-{next(self._ids)}" for _ in planned]
            self._entries.update({key: _Entry(planned=one) for key, one in zip(ids, planned, strict=True)})
            self._arm()
            return ids

    def clear(self, ids: list[str] | None = None) -> None:
        """Forget faults; all of them by default. What they hold back is let go."""
        with self._lock:
            for key in list(self._entries) if ids is None else ids:
                self._entries.pop(key, None)
            self._arm()

    def is_planned(self, id: str) -> bool:
        """Test whether the fault is still in the plan."""
        return id in self._entries

    def report(self) -> list[dict[str, Any]]:
        """Return the outcome of each fault, in the order of planning."""
        with self._lock:
            return [
                {
                    "id": key,
                    "planned": to_wire(entry.planned),
                    "matched": entry.number,
                    "fired": entry.fired,
                    "attempts": entry.attempts,
                    "shadowed": entry.shadowed,
                    "firings": [asdict(firing) for firing in entry.firings],
                }
                for key, entry in self._entries.items()
            ]

    def open_recording(self, containing: str | None = None) -> str:
        """Begin to record every call whose body contains a text, and return the recording's id."""
        with self._lock:
            key = f"recording-{next(self._ids)}"
            self._recordings[key] = _Recording(containing=containing)
            self._arm()
            return key

    def recorded(self, id: str) -> list[dict[str, Any]] | None:
        """Return what a recording has so far, in order; None if there is no such recording."""
        with self._lock:
            recording = self._recordings.get(id)
            return None if recording is None else [asdict(record) for record in recording.records]

    def close_recording(self, id: str) -> None:
        """End a recording."""
        with self._lock:
            self._recordings.pop(id, None)
            self._arm()

    def arrive(self, call: Call) -> Verdict:
        """Count and record a call, and return the decision about it."""
        with self._lock:
            at = self._now()
            hit: tuple[str, Fault] | None = None
            for key, entry in self._entries.items():
                fault = entry.planned
                if not isinstance(fault, Fault) or not fault.matches(call.caller, call.call, call.body):
                    continue
                known = entry.selected.get(call.logical_id) if call.logical_id is not None else None
                if known is None:
                    selected = entry.counts(call.caller, call.call)
                    acts = selected and hit is None
                    if selected and not acts:
                        entry.shadowed += 1
                    if call.logical_id is not None:
                        _remember(entry.selected, call.logical_id, acts)
                    if acts:
                        entry.hit(_firing(call, at))
                        hit = (key, fault)
                elif known and fault.attempts == Attempts.ALL and hit is None:
                    entry.attempts += 1
                    hit = (key, fault)
            note = self._record(call, at, None if hit is None else hit[0])
            return Verdict(fault=None if hit is None else hit[1], fault_id=None if hit is None else hit[0], note=note)

    def reach(self, machine: str, state: str, moment: Moment, *, execution: str, execution_input: str) -> StopAt | None:
        """Count that an execution reaches a state, and return what stops it there; None: it continues."""
        with self._lock:
            stopped: StopAt | None = None
            for entry in self._entries.values():
                stop = entry.planned
                if not isinstance(stop, StopAt) or not stop.matches(machine, state, moment, execution_input):
                    continue
                if not entry.counts(machine, state):
                    continue
                if stopped is not None:
                    entry.shadowed += 1
                    continue
                entry.hit(
                    Firing(at=self._now(), caller=f"states:{machine}", call=state, request_id=None, execution=execution)
                )
                stopped = stop
            return stopped

    def _arm(self) -> None:
        self.armed = bool(self._entries or self._recordings)

    def _record(self, call: Call, at: float, fault: str | None) -> Callable[[int | None], None]:
        if not self._recordings:
            return _note_nothing
        record = Record(
            at=at,
            caller=call.caller,
            call=call.call,
            logical_id=call.logical_id,
            attempt=call.attempt,
            request_id=call.request_id,
            execution=call.execution,
            state=call.state,
            fault=fault,
        )
        for recording in self._recordings.values():
            if contains(call.body, recording.containing):
                recording.records.append(record)

        def note(status: int | None) -> None:
            record.status = status

        return note


def _note_nothing(_status: int | None) -> None:
    """Record nothing: the default callback."""


def _firing(call: Call, at: float) -> Firing:
    return Firing(at=at, caller=call.caller, call=call.call, request_id=call.request_id, execution=call.execution)


def _remember(selected: OrderedDict[str, bool], logical_id: str, acts: bool) -> None:
    selected[logical_id] = acts
    if len(selected) > _LOGICAL_CALLS_KNOWN:
        selected.popitem(last=False)
