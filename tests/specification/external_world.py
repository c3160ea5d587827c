"""Model of the external step: what there is, and what every write does to the row.

Time is cut down to what matters: an invocation's deadline passes, and then the grace, in which what it sent still
travels. Attempts are named by the number of the invocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.conditions import Condition
from tests.specification.external_conditions import ExternalCondition as C
from tests.specification.states import replace

NOBODY: Final = -1


class Status(StrEnum):
    """States of the log row."""

    NONE = "no row"
    INTENT = "INTENT"
    DONE = "DONE"
    FAILED = "FAILED"
    TOMBSTONE = "TOMBSTONE"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"


IN_DOUBT: Final = frozenset({Status.INTENT, Status.COMPENSATING})
NOTHING_STANDS: Final = frozenset({Status.FAILED, Status.TOMBSTONE, Status.COMPENSATED})


@dataclass(frozen=True, slots=True)
class Row:
    """The log row, and the attempt that holds it while it is in doubt."""

    status: Status = Status.NONE
    attempt: int = NOBODY


class Role(StrEnum):
    """Purposes of an invocation."""

    STEP = "step"
    UNDO = "undo"
    ASK = "ask"


class At(StrEnum):
    """States of an invocation."""

    IDLE = "idle"
    BEGIN = "about to write INTENT"
    VERIFY = "about to ask the provider"
    TAKE_OVER = "about to take over"
    CALL = "about to call"
    WAIT = "waiting for the provider"
    WRITE_DONE = "about to write DONE"
    WRITE_FAILED = "about to write FAILED"
    BURY = "about to fence a step that has not begun"
    BURY_DOUBT = "about to fence a step in doubt"
    WRITE_UNDOING = "about to write COMPENSATING"
    VERIFY_UNDO = "about to ask about the undo"
    TAKE_OVER_UNDO = "about to take the undo over"
    CALL_UNDO = "about to call the undo"
    WAIT_UNDO = "waiting for the undo"
    WRITE_UNDONE = "about to write COMPENSATED"
    OVER = "over"
    """It has answered, or died; but the row names it, or something that it sent is on its way."""


WRITES: Final = frozenset(
    {
        At.BEGIN,
        At.TAKE_OVER,
        At.WRITE_DONE,
        At.WRITE_FAILED,
        At.BURY,
        At.BURY_DOUBT,
        At.WRITE_UNDOING,
        At.TAKE_OVER_UNDO,
        At.WRITE_UNDONE,
    }
)
"""A write that was sent travels when its sender dies, for as long as it likes: conditions alone must refuse it."""
_USES_WHAT_IT_READ: Final = frozenset(
    {At.VERIFY, At.TAKE_OVER, At.WRITE_DONE, At.BURY_DOUBT, At.VERIFY_UNDO, At.TAKE_OVER_UNDO}
)


class Life(StrEnum):
    """State of an invocation, as known from its deadline."""

    ALIVE = "before the deadline"
    DEAD = "past the deadline, within the grace"
    GONE = "past the grace"


class Key(StrEnum):
    """Request and key."""

    STEP = "call"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation.

    Attributes:
        at: where it is.
        life: whether its deadline has passed, and the grace.
        read: the attempt that it found in the row.
        decisive: whether a refusal of its request counts.
        sent: requests of it that have not arrived.
    """

    at: At = At.IDLE
    life: Life = Life.ALIVE
    read: int = NOBODY
    decisive: bool = False
    sent: tuple[Key, ...] = ()

    @property
    def alive(self) -> bool:
        """True if its deadline is still to come."""
        return self.life is Life.ALIVE


IDLE: Final = Invocation()


@dataclass(frozen=True, slots=True)
class Books:
    """The provider's books: how often the effect was granted and taken back, both counted to two."""

    applied: int = 0
    undone: int = 0

    @property
    def stands(self) -> bool:
        """True if the effect is applied."""
        return self.applied > self.undone


