"""Model: rows of a history in two forms, identified in the way of articles, or by the operation's id.

Two equal purchases of one second, by legacy code or by the release that writes both forms; backfills copy rows of the
old form. At every moment a reader of both forms should find each purchase once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.specification.article_migration import DIVERGES
from tests.specification.checker import Move
from tests.specification.states import replace


class Identity(StrEnum):
    """Identity by which two rows are one."""

    MOMENT = "customer, time and type"
    KEY = "each row's own key"
    ID = "the operation's id, or a hash of the old row's key, which its copy keeps"


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A row: its form, the purchase, and whether its operation gave it an id."""

    form: str
    purchase: int
    has_id: bool


@dataclass(frozen=True, slots=True)
class World:
    """Rows, purchases that are still to come, and what each backfill has read; None: nothing."""

    rows: frozenset[Row]
    todo: frozenset[int]
    backfills: tuple[Row | None, ...]


@dataclass(frozen=True, slots=True)
class Histories:
    """The model.

    Attributes:
        identity: of rows.
        backfills: how many run.
    """

    identity: Identity
    backfills: int = 1

    def initial(self) -> World:
        """No purchase yet."""
        return World(frozenset(), frozenset({1, 2}), (None,) * self.backfills)

    def at_rest(self, world: World) -> bool:
        """Every purchase was made, and has a row of the new form."""
        copied = {self._name(row) for row in world.rows if row.form == "new"}
        return not world.todo and all(self._name(replace(row, form="new")) in copied for row in world.rows)

    def broken(self, world: World) -> Iterator[str]:
        """A reader finds each purchase once."""
        if len({self._name(row) for row in world.rows}) != len({row.purchase for row in world.rows}):
            yield DIVERGES

    def moves(self, world: World) -> Iterator[Move[World]]:
        """A purchase by either release, a backfill that reads, dies, or writes."""
        for purchase in sorted(world.todo):
            todo = world.todo - {purchase}
            legacy = world.rows | {Row("old", purchase, has_id=False)}
            yield Move(f"purchase {purchase} by legacy code", replace(world, rows=legacy, todo=todo))
            both = world.rows | {Row(form, purchase, has_id=True) for form in ("old", "new")}
            yield Move(f"purchase {purchase} by the new release", replace(world, rows=both, todo=todo))
        for index, read in enumerate(world.backfills):
            if read is None:
                for row in sorted(row for row in world.rows if row.form == "old"):
                    yield Move(f"a backfill reads the row of {row.purchase}", _at_work(world, index, row))
                continue
            yield Move("the backfill dies", _at_work(world, index, None), fault=True)
            copy = replace(read, form="new")
            absent = self._name(copy) not in {self._name(row) for row in world.rows if row.form == "new"}
            after = replace(world, rows=world.rows | {copy}) if absent else world
            yield Move("the backfill puts the copy, if it is absent", _at_work(after, index, None))

    def _name(self, row: Row) -> object:
        match self.identity:
            case Identity.MOMENT:
                return "one customer, one second, one type"
            case Identity.KEY:
                return row.form, row.purchase
        return row.purchase


def _at_work(world: World, index: int, read: Row | None) -> World:
    return replace(world, backfills=(*world.backfills[:index], read, *world.backfills[index + 1 :]))
