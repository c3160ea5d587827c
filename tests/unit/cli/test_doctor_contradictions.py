"""``cdk-sagas doctor --full-scan``: records that contradict an execution, their log, or the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from saga_runtime.ledger.items import entry_key
from saga_runtime.protocol import LedgerAttribute, RecordStatus, StepStatus
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import CheckedStack, checked_stack_in
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.samples import DAY_MS, NOW_MS, SAGA_ID
from tests.unit.support.settling import REMEMBER_SECONDS
from tests.unit.support.wire import before
from tests.unit.support.world import World

R1 = recovery_name(SAGA_ID, 1)
DEFINITION = "0123456789abcdef"
"""Of the deployed state machine."""
OTHER = "bbbbbbbbbbbbbbbbbbbbbbbbbb-m0000000"
"""A saga of another stack."""


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack with a saga that runs; nothing is wrong."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:
        stack.manifests["Shop"]["ledgers"] = [{"table": "ledger"}]
        yield stack


def wrong(stack: CheckedStack) -> list[tuple[str, str]]:
    """Kind and text of what contradicts a record."""
    found = stack.finds("--full-scan")
    assert {one["severity"] for one in found} <= {"operator"}
    return [(one["kind"], one["what"]) for one in found]


def succeeded(stack: CheckedStack, name: str = SAGA_ID, verdict: RecordStatus | None = RecordStatus.COMPLETED) -> None:
    """Let an execution succeed, with what a settle outputs; None: with what one outputs that settled nothing."""
    if name not in stack.world.executions.by_name:
        stack.world.executions.start(name, stack.operated.record.input)
    stack.dies(name, ExecutionStatus.SUCCEEDED)
    if verdict is not None:
        output = json.dumps({"saga_id": SAGA_ID, "status": verdict})
        stack.world.executions.by_name[name].output = output


def taken_over(stack: CheckedStack) -> None:
    """Let a recovery settle the saga FAILED, as one did after the record was restored."""
    stack.update(owner={"S": R1}, recoveries={"N": "1"})
    succeeded(stack, R1, RecordStatus.FAILED)
    stack.settle()


def test_correct_saga_is_not_a_contradiction(stack: CheckedStack) -> None:
    stack.put_row("Pick", StepStatus.DONE)
    stack.update(definition={"S": DEFINITION})
    post(f"{SAGA_ID}#Pick")
    succeeded(stack)
    stack.settle(RecordStatus.COMPLETED)

    assert wrong(stack) == []


# An execution that succeeded.


def test_execution_that_settled_a_saga_which_a_later_one_settled_again(stack: CheckedStack) -> None:
    succeeded(stack)
    taken_over(stack)

    what = f"{SAGA_ID} settled it as COMPLETED, and its record is FAILED, owned by {R1}"
    assert wrong(stack) == [("record contradicted", what)]


def test_saga_that_an_operator_resumed_and_that_ended_alike_contradicts_nothing(stack: CheckedStack) -> None:
    """Its record was restored to before its end, and its log was right: a recovery replayed it."""
    succeeded(stack)
    stack.update(owner={"S": R1}, recoveries={"N": "1"})
    succeeded(stack, R1)
    stack.settle(RecordStatus.COMPLETED)

    assert wrong(stack) == []


def test_execution_that_found_its_saga_settled_contradicts_nothing(stack: CheckedStack) -> None:
    succeeded(stack, verdict=None)
    taken_over(stack)

    assert wrong(stack) == []


def test_execution_without_a_record_is_found(stack: CheckedStack) -> None:
    succeeded(stack)
    stack.forget()

    assert wrong(stack) == [
        ("record lost", "its execution SUCCEEDED, and it has no record, which cannot have expired yet")
    ]


def test_execution_with_a_possibly_expired_record_is_ignored(stack: CheckedStack) -> None:
    succeeded(stack)
    stack.forget()
    stack.pass_time(REMEMBER_SECONDS * 1_000)

    assert wrong(stack) == []


def test_record_that_is_settled_during_the_look_contradicts_nothing(stack: CheckedStack) -> None:
    """The scan saw it owned by a recovery; by now it is as it was."""
    succeeded(stack)
    taken_over(stack)
    before(stack.world.wire, "ListExecutions", lambda: stack.update(owner={"S": SAGA_ID}))

    assert wrong(stack) == []


# A completed saga whose rows are not there.


def completed(stack: CheckedStack, definition: str = DEFINITION) -> None:
    stack.update(definition={"S": definition})
    succeeded(stack)
    stack.settle(RecordStatus.COMPLETED)


def test_completed_saga_without_a_row_of_a_step_that_every_request_takes(stack: CheckedStack) -> None:
    completed(stack)

    what = "COMPLETED, and its log has no row of Pick, which every request takes"
    assert wrong(stack) == [("record contradicted", what)]


def test_completed_saga_of_another_definition_is_not_judged_by_this_one(stack: CheckedStack) -> None:
    completed(stack, "fedcba9876543210")

    assert wrong(stack) == []


def test_completed_saga_with_possibly_expired_rows_is_ignored(stack: CheckedStack) -> None:
    completed(stack)
    stack.pass_time(400 * DAY_MS)

    assert wrong(stack) == []


def test_row_that_the_scan_did_not_see_is_looked_up(stack: CheckedStack) -> None:
    completed(stack)
    before(stack.world.wire, "ListExecutions", lambda: stack.put_row("Pick", StepStatus.DONE))

    assert wrong(stack) == []


# A failed saga with an applied step.


def test_failed_saga_with_a_step_that_was_never_compensated(stack: CheckedStack) -> None:
    stack.put_row("Pick", StepStatus.DONE)
    succeeded(stack, verdict=RecordStatus.FAILED)
    stack.settle()

    what = "its saga is FAILED, and it is DONE: it was never compensated"
    assert wrong(stack) == [("record contradicted", what)]


# Entries of a ledger.


def post(entry_id: str, posted_at: int = NOW_MS) -> None:
    a = LedgerAttribute
    item: Any = {
        **entry_key("alice", entry_id),
        a.ENTRY_ID: {"S": entry_id},
        a.POSTED_AT: {"N": str(posted_at)},
    }
    aws.dynamodb().put_item(TableName="ledger", Item=item)


def row(status: StepStatus | None) -> Callable[[CheckedStack], None]:
    def put(stack: CheckedStack) -> None:
        if status is not None:
            stack.put_row("Pick", status)

    return put


@pytest.mark.parametrize(
    ("entry", "status", "says"),
    [
        ("Pick", None, "its entry, and it has no row"),
        ("Pick", StepStatus.TOMBSTONE, "its entry, and its row is TOMBSTONE"),
        ("Pick", StepStatus.REFUSED, "its entry, and its row is REFUSED"),
        ("Pick", StepStatus.DONE, ""),
        ("Pick", StepStatus.COMPENSATED, ""),
        ("Pick#undo", StepStatus.COMPENSATED, ""),
        ("Pick#undo", StepStatus.DONE, "the entry of its undo, and its row is DONE"),
        ("Pick#undo", None, "the entry of its undo, and it has no row"),
    ],
)
def test_entry_of_a_ledger_and_its_row(stack: CheckedStack, entry: str, status: StepStatus | None, says: str) -> None:
    row(status)(stack)
    post(f"{SAGA_ID}#{entry}")

    expected = [("record contradicted", f"Pick: ledger ledger has {says}")] if says else []
    assert wrong(stack) == expected


def test_entry_of_an_item_of_a_map(stack: CheckedStack) -> None:
    post(f"{SAGA_ID}#Pick[a]")

    assert wrong(stack) == [("record contradicted", "Pick[a]: ledger ledger has its entry, and it has no row")]


@pytest.mark.parametrize("entry", ["open#alice", f"{OTHER}#Pick", "a#b#c", f"{SAGA_ID}#Pick#redo"])
def test_an_entry_of_another_stacks_saga_is_left(stack: CheckedStack, entry: str) -> None:
    post(entry)

    assert wrong(stack) == []


def test_entry_that_no_restore_reaches_is_left(stack: CheckedStack) -> None:
    post(f"{SAGA_ID}#Pick", posted_at=NOW_MS - 36 * DAY_MS)

    assert wrong(stack) == []


def test_entry_of_a_saga_with_a_lost_record_is_found_by_its_execution(stack: CheckedStack) -> None:
    post(f"{SAGA_ID}#Pick")
    succeeded(stack)
    stack.forget()

    assert ("record contradicted", "Pick: ledger ledger has its entry, and it has no row") in wrong(stack)
