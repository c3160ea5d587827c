"""Model of the external step: the functions. What an invocation does about what it finds, hears, and is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.external_conditions import ExternalCondition as C
from tests.specification.external_conditions import ExternalPromise
from tests.specification.external_provider import Offers
from tests.specification.external_world import (
    IN_DOUBT,
    NOTHING_STANDS,
    WRITES,
    At,
    Invocation,
    Key,
    Life,
    Role,
    Row,
    Status,
    World,
    land,
)
from tests.specification.states import replace

Moves = Iterator[Move[World]]

_CALLED_UNDER: Final = {At.CALL: Key.STEP, At.CALL_UNDO: Key.UNDO}
_HOLDS_THE_ROW: Final = frozenset({At.BEGIN, At.TAKE_OVER, At.WRITE_UNDOING, At.TAKE_OVER_UNDO})
_TO_WRITE: Final = {
    At.BEGIN: "writes INTENT",
    At.TAKE_OVER: "takes over",
    At.WRITE_DONE: "writes DONE",
    At.WRITE_FAILED: "writes FAILED",
    At.BURY: "writes TOMBSTONE",
    At.BURY_DOUBT: "writes TOMBSTONE over INTENT",
    At.WRITE_UNDOING: "writes COMPENSATING",
    At.TAKE_OVER_UNDO: "takes the undo over",
    At.WRITE_UNDONE: "writes COMPENSATED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions(Conditional):
    """The functions of a step, of its compensation, and the step's in the mode in which it only asks.

    Attributes:
        offers: what the provider offers.
        roles: what each invocation is for.
        names: how each is called in a trace.
    """

    offers: Offers
    roles: tuple[Role, ...]
    names: tuple[str, ...]

    def at_work(self, world: World, index: int) -> Moves:
        """Next moves of an invocation, or of the write that it sent before it died."""
        invocation = world.invocations[index]
        if invocation.at in WRITES:
            yield from self._writes(world, index, invocation)
        elif invocation.at in _CALLED_UNDER:
            yield self._calls(world, index, invocation)
        elif invocation.at in {At.WAIT, At.WAIT_UNDO}:
            yield from self._waits_no_longer(world, index, invocation)
        elif invocation.at in {At.VERIFY, At.VERIFY_UNDO}:
            yield from self._verifies(world, index, invocation)

    def _become(
        self, world: World, index: int, label: str, invocation: Invocation, *, fault: bool = False
    ) -> Move[World]:
        return Move(f"{self.names[index]} {label}", world.with_invocation(index, invocation), fault=fault)

    def _calls(self, world: World, index: int, invocation: Invocation) -> Move[World]:
        key = _CALLED_UNDER[invocation.at]
        waits = At.WAIT if key is Key.STEP else At.WAIT_UNDO
        now = replace(invocation, at=waits if invocation.alive else At.OVER, sent=(*invocation.sent, key))
        return self._become(world, index, f"sends its {key}", now)

    def _waits_no_longer(self, world: World, index: int, invocation: Invocation) -> Moves:
        over = replace(invocation, at=At.OVER)
        yield self._become(world, index, "gets no answer, and its request travels on: in doubt", over, fault=True)
        if invocation.at is At.WAIT and invocation.decisive and not self.holds(C.CLEAR_REFUSAL):
            failed = replace(invocation, at=At.WRITE_FAILED)
            yield self._become(world, index, "takes a broken connection for a refusal", failed, fault=True)
        if not self.holds(C.ONE_CALL) and len(invocation.sent) == 1:
            again = replace(invocation, sent=invocation.sent * 2)
            yield self._become(world, index, "gets no answer, and sends the same once more", again, fault=True)

    # -- what they find in the row ----------------------------------------------------------------------------------

    def enters(self, world: World, index: int) -> Moves:
        """Decision of an invocation for the row that it finds when it begins."""
        if self.roles[index] is Role.STEP:
            yield from self._step_finds(world, index)
        else:
            yield from self._undo_finds(world, index)

    def _step_finds(self, world: World, index: int) -> Moves:
        """A step's first write is refused by whatever row there is; what it finds there is as fresh as can be."""
        row = world.row
        calls = Invocation(At.CALL, decisive=True)
        if row.status is Status.NONE:
            begins = Invocation(At.BEGIN) if self.holds(C.INTENT_FIRST) else calls
            yield self._become(world, index, "is invoked", begins)
        elif row.status is Status.INTENT:
            yield from self._step_finds_doubt(world, index, row.attempt)
        elif row.status is Status.DONE:
            lie = None if world.books.stands else ExternalPromise.ANSWERED_DONE_WITHOUT_EFFECT
            yield Move(f"{self.names[index]} answers with the stored output", world, breaks=lie)
            if not self.holds(C.REPLAYS):
                yield self._become(world, index, "finds DONE, and continues", calls)
        elif not self.holds(C.REFUSAL_STAYS if row.status is Status.FAILED else C.FENCED):
            yield self._become(world, index, f"finds {row.status}, and continues", calls)

    def _step_finds_doubt(self, world: World, index: int, attempt: int) -> Moves:
        life = world.life_of(attempt)
        if self._may_repeat(Key.STEP, world) and (life is not Life.ALIVE or not self.holds(C.CALL_AFTER_DEADLINE)):
            yield self._goes_to_take_over(world, index, attempt, "finds INTENT, and repeats the call")
        if self.offers.verify and (life is Life.GONE or (life is Life.DEAD and not self.holds(C.CALL_AFTER_GRACE))):
            yield self._become(world, index, "finds INTENT", Invocation(At.VERIFY, read=attempt))

    def _may_repeat(self, key: Key, world: World) -> bool:
        idempotent = self.offers.idempotent if key is Key.STEP else self.offers.undo_idempotent
        return idempotent and (key not in world.forgotten or not self.holds(C.WINDOW_OPEN))

    def _goes_to_take_over(self, world: World, index: int, attempt: int, label: str) -> Move[World]:
        at = At.TAKE_OVER if self.holds(C.TAKE_OVER_FIRST) else At.CALL
        decisive = world.life_of(attempt) is Life.GONE
        alive = world.invocations[index].life
        return self._become(world, index, label, Invocation(at, alive, attempt, decisive))

    def _undo_finds(self, world: World, index: int) -> Moves:
        """Decision of a compensation, or of a query, for the row."""
        row, asks = world.row, self.roles[index] is Role.ASK
        if row.status is Status.NONE:
            if self.holds(C.ASK_BURIES if asks else C.BURY):
                yield self._become(world, index, "finds no row", Invocation(At.BURY))
            else:
                yield self._told_nothing_stands(world, index, "finds no row")
        elif row.status is Status.INTENT:
            yield from self._undo_finds_doubt(world, index, row.attempt)
        elif row.status in NOTHING_STANDS:
            yield self._told_nothing_stands(world, index, f"finds {row.status}")
        elif row.status is Status.DONE:
            yield self._finds_done(world, index)
        elif asks:
            yield self._told_nothing_stands(world, index, "finds COMPENSATING")
        else:
            yield from self._finds_undoing(world, index, row.attempt)

    def _undo_finds_doubt(self, world: World, index: int, attempt: int) -> Moves:
        """A compensation would rather ask than make the step happen only to undo it."""
        life = world.life_of(attempt)
        if life is not Life.GONE and (life is Life.ALIVE or self.holds(C.BURY_AFTER_GRACE)):
            return
        if self.offers.verify:
            yield self._become(world, index, "finds INTENT", Invocation(At.VERIFY, read=attempt))
        elif self._may_repeat(Key.STEP, world):
            yield self._goes_to_take_over(world, index, attempt, "finds INTENT, and repeats the call to learn more")

    def _finds_done(self, world: World, index: int) -> Move[World]:
        if self.roles[index] is Role.ASK:
            return self._told_it_stands(world, index, "finds DONE")
        at = At.WRITE_UNDOING if self.holds(C.UNDOING_FIRST) else At.CALL_UNDO
        return self._become(world, index, "finds DONE", replace(world.invocations[index], at=at))

    def _finds_undoing(self, world: World, index: int, attempt: int) -> Moves:
        life = world.life_of(attempt)
        at = At.TAKE_OVER_UNDO if self.holds(C.UNDO_TAKE_OVER_FIRST) else At.CALL_UNDO
        if life is Life.ALIVE and self.holds(C.UNDO_AFTER_DEADLINE):
            return
        if self._may_repeat(Key.UNDO, world):
            yield self._become(world, index, "finds COMPENSATING, and repeats the undo", Invocation(at, read=attempt))
        elif self.offers.verify_undo:
            yield self._become(world, index, "finds COMPENSATING", Invocation(At.VERIFY_UNDO, read=attempt))
        elif not self.holds(C.UNDECIDED_PARKS):
            yield self._become(world, index, "finds COMPENSATING, and repeats the undo", Invocation(at, read=attempt))

    def _told_nothing_stands(self, world: World, index: int, label: str) -> Move[World]:
        if self.roles[index] is Role.STEP:
            return self._become(world, index, f"{label}: refused", self._over(world, index))
        asks = self.roles[index] is Role.ASK
        told = replace(world, went_back=True) if asks else replace(world, compensated=True)
        answer = "the saga compensates" if asks else "no effect remains"
        return self._become(told, index, f"{label}: {answer}", self._over(world, index))

    def _told_it_stands(self, world: World, index: int, label: str) -> Move[World]:
        """Result of a step or of a query: the saga continues."""
        asks = self.roles[index] is Role.ASK
        lie = ExternalPromise.WENT_FORWARD_WITHOUT_EFFECT if asks else ExternalPromise.ANSWERED_DONE_WITHOUT_EFFECT
        answer = "the saga goes forward" if asks else "done"
        move = self._become(world, index, f"{label}: {answer}", self._over(world, index))
        return replace(move, breaks=None if world.books.applied else lie)

    @staticmethod
    def _over(world: World, index: int) -> Invocation:
        return replace(world.invocations[index], at=At.OVER)

    # -- the provider's responses -----------------------------------------------------------------------------------

    def _verifies(self, world: World, index: int, invocation: Invocation) -> Moves:
        undo = invocation.at is At.VERIFY_UNDO
        happened = world.books.undone if undo else world.books.applied
        if happened:
            yield self._hears_yes(world, index, invocation)
        else:
            yield self._hears_no(world, index, invocation, "hears that it did not happen")
        if self.holds(C.CLEAR_NO):
            over = self._over(world, index)
            yield self._become(world, index, "hears that it is pending, or unknown: in doubt", over, fault=True)
        else:
            no = self._hears_no(world, index, invocation, "takes pending, or unknown, for a no")
            yield replace(no, fault=True)

    def _hears_yes(self, world: World, index: int, invocation: Invocation) -> Move[World]:
        if invocation.at is At.VERIFY_UNDO:
            return self._become(world, index, "hears that it was undone", replace(invocation, at=At.WRITE_UNDONE))
        if self.roles[index] is Role.ASK and not self.holds(C.ASK_WRITES):
            return self._told_it_stands(world, index, "hears that it happened")
        return self._become(world, index, "hears that it happened", replace(invocation, at=At.WRITE_DONE))

    def _hears_no(self, world: World, index: int, invocation: Invocation, label: str) -> Move[World]:
        if invocation.at is At.VERIFY_UNDO:
            if world.life_of(invocation.read) is not Life.GONE and self.holds(C.UNDO_AFTER_GRACE):
                return self._become(world, index, f"{label}, within the grace: in doubt", self._over(world, index))
            at = At.TAKE_OVER_UNDO if self.holds(C.UNDO_TAKE_OVER_FIRST) else At.CALL_UNDO
            return self._become(world, index, label, replace(invocation, at=at))
        if self.roles[index] is Role.STEP:
            return self._goes_to_take_over(world, index, invocation.read, label)
        if self.roles[index] is Role.ASK and not self.holds(C.ASK_WRITES):
            return self._told_nothing_stands(world, index, label)
        return self._become(world, index, label, replace(invocation, at=At.BURY_DOUBT))

    # -- what they write --------------------------------------------------------------------------------------------

    def _writes(self, world: World, index: int, invocation: Invocation) -> Moves:
        row = land(world.row, invocation.at, index, invocation.read, self.off)
        if not invocation.alive:
            yield from self._travelling_write(world, index, invocation, row)
            return
        own = world.row.attempt == index and world.row.status in IN_DOUBT
        if row is None and not (own and self.holds(C.OWN_INTENT)):
            over = self._over(world, index)
            yield self._become(world, index, f"{_TO_WRITE[invocation.at]}: refused", over)
            return
        written = world if row is None else replace(world, row=row)
        yield self._goes_on(written, index, invocation)
        if row is not None and invocation.at in _HOLDS_THE_ROW:
            label = f"{_TO_WRITE[invocation.at]}; the answer is lost, and it sends again"
            yield self._become(written, index, label, invocation, fault=True)

    def _travelling_write(self, world: World, index: int, invocation: Invocation, row: Row | None) -> Moves:
        over = world.with_invocation(index, replace(invocation, at=At.OVER))
        if row is None:
            yield Move(f"{self.names[index]}, long dead: its write is refused", over)
        else:
            yield Move(f"{self.names[index]}, long dead, {_TO_WRITE[invocation.at]}", replace(over, row=row))
            yield Move(f"{self.names[index]}, long dead: its write is lost", over, fault=True)

    def _goes_on(self, world: World, index: int, invocation: Invocation) -> Move[World]:
        """State after a write that the row accepted, or had accepted before."""
        label = _TO_WRITE[invocation.at]
        match invocation.at:
            case At.BEGIN:
                return self._become(world, index, label, Invocation(At.CALL, decisive=True))
            case At.TAKE_OVER:
                return self._become(world, index, label, replace(invocation, at=At.CALL))
            case At.WRITE_UNDOING | At.TAKE_OVER_UNDO:
                return self._become(world, index, label, replace(invocation, at=At.CALL_UNDO))
            case At.WRITE_DONE if self.roles[index] is Role.UNDO:
                at = At.WRITE_UNDOING if self.holds(C.UNDOING_FIRST) else At.CALL_UNDO
                return self._become(world, index, label, replace(invocation, at=at))
            case At.WRITE_DONE:
                return self._told_it_stands(world, index, label)
            case _:
                return self._told_nothing_stands(world, index, label)