@dataclass(frozen=True, slots=True)
class World:
    """The whole state.

    Attributes:
        row: the log row.
        invocations: all concurrent ones; a place is reused when nothing of the last is left.
        books: the provider's.
        dying: invocations in their grace, in the order of their deadlines.
        forgotten: keys that the provider no longer knows, because their window is over.
        compensated: whether a compensation ever returned that no effect remains.
        went_back: whether a query ever returned so.
    """

    row: Row
    invocations: tuple[Invocation, ...]
    books: Books = Books()
    dying: tuple[int, ...] = ()
    forgotten: frozenset[Key] = frozenset()
    compensated: bool = False
    went_back: bool = False

    def with_invocation(self, index: int, invocation: Invocation) -> World:
        """The world with an invocation changed."""
        return replace(self, invocations=(*self.invocations[:index], invocation, *self.invocations[index + 1 :]))

    def life_of(self, attempt: int) -> Life:
        """State of an attempt according to the row's deadline."""
        return self.invocations[attempt].life


def tidy(world: World) -> World:
    """Remove irrelevant data of invocations."""
    invocations = tuple(
        invocation
        if invocation.read == NOBODY or invocation.at in _USES_WHAT_IT_READ
        else replace(invocation, read=NOBODY)
        for invocation in world.invocations
    )
    named = {world.row.attempt, *(invocation.read for invocation in invocations)}
    invocations = tuple(
        IDLE if invocation.at is At.OVER and not invocation.sent and index not in named else invocation
        for index, invocation in enumerate(invocations)
    )
    dying = tuple(index for index in world.dying if invocations[index].life is Life.DEAD)
    if invocations == world.invocations and dying == world.dying:
        return world
    return replace(world, invocations=invocations, dying=dying)


def land(row: Row, at: At, attempt: int, read: int, off: frozenset[Condition]) -> Row | None:
    """The row after a write of an attempt arrived; None if the row refuses it.

    Args:
        row: what the write meets.
        at: which write.
        attempt: the writer.
        read: the attempt that the writer read.
        off: conditions that are left out.
    """
    intent = row.status is Status.INTENT
    held = intent and row.attempt == read
    undoing = row.status is Status.COMPENSATING
    new, accepted = {
        At.BEGIN: (Row(Status.INTENT, attempt), row.status is Status.NONE or C.INTENT_NO_ROW in off),
        At.TAKE_OVER: (Row(Status.INTENT, attempt), held or (intent and C.TAKE_OVER_HELD in off)),
        At.WRITE_DONE: (Row(Status.DONE), _done(row, attempt, read, off)),
        At.WRITE_FAILED: (Row(Status.FAILED), intent and (row.attempt == attempt or C.REFUSAL_HELD in off)),
        At.BURY: (Row(Status.TOMBSTONE), row.status is Status.NONE or C.BURY_NO_ROW in off),
        At.BURY_DOUBT: (Row(Status.TOMBSTONE), held or (intent and C.BURY_HELD in off)),
        At.WRITE_UNDOING: (Row(Status.COMPENSATING, attempt), row.status is Status.DONE or C.UNDOING_DONE in off),
        At.TAKE_OVER_UNDO: (
            Row(Status.COMPENSATING, attempt),
            undoing and (row.attempt == read or C.UNDO_TAKE_OVER_HELD in off),
        ),
        At.WRITE_UNDONE: (Row(Status.COMPENSATED), undoing or C.UNDONE_UNDOING in off),
    }[at]
    return new if accepted else None


def _done(row: Row, attempt: int, read: int, off: frozenset[Condition]) -> bool:
    """DONE is written for the attempt that was asked about, or for one's own."""
    intent = row.status is Status.INTENT or C.DONE_INTENT in off
    held = row.attempt == (attempt if read == NOBODY else read) or C.DONE_HELD in off
    return intent and held
