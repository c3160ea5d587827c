"""Customers that are deleted, and born again, while items move: nothing is lost, nothing remains."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import pytest

from saga_runtime import InsufficientFunds
from saga_runtime.errors import Conflict, Invalid
from saga_runtime.migration import Change, CustomerExists, CustomerUnknown
from saga_runtime.migration.moves import Move, entries
from saga_runtime.saga_log.transaction import commit_first
from saga_runtime.shared import aws
from tests.unit.support.migrations import CASH, LAST, LAYOUT, OLD, POINT, PROFILE, TABLE, Table, marker, open_table
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

VALUES: dict[str, Any] = {"PROFILE": {"name": "B"}, "POINT": {"balance": 3}, "CASH": {"balance": 1}}
CONCERNS = (PROFILE, POINT, CASH)
EMPTY: dict[str, Any] = {"POINT": Change(at_most={"balance": 0}, refusal=lambda: InsufficientFunds("points are left"))}


@pytest.fixture
def table(world: World) -> Table:
    return open_table(world)


def commit(table: Table, plan: Any, operation: str = "op-1") -> None:
    commit_first(lambda: (marker("anna", operation), plan()), remaining_ms=lambda: 60_000)


def items_of(table: Table, customer: str) -> Iterator[Any]:
    for item in table.world.database.items(TABLE):
        if item["pk"] == {"S": customer} and not item["sk"]["S"].startswith("op#"):
            yield item["sk"]["S"]


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_deleted_customer_leaves_no_item_and_may_be_born_again(table: Table, phase: int) -> None:
    table.move_to(phase)

    commit(table, lambda: table.store.gone("anna"))

    assert list(items_of(table, "anna")) == []
    with pytest.raises(CustomerUnknown):
        table.add("anna", 1, "op-2")
    with pytest.raises(CustomerUnknown):
        table.store.gone("anna")
    commit(table, lambda: table.store.born("anna", VALUES), "op-3")
    assert table.store.read("anna", "POINT") == {"balance": {"N": "3"}}
    done = table.run() if phase > 1 else None
    assert done is None or done.left == 0
    assert table.store.read("anna", "POINT") == {"balance": {"N": "3"}}


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_birth_of_a_customer_who_exists_is_refused_at_once(table: Table, phase: int) -> None:
    table.move_to(phase)
    table.world.naps.clear()

    with pytest.raises(CustomerExists):
        commit(table, lambda: table.store.born("anna", VALUES))

    assert table.world.naps == []
    assert table.store.read("anna", "POINT") == {"balance": {"N": "100"}}


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_deletion_demands_what_it_was_given(table: Table, phase: int) -> None:
    table.move_to(phase)

    with pytest.raises(InsufficientFunds):
        commit(table, lambda: table.store.gone("anna", EMPTY))
    assert table.store.read("anna", "POINT") == {"balance": {"N": "100"}}
    table.add("anna", -100, "op-2")
    commit(table, lambda: table.store.gone("anna", EMPTY))

    assert list(items_of(table, "anna")) == []


def test_deletion_that_changes_a_value_is_refused(table: Table) -> None:
    with pytest.raises(Invalid, match="a deletion must only demand"):
        table.store.gone("anna", {"POINT": Change(add={"balance": 1})})


def test_item_that_is_not_the_migrations_is_not_deleted(table: Table) -> None:
    table.move_to(7)
    stranger: Any = {"pk": {"S": "anna"}, "sk": {"S": POINT.item}, "kind": {"S": "something else"}}
    aws.dynamodb().put_item(TableName=TABLE, Item=stranger)

    commit(table, lambda: table.store.gone("anna"))

    assert list(items_of(table, "anna")) == [POINT.item]


@pytest.mark.parametrize(("before", "after"), list(product((1, 3, 7, 9, 12, 13, LAST), repeat=2)), ids=str)
def test_deletion_that_is_late_takes_everything_or_nothing(table: Table, before: int, after: int) -> None:
    if before == LAST and after != LAST:
        return  # from the last phase there is no return
    table.move_to(before)
    late = table.store.gone("anna", EMPTY)
    table.add("anna", -100)
    table.move_to(after)
    plans = iter([late])

    commit(table, lambda: next(plans, None) or table.store.gone("anna", EMPTY), "op-2")

    assert list(items_of(table, "anna")) == []


@pytest.mark.parametrize("phase", [3, 9, 12, 13])
def test_deletion_that_sees_a_write_in_between_is_refused(table: Table, phase: int) -> None:
    table.add("anna", -100)
    table.move_to(phase)
    late = table.store.gone("anna", EMPTY)
    table.add("anna", 5, "op-2")

    with pytest.raises(InsufficientFunds):
        commit(table, lambda: late, "op-3")

    assert table.store.read("anna", "POINT") == {"balance": {"N": "5"}}


STARTS = {Move.COPY: 7, Move.SEAL: 9, Move.UNSEAL: 12, Move.RETREAT: 9, Move.CONTRACT: 12}


@pytest.mark.parametrize(("move", "again"), list(product(STARTS, (None, 1, 7, 9, 12, 13))), ids=str)
def test_late_move_of_a_deleted_customer_makes_and_takes_nothing(table: Table, move: Move, again: int | None) -> None:
    table.move_to(STARTS[move])
    read = {one.name: table.store.pair("anna", one) for one in (POINT, CASH)}
    commit(table, lambda: table.store.gone("anna"))
    if again is not None:
        table.move_to(again)
        commit(table, lambda: table.store.born("anna", VALUES), "op-2")
    expected = _values(table)

    for one in (POINT, CASH):
        old, new = read[one.name]
        assert old is not None
        table.world.wire.forget()
        table.sent(entries(LAYOUT, TABLE, one, move, old, new))

    assert _values(table) == expected
    if again is None:
        assert list(items_of(table, "anna")) == []
    else:
        table.move_to(9)
        table.run()
        assert _values(table) == expected


def _values(table: Table) -> Any:
    try:
        return {one.name: table.store.read("anna", one.name) for one in (PROFILE, POINT, CASH)}
    except CustomerUnknown:
        return None


@pytest.mark.parametrize("phase", range(2, LAST + 1))
def test_pass_in_which_a_customer_is_deleted_leaves_nothing(
    table: Table, phase: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.move_to(phase - 1)
    table.go_to(phase)
    worker = table.worker()
    scan = type(worker)._scan

    def scanned(self: Any, cursor: Any, **options: Any) -> Any:
        answer = scan(self, cursor, **options)
        commit(table, lambda: table.store.gone("anna"))
        return answer

    monkeypatch.setattr(type(worker), "_scan", scanned)

    done = worker.run()

    assert done is not None
    assert done.left == 0
    assert list(items_of(table, "anna")) == []


def test_two_births_are_one(table: Table) -> None:
    table.move_to(9)
    one, two = table.store.born("bert", VALUES), table.store.born("bert", VALUES)
    commit(table, lambda: one, "op-2")

    with pytest.raises(CustomerExists):
        commit(table, lambda: two, "op-3")


def reads_around(monkeypatch: pytest.MonkeyPatch, first: set[str], between: Callable[[], None]) -> None:
    """Let the next read of several items find some of them, and the others only after something has happened.

    A ``BatchGetItem`` reads each item at a moment of its own, and keys that it leaves unprocessed are read later
    (Amazon DynamoDB, API reference).
    """
    client: Any = aws.dynamodb()
    batch_get_item = client.batch_get_item

    def torn(**request: Any) -> Any:
        monkeypatch.setattr(client, "batch_get_item", batch_get_item)
        wanted = request["RequestItems"][TABLE]
        now = [key for key in wanted["Keys"] if key["sk"]["S"] in first]
        found: list[Any] = (
            batch_get_item(RequestItems={TABLE: {**wanted, "Keys": now}})["Responses"][TABLE] if now else []
        )
        between()
        left = {**wanted, "Keys": [key for key in wanted["Keys"] if key not in now]}
        return {"Responses": {TABLE: found}, "UnprocessedKeys": {TABLE: left} if left["Keys"] else {}}

    monkeypatch.setattr(client, "batch_get_item", torn)


READ_FIRST = [set(names) for number in range(4) for names in combinations((OLD, POINT.item, CASH.item), number)]


@pytest.mark.parametrize("demands", [{}, EMPTY], ids=["plain", "demanding"])
@pytest.mark.parametrize("first", READ_FIRST, ids=lambda names: "+".join(sorted(names)) or "none")
@pytest.mark.parametrize("phase", [9, 12, 13, LAST])
def test_deletion_whose_read_a_birth_divides_takes_everything_or_nothing(
    table: Table, phase: int, first: set[str], demands: dict[str, Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, lambda: table.store.gone("anna"))
    table.move_to(phase)
    reads_around(monkeypatch, first, lambda: commit(table, lambda: table.store.born("anna", VALUES), "birth"))

    with contextlib.suppress(CustomerUnknown, InsufficientFunds):
        commit(table, lambda: table.store.gone("anna", demands), "op-2")

    left = list(items_of(table, "anna"))
    assert not (demands and not left), "points are left"
    if left:
        assert {one.name: table.store.read("anna", one.name) for one in CONCERNS} == {
            name: {attribute: {"S" if name == "PROFILE" else "N": str(value)} for attribute, value in values.items()}
            for name, values in VALUES.items()
        }


@pytest.mark.parametrize("points", [0, 100])
@pytest.mark.parametrize("first", READ_FIRST, ids=lambda names: "+".join(sorted(names)) or "none")
@pytest.mark.parametrize(
    ("here", "there"), [(7, (9,)), (9, (7,)), (9, (7, 9)), (9, (12,)), (12, (7, 9)), (13, (LAST,))]
)
def test_deletion_whose_read_moves_divide_demands_and_takes_everything(
    table: Table, here: int, there: tuple[int, ...], first: set[str], points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not points:
        table.add("anna", -100)
    table.move_to(here)

    def moves() -> None:
        for one in there:
            table.move_to(one)

    reads_around(monkeypatch, first, moves)

    with contextlib.ExitStack() as stack:
        if points:
            stack.enter_context(pytest.raises(InsufficientFunds))
        commit(table, lambda: table.store.gone("anna", EMPTY), "op-2")

    if points:
        assert table.store.read("anna", "POINT") == {"balance": {"N": "100"}}
    else:
        assert list(items_of(table, "anna")) == []


@pytest.mark.parametrize("phase", [9, 12, 13, LAST])
def test_demand_on_an_item_that_is_absent_is_refused(table: Table, phase: int) -> None:
    table.move_to(phase)
    aws.dynamodb().delete_item(TableName=TABLE, Key={"pk": {"S": "anna"}, "sk": {"S": POINT.item}})

    with pytest.raises(Conflict, match="concern POINT has no item that decides"):
        table.store.gone("anna", EMPTY)

    commit(table, lambda: table.store.gone("anna"))
    assert list(items_of(table, "anna")) == []


def test_deletion_of_an_item_that_moved_is_a_conflict(table: Table) -> None:
    table.move_to(7)
    late = table.store.gone("anna")
    table.move_to(9)

    with pytest.raises(Conflict):
        commit(table, lambda: late)
