"""Inputs that a description does not contain and a cost depends on, each with a default printed with the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from math import ceil
from typing import Final

from constructs_lib.saga.description.description import FunctionDescription, StepDescription
from constructs_lib.saga.description.kind import Mutation, plain_kind

RECORD_BYTES: Final = 860
DIRECT_RECORD_BYTES: Final = 420
"""A request record without the request: ids, fingerprint, ARNs, times."""
ANSWER_BYTES: Final = 200
"""What settling adds to the record, without the answer's ``result``."""
ROW_BYTES: Final = 400
"""A saga log row without its output."""

MOST: Final = 10**12
"""The largest input, of whatever unit: more than any account has."""
_WRITE_UNIT: Final = 1_024
_READ_UNIT: Final = 4_096
_MEMORY_MIB: Final = 512


class Source(StrEnum):
    """Sources of the events that an ``EventIntake`` receives."""

    WEBHOOK = "webhook"
    RULE = "rule"
    QUEUE = "queue"
    FIFO = "fifo"
    STREAM = "stream"


_SOURCES: Final = {
    Source.WEBHOOK: "a webhook: one request of the API",
    Source.RULE: "an event of a bus: the event, and three requests of the queue of kept events",
    Source.QUEUE: "a message of a queue: sent, received and deleted alone",
    Source.FIFO: "a message of a FIFO queue: sent, received and deleted alone",
    Source.STREAM: "a change of a table: Lambda's reads of a stream are free",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Inputs of a cost. Durations are milliseconds, sizes are bytes.

    Attributes:
        duration_ms: of a step's function, warm, per call.
        external_ms: of an external step's function, its provider included.
        durations: by the step's name, instead of these; its compensation takes as long.
        state_ms: what a state machine adds to each state: time that an Express phase is billed for.
        gatekeeper_ms: of the API's function.
        gatekeeper_mib: memory of the API's function.
        memory_mib: of a function whose memory is not known at synth.
        items: that an atomic step writes.
        items_of: by the step's name, instead of that.
        item_bytes: of each of them.
        map_items: items of a map, but not more than it takes.
        request_bytes: of the request.
        output_bytes: of each step's output.
        result_bytes: of the answer's ``result``.
        retries: retries per function call, on average: each is one more transition (outside Express) and one more call.
        polls: how often the client asks for the outcome.
        api: whether the saga has a ``TransactionApi``; without one, the record is still reserved and settled.
        event: source of the events of an ``EventIntake`` that begin the saga, in place of an API; None: none do.
        skip: names of conditional steps that are skipped.

    Raises:
        ValueError: for a value that cannot be, naming it.
    """

    duration_ms: int = 100
    external_ms: int = 500
    durations: Mapping[str, int] = dataclasses.field(default_factory=dict)
    state_ms: int = 25
    gatekeeper_ms: int = 30
    gatekeeper_mib: int = _MEMORY_MIB
    memory_mib: int = _MEMORY_MIB
    items: int = 1
    items_of: Mapping[str, int] = dataclasses.field(default_factory=dict)
    item_bytes: int = 1_024
    map_items: int = 5
    request_bytes: int = 512
    output_bytes: int = 256
    result_bytes: int = 256
    retries: Decimal = Decimal(0)
    polls: int = 1
    api: bool = True
    event: Source | None = None
    skip: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        numbers = {
            field.name: value
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), int | Decimal)
        }
        numbers |= {f"duration of {step}": value for step, value in self.durations.items()}
        numbers |= {f"items of {step}": value for step, value in self.items_of.items()}
        for name, value in numbers.items():
            if not 0 <= value <= MOST:
                raise ValueError(f"{name} must be 0 to {MOST:,}, got {value}; correct it")
        if self.api and self.event is not None:
            raise ValueError(f"api must be False if events begin the saga, got event={self.event}; leave one out")
        for name in ("memory_mib", "gatekeeper_mib"):
            if (value := getattr(self, name)) < 128:
                raise ValueError(f"{name} must be 128 or more, got {value}; Lambda has no smaller function")

    def duration_of(self, step: StepDescription) -> int:
        """Milliseconds of one call of a step's function."""
        outside = plain_kind(step.kind).mutation is Mutation.OUTSIDE
        return self.durations.get(step.name, self.external_ms if outside else self.duration_ms)

    def memory_of(self, function: FunctionDescription | None) -> int:
        """MiB of a function."""
        known = function.memory_mib if function is not None else None
        return known if known is not None else self.memory_mib

    def items_written_by(self, step: StepDescription) -> int:
        """Items in a step's transaction, the log row apart."""
        return self.items_of.get(step.name, step.writes if step.writes is not None else self.items)

    def told(self) -> list[str]:
        """The inputs in words, for the report."""
        own = [f"{step} {value} ms" for step, value in sorted(self.durations.items())]
        functions = [f"functions take {self.duration_ms} ms warm, external ones {self.external_ms} ms", *own]
        asked = f"{self.polls} time{'s' if self.polls != 1 else ''}"
        api = [f"the API's {self.gatekeeper_ms} ms, asked {asked} for the outcome"] if self.api else ["no API"]
        if self.event is not None:
            api = [f"the intake's {self.gatekeeper_ms} ms"]
        begun = [f"it is begun by {_SOURCES[self.event]}"] if self.event is not None else []
        written = [f"{step} writes {value}" for step, value in sorted(self.items_of.items())]
        items = f"{self.items} item{'s' if self.items != 1 else ''} of {self.item_bytes} bytes"
        answer = f"the answer's result {self.result_bytes}"
        memory = f"{self.memory_mib} MiB for a function without a declared size"
        if self.gatekeeper_mib != self.memory_mib:
            memory += f", {self.gatekeeper_mib} for the {'intake' if self.event is not None else 'API'}'s"
        return [
            f"{', '.join([*functions, *api])}; a state adds {self.state_ms} ms",
            f"{memory}; arm64 unless it declares x86",
            f"{', '.join([f'an atomic step writes {items}', *written])}; a map has {self.map_items} items",
            f"request {self.request_bytes} bytes, a step's output {self.output_bytes}, {answer}",
            f"{self.retries} retries per call; every retry is one transition and one call more",
            *begun,
        ]

    @property
    def record_units(self) -> int:
        """Write units of the request record when it is reserved."""
        return write_units(RECORD_BYTES + self.request_bytes)

    @property
    def settled_record_units(self) -> int:
        """Write units of the settled record: an update is billed for the larger of before and after."""
        return write_units(self.settled_record_bytes)

    @property
    def settled_record_bytes(self) -> int:
        """Size of the settled record."""
        return RECORD_BYTES + self.request_bytes + ANSWER_BYTES + self.result_bytes

    @property
    def direct_record_units(self) -> int:
        """Write units of a direct operation's record: no request, no state machine."""
        return write_units(DIRECT_RECORD_BYTES + ANSWER_BYTES + self.result_bytes)

    @property
    def row_bytes(self) -> int:
        """Size of a saga log row."""
        return ROW_BYTES + self.output_bytes

    @property
    def row_units(self) -> int:
        """Write units of a saga log row."""
        return write_units(self.row_bytes)

    @property
    def item_units(self) -> int:
        """Write units of an item that a step writes."""
        return write_units(self.item_bytes)


def write_units(size: int) -> int:
    """Units of one write: one per KB begun."""
    return max(1, ceil(size / _WRITE_UNIT))


def read_units(size: int) -> int:
    """Units of one strongly consistent read: one per 4 KB begun."""
    return max(1, ceil(size / _READ_UNIT))
