"""Model of the callback step: the saga that waits for it, its compensation, and late compensation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.specification.callback_conditions import CallbackCondition as C
from tests.specification.callback_world import (
    CHAIN,
    LATE_UNDO,
    LONG_DEAD,
    NOTHING_STANDS,
    At,
    Log,
    Row,
    SagaAt,
    World,
)
from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.states import replace

Moves = Iterator[Move[World]]

_HOLDING = frozenset({SagaAt.VOID, SagaAt.VOIDED})
_TO_PARK = {SagaAt.PARKING: SagaAt.PARKED, SagaAt.STANDS: SagaAt.PARKED_OVER_LOG}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sagas(Conditional):
    """The saga, its compensation, and the execution that compensates late effects.

    Attributes:
        attempts: maximum number of waits for the step.
        passes: whether a refusal is skipped.
        only_forward: whether the step is after the pivot.
        blunt: whether the provider, when queried, denies an undecided job.
        goes_back: whether a later step may make the saga compensate.
    """

    attempts: int = 2
    passes: bool = False
    only_forward: bool = False
    blunt: bool = False
    goes_back: bool = False

    def moves(self, world: World) -> Moves:
        """Next moves of the saga, and of late compensation."""
        yield from self._saga(world)
        yield from self._late(world)
        if world.due and world.row.status is Log.COMPENSATED:
            yield Move("the sweeper finds it undone", replace(world, due=False))

    def _to(self, world: World, label: str, at: SagaAt, *, fault: bool = False, row: Row | None = None) -> Move[World]:
        after = replace(world, saga=replace(world.saga, at=at), row=row or world.row)
        return Move(f"the saga {label}", after, fault=fault)

    def _saga(self, world: World) -> Moves:
        match world.saga.at:
            case SagaAt.WAIT:
                if world.saga.attempt < self.attempts:
                    # By either name of AWS: a lost heartbeat, or the attempt's own time.
                    yield self._waits_again(world, "times out, and waits once more", fault=True)
                yield replace(self._gives_up(world, "times out, and fails"), fault=True)
            case SagaAt.REFUSED if self.passes:
                passed = replace(world, saga=replace(world.saga, passed=True))
                yield self._to(passed, "passes the step over", SagaAt.ONWARD)
            case SagaAt.REFUSED:
                yield self._gives_up(world, "gives up")
            case SagaAt.ONWARD:
                yield from self._onward(world)
            case SagaAt.UNDO | SagaAt.VOID | SagaAt.VOIDED:
                yield from self._undoes(world)
            case SagaAt.ASK:
                yield self._asks_the_log(world)
            case SagaAt.SETTLE:
                yield self._to(world, "settles FAILED", SagaAt.FAILED)
            case _:
                yield from self._parked(world)

    def _parked(self, world: World) -> Moves:
        saga = world.saga
        if saga.at in _TO_PARK and saga.answered and self.holds(C.PARK_UNLESS_ANSWERED):
            yield self._to(world, "is not parked: it was answered meanwhile", SagaAt.DUE)
        elif saga.at in _TO_PARK:
            yield self._to(world, "is parked", _TO_PARK[saga.at])
        elif saga.at is SagaAt.DUE:
            forgets = self.holds(C.TAKE_OVER_FORGETS)
            recovered = replace(world, saga=replace(saga, answered=saga.answered and not forgets))
            yield from self._is_recovered(recovered)

    def _is_recovered(self, world: World) -> Moves:
        saga, row = world.saga, world.row
        if saga.back:
            yield self._to(world, "is recovered", SagaAt.UNDO)
        elif saga.attempt < self.attempts:
            yield self._waits_again(world, "is recovered")
        elif row.status is Log.DONE:
            yield self._to(world, "is recovered, and answered from the row", SagaAt.ONWARD)
        elif row.refused:
            yield self._to(world, "is recovered, and refused from the row", SagaAt.REFUSED)

    def _waits_again(self, world: World, label: str, *, fault: bool = False) -> Move[World]:
        attempt = world.saga.attempt + 1
        saga = replace(world.saga, at=SagaAt.WAIT, attempt=attempt, passed=False)
        return Move(f"the saga {label}", replace(world, saga=saga, queue=world.queue | {attempt}), fault=fault)

    def _gives_up(self, world: World, label: str) -> Move[World]:
        if self.only_forward or self.passes:
            return self._to(world, f"{label}: no execution can continue", SagaAt.PARKING)
        return self._turns_round(world, label)

    def _turns_round(self, world: World, label: str) -> Move[World]:
        return Move(f"the saga {label}", replace(world, saga=replace(world.saga, at=SagaAt.UNDO, back=True)))

    def _onward(self, world: World) -> Moves:
        yield self._to(world, "settles COMPLETED", SagaAt.COMPLETED)
        if self.goes_back:
            yield self._turns_round(world, "fails behind the step")
        if (self.passes or self.only_forward) and world.saga.attempt < self.attempts:
            yield self._waits_again(world, "is interrupted, and goes forward once more", fault=True)

    def _asks_the_log(self, world: World) -> Move[World]:
        status = world.row.status
        if status is Log.NONE or status in NOTHING_STANDS or not self.holds(C.ASK_THE_LOG):
            return self._to(world, "queries the log: no effect remains", SagaAt.SETTLE)
        late = status is Log.APPLIED_LATE or (status is Log.COMPENSATING and self.holds(C.CHAIN_AWAITS_LATE_UNDO))
        if late and self.holds(C.CHAIN_AGAIN):
            return self._to(world, "asks the log, and undoes once more", SagaAt.UNDO)
        return self._to(world, "queries the log: an effect remains", SagaAt.STANDS)

    # -- undoing ----------------------------------------------------------------------------------------------------

    def _undoes(self, world: World) -> Moves:
        row, at = world.row, world.saga.at
        if at in _HOLDING:
            yield self._to(world, "dies while it undoes", SagaAt.UNDO, fault=True)
            yield self._void(world, "the saga")
        elif row.status is Log.NONE:
            buried = row.become(Log.TOMBSTONE) if self.holds(C.BURY) else row
            yield self._to(world, "fences the step", SagaAt.ASK, row=buried)
        elif row.status in NOTHING_STANDS:
            yield self._to(world, f"finds {row.status}", SagaAt.ASK)
        elif row.status is Log.INTENT:
            yield from self._learns(world)
        elif row.status is not Log.COMPENSATING:
            undoing = replace(row, status=Log.COMPENSATING, attempt=CHAIN)
            yield self._to(world, "writes COMPENSATING", SagaAt.VOID, row=undoing)
        elif row.attempt == CHAIN or world.late not in _HOLDING:
            yield self._undoes_again(world, "the saga", CHAIN)

    def _undoes_again(self, world: World, who: str, holder: int) -> Move[World]:
        """COMPENSATING of a dead attempt: the provider is queried, and compensates an effect that remains."""
        at = SagaAt.VOID if world.provider.stands else SagaAt.VOIDED
        return self._holds(
            replace(world, row=replace(world.row, attempt=holder)), f"{who} takes the undo over", holder, at
        )

    @staticmethod
    def _holds(world: World, label: str, holder: int, at: SagaAt) -> Move[World]:
        if holder == CHAIN:
            return Move(label, replace(world, saga=replace(world.saga, at=at)))
        return Move(label, replace(world, late=at))

    def _void(self, world: World, who: str) -> Move[World]:
        holder = CHAIN if who == "the saga" else LATE_UNDO
        at = world.saga.at if holder == CHAIN else world.late
        if at is SagaAt.VOID:
            provider = replace(world.provider, voided=min(world.provider.voided + 1, 2))
            after = replace(world, provider=provider)
            return self._holds(after, f"{who} has it undone", holder, SagaAt.VOIDED)
        row = world.row.become(Log.COMPENSATED) if world.row.status is Log.COMPENSATING else world.row
        after = replace(world, row=row)
        if holder == CHAIN:
            return self._to(after, "writes COMPENSATED", SagaAt.ASK)
        return Move(f"{who} writes COMPENSATED", replace(after, late=None))

    def _learns(self, world: World) -> Moves:
        """A job in doubt during compensation: the provider is queried when nothing can arrive any more."""
        row, provider = world.row, world.provider
        holder = world.dispatchers[row.attempt] if row.attempt != LONG_DEAD else None
        if holder is not None and self.holds(C.GRACE_WAITS) and (holder.at is not At.OVER or holder.sent):
            return
        if provider.applied:
            yield self._to(world, "hears that it happened", SagaAt.UNDO, row=row.become(Log.DONE))
        elif provider.pending and not self.blunt:
            yield self._to(world, "hears that it is at work", SagaAt.PARKING)
        else:
            yield self._to(world, "hears that it did not happen", SagaAt.UNDO, row=row.become(Log.TOMBSTONE))

    def _late(self, world: World) -> Moves:
        row, late = world.row, world.late
        if late is not None:
            yield Move("the late undo dies", replace(world, late=None), fault=True)
            yield self._void(world, "the late undo")
            return
        if not (world.due and self.holds(C.UNDO_LATE)):
            return
        acts = row.status is Log.APPLIED_LATE or (row.status is Log.DONE and not self.holds(C.ONLY_LATE))
        if acts:
            undoing = replace(row, status=Log.COMPENSATING, attempt=LATE_UNDO)
            due = self.holds(C.DUE_UNTIL_UNDONE)
            yield Move("the late undo writes COMPENSATING", replace(world, row=undoing, late=SagaAt.VOID, due=due))
        elif row.status is Log.COMPENSATING and world.saga.at not in _HOLDING:
            yield self._undoes_again(world, "the late undo", LATE_UNDO)
