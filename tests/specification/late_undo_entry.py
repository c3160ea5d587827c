"""Model: the entry of an execution that could not undo a saga's late effects, which does not name a row.

Steps are applied late, one after another. An execution finds one, cannot undo it, and sends the entry, later or never.
Other executions, or operators, undo the rows. A sweep receives an entry, reads the saga's rows one by one, and deletes.
The rows may expire. Copies of an entry are those of ``operators_entry``.
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


class UndoEntryCondition(Condition):
    """Conditions of an entry about a saga's late effects."""

    NONE_LEFT = Because("another late effect than the undone one may be left", QUEUE, "left.isdisjoint(statuses)")
    NONE_EXPIRED = Because(
        "a row that has expired may not have been undone", QUEUE, "not may_have_forgotten(record, clock.now_ms()"
    )
    READ_AFTER_RECEIPT = Because(
        "what was read before the entry was sent may be from before its effect",
        QUEUE,
        "pages = aws.dynamodb().get_paginator",
    )
    DELETED_WHEN_OVER = Because("no person has to delete it", QUEUE, "return self.undone(entry)")


class UndoEntryPromise(StrEnum):
    """Promises of the model."""

    NOT_UNDONE_UNTOLD = "NOT_UNDONE_UNTOLD"


C, P = UndoEntryCondition, UndoEntryPromise


class Row(StrEnum):
    """A row in the saga log."""

    FELL = "tombstone or refusal"
    LATE = "applied late, or being undone"
    UNDONE = "compensated"
    GONE = "expired"
    LOST = "expired, and never compensated"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A process that clears the queue.

    Attributes:
        entry: number of the row that the received entry is about, which it does not know; None: none was received.
        read: the rows as they were read, from the first one on.
        deletes: whether it is about to delete the entry.
    """

    entry: int | None = None
    read: tuple[Row, ...] = ()
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """The rows, the queue, and what everyone is about to do.

    Attributes:
        queue: rows that have an entry.
        reported: rows that had one.
        stuck: rows of which an execution is about to send an entry.
    """

    rows: tuple[Row, ...]
    queue: frozenset[int] = frozenset()
    reported: frozenset[int] = frozenset()
    stuck: frozenset[int] = frozenset()
    sweep: Sweep = Sweep()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoEntryModel(Conditional):
    """The model.

    Attributes:
        rows: how many may be applied late.
    """

    rows: int = 2

    def initial(self) -> World:
        """Jobs that were treated as not applied."""
        return World(rows=(Row.FELL,) * self.rows)

    def at_rest(self, world: World) -> bool:
        """A row has expired; or nothing is left to undo, and the queue is empty."""
        return _expired(world) or (Row.LATE not in world.rows and not world.queue and not world.stuck)

    def broken(self, world: World) -> Iterator[str]:
        """An effect is not undone, it was reported, and there is no entry about it any more."""
        left = {number for number, row in enumerate(world.rows) if row in (Row.LATE, Row.LOST)}
        if left & world.reported - world.queue:
            yield P.NOT_UNDONE_UNTOLD

    def moves(self, world: World) -> Moves:
        """One move of a row, of an execution, of time, or of the sweep."""
        for number, row in enumerate(world.rows):
            yield from self._row(world, number, row)
        for number in world.stuck:
            left = world.stuck - {number}
            sent = replace(world, stuck=left, queue=world.queue | {number}, reported=world.reported | {number})
            yield Move(f"an execution reports row {number}", sent)
            yield Move(f"an execution of row {number} is stopped", replace(world, stuck=left), fault=True)
        yield from self._sweeps(world, world.sweep)

    def _row(self, world: World, number: int, row: Row) -> Moves:
        def now(row: Row) -> World:
            return replace(world, rows=(*world.rows[:number], row, *world.rows[number + 1 :]))

        if row not in (Row.GONE, Row.LOST):
            yield Move(f"row {number} expires", now(Row.LOST if row is Row.LATE else Row.GONE), fault=True)
        if row is Row.FELL:
            yield Move(f"row {number} is applied late", now(Row.LATE))
        elif row is Row.LATE:
            yield Move(f"row {number} is undone", now(Row.UNDONE))
            if number not in world.reported | world.stuck:
                yield Move(f"row {number} cannot be undone", replace(world, stuck=world.stuck | {number}))

    def _sweeps(self, world: World, sweep: Sweep) -> Moves:
        def now(sweep: Sweep, queue: frozenset[int] = world.queue) -> World:
            return replace(world, sweep=sweep, queue=queue)

        if sweep != Sweep():
            yield Move("the sweep ends or dies", now(Sweep()))
        if sweep.deletes:
            yield Move(f"the sweep deletes {sweep.entry}", now(Sweep(), world.queue - {sweep.entry}))
            return
        if sweep.entry is None and (not sweep.read or not self.holds(C.READ_AFTER_RECEIPT)):
            for entry in world.queue:
                yield Move(f"the sweep receives {entry}", now(replace(sweep, entry=entry)))
        if len(sweep.read) < len(world.rows):
            if sweep.entry is not None or not self.holds(C.READ_AFTER_RECEIPT):
                read = (*sweep.read, world.rows[len(sweep.read)])
                yield Move(f"the sweep reads row {len(sweep.read)}", now(replace(sweep, read=read)))
        elif sweep.entry is not None and self._is_over(world, sweep.read):
            yield Move(f"the sweep will delete {sweep.entry}", now(replace(sweep, deletes=True)))

    def _is_over(self, world: World, read: tuple[Row, ...]) -> bool:
        if not self.holds(C.DELETED_WHEN_OVER) or (self.holds(C.NONE_EXPIRED) and _expired(world)):
            return False
        return Row.UNDONE in read and (Row.LATE not in read or not self.holds(C.NONE_LEFT))


def _expired(world: World) -> bool:
    return not {Row.GONE, Row.LOST}.isdisjoint(world.rows)
