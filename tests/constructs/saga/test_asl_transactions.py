"""Transactions straight from the state machine: written, refused, lost, undone; alone, in branches, for items."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constructs_lib.saga.asl import definition_of
from tests.constructs.support.answers import (
    CONDITION_FAILED,
    answers,
    body,
    called,
    canceled,
    operators_are_told,
    refusal,
    row,
)
from tests.constructs.support.groups import GROUPED, plan, writes
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.jsonata import EXECUTION
from tests.constructs.support.plans import step

ITEMS = json.dumps({"items": [{"sku": "a"}, {"sku": "b"}]})
QUICK = {"Status": "SUCCEEDED", "Output": '{"ok": true, "outputs": {"Fast": {}}}'}


def _forward(**by_state: Any) -> Run:
    made = definition_of(GROUPED["transactions in groups"])
    return run(made, answers({"Quick": QUICK, **by_state}), request=ITEMS)


ROW_EXISTS = canceled("ConditionalCheckFailed", "None")


def test_a_transaction_writes_its_row_and_its_items_together() -> None:
    done = _forward()
    put, mine = done.sent["First"]["TransactItems"]
    assert put["Put"]["Item"]["step"] == {"S": "First"}
    assert put["Put"]["Item"]["status"] == {"S": "DONE"}
    assert put["Put"]["Item"]["side"] == {"S": "before"}
    assert put["Put"]["Item"]["output"] == {"S": f'{{"key":"{EXECUTION}#First"}}'}
    assert put["Put"]["ConditionExpression"] == "attribute_not_exists(#saga_id)"
    assert mine["Put"] == {"TableName": "items", "Item": {"id": {"S": f"{EXECUTION}#First"}}}
    item = called(done, "Pack")[1]["TransactItems"]
    assert item[0]["Put"]["Item"]["step"] == {"S": "Pack[b]"}
    assert item[1]["Put"]["Item"] == {"id": {"S": f"{EXECUTION}#Pack[b]"}}
    assert done.trace[-1] == "Settle completed"


@pytest.mark.parametrize("failing", ["First", "Left", "Pack", "Last"])
def test_a_transaction_whose_row_is_done_replays_its_output(failing: str) -> None:
    """Its answer was lost, or another execution wrote it."""
    by_state = {failing: ROW_EXISTS, f"{failing} - read row": row("DONE")}
    done = _forward(**by_state)
    assert done.trace[-1] == "Settle completed"
    found = body(done)["result"][failing]
    assert found == ({"a": {"entry": "e"}, "b": {"entry": "e"}} if failing == "Pack" else {"entry": "e"})


@pytest.mark.parametrize("failing", ["First", "Left", "Pack", "Last"])
@pytest.mark.parametrize("status", ["TOMBSTONE", "COMPENSATED"])
def test_a_transaction_whose_row_is_fenced_is_fenced(failing: str, status: str) -> None:
    by_state = {failing: ROW_EXISTS, f"{failing} - read row": row(status)}
    assert _forward(**by_state).trace[-1] == "End fenced"


@pytest.mark.parametrize("failing", ["First", "Left", "Pack", "Last"])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (canceled("None", "ConditionalCheckFailed"), "ConditionFailed"),
        (canceled("None", "TransactionConflict"), "StepFailed"),
        (Failure("DynamoDb.InternalServerErrorException"), "StepFailed"),
        (Failure("States.Timeout"), "StepFailed"),
    ],
    ids=["refused", "conflict", "broken", "lost"],
)
def test_a_refused_transaction_makes_the_saga_compensate(failing: str, answer: Failure, error: str) -> None:
    by_state = {failing: answer, f"{failing} - read row": {}}
    done = _forward(**by_state)
    assert done.trace[-1] == "Settle failed"
    assert body(done, "Settle failed")["error"] == error
    assert body(done, "Settle failed")["step"] == failing


def test_a_refused_transaction_after_the_pivot_waits_for_an_operator() -> None:
    saga = plan(step("Pay", pivot=True), writes("Book", undo=False))
    by_state = {"Book": canceled("None", "ConditionalCheckFailed"), "Book - read row": {}}
    entry = operators_are_told(run(definition_of(saga), answers(by_state)))
    assert (entry["parked_reason"]["step"], entry["failure"]["error"]) == ("Book", "ConditionFailed")


def test_a_failed_transaction_after_the_pivot_names_its_error() -> None:
    saga = plan(step("Pay", pivot=True), writes("Book", undo=False))
    by_state = {"Book": Failure("DynamoDb.ResourceNotFoundException")}
    entry = operators_are_told(run(definition_of(saga), answers(by_state)))
    assert entry["parked_reason"]["error"] == "DynamoDb.ResourceNotFoundException"


DONE = {"Compensate First": CONDITION_FAILED, "Compensate First - read row": row("DONE", '{"key": "k"}')}
TRANSFER = plan(writes("First"), step("Pay", pivot=True))


def _undo(**by_state: Any) -> Run:
    return run(definition_of(TRANSFER), answers({"Pay": refusal(), **by_state}))


def test_a_transaction_that_was_not_applied_is_fenced() -> None:
    done = _undo()
    assert done.trace[-4:] == ["Compensate First", "Query saga log", "All compensated?", "Settle failed"]
    assert done.sent["Compensate First"]["Item"]["status"] == {"S": "TOMBSTONE"}


def test_an_applied_transaction_is_compensated_together_with_its_row() -> None:
    done = _undo(**DONE)
    update, delete = done.sent["Compensate First - write"]["TransactItems"]
    assert update["Update"]["ConditionExpression"] == "#status = :done"
    assert update["Update"]["ExpressionAttributeValues"][":undone"] == {"S": "COMPENSATED"}
    assert delete["Delete"]["Key"] == {"id": {"S": f"k{EXECUTION}#First#undo"}}
    assert done.trace[-1] == "Settle failed"


@pytest.mark.parametrize("status", ["TOMBSTONE", "COMPENSATED"])
def test_a_transaction_without_an_effect_is_left_alone(status: str) -> None:
    done = _undo(**{"Compensate First": CONDITION_FAILED, "Compensate First - read row": row(status)})
    assert "Compensate First - write" not in done.trace
    assert done.trace[-1] == "Settle failed"


@pytest.mark.parametrize("answer", [ROW_EXISTS, Failure("States.Timeout")], ids=["canceled", "lost"])
def test_a_compensation_whose_response_was_lost_is_recognized_by_its_row(answer: Failure) -> None:
    done = _undo(
        **DONE, **{"Compensate First - write": answer, "Compensate First - read written row": row("COMPENSATED")}
    )
    assert done.trace[-1] == "Settle failed"


def test_a_compensation_that_is_refused_waits_for_an_operator() -> None:
    by_state = {**DONE, "Compensate First - write": canceled("None", "ConditionalCheckFailed")}
    done = _undo(**by_state, **{"Compensate First - read written row": row("DONE")})
    entry = operators_are_told(done)
    assert entry["parked_reason"]["step"] == "Compensate First"


def test_a_row_that_no_transaction_can_have_is_parked() -> None:
    done = _undo(**{"Compensate First": CONDITION_FAILED, "Compensate First - read row": row("INTENT")})
    assert operators_are_told(done)["parked_reason"]["error"] == "ManualResolutionRequired"


def test_the_writes_of_every_item_are_compensated() -> None:
    done_rows = {f"Compensate {name}": CONDITION_FAILED for name in ("Pack", "Label")}
    looks = {f"Compensate {name} - read row": row("DONE", '{"key": "k"}') for name in ("Pack", "Label")}
    by_state = {"Last": Failure("Odd"), **done_rows, **looks}
    done = _forward(**by_state)
    keys = [
        arguments["TransactItems"][1]["Delete"]["Key"]["id"]["S"]
        for arguments in called(done, "Compensate Pack - write")
    ]
    assert keys == [f"k{EXECUTION}#Pack[a]#undo", f"k{EXECUTION}#Pack[b]#undo"]
    assert done.trace[-1] == "Settle failed"


def test_an_items_uncompensated_writes_are_reported() -> None:
    by_state = {
        "Last": Failure("Odd"),
        "Compensate Pack": CONDITION_FAILED,
        "Compensate Pack - read row": row("DONE", '{"key": "k"}'),
        "Compensate Pack - write": canceled("None", "ConditionalCheckFailed"),
        "Compensate Pack - read written row": row("DONE"),
    }
    assert operators_are_told(_forward(**by_state))["parked_reason"]["step"] == "Pack[a]"
