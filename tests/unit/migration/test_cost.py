"""Write units of a migration, phase by phase: the table of docs/cost.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from saga_runtime.migration import Change
from saga_runtime.shared import aws, writes
from tests.unit.migration.test_rows import ROWS, put, row
from tests.unit.support.migrations import LAST, OLD, TABLE, Table, open_table
from tests.unit.support.world import World

PAGE: Final = Path(__file__).parents[3] / "docs" / "cost.md"
GROUP: Final = range(8, 14)
"""Phases of the second group: two concerns."""
CONCERNS: Final = 2


class Meter:
    """Counts write units of what the worker sends: of items below 1 KB one, in a transaction two."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.units = 0
        transact = writes.transact

        def counted(entries: Sequence[Any], **options: Any) -> Any:
            self.units += 2 * len(entries)
            return transact(entries, **options)

        monkeypatch.setattr(writes, "transact", counted)

    def of(self, table: Table) -> int:
        """Units of a pass."""
        before = self.units
        table.run()
        return self.units - before


def documented() -> dict[str, tuple[str, ...]]:
    """Rows of the table, by their first cell."""
    rows = PAGE.read_text("utf-8").split("<!-- measured: migration -->\n")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in rows]
    return {first: tuple(others) for first, *others in cells}


def operation(table: Table) -> int:
    return 2 * len(table.store.writes("anna", {"POINT": Change(add={"balance": 1})}))


def test_page_has_the_write_units_of_each_phase(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table, meter = open_table(world), Meter(monkeypatch)
    aws.dynamodb().delete_item(TableName=TABLE, Key={"pk": {"S": "pilot"}, "sk": {"S": OLD}})
    table.move_to(GROUP[0] - 1)
    measured = {"before": ("0", "", str(operation(table)))}
    forward: dict[int, int] = {}
    operations: dict[int, int] = {}
    for phase in GROUP:
        table.go_to(phase)
        forward[phase], operations[phase] = meter.of(table) // CONCERNS, operation(table)
    backward = {}
    for phase in reversed(GROUP):
        table.go_to(phase - 1)
        backward[phase] = meter.of(table) // CONCERNS
    # A pilot moves one phase before the others, at the same cost: anna is not one.
    for stage, phase in enumerate(GROUP, 1):
        measured[str(stage)] = (str(forward[phase]), str(backward[phase]), str(operations[phase]))

    assert measured == {name: cells for name, cells in documented().items() if name in measured}


def test_page_has_the_write_units_of_the_last_phase_and_of_a_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table, meter = open_table(world, ROWS), Meter(monkeypatch)
    aws.dynamodb().delete_item(TableName=TABLE, Key={"pk": {"S": "pilot"}, "sk": {"S": OLD}})
    table.move_to(3)
    put(row("1"))
    copied = meter.of(table)
    table.move_to(LAST - 1)
    table.go_to(LAST)

    removed = meter.of(table)

    assert documented()["last phase, per customer"] == (str(removed), "", str(operation(table)))
    assert documented()["copy of a row of a history"] == (str(copied), "", "")
