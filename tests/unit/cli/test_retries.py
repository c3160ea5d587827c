"""Attempts, last error and next attempt of what a running saga retries."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from constructs_lib.cli.saga.retries import Retrying, read_retries, retries_of
from saga_runtime.shared.arns import execution_of
from tests.unit.support.samples import MACHINE_ARN, NOW_MS, SAGA_ID

START = datetime.fromtimestamp(NOW_MS / 1_000, UTC)
RETRY = [
    {
        "ErrorEquals": ["TransientError"],
        "IntervalSeconds": 2,
        "MaxAttempts": 5,
        "BackoffRate": 2,
        "MaxDelaySeconds": 60,
    },
    {"ErrorEquals": ["States.ALL"], "IntervalSeconds": 10, "MaxAttempts": 2},
]
DEFINITION = {
    "States": {
        "Charge": {"Type": "Task", "Retry": RETRY},
        "Both": {"Type": "Parallel", "Branches": [{"States": {"Ship": {"Type": "Task", "Retry": RETRY}}}]},
        "Each": {"Type": "Map", "ItemProcessor": {"States": {"Mail": {"Type": "Task"}}}},
    }
}


def entered(number: int, name: str, before: int = 0) -> dict[str, Any]:
    return event(number, before, "TaskStateEntered", stateEnteredEventDetails={"name": name})


def scheduled(number: int, before: int) -> dict[str, Any]:
    return event(number, before, "TaskScheduled")


def failed(number: int, before: int, error: str = "TransientError") -> dict[str, Any]:
    return event(number, before, "TaskFailed", taskFailedEventDetails={"error": error, "cause": "busy"})


def event(number: int, before: int, type_: str, **details: Any) -> dict[str, Any]:
    at = START + timedelta(seconds=number)
    return {"id": number, "previousEventId": before, "type": type_, "timestamp": at, **details}


def ms(number: int) -> int:
    return NOW_MS + number * 1_000


def test_a_task_that_waits_for_its_next_attempt_has_its_time() -> None:
    events = [entered(1, "Charge"), scheduled(2, 1), failed(3, 2), scheduled(4, 3), failed(5, 4)]

    assert retries_of(events, DEFINITION) == [
        Retrying(
            state="Charge",
            failed=2,
            error="TransientError",
            cause="busy",
            first_at=ms(3),
            last_at=ms(5),
            next_by=ms(5 + 4),
            runs=False,
        )
    ]


@pytest.mark.parametrize(
    ("errors", "next_by"),
    [
        (["TransientError"], 2),
        (["TransientError"] * 5, 32),
        (["TransientError"] * 6, None),
        (["Other"], 10),
        (["Other", "TransientError"], 2),
        (["TransientError", "Other"], 10),
        (["Other"] * 2, 20),
        (["Other"] * 3, None),
    ],
)
def test_each_rule_of_a_state_counts_its_own_attempts(errors: list[str], next_by: int | None) -> None:
    events = [entered(1, "Charge"), *(failed(place + 2, place + 1, error) for place, error in enumerate(errors))]

    (found,) = retries_of(events, DEFINITION)

    assert (found.failed, found.runs) == (len(errors), False)
    assert found.next_by == (None if next_by is None else found.last_at + next_by * 1_000)


def test_an_attempt_that_runs_has_no_next_one() -> None:
    events = [entered(1, "Charge"), failed(2, 1), scheduled(3, 2)]

    (found,) = retries_of(events, DEFINITION)

    assert (found.failed, found.runs, found.next_by) == (1, True, None)


def test_tasks_of_branches_and_items_are_separate() -> None:
    events = [
        entered(1, "Ship"),
        entered(2, "Mail"),
        failed(3, 1),
        failed(4, 2),
        scheduled(5, 3),
        failed(6, 5, "Other"),
    ]

    assert [(one.state, one.failed, one.next_by) for one in retries_of(events, DEFINITION)] == [
        ("Ship", 2, ms(6 + 10)),
        ("Mail", 1, None),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [],
        [entered(1, "Charge"), scheduled(2, 1)],
        [entered(1, "Charge"), failed(2, 1), event(3, 2, "TaskStateExited"), entered(4, "Next", 3)],
    ],
)
def test_what_did_not_fail_or_succeeded_later_is_not_retried(events: list[dict[str, Any]]) -> None:
    assert retries_of(events, DEFINITION) == []


def test_a_timeout_is_an_error_too() -> None:
    events = [entered(1, "Charge"), event(2, 1, "TaskTimedOut", taskTimedOutEventDetails={})]

    assert [(one.error, one.next_by) for one in retries_of(events, DEFINITION)] == [("States.Timeout", ms(2 + 10))]


class History:
    """Step Functions, with one history."""

    def __init__(self, code: str = "") -> None:
        self.code = code

    def get_execution_history(self, **asked: Any) -> dict[str, Any]:
        assert asked["reverseOrder"] is True
        if self.code:
            raise ClientError({"Error": {"Code": self.code}}, "GetExecutionHistory")
        return {"events": [failed(2, 1), entered(1, "Charge")]}

    def describe_state_machine_for_execution(self, executionArn: str) -> dict[str, Any]:  # noqa: N803 - AWS's own name
        return {"definition": json.dumps(DEFINITION)}


def test_a_history_that_is_gone_has_no_retries() -> None:
    gone: Any = History("ExecutionDoesNotExist")
    there: Any = History()

    assert read_retries(gone, execution_of(MACHINE_ARN, SAGA_ID)) == []
    assert len(read_retries(there, execution_of(MACHINE_ARN, SAGA_ID))) == 1


def test_a_history_that_may_not_be_read_is_an_error() -> None:
    client: Any = History("AccessDeniedException")

    with pytest.raises(ClientError):
        read_retries(client, execution_of(MACHINE_ARN, SAGA_ID))
