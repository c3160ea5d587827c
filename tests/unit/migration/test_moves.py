"""Moves of a migration: there and back, killed at each call, with writers in between."""

from __future__ import annotations

from typing import Any

import pytest

from saga_runtime import InsufficientFunds, Write
from saga_runtime.errors import Conflict, Invalid
from saga_runtime.migration import CLEAR, Change, CustomerUnknown
from saga_runtime.migration.moves import Move, entries
from saga_runtime.migration.progress import Job
from saga_runtime.migration.worker import _Late, _Page
from saga_runtime.protocol import Metric
from saga_runtime.saga_log.transaction import commit_first
from saga_runtime.shared import aws
from tests.unit.support.migrations import (
    CASH,
    LAST,
    LAYOUT,
    OLD,
    POINT,
    PROFILE,
    TABLE,
    Table,
    kills,
    marker,
    open_table,
)
from tests.unit.support.wire import Moment
from tests.unit.support.world import World

DUAL, NEW = 9, 12
"""Phases in which the points of all customers are in both items, and in the new one."""


@pytest.fixture
def table(world: World) -> Table:
    return open_table(world)


def test_every_phase_forward_and_back_keeps_every_value(table: Table) -> None:
    before = table.item("anna", OLD)
    for phase in range(1, LAST):
        table.move_to(phase)
        assert table.store.read("anna", "POINT") == {"balance": {"N": "100"}}
        assert table.store.read("anna", "PROFILE")["mail"] == {"S": "a@example.com"}
    assert table.balances("anna") == (None, 100)

    table.move_to(0)

    assert table.item("anna", OLD) == before
    assert table.item("anna", POINT.item) is table.item("anna", PROFILE.item) is None


def test_last_phase_deletes_old_items_and_keeps_new_ones(table: Table) -> None:
    table.move_to(LAST)

    assert table.item("anna", OLD) is None
    assert table.store.read("anna", "POINT", new_first=True) == {"balance": {"N": "100"}}
    table.add("anna", -40)
    assert table.balances("anna") == (None, 60)


def test_pilots_move_first(table: Table) -> None:
    table.move_to(DUAL - 1)

    assert (table.marks("pilot"), table.marks("anna")) == (("DUAL", "DUAL"), (None, None))


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_operation_has_its_effect_once_in_every_phase(table: Table, phase: int) -> None:
    table.move_to(phase)

    table.add("anna", -30)
    table.add("anna", -30)

    assert 70 in table.balances("anna")
    if table.marks("anna")[1] == "DUAL":
        assert table.balances("anna") == (70, 70)
    with pytest.raises(InsufficientFunds):
        table.add("anna", -71, "op-2")


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_unknown_customer_is_refused_in_every_phase(table: Table, phase: int) -> None:
    table.move_to(phase)

    with pytest.raises(CustomerUnknown):
        table.add("unknown", 1)
    with pytest.raises(CustomerUnknown):
        table.store.read("unknown", "POINT")


MOVES = [(Move.COPY, 1, DUAL), (Move.SEAL, DUAL, NEW), (Move.UNSEAL, NEW, DUAL), (Move.RETREAT, DUAL, 7)]


@pytest.mark.parametrize(("move", "start", "end"), MOVES, ids=[one[0] for one in MOVES])
def test_move_is_refused_after_a_write_or_a_move_in_between(table: Table, move: Move, start: int, end: int) -> None:
    table.move_to(start)
    old, new = table.store.pair("anna", POINT)
    assert old is not None
    stale = entries(LAYOUT, TABLE, POINT, move, old, new)
    table.add("anna", 1)
    if move in {Move.SEAL, Move.RETREAT}:  # these move no values: only a move in between refuses them
        table.move_to(NEW if move is Move.RETREAT else 7)

    with pytest.raises(aws.dynamodb().exceptions.TransactionCanceledException):
        aws.dynamodb().transact_write_items(TransactItems=stale)

    assert table.store.read("anna", "POINT") == {"balance": {"N": "101"}}
    table.move_to(end)
    assert table.store.read("anna", "POINT") == {"balance": {"N": "101"}}


