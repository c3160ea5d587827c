"""Model: one hold on one account, with all its operations, at any time, several at once.

Authorizations and captures are repeated under one id; a second capture has an id of its own. An invocation may die at
any moment; the transaction that it sent then stays in transit, and arrives later or never. Debits of the same account
run concurrently. Time passes the hold's expiry once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

HOLDS: Final = "lambda_src/saga_runtime/ledger/holds.py"
WRITES: Final = "lambda_src/saga_runtime/ledger/writes.py"
ITEMS: Final = "lambda_src/saga_runtime/ledger/items.py"


class HoldCondition(Condition):
    """Conditions of holds."""

    SEQUENCE_AS_READ = Because(
        "a balance is written only over the balance that was read", WRITES, "#sequence = :read AND #balance = :before"
    )
    HELD_AS_READ = Because(
        "what was available may be held since: the sum of the holds is as it was read", WRITES, "AND #held = :reserved"
    )
    HELD_COUNTS = Because(
        "what is held is not available to anything else", WRITES, "if net < 0 and after < account.held - released:"
    )
    HOLD_ABSENT = Because(
        "a hold is made once: a late authorization cannot hold again what was captured or released",
        HOLDS,
        "put_new(self.ledger.table, hold.item(now_ms), changed)",
    )
    HOLD_OPEN = Because("a hold is captured or released once", HOLDS, 'when("#state = :open", open=')
    HELD_WITH_HOLD = Because(
        "the hold and the account change in one transaction",
        HOLDS,
        "writes = [self._close(hold, HoldState.CAPTURED, now_ms, entry_id, took), *posting]",
    )
    WITHIN_HOLD = Because(
        "a capture takes at most what is held", HOLDS, "if captured.minor_units > hold.amount.minor_units:"
    )
    IN_TIME = Because("a hold is not captured when its time is over", HOLDS, "if now_ms >= hold.expires_at:")
    EXPIRES_BY_TIME = Because(
        "the sweeper releases only holds whose time is over", HOLDS, "or now_ms < hold.expires_at:"
    )
    DUE = Because(
        "an open hold is found when its time is over: no money stays held for a client that went away",
        ITEMS,
        "**due_fields(self.hold_id, self.expires_at)",
    )
    SAME_ID_REPLAYS = Because(
        "an operation that meets its own effect answers as it did before", HOLDS, "if found is not None:"
    )
    OTHER_ID_REFUSED = Because(
        "the effect of another operation is not its own",
        HOLDS,
        "if hold.state is HoldState.CAPTURED and hold.closed_by == entry_id:",
    )
    CAPTURED_IS_NOT_RELEASED = Because(
        "a void answers that nothing is held only if nothing was captured",
        HOLDS,
        "if hold.state is HoldState.CAPTURED: raise HoldClosed(",
    )


class HoldPromise(StrEnum):
    """Promises of the model."""

    OVERDRAWN = "OVERDRAWN"
    BALANCE_DIFFERS_FROM_ENTRIES = "BALANCE_DIFFERS_FROM_ENTRIES"
    HELD_DIFFERS_FROM_HOLDS = "HELD_DIFFERS_FROM_HOLDS"
    AUTHORIZED_TWICE = "AUTHORIZED_TWICE"
    CAPTURED_TWICE = "CAPTURED_TWICE"
    CAPTURED_ABOVE_HOLD = "CAPTURED_ABOVE_HOLD"
    CAPTURED_AND_RELEASED = "CAPTURED_AND_RELEASED"
    CAPTURED_AFTER_EXPIRY = "CAPTURED_AFTER_EXPIRY"
    RELEASED_BEFORE_EXPIRY = "RELEASED_BEFORE_EXPIRY"
    TOLD_REFUSED_ALTHOUGH_DONE = "TOLD_REFUSED_ALTHOUGH_DONE"
    TOLD_DONE_BY_ANOTHER = "TOLD_DONE_BY_ANOTHER"
    TOLD_RELEASED_BUT_CAPTURED = "TOLD_RELEASED_BUT_CAPTURED"


C, P = HoldCondition, HoldPromise
START: Final = 3
AMOUNT: Final = 2
"""What the hold holds; a debit takes 1."""


class State(StrEnum):
    """The hold's item."""

    NONE = "no hold"
    OPEN = "OPEN"
    CAPTURED = "CAPTURED"
    VOIDED = "VOIDED"
    EXPIRED = "EXPIRED"


class At(StrEnum):
    """States of an invocation."""

    IDLE = "idle"
    SEND = "about to send"
    HALF = "account written, hold not yet"
    TRAVELS = "dead, its transaction travels"


