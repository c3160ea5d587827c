"""Model: an outbox. A step has an effect and an event of it; a consumer does something once for each event.

The step is retried, by several attempts at once, until its log row exists. A publisher is started by the table's
stream, which may lose a row, and by a schedule. Each of them may die at any moment, and what it sent then travels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

EVENT: Final = "lambda_src/saga_runtime/outbox/event.py"
PUBLISHER: Final = "lambda_src/saga_runtime/outbox/publisher.py"
TRANSACTION: Final = "lambda_src/saga_runtime/saga_log/transaction.py"


class OutboxCondition(Condition):
    """Conditions of events that are published because a transaction committed."""

    ROW_WITH_EFFECT = Because(
        "an effect without its event's row is never reported",
        TRANSACTION,
        "return [first, *(write.action for write in planned)]",
    )
    EFFECT_WITH_ROW = Because(
        "a row without its effect reports what did not happen",
        EVENT,
        'return Write(action={"Put": put}, refusal=lambda _: exists, key=own)',
    )
    STABLE_ID = Because(
        "an event that is published again has the same id: the step key",
        EVENT,
        "{**detail, EVENT_ID: call.key}",
    )
    PUBLISHED_BEFORE_DELETED = Because(
        "a row is deleted after its event was published",
        PUBLISHER,
        'self._publish(row) writes.write({"Delete"',
    )
    REFUSAL_LEAVES_ROW = Because(
        "a bus that does not take an event answers so, without an error", PUBLISHER, 'if answer["FailedEntryCount"]:'
    )
    SWEPT = Because(
        "what the stream has lost is published by the schedule",
        PUBLISHER,
        "rows, start = self._page(start) for row in rows:",
    )


class OutboxPromise(StrEnum):
    """Promises that must never be broken."""

    EVENT_OF_NOTHING = "EVENT_OF_NOTHING"
    CONSUMED_TWICE = "CONSUMED_TWICE"
    EVENT_LOST = "EVENT_LOST"


C, P = OutboxCondition, OutboxPromise


class At(StrEnum):
    """Place of an attempt, or of a publisher, in its work."""

    IDLE = "idle"
    SEND = "about to send its transaction"
    ROW = "the effect is written alone, the row is not yet"
    EFFECT = "the row is written alone, the effect is not yet"
    PUBLISH = "about to publish"
    DELETE = "about to delete the row"
    LATE = "the row is deleted, the event is not published yet"


@dataclass(frozen=True, slots=True)
class Place:
    """An attempt or a publisher; ``travels``: it is dead, and what it sent is on its way."""

    at: At = At.IDLE
    travels: bool = False


IDLE: Final = Place()


@dataclass(frozen=True, slots=True)
class World:
    """Everything.

    Attributes:
        attempts: of the step.
        publishers: of its event.
        effect: whether the step's effect, and its log row, exist.
        row: whether the event's row exists.
        stream: whether the stream will start a publisher.
        on_bus: events on their way to the consumer, at most two.
        consumed: what the consumer did; more than two times is two.
        known: whether the consumer remembers the event's id.
    """

    attempts: tuple[Place, ...]
    publishers: tuple[Place, ...]
    effect: bool = False
    row: bool = False
    stream: bool = False
    on_bus: int = 0
    consumed: int = 0
    known: bool = False


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxModel(Conditional):
    """The model.

    Attributes:
        attempts: of the step, at once.
        publishers: at once.
    """

    attempts: int = 2
    publishers: int = 2

    def initial(self) -> World:
        """Nothing has happened."""
        return World((IDLE,) * self.attempts, (IDLE,) * self.publishers)

    def at_rest(self, world: World) -> bool:
        """The step is done, its event is consumed, and nothing is left over."""
        quiet = all(place == IDLE for place in (*world.attempts, *world.publishers))
        return quiet and world.effect and not world.row and not world.on_bus and world.consumed > 0

    def broken(self, world: World) -> Iterator[str]:
        """Events report effects, each of them once to the consumer."""
        if world.consumed and not world.effect:
            yield P.EVENT_OF_NOTHING
        if world.consumed > 1:
            yield P.CONSUMED_TWICE
        ahead = world.row or world.on_bus or world.consumed
        working = any(place.at in {At.ROW, At.LATE, At.PUBLISH} for place in (*world.attempts, *world.publishers))
        if world.effect and not ahead and not working:
            yield P.EVENT_LOST

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        yield from self._attempts(world)
        yield from self._publishers(world)
        if world.on_bus:
            after = replace(world, on_bus=world.on_bus - 1)
            if world.known and self.holds(C.STABLE_ID):
                yield Move("the consumer knows the event", after)
            else:
                yield Move("the consumer acts", replace(after, consumed=min(2, after.consumed + 1), known=True))
            if world.on_bus == 1 and self.holds(C.STABLE_ID):
                yield Move("the bus delivers the event twice", replace(world, on_bus=2), fault=True)

    def _attempts(self, world: World) -> Moves:
        for index, place in enumerate(world.attempts):
            if place.at is At.IDLE:
                if not world.effect and place not in world.attempts[:index]:
                    yield Move(f"attempt {index} begins", _attempt_at(world, index, Place(At.SEND)))
            else:
                yield from self._attempt(world, index, place)

    def _publishers(self, world: World) -> Moves:
        if world.stream:
            yield Move("the stream loses the row", replace(world, stream=False), fault=True)
        for index, place in enumerate(world.publishers):
            if place.at is At.IDLE:
                if place not in world.publishers[:index]:
                    yield from self._begun(world, index)
            else:
                yield from self._publisher(world, index, place)

    # -- the step ------------------------------------------------------------------------------------------------

    def _attempt(self, world: World, index: int, place: Place) -> Moves:
        dead = _attempt_at(world, index, IDLE)
        if place.travels:
            yield Move(f"what attempt {index} sent is lost", dead)
        else:
            yield Move(f"attempt {index} dies", dead, fault=True)
            if place.at is At.SEND:
                travels = _attempt_at(world, index, replace(place, travels=True))
                yield Move(f"attempt {index} dies, and what it sent travels", travels, fault=True)
        match place.at:
            case At.SEND if world.effect:
                yield Move(f"attempt {index} meets the log row", dead)
            case At.SEND if not self.holds(C.ROW_WITH_EFFECT):
                alone = _attempt_at(replace(world, effect=True), index, Place(At.ROW))
                yield Move(f"attempt {index} writes its effect alone", alone)
            case At.SEND if not self.holds(C.EFFECT_WITH_ROW):
                alone = _attempt_at(replace(world, row=True, stream=True), index, Place(At.EFFECT))
                yield Move(f"attempt {index} writes its row alone", alone)
            case At.SEND:
                done = replace(dead, effect=True, row=True, stream=True)
                yield Move(f"attempt {index} writes effect and row", done)
            case At.ROW:
                yield Move(f"attempt {index} writes its row", replace(dead, row=True, stream=True))
            case At.EFFECT:
                yield Move(f"attempt {index} writes its effect", replace(dead, effect=True))

    # -- the publisher -------------------------------------------------------------------------------------------

    def _begun(self, world: World, index: int) -> Moves:
        first = At.PUBLISH if self.holds(C.PUBLISHED_BEFORE_DELETED) else At.DELETE
        if world.stream:
            begun = _publisher_at(replace(world, stream=False), index, Place(first))
            yield Move(f"the stream starts publisher {index}", begun)
            yield Move(f"the stream starts publisher {index}, and will again", replace(begun, stream=True), fault=True)
        if world.row and self.holds(C.SWEPT):
            yield Move(f"the schedule starts publisher {index}", _publisher_at(world, index, Place(first)))

    def _publisher(self, world: World, index: int, place: Place) -> Moves:
        dead = _publisher_at(world, index, IDLE)
        yield Move(f"publisher {index} dies", dead, fault=True)
        published = replace(world, on_bus=min(2, world.on_bus + 1))
        match place.at:
            case At.PUBLISH:
                yield Move(f"publisher {index} publishes", _publisher_at(published, index, Place(At.DELETE)))
                lost = _publisher_at(published, index, IDLE)
                yield Move(f"publisher {index} publishes, and the answer is lost", lost, fault=True)
                refused = dead if self.holds(C.REFUSAL_LEAVES_ROW) else _publisher_at(world, index, Place(At.DELETE))
                yield Move(f"the bus does not take the event of publisher {index}", refused, fault=True)
            case At.DELETE:
                then = IDLE if self.holds(C.PUBLISHED_BEFORE_DELETED) else Place(At.LATE)
                yield Move(f"publisher {index} deletes the row", _publisher_at(replace(world, row=False), index, then))
            case At.LATE:
                yield Move(f"publisher {index} publishes", _publisher_at(published, index, IDLE))


def _attempt_at(world: World, index: int, place: Place) -> World:
    places = list(world.attempts)
    places[index] = place
    return replace(world, attempts=tuple(places))


def _publisher_at(world: World, index: int, place: Place) -> World:
    places = list(world.publishers)
    places[index] = place
    return replace(world, publishers=tuple(places))
