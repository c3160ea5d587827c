"""Model: the operators' entry about a late effect, stored with its row, sent later, and deleted when it is undone.

Receivers of the event, several at once, read the row, and write it together with a notice. Senders, several at once,
find the notice, send its entry, and delete the notice. Each may die in between, or not learn whether the entry was
sent, which arrives later; then it is sent again. An execution undoes the effect. Sweeps of the queue, several at once,
receive entries, read the row, and delete. Any of them may sleep for long, so what one has received the other may
receive, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

QUEUE: Final = "lambda_src/saga_runtime/recovery/operators_queue.py"
RECEIPT: Final = "lambda_src/saga_runtime/callbacks/receipt.py"
SWEEPER: Final = "lambda_src/saga_runtime/callbacks/sweeper.py"
LOG: Final = "lambda_src/saga_runtime/callbacks/saga_writes.py"


class EntryCondition(Condition):
    """Conditions of an entry about a late effect."""

    STORED_TOGETHER = Because(
        "who dies after the row is written stores no notice: the event is a duplicate then",
        RECEIPT,
        "[guard, token, log, *self._record_entry(record, now_ms, late=late), *notices]",
    )
    SENT_FIRST = Because(
        "who dies after the notice is deleted sends no entry",
        SWEEPER,
        "write(change or notice_delete(token_table(), row.id), retry=PATIENT) swept.notices += 1",
    )
    ROW_AS_READ = Because("no row leaves COMPENSATED", LOG, 'SAME_LOG_ROW: Final = "#status = :found"')
    ONLY_COMPENSATED = Because("the effect is there until then", QUEUE, "if StepStatus.COMPENSATED not in statuses or")
    DELETED_WHEN_OVER = Because("no person has to delete it", QUEUE, "elif self._is_over(entry):")
    LEAST_COPY_STAYS = Because(
        "two sweeps may each have kept the copy that the other one deletes", QUEUE, "kept.pop(max(name, other))"
    )


class EntryPromise(StrEnum):
    """Promises of the model."""

    UNTOLD = "UNTOLD"


C, P = EntryCondition, EntryPromise


class Row(StrEnum):
    """The row in the saga log."""

    FELL = "tombstone or refusal"
    LATE = "applied late"
    UNDONE = "compensated"


class At(StrEnum):
    """States of a receiver, or of a sender."""

    IDLE = "idle"
    READ = "about to make its first write"
    SECOND = "about to make its second write"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A process that clears the queue.

    Attributes:
        kept: number of the entry that it keeps; 0: none yet.
        decides: number of the entry that it received last; 0: none.
        deletes: number of the entry that it is about to delete; 0: none.
    """

    kept: int = 0
    decides: int = 0
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """The row, the queue, and what everyone is about to do.

    Attributes:
        notice: whether there is one.
        queue: numbers of the entries in it.
        travelling: numbers of entries that arrive later.
        unused: numbers that no entry has had.
    """

    receivers: tuple[At, ...]
    senders: tuple[At, ...]
    sweeps: tuple[Sweep, ...]
    unused: frozenset[int]
    row: Row = Row.FELL
    notice: bool = False
    queue: frozenset[int] = frozenset()
    travelling: frozenset[int] = frozenset()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryModel(Conditional):
    """The model.

    Attributes:
        receivers: at once.
        senders: at once.
        sweeps: at once.
        entries: how many are sent at most.
    """

    receivers: int = 2
    senders: int = 2
    sweeps: int = 2
    entries: int = 2

    def initial(self) -> World:
        """A job that was treated as not applied."""
        unused = frozenset(range(1, self.entries + 1))
        idle = (At.IDLE,)
        return World(
            receivers=idle * self.receivers, senders=idle * self.senders, sweeps=(Sweep(),) * self.sweeps, unused=unused
        )

    def at_rest(self, world: World) -> bool:
        """The effect is compensated and nothing is left; or the entry is not sent again in this bound."""
        if world.notice:
            return not world.unused
        return world.row is Row.UNDONE and not world.queue and not world.travelling

    def broken(self, world: World) -> Iterator[str]:
        """A late effect is not compensated, and there is neither a notice nor an entry about it."""
        told = world.notice or world.queue or world.travelling
        if world.row is Row.LATE and not told and At.SECOND not in (*world.receivers, *world.senders):
            yield P.UNTOLD

    def moves(self, world: World) -> Moves:
        """One move of a receiver, a sender, the execution that undoes, a sweep, or a travelling entry."""
        if world.row is Row.LATE:
            yield Move("the effect is undone", replace(world, row=Row.UNDONE))
        for entry in world.travelling:
            arrived = replace(world, queue=world.queue | {entry}, travelling=world.travelling - {entry})
            yield Move(f"entry {entry} arrives", arrived)
        for number, at in enumerate(world.receivers):
            yield from self._receives(world, number, at)
        for number, at in enumerate(world.senders):
            yield from self._sends(world, number, at)
        for number, sweep in enumerate(world.sweeps):
            yield from self._sweeps(world, number, sweep)

    def _receives(self, world: World, number: int, at: At) -> Moves:
        def now(at: At, **changes: object) -> World:
            receivers = (*world.receivers[:number], at, *world.receivers[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, receivers=receivers, **changes)  # type: ignore[arg-type]

        if at is At.IDLE:
            if world.row is Row.FELL:
                yield Move(f"{number} reads the row", now(At.READ))
            return
        yield Move(f"{number} dies", now(At.IDLE), fault=True)
        if at is At.SECOND:
            yield Move(f"{number} stores the notice", now(At.IDLE, notice=True))
        elif world.row is not Row.FELL and self.holds(C.ROW_AS_READ):
            yield Move(f"{number} is refused", now(At.IDLE))
        elif self.holds(C.STORED_TOGETHER):
            yield Move(f"{number} writes the row and the notice", now(At.IDLE, row=Row.LATE, notice=True))
        else:
            yield Move(f"{number} writes the row", now(At.SECOND, row=Row.LATE))

    def _sends(self, world: World, number: int, at: At) -> Moves:
        def now(at: At, **changes: object) -> World:
            senders = (*world.senders[:number], at, *world.senders[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, senders=senders, **changes)  # type: ignore[arg-type]

        if at is At.IDLE:
            if world.notice and world.senders.count(At.READ) < len(world.unused):
                yield Move(f"sender {number} finds the notice", now(At.READ))
            return
        yield Move(f"sender {number} dies", now(At.IDLE), fault=True)
        after = At.SECOND if at is At.READ else At.IDLE
        if (at is At.READ) == self.holds(C.SENT_FIRST):
            for entry in world.unused:
                left = world.unused - {entry}
                yield Move(f"sender {number} sends {entry}", now(after, queue=world.queue | {entry}, unused=left))
                late = now(At.IDLE, travelling=world.travelling | {entry}, unused=left)
                yield Move(f"sender {number} sends {entry}, which arrives later", late, fault=True)
        else:
            yield Move(f"sender {number} deletes the notice", now(after, notice=False))

    def _sweeps(self, world: World, number: int, sweep: Sweep) -> Moves:
        def now(sweep: Sweep, queue: frozenset[int] = world.queue) -> World:
            sweeps = (*world.sweeps[:number], sweep, *world.sweeps[number + 1 :])
            return replace(world, sweeps=sweeps, queue=queue)

        if sweep != Sweep():
            yield Move(f"sweep {number} ends or dies", now(Sweep()))
        if sweep.deletes:
            deleted = world.queue - {sweep.deletes}
            yield Move(f"sweep {number} deletes {sweep.deletes}", now(replace(sweep, deletes=0), deleted))
        elif sweep.decides:
            entry = sweep.decides
            if sweep.kept:
                least, other = sorted((sweep.kept, entry))
                if not self.holds(C.LEAST_COPY_STAYS):
                    least, other = sweep.kept, entry
                chosen = Sweep(kept=least, deletes=other)
                yield Move(f"sweep {number} keeps {least}, and will delete {other}", now(chosen))
            elif self._is_over(world):
                yield Move(f"sweep {number} will delete {entry}", now(Sweep(deletes=entry)))
            else:
                yield Move(f"sweep {number} keeps {entry}", now(Sweep(kept=entry)))
        else:
            for entry in world.queue - {sweep.kept}:
                yield Move(f"sweep {number} receives {entry}", now(replace(sweep, decides=entry)))

    def _is_over(self, world: World) -> bool:
        if not self.holds(C.DELETED_WHEN_OVER):
            return False
        return world.row is Row.UNDONE or not self.holds(C.ONLY_COMPENSATED)
