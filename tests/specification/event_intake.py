"""Model: events that begin something. Two events report one payment, a third one its refund.

The provider delivers each of them as often as it likes, in any order, several at once, until it gets a 2xx and after
that. A refund needs its payment, a payment needs its customer, and both may be missing at first. An invocation may die
at any moment; what it sent then travels, and arrives later or never. Operators redrive what is parked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

INTAKE: Final = "lambda_src/saga_runtime/webhooks/intake.py"
RECORD: Final = "lambda_src/saga_runtime/idempotency/record.py"
TRANSACTION: Final = "lambda_src/saga_runtime/saga_log/transaction.py"
CONSTRUCT: Final = "constructs_lib/callbacks/event_intake.py"


class IntakeCondition(Condition):
    """Conditions of events that begin something."""

    RECORD_IS_CONDITIONAL = Because(
        "the record is written where there was none: of one payment's events, one takes effect",
        RECORD,
        "**_where_free(record.now_ms),",
    )
    WRITES_WITH_RECORD = Because(
        "the writes never take effect without the record",
        INTAKE,
        'return {"Put": {"TableName": self._config.request_table, **direct_put(record)}}, wanted.writes',
    )
    RECORD_WITH_WRITES = Because(
        "a record before its writes turns the redelivery into a duplicate of nothing",
        TRANSACTION,
        "return [first, *(write.action for write in planned)]",
    )
    BUSINESS_KEY = Because(
        "the key is the happening's, not the event's: two events report one payment",
        INTAKE,
        "request_id_of(scope, begin.key)",
    )
    NOT_YET = Because("a refund whose payment has not arrived is kept", INTAKE, "except NotYet as error:")
    KEPT_BEFORE_ANSWER = Because(
        "an event is in a queue before its provider gets a 2xx for it",
        INTAKE,
        "self._send(self._queue_of(result), messages.of_webhook(event), code)",
    )
    KEPT_COMES_AGAIN = Because(
        "a kept event stays in its queue until it is applied", INTAKE, "return result is not Begun.KEPT"
    )
    REFUSAL_LEAVES_NO_RECORD = Because(
        "a refused event has no record: redriven, it is applied", INTAKE, "status=RecordStatus.COMPLETED,"
    )
    REFUSAL_LOOKS = Because(
        "a refusal reads the record first: the event's own effect may be what refuses it",
        INTAKE,
        "found = read_record(self._config.request_table, keyed.request_id)",
    )
    FAILURE_IS_NOT_ANSWERED = Because(
        "a failure is answered so that the provider sends the event again", INTAKE, "return unavailable()"
    )
    DELETED_WHEN_DONE = Because(
        "a message is deleted after its event was applied or parked", INTAKE, "or not self._from_queue(record)"
    )
    REMEMBERED_FOR_LONGER = Because(
        "a key is remembered for longer than its events are sent again",
        CONSTRUCT,
        "if table.remember_seconds < least:",
    )


class IntakePromise(StrEnum):
    """Promises that must never be broken."""

    CREDITED_TWICE = "CREDITED_TWICE"
    REFUNDED_TWICE = "REFUNDED_TWICE"
    REFUNDED_BEFORE_PAID = "REFUNDED_BEFORE_PAID"
    EVENT_LOST = "EVENT_LOST"
    PARKED_ALTHOUGH_APPLIED = "PARKED_ALTHOUGH_APPLIED"


C, P = IntakeCondition, IntakePromise
KEYS: Final = {"p1": "p", "p2": "p", "r": "r"}
"""Events, and what they report."""


class At(StrEnum):
    """Place of an invocation in its work."""

    IDLE = "idle"
    PLAN = "about to plan"
    SEND = "about to send its transaction"
    WRITES = "the record is written alone, the writes are not yet"
    RECORD = "the writes are made alone, the record is not yet"
    KEEP = "about to keep the event"
    REFUSE = "about to park the event"
    DONE = "about to answer, or to delete the message"


@dataclass(frozen=True, slots=True)
class Place:
    """An invocation; ``message``: which of the event's messages it received, None: it was sent by the provider."""

    at: At = At.IDLE
    event: str = ""
    message: int | None = None
    travels: bool = False


