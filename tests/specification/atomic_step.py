"""Model: one atomic step and its compensation, each invoked as often as anybody likes, at any time, several at once.

An invocation may die at any moment; the transaction that it sent then travels, and arrives later or never. Business
conditions (a balance, a closed account) may refuse whenever they like. Every promise must be kept by the log row alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

SAGA_LOG: Final = "lambda_src/saga_runtime/saga_log/rows.py"
ATOMIC_STEP: Final = "lambda_src/saga_runtime/steps/atomic.py"
COMPENSATION: Final = "lambda_src/saga_runtime/steps/atomic_compensation.py"
TRANSACTION: Final = "lambda_src/saga_runtime/saga_log/transaction.py"


class StepCondition(Condition):
    """Conditions of the log row."""

    ONE_TRANSACTION = Because(
        "the row and the effect are written together: neither exists without the other",
        TRANSACTION,
        "return [first, *(write.action for write in planned)]",
    )
    NO_ROW = Because(
        "a step takes effect only if it never did, and was never compensated",
        SAGA_LOG,
        "return row_put(table, saga_id, step, StepStatus.DONE, side, now_ms, keep_days, attempt, extra)",
    )
    NO_ROW_TO_BURY = Because(
        "a tombstone never covers a step that took effect",
        SAGA_LOG,
        "return row_put(table, saga_id, step, StepStatus.TOMBSTONE, side, now_ms, keep_days, attempt, {})",
    )
    STILL_DONE = Because("an applied effect is compensated once", SAGA_LOG, 'when(STILL_DONE, done={"S": found})')
    BURY = Because(
        "a step that has not run yet is fenced: an attempt that comes later must not be applied",
        SAGA_LOG,
        "return UndoEntry.BURY",
    )
    FENCED = Because(
        "a step that meets a tombstone or its own undo stops, and claims nothing",
        SAGA_LOG,
        "return StepEntry.REPLAY if row.answer is not None else StepEntry.FENCED",
    )
    ROW_REFUSAL_FIRST = Because(
        "when both the row and a business condition refuse, the row decides",
        TRANSACTION,
        "The first entry decides: its refusal, or its conflict with another attempt.",
    )
    REFUSAL_READS_ROW = Because(
        "an attempt whose answer was lost may have changed the very state that refuses this one",
        ATOMIC_STEP,
        "row = read_row(call) if row is not None: return replay_or_fence(call, row)",
    )
    UNDO_REFUSAL_READS_ROW = Because(
        "the same for the undo: it must not be refused by its own effect",
        COMPENSATION,
        "if undo_entry_of(read_row(call)) is UndoEntry.NOTHING:",
    )


class StepPromise(StrEnum):
    """Promises of the model."""

    EFFECT_TWICE = "EFFECT_TWICE"
    UNDONE_TWICE = "UNDONE_TWICE"
    UNDONE_WITHOUT_EFFECT = "UNDONE_WITHOUT_EFFECT"
    EFFECT_STANDS_AFTER_COMPENSATION = "EFFECT_STANDS_AFTER_COMPENSATION"
    ANSWERED_DONE_WITHOUT_EFFECT = "ANSWERED_DONE_WITHOUT_EFFECT"
    REFUSED_ALTHOUGH_DONE = "REFUSED_ALTHOUGH_DONE"
    UNDO_REFUSED_ALTHOUGH_UNDONE = "UNDO_REFUSED_ALTHOUGH_UNDONE"


class Row(StrEnum):
    """The log row."""

    NONE = "no row"
    DONE = "DONE"
    TOMBSTONE = "TOMBSTONE"
    COMPENSATED = "COMPENSATED"


class At(StrEnum):
    """States of an invocation."""

    IDLE = "idle"
    SEND = "about to send its transaction"
    ROW_LEFT = "effect written, row not yet"
    REFUSED = "refused, about to read the row"
    READ = "about to read the row"
    BURY = "about to fence"
    UNDO = "about to undo"
    UNDO_ROW_LEFT = "effect taken back, row not yet"
    TRAVELS = "dead, its step's transaction travels"
    BURY_TRAVELS = "dead, its tombstone travels"
    UNDO_TRAVELS = "dead, its undo travels"


TRAVELLING: Final = {
    At.SEND: At.TRAVELS,
    At.BURY: At.BURY_TRAVELS,
    At.UNDO: At.UNDO_TRAVELS,
}


@dataclass(frozen=True, slots=True)
class World:
    """Row, effects, and what every invocation is about to do.

    Attributes:
        row: the log row.
        applied: how often the step's effect was written; counted to two.
        undone: how often it was taken back; counted to two.
        compensated: whether a compensation ever answered that it is done.
        steps: invocations of the step.
        undos: invocations of its compensation.
    """

    row: Row
    applied: int
    undone: int
    compensated: bool
    steps: tuple[At, ...]
    undos: tuple[At, ...]


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicStepModel(Conditional):
    """The model.

    Attributes:
        steps: how many invocations of the step there are at once.
        undos: how many of its compensation.
        reads_refuse: whether the step's function may refuse by what it reads, before anything is sent.
    """

    steps: int = 2
    undos: int = 2
    reads_refuse: bool = True

    def initial(self) -> World:
        """Nothing has run."""
        return World(Row.NONE, 0, 0, False, (At.IDLE,) * self.steps, (At.IDLE,) * self.undos)

    def at_rest(self, world: World) -> bool:
        """Every invocation has answered."""
        return all(at is At.IDLE for at in world.steps + world.undos)

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the effects break."""
        if world.applied > 1:
            yield StepPromise.EFFECT_TWICE
        if world.undone > 1:
            yield StepPromise.UNDONE_TWICE
        if world.undone > world.applied:
            yield StepPromise.UNDONE_WITHOUT_EFFECT
        if world.compensated and world.applied > world.undone:
            yield StepPromise.EFFECT_STANDS_AFTER_COMPENSATION

    def moves(self, world: World) -> Moves:
        """One move of one invocation. Invocations are alike, so they are kept in order."""
        for index, at in enumerate(world.steps):
            if at not in world.steps[:index]:
                yield from self._named("step", self._step(world, at), index, undo=False)
        for index, at in enumerate(world.undos):
            if at not in world.undos[:index]:
                yield from self._named("undo", self._undo(world, at), index, undo=True)

    @staticmethod
    def _named(who: str, ways: Iterator[tuple[str, At, World, bool, str | None]], index: int, *, undo: bool) -> Moves:
        for label, now, world, fault, breaks in ways:
            slots = world.undos if undo else world.steps
            slots = tuple(sorted((*slots[:index], now, *slots[index + 1 :])))
            after = replace(world, undos=slots) if undo else replace(world, steps=slots)
            yield Move(f"{who} {label}", after, fault=fault, breaks=breaks)

    @staticmethod
    def _dies(world: World, at: At) -> Iterator[tuple[str, At, World, bool, str | None]]:
        if at in {At.TRAVELS, At.BURY_TRAVELS, At.UNDO_TRAVELS}:
            yield "of the dead: its transaction is lost", At.IDLE, world, False, None
            return
        yield f"dies, {at}", At.IDLE, world, True, None
        if at in TRAVELLING:
            yield "dies, and its transaction travels", TRAVELLING[at], world, True, None

    # -- the step ---------------------------------------------------------------------------------------------------

    def _step(self, world: World, at: At) -> Iterator[tuple[str, At, World, bool, str | None]]:
        if at is At.IDLE:
            yield "is invoked", At.SEND, world, False, None
            return
        yield from self._dies(world, at)
        late = at is At.TRAVELS
        if at is At.ROW_LEFT:
            yield "writes its row", At.IDLE, replace(world, row=Row.DONE), False, None
        elif at is At.REFUSED:
            yield self._refused(world)
        elif world.row is Row.NONE or not self.holds(StepCondition.NO_ROW):
            applied = replace(world, applied=min(world.applied + 1, 2))
            if not self.holds(StepCondition.ONE_TRANSACTION):
                yield "writes its effect", At.IDLE if late else At.ROW_LEFT, applied, False, None
                return
            committed = replace(applied, row=Row.DONE)
            yield "of the dead commits late" if late else "commits", At.IDLE, committed, False, None
            if not late:
                yield "commits; the answer is lost, and it sends again", At.SEND, committed, True, None
                yield "is refused by a business condition", At.REFUSED, world, True, None
        elif late:
            yield "of the dead is refused by the row", At.IDLE, world, False, None
        else:
            yield self._replay_or_fence(world)
            refusal = self._replay_or_fence(world)
            if not self.holds(StepCondition.ROW_REFUSAL_FIRST):
                refusal = ("refused by its row and by a business condition", At.REFUSED, world, True, None)
            yield refusal
            if self.reads_refuse:
                yield "refuses by what it has read", At.REFUSED, world, True, None

    def _replay_or_fence(self, world: World) -> tuple[str, At, World, bool, str | None]:
        if world.row is Row.DONE or not self.holds(StepCondition.FENCED):
            lie = None if world.row is Row.DONE else StepPromise.ANSWERED_DONE_WITHOUT_EFFECT
            return "answers with the stored output", At.IDLE, world, False, lie
        return "is fenced", At.IDLE, world, False, None

    def _refused(self, world: World) -> tuple[str, At, World, bool, str | None]:
        if world.row is Row.NONE:
            return "answers: refused", At.IDLE, world, False, None
        if self.holds(StepCondition.REFUSAL_READS_ROW):
            return self._replay_or_fence(world)
        lie = StepPromise.REFUSED_ALTHOUGH_DONE if world.row is Row.DONE else None
        return "answers: refused", At.IDLE, world, False, lie

    # -- its compensation -------------------------------------------------------------------------------------------

    def _undo(self, world: World, at: At) -> Iterator[tuple[str, At, World, bool, str | None]]:
        if at is At.IDLE:
            yield "is invoked", At.READ, world, False, None
            return
        yield from self._dies(world, at)
        answered = replace(world, compensated=True)
        if at is At.READ:
            yield self._entry(world, answered)
        elif at in {At.BURY, At.BURY_TRAVELS}:
            yield from self._bury(world, late=at is At.BURY_TRAVELS)
        elif at is At.UNDO_ROW_LEFT:
            yield "writes its row", At.IDLE, replace(answered, row=Row.COMPENSATED), False, None
        elif at is At.REFUSED:
            if world.row is not Row.COMPENSATED:
                yield "answers: refused", At.IDLE, world, False, None
            elif self.holds(StepCondition.UNDO_REFUSAL_READS_ROW):
                yield "answers: undone before", At.IDLE, answered, False, None
            else:
                lie = StepPromise.UNDO_REFUSED_ALTHOUGH_UNDONE
                yield "answers: refused", At.IDLE, world, False, lie
        else:
            yield from self._take_back(world, late=at is At.UNDO_TRAVELS)

    def _entry(self, world: World, answered: World) -> tuple[str, At, World, bool, str | None]:
        """Decision of ``undo_entry_of``. What was read may be outdated when the write arrives."""
        if world.row is Row.DONE:
            return "reads DONE", At.UNDO, world, False, None
        if world.row is Row.NONE and self.holds(StepCondition.BURY):
            return "reads no row", At.BURY, world, False, None
        return f"reads {world.row}: nothing to do", At.IDLE, answered, False, None

    def _bury(self, world: World, *, late: bool) -> Iterator[tuple[str, At, World, bool, str | None]]:
        if world.row is Row.NONE or not self.holds(StepCondition.NO_ROW_TO_BURY):
            buried = replace(world, row=Row.TOMBSTONE)
            if late:
                yield "of the dead fences the step late", At.IDLE, buried, False, None
            else:
                yield "fences the step", At.IDLE, replace(buried, compensated=True), False, None
                yield "fences the step; the response is lost, and it sends again", At.BURY, buried, True, None
        else:
            yield "meets a row", At.IDLE if late else At.READ, world, False, None

    def _take_back(self, world: World, *, late: bool) -> Iterator[tuple[str, At, World, bool, str | None]]:
        if world.row is Row.DONE or not self.holds(StepCondition.STILL_DONE):
            undone = replace(world, undone=min(world.undone + 1, 2))
            if not self.holds(StepCondition.ONE_TRANSACTION):
                yield "takes the effect back", At.IDLE if late else At.UNDO_ROW_LEFT, undone, False, None
                return
            done = replace(undone, row=Row.COMPENSATED)
            if late:
                yield "of the dead undoes late", At.IDLE, done, False, None
            else:
                yield "undoes", At.IDLE, replace(done, compensated=True), False, None
                yield "undoes; the answer is lost, and it sends again", At.UNDO, done, True, None
        else:
            yield "finds the row changed", At.IDLE if late else At.READ, world, False, None
        if not late:
            yield "is refused by a business condition", At.REFUSED, world, True, None