@dataclass(frozen=True, slots=True)
class Kind:
    """Operation of an invocation.

    Attributes:
        name: authorize, capture, void, expire, debit.
        id: of a capture, its entry id.
        amount: of a capture or debit.
    """

    name: str
    id: int = 0
    amount: int = 0

    def __str__(self) -> str:
        return f"{self.name}{f' {self.id} of {self.amount}' if self.id else ''}"


@dataclass(frozen=True, slots=True)
class Place:
    """An invocation: what it has read, and whether it was late when it planned."""

    at: At = At.IDLE
    balance: int = 0
    sequence: int = 0
    held: int = 0
    late: bool = False


IDLE: Final = Place()


@dataclass(frozen=True, slots=True)
class World:
    """Account, hold, and what every invocation is about to do.

    Attributes:
        balance, sequence, held: the account's item.
        state, by: the hold's item; ``by`` is the entry id of the capture.
        posted: what the entries sum to.
        opened, captures, released: how often each happened; counted to two.
        above: whether more was captured than was held.
        late: whether the hold's time is over.
    """

    balance: int = START
    sequence: int = 0
    held: int = 0
    state: State = State.NONE
    by: int = 0
    posted: int = START
    opened: int = 0
    captures: int = 0
    released: int = 0
    above: bool = False
    late: bool = False
    places: tuple[Place, ...] = ()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldModel(Conditional):
    """The model.

    Attributes:
        kinds: the invocations that there are; each place is used again and again.
    """

    kinds: tuple[Kind, ...] = ()

    def initial(self) -> World:
        """Nothing is held."""
        return World(places=(IDLE,) * len(self.kinds))

    def at_rest(self, world: World) -> bool:
        """Every invocation has answered, and nothing is held."""
        return world.state is not State.OPEN and all(place.at is At.IDLE for place in world.places)

    def broken(self, world: World) -> Iterator[str]:
        """Promises that account, hold and entries break."""
        half = any(place.at is At.HALF for place in world.places)
        if world.balance < 0 or (world.balance < world.held and not half):
            yield P.OVERDRAWN
        if world.balance != world.posted:
            yield P.BALANCE_DIFFERS_FROM_ENTRIES
        if not half and world.held != (AMOUNT if world.state is State.OPEN else 0):
            yield P.HELD_DIFFERS_FROM_HOLDS
        if world.opened > 1:
            yield P.AUTHORIZED_TWICE
        if world.captures > 1:
            yield P.CAPTURED_TWICE
        if world.above:
            yield P.CAPTURED_ABOVE_HOLD
        if world.captures and world.released:
            yield P.CAPTURED_AND_RELEASED

    def moves(self, world: World) -> Moves:
        """One move of one invocation, or of time."""
        if not world.late:
            yield Move("the hold's time is over", replace(world, late=True))
        for index, (kind, place) in enumerate(zip(self.kinds, world.places, strict=True)):
            for label, now, after, fault, breaks in self._ways(world, kind, place):
                places = (*world.places[:index], now, *world.places[index + 1 :])
                yield Move(f"{kind}: {label}", replace(after, places=places), fault=fault, breaks=breaks)

    def _ways(self, world: World, kind: Kind, place: Place) -> Iterator[tuple[str, Place, World, bool, str | None]]:
        if place.at is At.IDLE:
            yield self._plan(world, kind)
            return
        if place.at is At.HALF:
            yield "closes the hold", IDLE, self._closed(world, kind), False, None
            yield "dies before it closes the hold", IDLE, world, True, None
            return
        if place.at is At.TRAVELS:
            yield "of the dead: its transaction is lost", IDLE, world, False, None
        else:
            yield "dies", IDLE, world, True, None
            yield "dies, and its transaction travels", replace(place, at=At.TRAVELS), world, True, None
        if not self._lands(world, kind, place):
            yield "is refused, and plans again", IDLE, world, False, None
            return
        breaks = None
        if kind.name == "capture" and place.late:
            breaks = P.CAPTURED_AFTER_EXPIRY
        elif kind.name == "expire" and not place.late:
            breaks = P.RELEASED_BEFORE_EXPIRY
        after = self._applied(world, kind, place)
        if kind.name in {"capture", "void", "expire"} and not self.holds(C.HELD_WITH_HOLD):
            yield "writes the account", replace(place, at=At.HALF), after, False, breaks
            return
        if kind.name != "debit":
            after = self._closed(after, kind)
        yield "commits", IDLE, after, False, breaks
        if place.at is At.SEND:
            yield "commits; the answer is lost, and it sends again", place, after, True, breaks

    # -- what an invocation decides by what it reads ----------------------------------------------------------------

    def _plan(self, world: World, kind: Kind) -> tuple[str, Place, World, bool, str | None]:
        send = Place(At.SEND, world.balance, world.sequence, world.held, world.late)
        available = world.balance - (world.held if self.holds(C.HELD_COUNTS) else 0)
        refused = ("is refused by what it has read", IDLE, world, False, None)
        if kind.name == "debit":
            return ("plans", send, world, False, None) if available >= kind.amount else refused
        if kind.name == "authorize":
            return self._authorize(world, send, available)
        if kind.name == "capture":
            return self._capture(world, kind, send)
        return self._release(world, kind, send)

    def _authorize(self, world: World, send: Place, available: int) -> tuple[str, Place, World, bool, str | None]:
        if world.opened and self.holds(C.SAME_ID_REPLAYS):
            return "answers: held before", IDLE, world, False, None
        if available < AMOUNT:
            lie = P.TOLD_REFUSED_ALTHOUGH_DONE if world.opened else None
            return "is refused by what it has read", IDLE, world, False, lie
        return "plans", send, world, False, None

    def _capture(self, world: World, kind: Kind, send: Place) -> tuple[str, Place, World, bool, str | None]:
        mine = world.captures > 0 and world.by == kind.id
        replays = world.state is State.CAPTURED and self.holds(C.SAME_ID_REPLAYS)
        if replays and (mine or not self.holds(C.OTHER_ID_REFUSED)):
            lie = None if mine else P.TOLD_DONE_BY_ANOTHER
            return "answers: captured before", IDLE, world, False, lie
        if world.state is not State.OPEN:
            lie = P.TOLD_REFUSED_ALTHOUGH_DONE if mine else None
            return f"is refused: {world.state}", IDLE, world, False, lie
        if world.late and self.holds(C.IN_TIME):
            return "is refused: its time is over", IDLE, world, False, None
        if kind.amount > AMOUNT and self.holds(C.WITHIN_HOLD):
            return "is refused: above the hold", IDLE, world, False, None
        return "plans", send, world, False, None

    def _release(self, world: World, kind: Kind, send: Place) -> tuple[str, Place, World, bool, str | None]:
        if kind.name == "expire":
            found = self.holds(C.DUE) and (world.late or not self.holds(C.EXPIRES_BY_TIME))
            if world.state is State.OPEN and found:
                return "finds the hold due", send, world, False, None
            return "finds nothing due", IDLE, world, False, None
        if world.state is State.OPEN:
            return "plans", send, world, False, None
        if world.state is State.CAPTURED and not self.holds(C.CAPTURED_IS_NOT_RELEASED):
            return "answers: nothing is held", IDLE, world, False, P.TOLD_RELEASED_BUT_CAPTURED
        return f"answers: {world.state}", IDLE, world, False, None

    # -- what DynamoDB does -----------------------------------------------------------------------------------------

    def _lands(self, world: World, kind: Kind, place: Place) -> bool:
        as_read = (place.sequence == world.sequence or not self.holds(C.SEQUENCE_AS_READ)) and (
            place.held == world.held or not self.holds(C.HELD_AS_READ)
        )
        is_open = world.state is State.OPEN or not self.holds(C.HOLD_OPEN)
        match kind.name:
            case "debit":
                return as_read
            case "authorize":
                return as_read and (world.state is State.NONE or not self.holds(C.HOLD_ABSENT))
            case "capture":
                return as_read and is_open
            case _:
                return is_open

    def _applied(self, world: World, kind: Kind, place: Place) -> World:
        """The account and its entries."""
        match kind.name:
            case "authorize":
                return replace(world, held=place.held + AMOUNT)
            case "debit" | "capture":
                return replace(
                    world,
                    balance=place.balance - kind.amount,
                    sequence=world.sequence + 1,
                    held=place.held - (AMOUNT if kind.name == "capture" else 0),
                    posted=world.posted - kind.amount,
                )
            case _:
                return replace(world, held=world.held - AMOUNT)

    @staticmethod
    def _closed(world: World, kind: Kind) -> World:
        """The hold."""
        match kind.name:
            case "authorize":
                return replace(world, state=State.OPEN, opened=min(world.opened + 1, 2))
            case "capture":
                return replace(
                    world,
                    state=State.CAPTURED,
                    by=kind.id,
                    captures=min(world.captures + 1, 2),
                    above=world.above or kind.amount > AMOUNT,
                )
            case name:
                ended = State.VOIDED if name == "void" else State.EXPIRED
                return replace(world, state=ended, released=min(world.released + 1, 2))