@pytest.mark.parametrize(("start", "to"), [(7, 9), (7, 12), (9, 12), (9, 13), (9, 7), (12, 9), (12, 7)], ids=str)
def test_write_planned_before_a_move_is_refused_and_planned_again(table: Table, start: int, to: int) -> None:
    table.move_to(start)
    stale = table.writes("anna", 5)
    table.move_to(to)
    plans = iter([stale])

    commit_first(
        lambda: (marker("anna", "op-1"), next(plans, None) or table.writes("anna", 5)), remaining_ms=lambda: 60_000
    )

    assert table.store.read("anna", "POINT") == {"balance": {"N": "105"}}


def test_writes_of_several_concerns_change_each_item_once(table: Table) -> None:
    changes = {
        "POINT": Change(add={"balance": 1}),
        "CASH": Change(add={"balance": 2}, at_most={"balance": 10}),
        "PROFILE": Change(put={"mail": CLEAR, "name": None}),
    }
    table.move_to(4)

    writes = table.store.writes("anna", changes)

    keys = [next(iter(write.action.values()))["Key"]["sk"]["S"] for write in writes]
    assert sorted(keys) == ["PROFILE", OLD]
    commit_first(lambda: (marker("anna", "op-1"), writes), remaining_ms=lambda: 60_000)
    item = table.item("anna", OLD)
    assert item is not None
    assert (item["point"], item["cash"], "email" in item) == ({"N": "101"}, {"N": "7.5"}, False)
    assert table.store.read("anna", "PROFILE", new_first=True) == {"name": {"S": "A"}}


def test_change_of_nothing_reads_and_writes_nothing(table: Table) -> None:
    assert table.world.calls_of(lambda: table.store.writes("anna", {"POINT": Change(add={"balance": 0})})) == []


@pytest.mark.parametrize("phase", range(LAST + 1))
def test_demand_without_a_change_is_checked_in_every_phase(table: Table, phase: int) -> None:
    table.move_to(phase)
    met = Change(add={"balance": 0}, at_least={"balance": 100})
    unmet = Change(at_least={"balance": 101}, refusal=lambda: InsufficientFunds("too few points"))

    def commit(**changes: Change) -> None:
        commit_first(
            lambda: (marker("anna", f"op-{len(changes)}"), table.store.writes("anna", changes)),
            remaining_ms=lambda: 60_000,
        )

    writes = table.store.writes("anna", {"POINT": met})
    assert [next(iter(write.action)) for write in writes] == ["ConditionCheck"]
    commit(POINT=met)
    commit(POINT=met, CASH=Change(add={"balance": 1}))
    with pytest.raises(InsufficientFunds):
        commit(POINT=unmet, CASH=Change(add={"balance": 1}), PROFILE=Change(put={"name": "B"}))
    assert table.store.read("anna", "CASH")["balance"] == {"N": "6.5"}


def test_demand_that_is_late_is_planned_again(table: Table) -> None:
    table.move_to(7)
    stale = table.store.writes("anna", {"POINT": Change(at_least={"balance": 100})})
    table.move_to(NEW)

    with pytest.raises(Conflict):
        commit_first(lambda: (marker("anna", "op-1"), stale), remaining_ms=lambda: 60_000)


@pytest.mark.parametrize("value", [True, 1.5, None, [1]], ids=repr)
def test_birth_with_a_wrong_value_is_refused(table: Table, value: Any) -> None:
    with pytest.raises(Invalid, match="balance must be a text, an int or a Decimal"):
        table.store.born("bert", {"POINT": {"balance": value}})
    with pytest.raises(Invalid, match="a concern must be one of"):
        table.store.born("bert", {"POINTS": {"balance": 1}})


@pytest.mark.parametrize("phase", range(1, LAST + 1))
def test_births_of_two_phases_exclude_each_other(table: Table, phase: int) -> None:
    table.move_to(phase)
    values: dict[str, dict[str, int | str]] = {"PROFILE": {"name": "B"}, "POINT": {"balance": 3}}
    late = table.store.born("bert", values)
    table.move_to(phase - 1 if phase < LAST else phase)
    first = table.store.born("bert", values)
    aws.dynamodb().transact_write_items(TransactItems=_actions(first))
    with pytest.raises(aws.dynamodb().exceptions.TransactionCanceledException):
        aws.dynamodb().transact_write_items(TransactItems=_actions(late))

    assert table.store.read("bert", "POINT") == {"balance": {"N": "3"}}
    table.run()
    assert table.store.read("bert", "POINT") == {"balance": {"N": "3"}}


