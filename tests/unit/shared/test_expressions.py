"""Arguments of conditional writes."""

from __future__ import annotations

from typing import Any

import pytest

from saga_runtime.shared.expressions import RETURNS_ITEM, update, when
from tests.unit.support.memory_dynamodb import MemoryDynamoDB

ONE: dict[str, Any] = {"N": "1"}


def test_condition_without_values_has_the_names_that_it_uses() -> None:
    assert when("attribute_not_exists(#id) OR #due_at = #id") == {
        "ConditionExpression": "attribute_not_exists(#id) OR #due_at = #id",
        "ExpressionAttributeNames": {"#id": "id", "#due_at": "due_at"},
    }


def test_update_keeps_what_is_next_to_its_condition() -> None:
    arguments = update(when("#status = :found", found={"S": "DONE"}) | RETURNS_ITEM, removes=["token"])

    assert arguments["ExpressionAttributeValues"] == {":found": {"S": "DONE"}}
    assert arguments["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"


def test_update_has_every_clause_and_each_placeholder_once() -> None:
    arguments = update(
        when("#held >= :amount AND #state = :open", amount=ONE, open={"S": "OPEN"}),
        {"held": "#held - :amount", "state": {"S": "CLOSED"}, "first": "if_not_exists(#first, :new)"},
        adds={"sequence": ONE},
        removes=["due_at"],
        values={"new": {"S": "x"}},
    )

    assert arguments["UpdateExpression"] == (
        "SET #held = #held - :amount, #state = :state, #first = if_not_exists(#first, :new) "
        "ADD #sequence :sequence REMOVE #due_at"
    )
    key = {"id": {"S": "k"}}
    db = MemoryDynamoDB()
    db.put_item(TableName="tokens", Item={**key, "held": {"N": "5"}, "state": {"S": "OPEN"}, "due_at": ONE})
    db.update_item(TableName="tokens", Key=key, **arguments)
    assert db.item("tokens", "k") == {
        **key,
        "held": {"N": "4"},
        "state": {"S": "CLOSED"},
        "first": {"S": "x"},
        "sequence": ONE,
    }


def test_condition_may_use_the_value_that_is_set() -> None:
    arguments = update(when("attribute_not_exists(#n) OR #n < :n"), {"n": ONE})

    assert arguments["ExpressionAttributeValues"] == {":n": ONE}


def test_update_that_only_removes_has_no_values() -> None:
    assert "ExpressionAttributeValues" not in update(when("attribute_exists(#id)"), removes=["token"])


@pytest.mark.parametrize(
    "again",
    [
        {"sets": {"n": ONE}},
        {"adds": {"n": ONE}},
        {"sets": {"m": ONE}, "values": {"n": ONE}},
        {"sets": {"n": ONE}, "adds": {"n": ONE}},
    ],
)
def test_update_with_two_values_for_one_placeholder_is_refused(again: Any) -> None:
    with pytest.raises(ValueError, match=r"placeholders must have one value each, got \[':n'\] twice"):
        update(when("#n = :n", n={"N": "2"}), **again)


def test_update_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="an update must change an attribute, got none"):
        update(when("attribute_exists(#id)"))


def test_what_a_caller_changes_does_not_reach_the_next_condition() -> None:
    when("attribute_exists(#id)")["ExpressionAttributeNames"]["#more"] = "more"

    assert when("attribute_exists(#id)")["ExpressionAttributeNames"] == {"#id": "id"}