IDLE: Final = Place()
Names = frozenset[str]
Messages = frozenset[tuple[str, int]]
"""Events, each with a number: a message that is deleted is the one that was received, and no other."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything.

    Attributes:
        records: keys that have a record.
        effects: how often the payment was credited, and refunded; more than twice is twice.
        customer: whether the customer exists.
        answered: events for which the provider got a 2xx.
        kept: messages in the queue of kept events.
        parked: likewise, of parked ones.
    """

    places: tuple[Place, ...]
    records: Names = frozenset()
    effects: tuple[int, int] = (0, 0)
    customer: bool = False
    answered: Names = frozenset()
    kept: Messages = frozenset()
    parked: Names = frozenset()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeModel(Conditional):
    """The model.

    Attributes:
        places: how many invocations there are at once.
        events: what the provider sends.
        customer: whether the customer exists from the start.
    """

    places: int = 2
    events: tuple[str, ...] = ("p1", "p2", "r")
    customer: bool = True

    def initial(self) -> World:
        """Nothing has happened."""
        return World((IDLE,) * self.places, customer=self.customer)

    def at_rest(self, world: World) -> bool:
        """Every event was answered and applied, and nothing is left over."""
        quiet = all(place == IDLE for place in world.places) and not world.kept and not world.parked
        return quiet and world.answered == set(self.events) and all(self._effect(world, e) for e in self.events)

    def broken(self, world: World) -> Iterator[str]:
        """Each happening has its effect once, and no answered event is lost."""
        credited, refunded = world.effects
        if credited > 1:
            yield P.CREDITED_TWICE
        if refunded > 1:
            yield P.REFUNDED_TWICE
        if refunded > credited:
            yield P.REFUNDED_BEFORE_PAID
        stored = {KEYS[event] for event in world.parked | {event for event, _ in world.kept}}
        if any(not self._effect(world, event) and KEYS[event] not in stored for event in world.answered):
            yield P.EVENT_LOST

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        if not world.customer:
            yield Move("the customer is created", replace(world, customer=True))
        for event in sorted(world.parked):
            after = replace(_kept(world, event), parked=world.parked - {event})
            yield Move(f"operators redrive {event}", after)
        if not self.holds(C.REMEMBERED_FOR_LONGER):
            for key in sorted(world.records):
                yield Move(f"the key of {key} is forgotten", replace(world, records=world.records - {key}), fault=True)
        for index, place in enumerate(world.places):
            if place.at is not At.IDLE:
                yield from self._invocation(world, index, place)
            elif place not in world.places[:index]:
                yield from self._arrivals(world, index)

    def _arrivals(self, world: World, index: int) -> Moves:
        for event in self.events:
            yield Move(f"{index} is sent {event}", _at(world, index, Place(At.PLAN, event)))
        for event, message in sorted(world.kept):
            received = _at(world, index, Place(At.PLAN, event, message))
            if not self.holds(C.DELETED_WHEN_DONE):
                received = replace(received, kept=world.kept - {(event, message)})
            yield Move(f"{index} receives {event} from the queue", received)

    # -- what is recorded and done ---------------------------------------------------------------------------------

    def _key(self, event: str) -> str:
        return KEYS[event] if self.holds(C.BUSINESS_KEY) else event

    @staticmethod
    def _effect(world: World, event: str) -> int:
        return world.effects[0 if KEYS[event] == "p" else 1]

    def _recorded(self, world: World, event: str) -> World:
        return replace(world, records=world.records | {self._key(event)})

    @staticmethod
    def _done(world: World, event: str) -> World:
        credited, refunded = world.effects
        after = (min(2, credited + 1), refunded) if KEYS[event] == "p" else (credited, min(2, refunded + 1))
        return replace(world, effects=after)

    # -- invocations -----------------------------------------------------------------------------------------------

    def _invocation(self, world: World, index: int, place: Place) -> Moves:
        if place.travels:
            yield Move(f"what {index} sent is lost", _at(world, index))
        else:
            yield Move(f"{index} dies", _at(world, index), fault=True)
            if place.at is At.SEND:
                travels = _at(world, index, replace(place, travels=True))
                yield Move(f"{index} dies, and what it sent travels", travels, fault=True)
        match place.at:
            case At.PLAN:
                yield from self._plan(world, index, place)
            case At.SEND:
                yield from self._send(world, index, place)
            case At.WRITES:
                yield Move(f"{index} writes", _to(self._done(world, place.event), index, place, At.DONE))
            case At.RECORD:
                yield Move(f"{index} writes its record", _to(self._recorded(world, place.event), index, place, At.DONE))
            case At.KEEP | At.REFUSE:
                yield self._set_aside(world, index, place)
            case At.DONE:
                yield self._finish(world, index, place)

    def _plan(self, world: World, index: int, place: Place) -> Moves:
        failed = _at(world, index)
        if not self.holds(C.FAILURE_IS_NOT_ANSWERED) and place.message is None:
            failed = replace(failed, answered=world.answered | {place.event})
        yield Move(f"{index} fails", failed, fault=True)
        credited, refunded = world.effects
        if KEYS[place.event] == "p":
            then = At.SEND if world.customer else At.REFUSE
        elif not credited and self.holds(C.NOT_YET):
            then = At.KEEP
        else:
            then = At.REFUSE if refunded else At.SEND
        yield Move(f"{index} plans {place.event}: {then}", _to(world, index, place, then))

    def _send(self, world: World, index: int, place: Place) -> Moves:
        if not place.travels:
            yield Move(f"{index} meets a conflict", _to(world, index, place, At.PLAN), fault=True)
        if self._key(place.event) in world.records and self.holds(C.RECORD_IS_CONDITIONAL):
            then = IDLE if place.travels else replace(place, at=At.DONE)
            yield Move(f"{index} meets the record of {place.event}", _at(world, index, then))
        elif not self.holds(C.RECORD_WITH_WRITES) and not place.travels:
            recorded = self._recorded(world, place.event)
            yield Move(f"{index} writes its record alone", _to(recorded, index, place, At.WRITES))
        elif not self.holds(C.WRITES_WITH_RECORD) and not place.travels:
            yield Move(f"{index} writes alone", _to(self._done(world, place.event), index, place, At.RECORD))
        else:
            after = self._recorded(self._done(world, place.event), place.event)
            if place.travels:
                yield Move(f"what {index} sent arrives: {place.event} is applied", _at(after, index))
                return
            yield Move(f"{index} applies {place.event}", _to(after, index, place, At.DONE))
            again = _to(after, index, place, At.PLAN)
            yield Move(f"{index} applies {place.event}; the answer is lost, it tries again", again, fault=True)

    def _set_aside(self, world: World, index: int, place: Place) -> Move[World]:
        """Keep or park, unless the record shows that the event was applied."""
        event = place.event
        applied = self._key(event) in world.records
        if applied and self.holds(C.REFUSAL_LOOKS):
            return Move(f"{index} finds the record of {event}", _to(world, index, place, At.DONE))
        if place.at is At.KEEP:
            if place.message is not None:
                return Move(f"{index} leaves {event} in the queue", self._left(world, index, place))
            kept = _kept(world, event) if self.holds(C.KEPT_BEFORE_ANSWER) else world
            return Move(f"{index} keeps {event}", _to(kept, index, place, At.DONE))
        wrong = P.PARKED_ALTHOUGH_APPLIED if applied else None
        if not self.holds(C.REFUSAL_LEAVES_NO_RECORD):
            world = self._recorded(world, event)
        parked = replace(world, parked=world.parked | {event})
        return Move(f"{index} parks {event}", _to(parked, index, place, At.DONE), breaks=wrong)

    def _left(self, world: World, index: int, place: Place) -> World:
        return _at(world if self.holds(C.KEPT_COMES_AGAIN) else _deleted(world, place), index)

    @staticmethod
    def _finish(world: World, index: int, place: Place) -> Move[World]:
        if place.message is not None:
            return Move(f"{index} deletes the message of {place.event}", _at(_deleted(world, place), index))
        answered = replace(world, answered=world.answered | {place.event})
        return Move(f"{index} answers {place.event}: 2xx", _at(answered, index))


def _at(world: World, index: int, place: Place = IDLE) -> World:
    places = list(world.places)
    places[index] = place
    return replace(world, places=tuple(places))


def _to(world: World, index: int, place: Place, at: At) -> World:
    return _at(world, index, replace(place, at=at))


def _kept(world: World, event: str) -> World:
    """With one message more; its number is that of no message that an invocation still holds."""
    held = {(place.event, place.message) for place in world.places}
    number = next(n for n in range(len(world.places) + 2) if (event, n) not in held and (event, n) not in world.kept)
    # Two messages of one event that no invocation holds are as good as one.
    waiting = any((event, n) in world.kept and (event, n) not in held for n in range(len(world.places) + 2))
    return world if waiting else replace(world, kept=world.kept | {(event, number)})


def _deleted(world: World, place: Place) -> World:
    """Without the message that this invocation received."""
    return replace(world, kept=frozenset(one for one in world.kept if one != (place.event, place.message)))
