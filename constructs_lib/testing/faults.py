"""Faults: things that go wrong at a chosen AWS call, and a record of the calls there are to choose from.

Faults are injected at the emulator, so they hit code in any language, unmodified.

Example:
    ```python
    aws.faults.plan(Fault(function="Shop/Api/Gatekeeper", call="dynamodb:PutItem", moment="after", action="kill"))
    user.request("POST", url, headers={"Idempotency-Key": "k1"}, body=order)  # 502: the process died
    user.request("POST", url, headers={"Idempotency-Key": "k1"}, body=order)  # the retry finds the reservation
    aws.faults.report().require_all_fired()
    ```
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any, Final, Self, overload
from urllib.parse import urlsplit

from constructs_lib.testing.fault_plan import (
    ANY,
    STATES_PREFIX,
    Action,
    Attempts,
    Fault,
    Moment,
    Planned,
    StopAt,
    from_wire,
    require_containing,
    to_wire,
)
from constructs_lib.testing.fault_schedules import Every, First, Nth, Schedule, Share

__all__ = [
    "Action",
    "Attempts",
    "CallRecorder",
    "Every",
    "Fault",
    "FaultControl",
    "FaultOutcome",
    "FaultReport",
    "FaultsNotFiredError",
    "Firing",
    "First",
    "Moment",
    "Nth",
    "Planned",
    "RecordedCall",
    "Recording",
    "Schedule",
    "Share",
    "StopAt",
]

_FAULTS_PATH: Final = "/_cdk_sagas/faults"
_CALLS_PATH: Final = "/_cdk_sagas/calls"
_TIMEOUT_SECONDS: Final = 30


class FaultsNotFiredError(AssertionError):
    """A planned fault matched no call: the test did not test what it claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One time that a fault hit.

    Attributes:
        at: When, in the emulator's time.
        caller: Physical name of the function, or `states:` and that of the state machine.
        call: Service and operation; for `StopAt`, the state.
        request_id: The Lambda invocation that was hit; None for a state machine.
        execution: Name of the execution that the caller worked for, where that is known.
    """

    at: datetime
    caller: str
    call: str
    request_id: str | None
    execution: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """Counts of one planned fault: the calls that it matched and hit.

    Attributes:
        id: What `FaultControl.plan` returned for it.
        planned: The fault.
        matched: Logical calls that it counted, hit or not.
        fired: Logical calls that it hit.
        attempts: Requests that it hit: more than `fired` if it also hit the SDK's own retries.
        shadowed: Calls that it would have hit, had not a fault planned earlier hit them.
        firings: The first thousand hits, in order.
    """

    id: str
    planned: Planned
    matched: int
    fired: int
    attempts: int
    shadowed: int
    firings: tuple[Firing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """Outcomes of all planned faults.

    Attributes:
        outcomes: In the order of planning.
    """

    outcomes: tuple[FaultOutcome, ...]

    @property
    def planned(self) -> int:
        """Number of planned faults."""
        return len(self.outcomes)

    @property
    def fired(self) -> int:
        """Number of faults that hit at least one call."""
        return sum(outcome.fired > 0 for outcome in self.outcomes)

    @property
    def firings(self) -> int:
        """Number of calls that were hit."""
        return sum(outcome.fired for outcome in self.outcomes)

    @property
    def not_fired(self) -> tuple[Planned, ...]:
        """The faults that hit nothing."""
        return tuple(outcome.planned for outcome in self.outcomes if not outcome.fired)

    def require_all_fired(self) -> None:
        """Fail unless every planned fault hit at least one call.

        Raises:
            FaultsNotFiredError: If one did not.
        """
        idle = [outcome for outcome in self.outcomes if not outcome.fired]
        if idle:
            lines = "\n".join(f"  {o.planned}: {o.matched} calls matched, {o.shadowed} shadowed" for o in idle)
            raise FaultsNotFiredError(f"{len(idle)} of {self.planned} planned faults did not fire:\n{lines}")

    def __str__(self) -> str:
        """One line per fault."""
        return "\n".join(
            f"{'fired' if o.fired else 'NOT FIRED'} {o.fired}x of {o.matched} calls: {o.planned}" for o in self.outcomes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One request to AWS by a function or a state machine.

    Attributes:
        sequence: 1 for the first of the recording, in order of arrival.
        at: When it arrived, in the emulator's time.
        caller: Physical name of the function, or `states:` and that of the state machine: what `Fault.function` takes.
        call: Service and operation: what `Fault.call` takes.
        occurrence: 1 for this caller's first such call in the recording, 2 for its second: what `Nth` takes, if the
            run is repeated alone. An SDK's own retry has the number of the call that it repeats.
        attempt: 1 for the SDK's first attempt.
        request_id: The caller's Lambda invocation; None for a state machine.
        execution: Name of the execution that the caller works for, where that is known.
        state: The state that makes the call, for a state machine.
        status: HTTP status of the answer (200 or 500 for a state machine); None if there is no answer (yet).
        fault: Id of the fault that hit it, if one did.
    """

    sequence: int
    at: datetime
    caller: str
    call: str
    occurrence: int
    attempt: int
    request_id: str | None
    execution: str | None
    state: str | None
    status: int | None
    fault: str | None


