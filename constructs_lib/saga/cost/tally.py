"""Usage line by line and its sum; and the gatekeeper's, which every path of a saga has."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from math import ceil
from typing import Final

from constructs_lib.saga.cost.assumptions import Assumptions, Source, read_units
from constructs_lib.saga.cost.prices import PRICES, Meter
from constructs_lib.saga.description.description import FunctionDescription

X86: Final = "x86_64"
MIB_PER_GB: Final = 1_024
MS: Final = 1_000
_EXPRESS_MIB: Final = 64
_EXPRESS_ROUNDS_TO_MS: Final = 100
_MESSAGE_REQUESTS: Final = 3
"""Of a message alone: sent, received, deleted."""


class Purpose(StrEnum):
    """Purposes of usage."""

    ORCHESTRATION = "orchestration"
    """Transitions and Express executions."""
    LOG = "saga log"
    """Rows, and what a transaction costs beyond plain writes of the same items."""
    COMPUTE = "compute"
    """The steps' functions."""
    EFFECTS = "effects"
    """The steps' own items, messages and events, as plain writes would cost them."""
    API = "API"
    """The API's requests and function, and the request record: reserved, settled, read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """So much of one meter, by one step or state."""

    meter: Meter
    purpose: Purpose
    by: str
    quantity: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of one saga on one path.

    Attributes:
        way: what happens, in a few words.
        uses: line by line.
        milliseconds: from start to end, functions and states together.
        express_milliseconds: of these, in Express phases.
        function_seconds: how long functions run, the API's included.
    """

    way: str
    uses: tuple[Use, ...]
    milliseconds: int = 0
    express_milliseconds: int = 0
    function_seconds: Decimal = Decimal(0)

    def total(self, meter: Meter, *purposes: Purpose) -> Decimal:
        """Amount of a meter, for these purposes (all by default)."""
        return sum(
            (use.quantity for use in self.uses if use.meter is meter and (not purposes or use.purpose in purposes)),
            Decimal(0),
        )

    def dollars(self, *purposes: Purpose) -> Decimal:
        """Price of it all, or of what is used for these purposes."""
        return sum(
            (PRICES[use.meter].of(use.quantity) for use in self.uses if not purposes or use.purpose in purposes),
            Decimal(0),
        )


@dataclass(slots=True)
class Tally:
    """Adds up what is used along one way. ``times`` multiplies: the items of a map."""

    inputs: Assumptions
    uses: list[Use] = field(default_factory=list)
    milliseconds: int = 0
    express_milliseconds: int = 0
    function_seconds: Decimal = Decimal(0)

    def add(self, meter: Meter, purpose: Purpose, by: str, quantity: Decimal | int) -> None:
        """Note a use; nothing is noted of nothing."""
        if quantity:
            self.uses.append(Use(meter=meter, purpose=purpose, by=by, quantity=Decimal(quantity)))

    def state(self, by: str, times: int = 1) -> None:
        """A state of a Standard machine is entered."""
        self.add(Meter.TRANSITIONS, Purpose.ORCHESTRATION, by, times)

    def write(self, purpose: Purpose, by: str, units: int) -> None:
        """DynamoDB write units."""
        self.add(Meter.WRITE_UNITS, purpose, by, units)

    def read(self, purpose: Purpose, by: str, units: int) -> None:
        """DynamoDB read units."""
        self.add(Meter.READ_UNITS, purpose, by, units)

    def call(
        self,
        by: str,
        function: FunctionDescription | None,
        milliseconds: int,
        times: int = 1,
    ) -> None:
        """Calls of a function, retries included."""
        calls = times * (1 + self.inputs.retries)
        self.add(Meter.LAMBDA_REQUESTS, Purpose.COMPUTE, by, calls)
        seconds = calls * milliseconds / MS
        memory = Decimal(self.inputs.memory_of(function)) / MIB_PER_GB
        self.add(_gb_seconds(function), Purpose.COMPUTE, by, seconds * memory)
        self.function_seconds += seconds

    def usage(self, way: str) -> Usage:
        """Return the sum."""
        return Usage(
            way=way,
            uses=tuple(self.uses),
            milliseconds=self.milliseconds,
            express_milliseconds=self.express_milliseconds,
            function_seconds=self.function_seconds,
        )


