"""Each clause of each move and write decides: an item that differs from what was read in one attribute refuses all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from saga_runtime.migration import Change
from saga_runtime.migration.history import copy_entries
from saga_runtime.migration.moves import Move, entries, removal
from saga_runtime.migration.progress import Job
from saga_runtime.migration.worker import Worker, read_progress
from saga_runtime.shared import aws
from tests.unit.migration.test_rows import ROWS, row
from tests.unit.support.migrations import CASH, LAST, LAYOUT, OLD, POINT, PROFILE, TABLE, Table, open_table
from tests.unit.support.world import World

Item = Mapping[str, Any]
CUSTOMERS: Final[dict[str, dict[str, Any]]] = {
    "full": {"name": "A", "email": "a@example.com", "point": 5, "cash": 7, "cash_limit": 9},
    "half": {"name": "A", "cash": 7},
    "empty": {},
}
STARTS: Final = {Move.COPY: 1, Move.SEAL: 9, Move.UNSEAL: 12, Move.RETREAT: 9, Move.CONTRACT: 12}
"""Phases in which points and cash can make a move; the profile is copied in the first one only."""
WRITES: Final[dict[str, Change]] = {
    "adds": Change(add={"balance": 1}),
    "takes": Change(add={"balance": -1}, at_least={"balance": 1}),
    "fills": Change(add={"balance": 1}, at_most={"balance": 50}),
    "demands": Change(at_least={"balance": 1}),
}
_CLAUSE: Final = re.compile(
    r"attribute_(?P<exists>exists|not_exists)\((?P<name>#\d+|#pk)\)|(?P<left>#\d+) (?P<op>=|>=|<=) "
)


@pytest.fixture
def table(world: World) -> Table:
    table = open_table(world)
    for customer, values in CUSTOMERS.items():
        table.put(customer, **values)
    return table


def altered(entry: Mapping[str, Any], item: Item | None) -> Iterator[tuple[str, Item | None]]:
    """For each clause of an entry's condition, an item that meets all but that one; None: no item."""
    (request,) = entry.values()
    names = request["ExpressionAttributeNames"]
    key = request.get("Key") or {name: request["Item"][name] for name in ("pk", "sk")}
    for found in _CLAUSE.finditer(request["ConditionExpression"]):
        name = names[found["name"] or found["left"]]
        if request["ConditionExpression"][found.start() - 1] == "(" and found["exists"]:
            continue  # a limit holds for an absent number, too
        whole = {**key, **(item or {})}
        match found["exists"], found["op"]:
            case "exists", _:
                yield f"no {name}", None
            case "not_exists", _:
                yield f"a {name}", whole if name == "pk" else {**whole, name: {"S": "stranger"}}
            case _, "=":
                yield f"another {name}", {**whole, name: {"S": "stranger"}}
            case _, op:
                yield f"too much or little {name}", {**whole, name: {"N": "-1" if op == ">=" else "1000"}}


def refuses_everything(table: Table, planned: list[Any]) -> int:
    """Send a plan to a table in which one clause is not met, for each clause; return their number."""
    clauses = 0
    for entry in planned:
        (request,) = entry.values()
        key = request.get("Key") or {name: request["Item"][name] for name in ("pk", "sk")}
        item = table.item(key["pk"]["S"], key["sk"]["S"])
        for what, other in altered(entry, item):
            _place(key, other)
            before = table.world.database.items(TABLE)
            assert not table.sent(planned), f"{request['ConditionExpression']}: {what}"
            assert table.world.database.items(TABLE) == before
            clauses += 1
            _place(key, item)
    return clauses


def _place(key: Any, item: Any) -> None:
    if item is None:
        aws.dynamodb().delete_item(TableName=TABLE, Key=key)
    else:
        aws.dynamodb().put_item(TableName=TABLE, Item=item)


