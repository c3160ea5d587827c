"""``cdk-sagas doctor`` about watched state machines."""

from __future__ import annotations

from typing import Any

import pytest

from saga_runtime.protocol import FailedStatus
from saga_runtime.shared import aws
from saga_runtime.watch.rows import ListRow, list_id, list_put
from tests.unit.support.checked_stack import (
    READS,
    CheckedStack,
)
from tests.unit.support.doctor_scenes import due_now, keeps, watches
from tests.unit.support.manifests import manifest
from tests.unit.support.samples import (
    MACHINE_ARN,
    NOW_MS,
)

ENDS: dict[str, tuple[dict[str, dict[str, str]], int, list[tuple[str, str]], bool]] = {
    "not notified yet": ({}, 0, [], False),
    "notified in vain": (
        {"attempt": {"N": "2"}, "error": {"S": "Unhandled"}},
        0,
        [("failure not notified", "soon")],
        False,
    ),
    "due for long": ({}, 15 * 60_000, [("not monitored", "operator")], False),
    "parked_reason": (
        {
            "status": {"S": "DEAD_LETTERED"},
            "error": {"S": "Unhandled"},
            "due_at": {},
            "due_shard": {},
            "not_before": {},
        },
        0,
        [("handler failed", "operator")],
        True,
    ),
    "told": ({"status": {"S": "NOTIFIED"}, "due_at": {}, "due_shard": {}, "not_before": {}}, 0, [], True),
}


@pytest.mark.parametrize("end", ENDS)
def test_failures_of_watched_machines_without_a_notification_are_found(stack: CheckedStack, end: str) -> None:
    values, later_ms, found, deep = ENDS[end]
    watches(stack)
    keeps(stack, **values)
    stack.pass_time(later_ms)
    due_now(stack)
    stack.world.wire.forget()

    assert stack.kinds(*(["--full-scan"] if deep else [])) == found
    assert set(stack.world.wire.sent) <= READS


def test_a_list_that_was_not_read_for_long_is_reported(stack: CheckedStack) -> None:
    watches(stack)
    machine = MACHINE_ARN.replace("Transfers", "Reports")
    told: dict[str, Any] = {"machine": machine, "function": "f", "ends": ["TIMED_OUT"]}
    told |= {"grace": 1, "lease": 1, "attempts": 1, "longest": 0}
    stack.part("watches")[0]["watched"] = [told]
    row = ListRow(
        id=list_id(machine, FailedStatus.TIMED_OUT), listed_until=NOW_MS, verified_until=NOW_MS, due_at=NOW_MS
    )
    aws.dynamodb().put_item(TableName="watch", Item=list_put(row)["Item"])

    assert stack.kinds() == []
    stack.pass_time(15 * 60_000)
    due_now(stack)
    assert stack.kinds() == [("not monitored", "operator")]


def test_a_stack_of_watched_machines_alone_is_checked(stack: CheckedStack) -> None:
    stack.manifests["Shop"] = manifest()
    watches(stack)

    assert stack.kinds() == []
