"""Each move of a migration, and each write, meets every state that may have followed its read: none harms a value."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pytest

from saga_runtime.migration import CLEAR, Change, Concern
from saga_runtime.migration.moves import Move, entries, removal
from saga_runtime.saga_log.transaction import commit_first
from tests.unit.support.migrations import CASH, LAST, LAYOUT, POINT, PROFILE, TABLE, Table, marker, open_table
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

CONCERNS: Final = (PROFILE, POINT, CASH)
Between = Callable[[Table], None]


@pytest.fixture
def table(world: World) -> Table:
    return open_table(world)


_MOVED: Final[dict[tuple[int, int, str], tuple[list[Any], int]]] = {}
"""By phase, time and items: items and time behind the way to the phase."""


def move_to(table: Table, phase: int) -> None:
    """Move to a phase. Histories that begin alike share their way: it depends on nothing but items and time."""
    database, clock = table.world.database, table.world.clock
    began = phase, clock.ms, repr(database.items(TABLE))
    if began not in _MOVED:
        table.move_to(phase)
        _MOVED[began] = database.take()[TABLE], clock.ms
    held, clock.ms = _MOVED[began]
    database.put_back({TABLE: held})


def change(table: Table, concern: Concern, change: Change, operation: str) -> None:
    """Change a concern as an operation does: once, and planned again after each refusal."""
    commit_first(
        lambda: (marker("anna", operation), table.store.writes("anna", {concern.name: change})),
        remaining_ms=lambda: 60_000,
    )


WRITES: Final[dict[str, tuple[Change, ...]]] = {
    "PROFILE": (Change(put={"mail": "b@example.com"}), Change(put={"mail": CLEAR}), Change(put={"name": "B"})),
    "POINT": (Change(add={"balance": 1}),),
    "CASH": (Change(add={"balance": 1}), Change(put={"at_most": 10}), Change(put={"at_most": CLEAR})),
}


def _betweens(concern: Concern) -> dict[str, Between]:
    """Moves, writes, and both, between a read and its transaction."""
    found: dict[str, Between] = {"nothing": lambda _: None}
    for phase in (7, 9, 12, LAST):
        found[f"phase {phase}"] = partial(move_to, phase=phase)
    found["there and back"] = partial(_there_and_back, phase=12)
    for number, wanted in enumerate(WRITES[concern.name]):
        found[f"write {number}"] = partial(_both, concern=concern, wanted=wanted, phase=None)
        found[f"write {number}, phase 12"] = partial(_both, concern=concern, wanted=wanted, phase=12)
    return found


def _there_and_back(table: Table, phase: int) -> None:
    here = table.store.phase().number
    move_to(table, phase)
    move_to(table, here)


def _both(table: Table, concern: Concern, wanted: Change, phase: int | None) -> None:
    change(table, concern, wanted, "between")
    if phase is not None:
        move_to(table, phase)


def _values(table: Table) -> dict[str, dict[str, Any]]:
    """Values that readers see, whichever item they read first: always the same."""
    read = {one.name: table.store.read("anna", one.name) for one in CONCERNS}
    assert read == {one.name: table.store.read("anna", one.name, new_first=True) for one in CONCERNS}
    return read


def _audit(table: Table, expected: dict[str, dict[str, Any]]) -> None:
    """Values are as expected, and stay so wherever they move."""
    assert _values(table) == expected
    for phase in (9, 12, LAST):
        if table.store.phase().number <= phase:
            move_to(table, phase)
            assert _values(table) == expected


MOVES: Final = [
    (move, start, concern, between)
    for concern in CONCERNS
    for move, starts in {
        Move.COPY: (7,),
        Move.SEAL: (9,),
        Move.UNSEAL: (12,),
        Move.RETREAT: (9,),
        Move.CONTRACT: (12,),
    }.items()
    for start in starts
    for between in _betweens(concern)
]


@pytest.mark.parametrize(
    ("move", "start", "concern", "between"), MOVES, ids=[f"{m}-{s}-{c.name}-{b}" for m, s, c, b in MOVES]
)
def test_move_that_is_late_harms_no_value(table: Table, move: Move, start: int, concern: Concern, between: str) -> None:
    move_to(table, start)
    old, new = table.store.pair("anna", concern)
    if old is None or (new is None and move is not Move.COPY):
        pytest.fail("the move does not begin here")
    late = entries(LAYOUT, TABLE, concern, move, old, new)
    _betweens(concern)[between](table)
    expected = _values(table)

    table.sent(late)

    _audit(table, expected)


REMOVALS: Final = [(concern, between) for concern in CONCERNS for between in _betweens(concern)]


@pytest.mark.parametrize(("concern", "between"), REMOVALS, ids=[f"{c.name}-{b}" for c, b in REMOVALS])
def test_removal_that_is_late_harms_no_value(table: Table, concern: Concern, between: str) -> None:
    move_to(table, LAST - 1)
    late = removal(LAYOUT, TABLE, "anna")
    _betweens(concern)[between](table)
    expected = _values(table)

    table.sent(late)

    _audit(table, expected)


@pytest.mark.parametrize("start", [7, 9, 12])
@pytest.mark.parametrize(
    ("concern", "number", "between"),
    [(c, n, b) for c in CONCERNS for n in range(len(WRITES[c.name])) for b in _betweens(c)],
    ids=lambda value: value.name if isinstance(value, Concern) else str(value),
)
def test_write_that_is_late_changes_what_is_true_or_nothing(
    table: Table, start: int, concern: Concern, number: int, between: str
) -> None:
    move_to(table, start)
    wanted = WRITES[concern.name][number]
    planned = table.store.writes("anna", {concern.name: wanted})
    _betweens(concern)[between](table)
    expected = _values(table)

    if table.sent([write.action for write in planned]):
        expected[concern.name] = _changed(expected[concern.name], wanted)

    _audit(table, expected)


def _changed(values: dict[str, Any], wanted: Change) -> dict[str, Any]:
    """Values after a change."""
    added = {name: {"N": str(Decimal(values[name]["N"]) + more)} for name, more in wanted.add.items()}
    put = {name: {"N": str(v)} if isinstance(v, int) else {"S": v} for name, v in wanted.put.items() if v is not CLEAR}
    gone = {name for name, value in wanted.put.items() if value is CLEAR}
    return {name: value for name, value in {**values, **added, **put}.items() if name not in gone}
