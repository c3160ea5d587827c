"""Pages of a pass: each one ends, whatever refuses, and names what it left and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from saga_runtime.errors import Invalid
from saga_runtime.migration.progress import Example, Job, Reason
from saga_runtime.migration.worker import PAGE_MS, read_progress
from saga_runtime.shared import aws
from tests.unit.support.migrations import CASH, LAST, LAYOUT, OLD, POINT, TABLE, Table, open_table
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

DUAL = 9


@pytest.fixture
def table(world: World) -> Table:
    return open_table(world)


def take_keys(table: Table, number: int) -> None:
    """Put customers whose new items' keys are taken by items of another kind."""
    for each in range(number):
        table.put(f"c{each:03d}", point=each, cash=1)
        stranger: Any = {"pk": {"S": f"c{each:03d}"}, "sk": {"S": POINT.item}, "kind": {"S": "something else"}}
        aws.dynamodb().put_item(TableName=TABLE, Item=stranger)


def test_page_that_runs_out_of_time_continues_behind_its_last_customer(table: Table) -> None:
    table.move_to(DUAL - 1)
    take_keys(table, 40)
    table.go_to(DUAL)
    table.world.clock.tick = PAGE_MS // 20
    runs, done = 0, None

    while done is None:
        runs += 1
        done = table.run()
        assert read_progress(table.store, Job.BACKFILL, 0, 1).version >= runs

    assert (done.seen, done.left) == (42, 40)
    assert table.marks("anna") == ("DUAL", "DUAL")
    examples = read_progress(table.store, Job.BACKFILL, 0, 1).examples
    assert len(examples) == 10
    assert {(one.concern, one.reason) for one in examples} == {(POINT.name, Reason.KEY_TAKEN)}


def test_customer_that_takes_all_of_the_time_is_left_and_passed(table: Table) -> None:
    table.move_to(DUAL - 1)
    table.go_to(DUAL)
    table.world.clock.tick = PAGE_MS // 2
    versions = []

    for _ in range(8):
        table.run()
        versions.append(read_progress(table.store, Job.BACKFILL, 0, 1).version)

    assert versions == sorted(set(versions)), "each run moves the cursor"


def test_taken_key_is_tried_twice_not_at_every_try(table: Table) -> None:
    table.move_to(DUAL - 1)
    take_keys(table, 1)
    table.go_to(DUAL)

    calls = table.world.calls_of(table.run)

    # anna's and the pilot's two concerns, and the customer's: one refused by the scanned item, one as read.
    assert calls.count("TransactWriteItems") <= 8
    done = table.run()
    assert done is not None
    assert done.left == 1
    assert ("migration_left", {"job": "backfill", "phase": DUAL, "reason": "KEY_TAKEN", "concerns": 1}) in (
        table.world.telemetry.events
    )


def test_mark_without_a_new_item_is_left_as_unexpected(table: Table) -> None:
    table.move_to(DUAL)
    aws.dynamodb().delete_item(TableName=TABLE, Key={"pk": {"S": "anna"}, "sk": {"S": POINT.item}})
    table.go_to(12)

    done = table.run()

    assert done is not None
    assert done.left == 1
    assert read_progress(table.store, Job.BACKFILL, 0, 1).examples == (
        Example(customer="anna", concern="POINT", reason=Reason.UNEXPECTED),
    )


def test_move_that_aws_refuses_is_left_at_once(table: Table) -> None:
    table.move_to(DUAL - 1)
    table.go_to(DUAL)
    # As for an item that its mark would make larger than 400 KB.
    table.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.INVALID, times=1))

    done = table.run()

    assert done is not None
    assert (done.seen, done.moved, done.left) == (2, 1, 1)
    assert [(one.customer, one.reason) for one in read_progress(table.store, Job.BACKFILL, 0, 1).examples] == [
        ("anna", Reason.REFUSED)
    ]


@pytest.mark.parametrize("job", list(Job))
def test_conflicts_at_every_try_are_left_as_busy(table: Table, job: Job) -> None:
    table.move_to(DUAL if job is Job.VERIFY else DUAL - 1)
    table.go_to(DUAL)
    call = "TransactGetItems" if job is Job.VERIFY else "TransactWriteItems"
    table.world.wire.plan(Fault(operation=call, action=Action.CONFLICT, times=1_000))

    done = table.run(job)

    assert done is not None
    assert done.left == 2 * len((POINT, CASH)) - (0 if job is Job.VERIFY else 2)
    assert {one.reason for one in read_progress(table.store, job, 0, 1).examples} == {Reason.BUSY}


def test_old_item_with_other_attributes_is_left_with_the_reason(table: Table) -> None:
    table.put("anna", name="A", point=5, vip="yes")

    table.move_to(LAST)

    assert table.item("anna", OLD) is not None
    assert read_progress(table.store, Job.BACKFILL, 0, 1).examples == (
        Example(customer="anna", concern="", reason=Reason.OTHER_ATTRIBUTES),
    )


def test_refusal_that_is_not_the_items_fault_ends_the_run(table: Table) -> None:
    table.move_to(DUAL - 1)
    table.go_to(DUAL)
    table.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DENY, times=1_000))

    with pytest.raises(aws.dynamodb().exceptions.ClientError):
        table.run()


@pytest.mark.parametrize("mark", [{"S": "OLD"}, {"S": "yes"}, {"N": "1"}, {"BOOL": True}], ids=str)
@pytest.mark.parametrize("job", list(Job))
def test_mark_that_something_else_wrote_is_left_and_does_not_stop_the_pass(table: Table, job: Job, mark: Any) -> None:
    table.move_to(DUAL)
    aws.dynamodb().put_item(TableName=TABLE, Item={**(table.item("anna", OLD) or {}), "at_POINT": mark})

    done = table.run(job)

    assert done is not None
    assert (done.seen, done.left) == (2, 1)
    examples = read_progress(table.store, job, 0, 1).examples
    assert examples == (Example(customer="anna", concern="POINT", reason=Reason.UNEXPECTED),)
    with pytest.raises(Invalid, match="at_POINT must be absent, DUAL or NEW"):
        table.add("anna", 1)


@pytest.mark.parametrize("old_item", ["phase", "backfill#0of1"])
def test_own_items_are_not_customers_whatever_the_layout_names(world: World, old_item: str) -> None:
    table = open_table(world, replace(LAYOUT, old_item=old_item))
    table.go_to(DUAL)

    for _ in range(2):
        done = table.run()
        assert done is not None
        assert (done.seen, done.moved, done.left) == (0, 0, 0)
