"""Model: check-and-set of one item, by operations that are repeated under one id.

Each operation reads the version and sends its update. The answer may be lost, what was sent may travel and arrive late,
a process may die and its work be delivered again: then it reads again, under the same id. A refused one has to find out
whether the item was changed by others, or by the operation itself.

Forms of finding out: by a marker in the update's transaction (``MARKER``), and the naive ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

ITEMS = "lambda_src/saga_runtime/versions/items.py"
ONCE = "lambda_src/saga_runtime/versions/once.py"
TRANSACTION = "lambda_src/saga_runtime/saga_log/transaction.py"


class VersionCondition(Condition):
    """Conditions of check-and-set."""

    MARKER_ABSENT = Because(
        "an operation's marker is written where there was none before: it takes effect once",
        ONCE,
        '"ConditionExpression": "attribute_not_exists(#key)",',
    )
    SAME_TRANSACTION = Because(
        "the marker takes effect with the update, or neither does",
        ONCE,
        'return {"Put": put}, commit.writes',
    )
    MARKER_BEFORE_VERSION = Because(
        "when marker and version refuse, the marker decides: the operation itself may have raised the version",
        TRANSACTION,
        "if 0 in refused.items: return None",
    )
    VERSIONS_GROW = Because(
        "a version belongs to one state of the item for ever",
        ITEMS,
        '{VERSION: f"#{VERSION} + :one"',
    )


class VersionPromise(StrEnum):
    """Promises that must never be broken."""

    UPDATED_TWICE = "UPDATED_TWICE"
    DONE_BY_ANOTHER = "DONE_BY_ANOTHER"
    CONFLICT_BUT_UPDATED = "CONFLICT_BUT_UPDATED"


C, P = VersionCondition, VersionPromise


class Form(StrEnum):
    """Evidence that a refused operation takes for its own success."""

    MARKER = "its marker"
    NEXT_VERSION = "version = expected + 1"
    LAST_ID = "its id, as the last one on the item"
    LAST_TWO_IDS = "its id, among the last two on the item"


class At(StrEnum):
    """Place of an operation in its work."""

    READ = "about to read"
    SEND = "about to send"
    MARK = "updated, its marker not yet written"
    DONE = "reported as done"
    CONFLICT = "reported as a conflict"


@dataclass(frozen=True, slots=True)
class Place:
    """An operation: the version that it expects, and that which a travelling request of it expects (0: none)."""

    at: At = At.READ
    expected: int = 0
    travels: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """Everything; ``updates`` counts each operation's, two are twice; ``ids`` are the last two on the item."""

    places: tuple[Place, ...]
    updates: tuple[int, ...]
    version: int = 1
    markers: frozenset[int] = frozenset()
    ids: tuple[int, ...] = ()
    replaced: bool = False


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionModel(Conditional):
    """The model.

    Attributes:
        form: how an operation finds out that it was itself.
        operations: how many there are.
        rereads: whether an operation reads again, under the same id, after a conflict or a new delivery.
        versions: the largest version.
    """

    form: Form = Form.MARKER
    operations: int = 3
    rereads: bool = True
    versions: int = 5

    def initial(self) -> World:
        """Version 1, and nothing asked yet."""
        return World((Place(),) * self.operations, (0,) * self.operations)

    def at_rest(self, world: World) -> bool:
        """Every operation has its answer, or has not begun."""
        return all(place.at in {At.READ, At.DONE, At.CONFLICT} for place in world.places)

    def broken(self, world: World) -> Iterator[str]:
        """Results of an operation are true of it, and of no other."""
        for place, updates in zip(world.places, world.updates, strict=True):
            if updates > 1:
                yield P.UPDATED_TWICE
            if place.at is At.DONE and not updates:
                yield P.DONE_BY_ANOTHER
            if place.at is At.CONFLICT and updates:
                yield P.CONFLICT_BUT_UPDATED

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for index, place in enumerate(world.places):
            if place.travels:
                landed = self._landed(world, index, place.travels)
                what = "is refused" if landed is None else "arrives"
                yield Move(f"what {index} sent {what}", _at(landed or world, index, replace(place, travels=0)))
            match place.at:
                case At.READ:
                    reading = replace(place, at=At.SEND, expected=world.version)
                    yield Move(f"{index} reads version {world.version}", _at(world, index, reading))
                case At.SEND:
                    yield from self._send(world, index, place)
                case At.MARK:
                    marked = replace(world, markers=world.markers | {index})
                    yield Move(f"{index} writes its marker", _at(marked, index, replace(place, at=At.DONE)))
                    again = _at(world, index, replace(place, at=At.READ))
                    yield Move(f"{index} dies, and is delivered again", again, fault=True)
                case At.DONE | At.CONFLICT:
                    pass
        if not self.holds(C.VERSIONS_GROW) and world.version > 1 and not world.replaced:
            yield Move("the item is deleted, and created again", replace(world, version=1, replaced=True))

    def _send(self, world: World, index: int, place: Place) -> Moves:
        landed = self._landed(world, index, place.expected)
        if landed is not None:
            then = At.DONE if self.form is not Form.MARKER or self.holds(C.SAME_TRANSACTION) else At.MARK
            change = f"{index} updates {place.expected} to {landed.version}"
            yield Move(change, _at(landed, index, replace(place, at=then)))
            yield Move(f"{change}, and the answer is lost", _at(landed, index, place), fault=True)
        else:
            mine = self._mine(world, index, place)
            result = f"{index} is refused at version {world.version}: {'done before' if mine else 'a conflict'}"
            yield Move(result, _at(world, index, replace(place, at=At.DONE if mine else At.CONFLICT)))
            if self.rereads and not mine:
                yield Move(f"{result}, reads again", _at(world, index, replace(place, at=At.READ)))
        if not place.travels:
            travels = replace(place, travels=place.expected)
            yield Move(f"{index} sends, which travels, and sends again", _at(world, index, travels), fault=True)
        if self.rereads:
            again = _at(world, index, replace(place, at=At.READ))
            yield Move(f"{index} dies, and is delivered again", again, fault=True)

    def _landed(self, world: World, index: int, expected: int) -> World | None:
        """With an update, or None if it is refused."""
        if self.form is Form.MARKER and index in world.markers and self.holds(C.MARKER_ABSENT):
            return None
        if expected != world.version or world.version >= self.versions:
            return None
        marks = self.form is Form.MARKER and self.holds(C.SAME_TRANSACTION)
        keeps = self.form in {Form.LAST_ID, Form.LAST_TWO_IDS}
        updates = tuple(min(2, n + (other == index)) for other, n in enumerate(world.updates))
        return replace(
            world,
            version=world.version + 1,
            updates=updates,
            markers=world.markers | {index} if marks else world.markers,
            ids=(index, *world.ids)[:2] if keeps else (),
        )

    def _mine(self, world: World, index: int, place: Place) -> bool:
        """True if the refused operation takes itself for done."""
        match self.form:
            case Form.NEXT_VERSION:
                return world.version == place.expected + 1
            case Form.LAST_ID:
                return world.ids[:1] == (index,)
            case Form.LAST_TWO_IDS:
                return index in world.ids
            case Form.MARKER:
                heeded = self.holds(C.MARKER_BEFORE_VERSION) or world.version == place.expected
                return heeded and index in world.markers


def _at(world: World, index: int, place: Place) -> World:
    places = list(world.places)
    places[index] = place
    return replace(world, places=tuple(places))
