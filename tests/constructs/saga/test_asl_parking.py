"""Parking against a callback: the write of the generated definition, on a record that a callback has changed."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from constructs_lib.saga.asl import definition_of
from saga_runtime.callbacks.saga_writes import SagaRecord
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute, RecordStatus
from saga_runtime.recovery.takeover import take_over_update
from tests.constructs.support.answers import CONDITION_FAILED, answers
from tests.constructs.support.interpreter import Failure, Run, run
from tests.constructs.support.jsonata import EXECUTION, REQUEST_ID
from tests.constructs.support.plans import PLANS, plan
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS

A = RecordAttribute
SAGA = plan(*PLANS["jobs"].steps, operators="https://sqs.example/operators")
"""Its last step is a job after the pivot: not answered in time, the saga parks."""


@pytest.fixture
def dynamodb() -> MemoryDynamoDB:
    """A record in progress, owned by the first execution."""
    memory = MemoryDynamoDB()
    texts = {
        A.ID: REQUEST_ID,
        A.STATUS: RecordStatus.IN_PROGRESS,
        A.FINGERPRINT: "f",
        A.SCOPE: "s",
        A.INPUT: "{}",
        A.SAGA_ID: EXECUTION,
        A.OWNER: EXECUTION,
        A.EXECUTION_ARN: f"arn:aws:states:eu-west-1:111111111111:execution:Shop:{EXECUTION}",
        A.RECOVERY_MACHINE_ARN: "arn:aws:states:eu-west-1:111111111111:stateMachine:ShopRecovery",
    }
    item: dict[str, Any] = {name: {"S": str(text)} for name, text in texts.items()}
    memory.put_item(TableName="requests", Item={**item, A.CREATED_AT: {"N": str(NOW_MS)}})
    return memory


def item_of(memory: MemoryDynamoDB) -> dict[str, Any]:
    item = memory.item("requests", REQUEST_ID)
    assert item is not None
    return dict(item)


def answered(memory: MemoryDynamoDB) -> None:
    """A callback arrives, and no task waits for it."""
    found = SagaRecord.from_item(item_of(memory))
    assert found is not None
    memory.update_item(**found.due("requests", NOW_MS, answered=True)["Update"])


def not_answered_in_time(memory: MemoryDynamoDB, *, meanwhile: Any = None) -> Run:
    """Run the saga until its last job times out; something may happen before the record is parked."""

    def tell(_: Any) -> Any:
        if meanwhile is not None:
            meanwhile(memory)
        return {}

    def park(arguments: Any) -> Any:
        try:
            return memory.update_item(**arguments)
        except ClientError:
            raise CONDITION_FAILED from None

    usual = {name: {"output": {"of": name}} for name in ("Pay", "Review")}
    writes = {"Ship": Failure("States.Timeout"), "Notify operators": tell, "Park saga": park}
    return run(definition_of(SAGA), answers(usual | writes))


def test_a_saga_with_an_unanswered_job_is_parked(dynamodb: MemoryDynamoDB) -> None:
    done = not_answered_in_time(dynamodb)

    assert (done.error, item_of(dynamodb)[A.PARKED_BY]["S"]) == ("SagaParked", EXECUTION)


def test_a_callback_right_before_parking_keeps_the_saga_for_its_next_recovery(dynamodb: MemoryDynamoDB) -> None:
    done = not_answered_in_time(dynamodb, meanwhile=answered)

    assert (done.error, A.PARKED_BY in item_of(dynamodb)) == ("SagaFenced", False)

    taken_over = take_over_update(RequestRecord.from_item(item_of(dynamodb)), NOW_MS, 60_000)
    dynamodb.update_item(TableName="requests", **taken_over)

    assert A.LATE_OUTCOME_AT not in item_of(dynamodb)