def run_inline(tally: Tally) -> None:
    """The states are those of one Express execution; a client that does not poll waits for it in the gatekeeper."""
    tally.uses = [use for use in tally.uses if use.meter is not Meter.TRANSITIONS]
    express(tally, "saga", tally.milliseconds)
    if tally.inputs.api and not tally.inputs.polls:
        waited = Decimal(tally.milliseconds) / MS
        memory = Decimal(tally.inputs.gatekeeper_mib) / MIB_PER_GB
        tally.add(Meter.LAMBDA_GB_SECONDS, Purpose.ORCHESTRATION, "gatekeeper waits", memory * waited)
        tally.function_seconds += waited


def express(tally: Tally, by: str, milliseconds: int) -> None:
    """One Express execution."""
    billed = ceil(milliseconds / _EXPRESS_ROUNDS_TO_MS) * _EXPRESS_ROUNDS_TO_MS
    tally.add(Meter.EXPRESS_REQUESTS, Purpose.ORCHESTRATION, by, 1)
    gb_seconds = Decimal(_EXPRESS_MIB) / MIB_PER_GB * billed / MS
    tally.add(Meter.EXPRESS_GB_SECONDS, Purpose.ORCHESTRATION, by, gb_seconds)
    tally.express_milliseconds += milliseconds


def front_door(tally: Tally) -> None:
    """A request comes in, and reserves: one put, and the entry of the sparse index."""
    inputs = tally.inputs
    if inputs.api:
        api_call(tally, "request")
    elif inputs.event is not None:
        arrival(tally, inputs.event)
        gatekeeper(tally, "event")
    tally.write(Purpose.API, "reserve", inputs.record_units)
    tally.write(Purpose.API, "reserve, index", 1)


def arrival(tally: Tally, source: Source) -> None:
    """An event reaches the function of an intake, in a batch of its own."""
    match source:
        case Source.WEBHOOK:
            tally.add(Meter.REST_REQUESTS, Purpose.API, "event", 1)
        case Source.RULE:
            tally.add(Meter.EVENTS, Purpose.API, "event", 1)
            tally.add(Meter.QUEUE_REQUESTS, Purpose.API, "event", _MESSAGE_REQUESTS)
        case Source.QUEUE:
            tally.add(Meter.QUEUE_REQUESTS, Purpose.API, "event", _MESSAGE_REQUESTS)
        case Source.FIFO:
            tally.add(Meter.FIFO_REQUESTS, Purpose.API, "event", _MESSAGE_REQUESTS)
        case Source.STREAM:
            pass  # Lambda reads a stream for nothing


def settle(tally: Tally) -> None:
    """The final update of the record, which changes sparse indexes; and the removal of its response, later."""
    for name, index_units in (("settle", 2), ("response removed", 1)):
        tally.write(Purpose.API, name, tally.inputs.settled_record_units)
        tally.write(Purpose.API, f"{name}, index", index_units)


def look(tally: Tally, *, rows: int) -> None:
    """The client asks for the outcome: the record and the saga's rows."""
    inputs = tally.inputs
    if not inputs.api:
        return
    for _ in range(inputs.polls):
        api_call(tally, "poll")
        tally.read(Purpose.API, "poll", read_units(inputs.settled_record_bytes) + read_units(rows * inputs.row_bytes))


def api_call(tally: Tally, by: str) -> None:
    """One request of the API, and its function."""
    tally.add(Meter.REST_REQUESTS, Purpose.API, by, 1)
    gatekeeper(tally, by)


def gatekeeper(tally: Tally, by: str) -> None:
    """One call of the gatekeeper, or of the reader of an intake's events."""
    milliseconds = Decimal(tally.inputs.gatekeeper_ms)
    tally.add(Meter.LAMBDA_REQUESTS, Purpose.API, by, 1)
    memory = Decimal(tally.inputs.gatekeeper_mib) / MIB_PER_GB
    tally.add(Meter.LAMBDA_GB_SECONDS, Purpose.API, by, memory * milliseconds / MS)
    tally.function_seconds += milliseconds / MS


def _gb_seconds(function: FunctionDescription | None) -> Meter:
    x86 = function is not None and function.architecture == X86
    return Meter.LAMBDA_GB_SECONDS_X86 if x86 else Meter.LAMBDA_GB_SECONDS