@pytest.mark.parametrize("customer", CUSTOMERS)
@pytest.mark.parametrize("move", Move)
def test_move_is_refused_by_each_clause(table: Table, move: Move, customer: str) -> None:
    table.move_to(STARTS[move])
    for concern in (PROFILE, POINT, CASH) if move is Move.COPY else (POINT, CASH):
        old, new = table.store.pair(customer, concern)
        assert old is not None

        planned = entries(LAYOUT, TABLE, concern, move, old, new)

        assert refuses_everything(table, planned) >= len(planned)
        assert table.sent(planned), "as read, it is taken"


@pytest.mark.parametrize("customer", CUSTOMERS)
def test_profile_is_brought_back_as_read_only(table: Table, customer: str) -> None:
    table.move_to(6)
    old, new = table.store.pair(customer, PROFILE)
    assert old is not None

    planned = entries(LAYOUT, TABLE, PROFILE, Move.UNSEAL, old, new)

    assert refuses_everything(table, planned) == 4
    assert table.sent(planned)


@pytest.mark.parametrize("customer", CUSTOMERS)
def test_removal_is_refused_by_each_clause(table: Table, customer: str) -> None:
    table.move_to(LAST - 1)
    planned = removal(LAYOUT, TABLE, customer)

    assert refuses_everything(table, planned) == 3 + 5
    assert table.sent(planned)


@pytest.mark.parametrize("customer", ["full", "empty"])
@pytest.mark.parametrize("phase", [1, 9, 12, 13, LAST])
@pytest.mark.parametrize("write", WRITES)
def test_write_is_refused_by_each_clause(table: Table, phase: int, write: str, customer: str) -> None:
    if customer == "empty" and WRITES[write].at_least:
        return  # the demand itself is not met
    table.move_to(phase)
    planned = [one.action for one in table.store.writes(customer, {"POINT": WRITES[write]})]

    assert refuses_everything(table, planned) >= len(planned)
    assert table.sent(planned)


@pytest.mark.parametrize("customer", CUSTOMERS)
@pytest.mark.parametrize("phase", [1, 3, 6, 9, 12, 13, LAST])
def test_deletion_is_refused_by_each_clause(table: Table, phase: int, customer: str) -> None:
    table.move_to(phase)
    planned = [one.action for one in table.store.gone(customer)]

    assert refuses_everything(table, planned) >= len(planned)
    assert table.sent(planned)


@pytest.mark.parametrize("phase", [1, 3, 9, 12, LAST])
def test_birth_is_refused_by_each_clause(table: Table, phase: int) -> None:
    table.move_to(phase)
    planned = [one.action for one in table.store.born("bert", {"POINT": {"balance": 1}})]

    assert refuses_everything(table, planned) == len(planned)
    assert table.sent(planned)


def test_copy_of_a_row_is_refused_by_each_clause(world: World) -> None:
    table = open_table(world, ROWS)
    table.go_to(3)
    aws.dynamodb().put_item(TableName=TABLE, Item=row("1"))
    planned = copy_entries(ROWS, TABLE, row("1"))

    assert refuses_everything(table, planned) == 2
    assert table.sent(planned)


@pytest.mark.parametrize("pages", [0, 1])
def test_page_that_another_run_has_written_is_not_written_again(
    table: Table, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.go_to(9)
    for _ in range(pages):
        assert table.worker(page_items=1)._write_page() is not None
    serve = Worker._serve

    def served(self: Any, items: Any, page: Any) -> int:
        done = serve(self, items, page)
        monkeypatch.setattr(Worker, "_serve", serve)
        assert table.worker(page_items=3)._write_page() is not None
        return done

    monkeypatch.setattr(Worker, "_serve", served)

    assert table.worker(page_items=1)._write_page() is None

    progress = read_progress(table.store, Job.BACKFILL, 0, 1)
    assert progress.version == pages + 1
    assert progress.cursor is not None
    assert progress.cursor != {"pk": {"S": "anna"}, "sk": {"S": OLD}}