def _actions(writes: list[Write]) -> Any:
    return [write.action for write in writes]


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize(("start", "to"), [(8, 9), (11, 12), (12, 13), (13, 14), (11, 10), (8, 7)], ids=str)
def test_worker_that_is_killed_leaves_nothing_wrong(table: Table, start: int, to: int, moment: Moment) -> None:
    table.move_to(start)
    table.go_to(to)

    for killed in kills(table, lambda: table.run(page_items=3), [moment]):
        table.add("anna", 7)

        assert table.store.read("anna", "POINT") == {"balance": {"N": "107"}}, killed
        while (done := table.run(page_items=3)) is None or done.left:
            pass
        assert table.run(Job.VERIFY) is not None, killed
        assert done.phase == to, killed
        assert table.store.read("anna", "POINT") == {"balance": {"N": "107"}}, killed


def test_two_workers_count_each_page_once(table: Table) -> None:
    table.go_to(DUAL)
    one, two = table.worker(), table.worker()
    read = two._write_page  # the other one is faster between its read and its write

    done = one.run()

    assert done is not None
    assert done.seen == 2
    assert read() is not None
    assert table.balances("anna") == (100, 100)


def test_verify_counts_a_difference_and_backfill_does_not_hide_it(table: Table) -> None:
    table.move_to(DUAL)
    table.world.clock.ms += 1
    clean = table.run(Job.VERIFY)
    assert clean is not None
    assert (clean.compared, clean.different, clean.clean_since_ms) == (4, 0, clean.began_at_ms)
    broken = {**(table.item("anna", POINT.item) or {}), "balance": {"N": "99"}}
    aws.dynamodb().put_item(TableName=TABLE, Item=broken)

    found = table.run(Job.VERIFY)

    assert found is not None
    assert (found.different, found.clean_since_ms) == (1, None)
    assert table.world.telemetry.counts[Metric.MIGRATION_DIFFERENCE] == 1


def test_pass_of_a_phase_before_begins_again(table: Table) -> None:
    for number in range(6):
        table.put(f"c{number}", point=number)
    table.go_to(DUAL)
    worker = table.worker(page_items=2)
    assert worker._write_page() is not None

    table.go_to(7)
    done = worker.run()

    assert done is not None
    assert (done.phase, done.seen, done.left) == (7, 8, 0)
    assert {table.marks(f"c{number}") for number in range(6)} == {(None, None)}


def test_same_number_in_another_spelling_is_equal(table: Table) -> None:
    table.move_to(DUAL)
    broken = {**(table.item("anna", CASH.item) or {}), "balance": {"N": "5.5"}}
    aws.dynamodb().put_item(TableName=TABLE, Item=broken)

    done = table.run(Job.VERIFY)

    assert done is not None
    assert done.different == 0


def test_old_item_with_an_attribute_of_no_concern_is_kept(table: Table) -> None:
    table.put("anna", name="A", point=5, vip="yes")

    table.move_to(LAST)

    assert table.item("anna", OLD) is not None
    done = table.run()
    assert done is not None
    assert done.left == 1


def test_machine_that_slept_does_not_move_by_a_phase_of_before(table: Table) -> None:
    for number in range(5):
        table.put(f"c{number}", point=number)
    table.go_to(DUAL)
    table.world.clock.tick = 200_000  # the clock moves on by more than three minutes with each read

    assert table.worker()._write_page() is None

    table.world.clock.tick = 0
    moved = [one for one in table.world.database.items(TABLE) if "at_POINT" in one]
    assert len(moved) <= 1


@pytest.mark.parametrize(("start", "to"), [(8, 9), (LAST - 1, LAST)], ids=["move", "removal"])
def test_machine_that_slept_within_a_customer_sends_nothing(table: Table, start: int, to: int) -> None:
    table.move_to(start)
    table.go_to(to)
    worker = table.worker()
    before = table.item("anna", OLD)
    page = _Page(phase=table.store.phase(), until_ms=table.world.clock.ms - 1)

    assert before is not None
    with pytest.raises(_Late):
        worker._customer(before, page)

    assert table.item("anna", OLD) == before


def test_pass_of_other_segments_begins_again(table: Table) -> None:
    for number in range(6):
        table.put(f"c{number}", point=number)
    table.go_to(DUAL)
    assert table.worker(page_items=2)._write_page() is not None

    done = [table.run(segment=segment, segments=2) for segment in range(2)]

    assert sum(one.seen for one in done if one is not None) == 8
