"""Model: the migration of articles. Writers of a new release write both items, a backfill copies the old balance.

One customer with a balance of 1, two operations of +1 each, a rolling deployment, one or two backfills. At rest both
items should be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.states import replace

DIVERGES: Final = "DIVERGES"


class Way(StrEnum):
    """Use that a backfill makes of the balance that it read."""

    ADD = "adds what it read"
    SET = "sets what it read"
    ONCE = "adds what it read, once per customer"
    WAIT = "adds what it read, once; new writers leave the new item alone until then"


@dataclass(frozen=True, slots=True)
class World:
    """Both items, and who is at work; a writer is "old" or "new", a backfill what it has read."""

    old: int
    new: int
    copied: bool
    todo: int
    writers: tuple[str, ...]
    backfills: tuple[int | None, ...]


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True)
class DualWrites:
    """The model.

    Attributes:
        way: of the backfill.
        old_writers: whether writers of the former release still run.
        backfills: how many run.
        as_read: whether a backfill demands the balance that it read.
    """

    way: Way
    old_writers: bool = True
    backfills: int = 1
    as_read: bool = False

    def __str__(self) -> str:
        more = [f"{self.backfills} at once"] * (self.backfills > 1) + ["as read"] * self.as_read
        return ", ".join([self.way.value, *more, *["with old writers"] * self.old_writers])

    def initial(self) -> World:
        """Nothing is copied."""
        return World(1, 0, False, 2, ("",) * 2, (None,) * self.backfills)

    def at_rest(self, world: World) -> bool:
        """All is written and copied."""
        return world.todo == 0 and world.copied

    def broken(self, world: World) -> Iterator[str]:
        """All is written and copied, and the items differ."""
        idle = not any(world.writers) and all(read is None for read in world.backfills)
        if world.todo == 0 and idle and world.copied and world.old != world.new:
            yield DIVERGES

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for index, writer in enumerate(world.writers):
            yield from self._writer(world, index, writer)
        for index, read in enumerate(world.backfills):
            yield from self._backfill(world, index, read)

    def _writer(self, world: World, index: int, writer: str) -> Moves:
        def at(release: str, after: World) -> World:
            return replace(after, writers=(*after.writers[:index], release, *after.writers[index + 1 :]))

        if not writer and world.todo:
            begun = replace(world, todo=world.todo - 1)
            if self.old_writers:
                yield Move("an old writer begins", at("old", begun))
            yield Move("a new writer begins", at("new", begun))
        elif writer == "old":
            yield Move("the old writer adds to the old item", at("", replace(world, old=world.old + 1)))
        elif writer:
            both = self.way is not Way.WAIT or world.copied
            after = replace(world, old=world.old + 1, new=world.new + both)
            yield Move(f"the new writer adds to {'both items' if both else 'the old item'}", at("", after))

    def _backfill(self, world: World, index: int, read: int | None) -> Moves:
        def at(value: int | None, after: World) -> World:
            return replace(after, backfills=(*after.backfills[:index], value, *after.backfills[index + 1 :]))

        once = self.way in {Way.ONCE, Way.WAIT}
        if read is None:
            if not world.copied or (self.backfills > 1 and not once):
                yield Move(f"a backfill reads {world.old}", at(world.old, world))
            return
        yield Move("the backfill dies", at(None, world), fault=True)
        if once and world.copied:
            yield Move("the backfill finds that it was done", at(None, world))
        elif self.as_read and world.old != read:
            yield Move("the backfill is refused: the balance is not as it was read", at(None, world))
        else:
            value = read if self.way is Way.SET else world.new + read
            yield Move(f"the backfill writes {read}", at(None, replace(world, new=min(value, 9), copied=True)))
