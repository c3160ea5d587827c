"""Rows of histories: each is copied once, whatever dies, and two equal ones stay two."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from saga_runtime.errors import Invalid
from saga_runtime.migration import History, copy_of, copy_row, merged, row_id
from saga_runtime.migration.history import copy_entries
from saga_runtime.migration.progress import Example, Job, Reason
from saga_runtime.migration.worker import read_progress
from saga_runtime.shared import aws
from tests.unit.support.migrations import LAYOUT, TABLE, Table, open_table
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

HISTORY = History(old_prefix="tx#", new_prefix="history#", id_attribute="op", order_attribute="ms")
ROWS = replace(LAYOUT, histories=(HISTORY,))
PILOTS, ALL = 2, 3
"""Phases in which rows are copied."""


@pytest.fixture
def table(world: World) -> Table:
    return open_table(world, ROWS)


def row(suffix: str, customer: str = "anna", ms: Any = 5, **attributes: str) -> dict[str, Any]:
    texts = {"pk": customer, "sk": f"tx#{suffix}", "type": "purchase", **attributes}
    return {**{name: {"S": value} for name, value in texts.items()}, "ms": {"N": str(ms)}}


def put(*rows: dict[str, Any]) -> None:
    for one in rows:
        aws.dynamodb().put_item(TableName=TABLE, Item=one)


def copies(table: Table, customer: str = "anna") -> list[dict[str, Any]]:
    found = [one for one in table.world.database.items(TABLE) if one["sk"]["S"].startswith("history#")]
    return [one for one in found if one["pk"] == {"S": customer}]


def test_two_equal_purchases_of_one_second_stay_two(table: Table) -> None:
    rows = [row("t0#purchase#1"), row("t0#purchase#2")]
    put(*rows)

    table.move_to(ALL)

    made = copies(table)
    assert len(made) == len(merged(ROWS, [*rows, *made, *made])) == 2
    assert len({(one["pk"]["S"], one["ms"]["N"], one["type"]["S"]) for one in (*rows, *made)}) == 1


def test_rows_of_pilots_are_copied_first_and_each_once(table: Table) -> None:
    put(row("1"), row("1", "pilot"), row("2", "pilot", op="op-2"))

    table.move_to(1)
    assert copies(table) == copies(table, "pilot") == []
    table.move_to(PILOTS)
    assert (len(copies(table)), len(copies(table, "pilot"))) == (0, 2)
    table.move_to(ALL)
    before = copies(table), copies(table, "pilot")
    assert (len(before[0]), len(before[1])) == (1, 2)
    assert copies(table, "pilot")[-1]["sk"] in ({"S": "history#0000000000005#op-2"}, before[1][-1]["sk"])

    calls = table.world.calls_of(table.run)

    assert "TransactWriteItems" not in calls
    assert (copies(table), copies(table, "pilot")) == before


def test_rows_are_copied_in_no_other_phase(table: Table) -> None:
    table.move_to(ALL)
    put(row("1"))

    for phase in (4, 8, 9, 12, 13, 1):
        table.move_to(phase) if phase > 1 else table.go_to(1)
        if phase > 1:
            assert copies(table) == []


def test_row_that_its_operation_has_copied_is_not_copied_again(table: Table) -> None:
    one = row("1", op="op-1")
    entries: Any = [{"Put": {"TableName": TABLE, "Item": one}}, *(w.action for w in copy_row(ROWS, TABLE, one))]
    aws.dynamodb().transact_write_items(TransactItems=entries)
    table.go_to(ALL)

    done = table.run()

    assert done is not None
    assert len(copies(table)) == 1
    assert [one["op"] for one in copies(table)] == [{"S": "op-1"}]


def test_row_that_was_deleted_does_not_return(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    put(row("1"))
    table.go_to(ALL)
    worker = table.worker()
    scan = type(worker)._scan

    def scanned(self: Any, cursor: Any, **options: Any) -> Any:
        answer = scan(self, cursor, **options)
        aws.dynamodb().delete_item(TableName=TABLE, Key={"pk": {"S": "anna"}, "sk": {"S": "tx#1"}})
        return answer

    monkeypatch.setattr(type(worker), "_scan", scanned)

    done = worker.run()

    assert done is not None
    assert (copies(table), done.left) == ([], 0)


@pytest.mark.parametrize(
    "bad",
    [
        {"ms": {"N": "-1"}},
        {"ms": {"N": "1.5"}},
        {"ms": {"S": " "}},
        {"ms": {"BOOL": True}},
        {"op": {"N": "7"}},
        {"op": {"S": " "}},
    ],
    ids=str,
)
def test_row_without_a_key_for_its_copy_is_left(table: Table, bad: Any) -> None:
    put({**row("1"), **bad}, row("2"))
    table.go_to(ALL)

    done = table.run()

    assert done is not None
    assert (done.left, len(copies(table))) == (1, 1)
    assert read_progress(table.store, Job.BACKFILL, 0, 1).examples == (
        Example(customer="anna", concern="tx#1", reason=Reason.UNREADABLE),
    )
    with pytest.raises(Invalid):
        copy_of(ROWS, {**row("1"), **bad})


def test_second_row_of_one_id_is_left_whichever_page_it_is_in(table: Table) -> None:
    put(row("1", op="op-7", amount="100"), row("2", op="op-7", amount="3"))
    table.go_to(ALL)

    for page_items in (500, 1, 500):
        done = table.run(page_items=page_items)

        assert done is not None
        assert (done.left, [one["amount"] for one in copies(table)]) == (1, [{"S": "100"}])
    assert read_progress(table.store, Job.BACKFILL, 0, 1).examples == (
        Example(customer="anna", concern="tx#2", reason=Reason.KEY_TAKEN),
    )


def test_item_that_has_the_key_of_a_copy_is_left_alone(table: Table) -> None:
    put(row("1", op="op-7"))
    stranger = {"pk": {"S": "anna"}, "sk": {"S": "history#0000000000005#op-7"}, "kind": {"S": "something else"}}
    put(stranger)
    table.go_to(ALL)

    done = table.run()

    assert done is not None
    assert (done.left, copies(table)) == (1, [stranger])


def test_copy_whose_numbers_and_sets_are_written_otherwise_is_the_same(table: Table) -> None:
    one = {
        **row("1", op="op-7"),
        "tags": {"SS": ["a", "b"]},
        "more": {"M": {"tags": {"NS": ["1", "2"]}, "n": {"N": "7"}}},
    }
    put(one)
    same = {
        **copy_of(ROWS, one),
        "tags": {"SS": ["b", "a"]},
        "more": {"M": {"tags": {"NS": ["2.0", "1"]}, "n": {"N": "7.00"}}},
    }
    put(same)
    table.go_to(ALL)

    done = table.run()

    assert done is not None
    assert (done.left, len(copies(table))) == (0, 1)


def test_copy_that_was_deleted_in_between_is_made_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    one = row("1", op="op-7")
    put(one)
    table.go_to(ALL)
    worker = table.worker()
    commit = type(worker)._commit

    def raced(self: Any, moved: Any, page: Any) -> Any:
        """Another item has the key of the copy for a moment."""
        if moved != copy_entries(ROWS, TABLE, one):
            return commit(self, moved, page)
        monkeypatch.setattr(type(worker), "_commit", commit)
        put(dict(copy_of(ROWS, one)))
        refused = commit(self, moved, page)
        aws.dynamodb().delete_item(TableName=TABLE, Key={name: copy_of(ROWS, one)[name] for name in ("pk", "sk")})
        return refused

    monkeypatch.setattr(type(worker), "_commit", raced)

    done = worker.run()

    assert done is not None
    assert (done.left, len(copies(table))) == (0, 1)


@pytest.mark.parametrize("key", ["pk", "sk"])
@pytest.mark.parametrize("field", ["id_attribute", "order_attribute"])
def test_key_of_the_table_does_not_identify_or_order_copies(field: str, key: str) -> None:
    named: Any = {field: key}
    with pytest.raises(Invalid, match=f"{field} of history 'tx#' must not be a key of the table, got '{key}'"):
        replace(LAYOUT, histories=(replace(HISTORY, **named),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a#b", "c"), ("a", "b#c")),
        (("a%23b", "c"), ("a#b", "c")),
        (("a%", "c"), ("a%25", "c")),
        (("#", "#"), ("##", "")),
    ],
    ids=str,
)
def test_rows_of_other_orders_or_ids_have_other_copies(one: tuple[str, str], other: tuple[str, str]) -> None:
    def key(order: str, id_: str) -> Any:
        return copy_of(ROWS, {**row("1", op=id_ or "d"), "ms": {"S": order}})["sk"]

    assert key(*one) != key(*other)


@pytest.mark.parametrize(("id_", "readable"), [("x" * 1_002, True), ("x" * 1_003, False), ("ä" * 502, False)])
def test_row_whose_copys_key_would_be_too_long_is_left(table: Table, id_: str, readable: bool) -> None:
    put(row("1", op=id_), row("2", op="op-2"))
    table.go_to(ALL)

    done = table.run()

    assert done is not None
    assert (done.left, len(copies(table))) == ((0, 2) if readable else (1, 1))
    if not readable:
        assert [one.reason for one in read_progress(table.store, Job.BACKFILL, 0, 1).examples] == [Reason.UNREADABLE]
        with pytest.raises(Invalid, match="sort key of a row's copy must be at most 1024 bytes"):
            copy_of(ROWS, row("1", op=id_))


@pytest.mark.parametrize(
    "bad",
    [{"pk": None}, {"sk": None}, {"pk": "anna"}, {"sk": "tx#1"}, {"sk": {"B": b"tx#1"}}, {"op": {"S": "\ud800"}}],
    ids=str,
)
def test_row_without_keys_of_text_is_refused(bad: dict[str, Any]) -> None:
    wrong = {name: value for name, value in {**row("1", op="o"), **bad}.items() if value is not None}

    for call in (lambda: copy_of(ROWS, wrong), lambda: row_id(ROWS, wrong), lambda: copy_row(ROWS, TABLE, wrong)):
        with pytest.raises(Invalid, match="of a row must be a text"):
            call()


@pytest.mark.parametrize("ms", [5, "5", None, {}, {"N": "NaN"}, {"N": "Infinity"}, {"N": "five"}, {"N": None}], ids=str)
def test_order_of_a_row_in_another_form_is_refused(ms: Any) -> None:
    with pytest.raises(Invalid, match="ms of a row must be a text, or a whole number from 0"):
        copy_row(ROWS, TABLE, {**row("1", op="o"), "ms": ms})


def test_own_items_of_migrations_neither_move_nor_are_rows(world: World) -> None:
    prefixes = [History(old_prefix=f"{job}#", new_prefix=f"new-{job}#", id_attribute="op") for job in Job]
    table = open_table(world, replace(LAYOUT, old_item="phase", histories=tuple(prefixes)))
    other = {**table.store.own("phase"), "pk": {"S": "migration#other"}, "phase": {"N": "1"}}
    put(other)
    table.move_to(ALL)
    phase = table.store.phase()

    done = table.run()

    assert done is not None
    assert (done.left, done.moved, table.store.phase()) == (0, 0, phase)
    own = [one for one in world.database.items(TABLE) if one["pk"]["S"].startswith("migration#")]
    assert sorted(one["sk"]["S"] for one in own) == ["backfill#0of1", "phase", "phase"]
    assert other in own


def test_text_orders_copies_and_a_history_needs_no_order() -> None:
    assert copy_of(ROWS, {**row("1", op="o"), "ms": {"S": "2024-01-01"}})["sk"] == {"S": "history#2024-01-01#o"}
    plain = replace(ROWS, histories=(replace(HISTORY, order_attribute=None),))
    assert copy_of(plain, row("1", op="o"))["sk"] == {"S": "history#o"}
    with pytest.raises(Invalid, match="sort key of a row must begin as a history of the layout does"):
        row_id(ROWS, {"pk": {"S": "anna"}, "sk": {"S": "card"}})


def test_copy_keeps_the_id_of_its_row() -> None:
    one, other = row("a", op="op-1"), row("b")

    assert row_id(ROWS, one) == "op-1"
    assert row_id(ROWS, other) == row_id(ROWS, copy_of(ROWS, other)) != row_id(ROWS, row("c"))


def test_many_rows_are_copied_in_bounded_pages(table: Table) -> None:
    put(*(row(f"{number:04d}") for number in range(230)))
    table.go_to(ALL)
    pages = 0

    def count(_: Any) -> None:
        nonlocal pages
        pages += 1

    done = table.run(page_items=50, report=count)

    assert done is not None
    assert (len(copies(table)), done.seen, done.left) == (230, 2, 0)
    assert pages >= 4


KILLS = list(product(("Scan", "BatchGetItem", "TransactWriteItems", "PutItem"), Moment, (1, 2, 3)))


@pytest.mark.parametrize(("call", "moment", "nth"), KILLS, ids=[f"{m} {n}. {c}" for c, m, n in KILLS])
def test_worker_that_is_killed_copies_each_row_once(table: Table, call: str, moment: Moment, nth: int) -> None:
    put(*(row(str(number), ("anna", "bert")[number % 2]) for number in range(6)))
    table.go_to(ALL)
    table.world.wire.forget()
    table.world.wire.plan(Fault(operation=call, action=Action.KILL, moment=moment, on=nth, times=1))

    with contextlib.suppress(Killed):
        table.run(page_items=3)
    table.world.wire.forget()
    while (done := table.run(page_items=3)) is None or done.left:
        pass

    assert (len(copies(table)), len(copies(table, "bert"))) == (3, 3)


def test_two_workers_copy_each_row_once(table: Table) -> None:
    put(row("1"), row("2"))
    table.go_to(ALL)
    one, two = table.worker(), table.worker()

    assert one.run() is not None
    assert two.run() is not None

    assert len(copies(table)) == 2


@pytest.mark.parametrize("action", [Action.INVALID, Action.CONFLICT])
def test_row_that_is_refused_closes_the_gate(table: Table, action: Action) -> None:
    table.move_to(ALL)
    put(row("1"))
    table.world.wire.plan(Fault(operation="TransactWriteItems", action=action, times=1_000))

    done = table.run()

    assert done is not None
    assert done.left == 1
    assert [one.reason for one in read_progress(table.store, Job.BACKFILL, 0, 1).examples] == [
        Reason.REFUSED if action is Action.INVALID else Reason.BUSY
    ]