class FaultControl:
    """Plans faults on a running emulator, and reports their outcomes."""

    def __init__(self, endpoint_url: str, resolve: Callable[[str], str]) -> None:
        """Connect to an emulator.

        Args:
            endpoint_url: Where it listens.
            resolve: Turns a logical id or construct path (of a function or a state machine) into the physical name or
                ARN; raises for a name that it does not know. Physical names come back as they are.
        """
        self._control = _Control(endpoint_url)
        self._resolve = resolve
        self._planned: dict[str, Planned] = {}

    def plan(self, *faults: Planned) -> tuple[str, ...]:
        """Add faults to the plan.

        Args:
            *faults: `Fault` and `StopAt`, in order of precedence: where two select the same call, the first one acts.

        Returns:
            Their ids, by which they can be cleared.
        """
        wires = [to_wire(self._resolved(fault)) for fault in faults]
        ids: list[str] = self._control.request("POST", _FAULTS_PATH, {"faults": wires})["ids"]
        self._planned.update(zip(ids, faults, strict=True))
        return tuple(ids)

    def report(self) -> FaultReport:
        """Return the outcomes of the planned faults."""
        outcomes = self._control.request("GET", _FAULTS_PATH)["faults"]
        return FaultReport(
            outcomes=tuple(
                FaultOutcome(
                    **{
                        **outcome,
                        # As the test wrote it; a fault that another process planned, as the emulator knows it.
                        "planned": self._planned.get(outcome["id"]) or from_wire(outcome["planned"]),
                        "firings": tuple(Firing(**_with_time(firing)) for firing in outcome["firings"]),
                    }
                )
                for outcome in outcomes
            )
        )

    def clear(self, *ids: str) -> None:
        """Forget faults, and let go what they hold back: a request that a delay holds is dropped, never executed.

        Args:
            *ids: Which; all without any.
        """
        self._control.request("DELETE", _FAULTS_PATH, {"ids": list(ids)} if ids else {})
        for id_ in ids or list(self._planned):
            self._planned.pop(id_, None)

    def _resolved(self, planned: Planned) -> Planned:
        if isinstance(planned, StopAt):
            return replace(planned, machine=self._physical(planned.machine))
        bare = planned.function.removeprefix(STATES_PREFIX)
        prefix = STATES_PREFIX if planned.is_of_state_machine else ""
        return replace(planned, function=prefix + self._physical(bare))

    def _physical(self, name: str) -> str:
        # A function's and a state machine's ARN both end in the name.
        return name if name == ANY else self._resolve(name).rpartition(":")[2]


class Recording(Sequence[RecordedCall]):
    """The recorded calls in order of arrival: those so far while the recording runs, all of them afterwards."""

    def __init__(self, control: _Control, containing: str | None) -> None:
        self._control = control
        self._containing = containing
        self._path = ""
        self._ended: tuple[RecordedCall, ...] | None = None

    def __enter__(self) -> Self:
        id_ = self._control.request("POST", _CALLS_PATH, {"containing": self._containing})["id"]
        self._path = f"{_CALLS_PATH}/{id_}"
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = _recorded_calls(self._control.request("DELETE", self._path)["calls"])

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls."""
        if self._ended is not None:
            return self._ended
        return _recorded_calls(self._control.request("GET", self._path)["calls"])

    @overload
    def __getitem__(self, index: int) -> RecordedCall: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RecordedCall, ...]: ...
    def __getitem__(self, index: int | slice) -> RecordedCall | tuple[RecordedCall, ...]:
        return self.calls[index]

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[RecordedCall]:
        return iter(self.calls)


class CallRecorder:
    """Records the AWS calls of functions and state machines."""

    def __init__(self, endpoint_url: str) -> None:
        """Connect to an emulator.

        Args:
            endpoint_url: Where it listens.
        """
        self._control = _Control(endpoint_url)

    def record(self, *, containing: str | None = None) -> Recording:
        """Record every AWS call that functions and state machines make while the context is open.

        Calls of the test itself and of API users are not recorded. What an execution does after the context is left
        is not in the recording: wait for its end inside.

        Example:
            ```python
            with aws.calls.record() as calls:
                user.request("POST", url, headers={"Idempotency-Key": "k1"}, body=order)
            [(call.caller, call.call) for call in calls]
            ```

        Args:
            containing: only calls whose request body contains this text, as a `Fault` with the same text counts them.

        Returns:
            A context manager, and the sequence of calls.

        Raises:
            ValueError: if the text is empty.
        """
        require_containing(containing)
        return Recording(self._control, containing)


class _Control:
    """The emulator's control path. One connection per request: no state, so any thread may ask."""

    def __init__(self, endpoint_url: str) -> None:
        self._address = urlsplit(endpoint_url).netloc

    def request(self, method: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = HTTPConnection(self._address, timeout=_TIMEOUT_SECONDS)
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body=body, headers={"content-type": "application/json"})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read() or b"{}")
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"the emulator refused {method} {path}: {answer.get('message', response.status)}")
        return answer


def _recorded_calls(records: list[dict[str, Any]]) -> tuple[RecordedCall, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    known: dict[tuple[str, str, str], int] = {}
    calls = []
    for sequence, record in enumerate(records, start=1):
        key = (record["caller"], record["call"])
        logical_id = record.pop("logical_id") or f"alone-{sequence}"
        # A retry is not another occurrence.
        if (*key, logical_id) not in known:
            counted[key] += 1
            known[*key, logical_id] = counted[key]
        occurrence = known[*key, logical_id]
        calls.append(RecordedCall(**{**_with_time(record), "sequence": sequence, "occurrence": occurrence}))
    return tuple(calls)


def _with_time(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "at": datetime.fromtimestamp(values["at"], UTC)}
