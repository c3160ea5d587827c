"""Requests of a workload, counted by operation: where none was done or refused, nothing was proven."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing.invariants import RECORDS_AND_LOG
from constructs_lib.testing.simulator.deployment.parts import Parts
from constructs_lib.testing.simulator.workload import Result

FINAL: Final = frozenset({400, 403, 404, 410, 413, 422, 507})
"""Statuses after which a client does not repeat its request."""
INTERRUPTED: Final = "SagaInterrupted"
"""Error of a saga whose execution was stopped, or ran out of time."""
_NONE: Final = "no response"
_LONGEST: Final = 300
_NOT_UNRECORDED: Final = "leave it out of Workload.unrecorded"
_CORRECT: Final = "correct the step's function, or name an error that it may raise in the step's refusals"


@dataclass(slots=True, kw_only=True)
class Requests:
    """Requests of one operation.

    Attributes:
        sent: how many intents there were.
        settled: how many were done, or refused by a step, as a record or a response has it.
        failed: how many settled otherwise, by error and step.
        raised: what a function raised in one of these.
        received: last responses of the others, by status.
        final: how many of these a client does not repeat.
        detail: the detail of one of these.
        recorded: whether one is to be recorded, as the workload states it.
        of_saga: whether a saga is behind the operation.
        known: operations that the stack has.
    """

    sent: int = 0
    settled: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    raised: str = ""
    received: Counter[str] = field(default_factory=Counter)
    final: int = 0
    detail: str = ""
    recorded: bool = True
    of_saga: bool = False
    known: tuple[str, ...] = ()

    def add(self, other: Requests) -> None:
        """Add requests of the same operation, in other runs."""
        self.sent += other.sent
        self.settled += other.settled
        self.failed.update(other.failed)
        self.raised = self.raised or other.raised
        self.received.update(other.received)
        self.final += other.final
        self.detail = self.detail or other.detail
        self.recorded = other.recorded
        self.of_saga = other.of_saga
        self.known = other.known

    def told(self) -> str:
        """Count how requests ended that were neither done nor refused by a step."""
        ended = [f"{count} failed with {what}" for what, count in self.failed.most_common()]
        ended += [f"{count} received {what}" for what, count in self.received.most_common()]
        why = self.raised or self.detail
        return f"{', '.join(ended)}: {why}" if why else ", ".join(ended)

    def expect(self, error: str) -> None:
        """Take requests that failed with an error for settled ones: a planned fault of their runs explains it."""
        for failure in [one for one in self.failed if one.partition(" in ")[0] == error]:
            self.settled += self.failed.pop(failure)

    def as_json(self) -> dict[str, Any]:
        """The numbers as data."""
        return {
            "sent": self.sent,
            "settled": self.settled,
            "failed": dict(self.failed),
            "raised": self.raised,
            "received": dict(self.received),
            "detail": self.detail,
        }


def requests_of(
    results: Sequence[Result],
    last: Sequence[tuple[int, str] | None],
    parts: Parts,
    unrecorded: Collection[str],
    raised: Mapping[str, Mapping[str, str]],
) -> dict[str, Requests]:
    """Count the requests of an ended run.

    Args:
        results: of every intent.
        last: status and body of the last response of each; None: its client received none.
        parts: what is deployed.
        unrecorded: operations of whose requests none is to be recorded.
        raised: the first exception in each step, by the ids of sagas; empty if it is not known.
    """
    sagas = {operation.name for operation in parts.operations}
    known = tuple(sorted(parts.names))
    found: dict[str, Requests] = {}
    for result, response in zip(results, last, strict=True):
        name = result.intent.operation
        one = found.setdefault(name, Requests(recorded=name not in unrecorded, of_saga=name in sagas, known=known))
        one.sent += 1
        if result.unexplained is not None:
            one.failed[result.unexplained] += 1
            one.raised = one.raised or _raised(result.unexplained, raised.get(result.saga_id or "", {}))
            continue
        if result.completed is not None:
            one.settled += 1
            continue
        status, body = response or (None, "")
        one.received[_NONE if status is None else str(status)] += 1
        one.final += status in FINAL
        one.detail = one.detail or _detail(body)
    return found


def add_requests(counts: dict[str, Requests], further: Mapping[str, Requests]) -> None:
    """Add the requests of other runs, by operation."""
    for name, one in further.items():
        counts.setdefault(name, Requests()).add(one)


def unproven(requests: Mapping[str, Requests], checked: Mapping[str, int]) -> Iterator[str]:
    """Find why runs prove nothing, or nothing of an operation; one sentence each.

    Args:
        requests: of all runs, by operation.
        checked: how many things each invariant was checked of.
    """
    if not requests:
        yield "requests must be 1 or more, got 0; run at least one intent of the workload"
    nothing = not any(one.settled for one in requests.values())
    for name, one in sorted(requests.items()):
        if not one.recorded and (settled := one.settled + one.failed.total()):
            yield f"settled requests of {name} must be 0, got {settled} of {one.sent}; {_NOT_UNRECORDED}"
        elif one.recorded and not one.settled and one.failed:
            yield (
                f"requests of {name} that are done or refused by a step must be 1 or more, got 0 of {one.sent} "
                f"({one.told()}); {_CORRECT}"
            )
        elif one.recorded and not one.settled and (one.final or nothing):
            instead = one.told()
            yield f"settled requests of {name} must be 1 or more, got 0 of {one.sent} ({instead}); {_remedy(name, one)}"
    sagas = sum(one.settled for one in requests.values() if one.of_saga)
    if sagas and not checked.get(RECORDS_AND_LOG):
        yield (
            f"things of which '{RECORDS_AND_LOG}' is checked must be 1 or more, got 0 of {sagas} settled sagas; "
            "keep the request records until the run has ended"
        )


def _remedy(name: str, one: Requests) -> str:
    if name not in one.known:
        return f"use an operation of the stack: {', '.join(one.known) or 'it has none'}"
    if not one.final:
        return "run more requests, or under fewer faults"
    return "correct the intents or the API, or name an operation that is to record nothing in Workload.unrecorded"


def _raised(failure: str, by_step: Mapping[str, str]) -> str:
    """Return what a function raised in the step that failed; where that raised nothing, in the first one that did."""
    return by_step.get(failure.rpartition(" in ")[2]) or next(iter(by_step.values()), "")


def _detail(body: str) -> str:
    """Return the detail of a problem document, or the message of API Gateway."""
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    found = next((document[name] for name in ("detail", "title", "message") if document.get(name)), "")
    return " ".join(str(found).split())[:_LONGEST]
