"""The fake DynamoDB agrees with moto on the protocol's writes; Step Functions' names behave as documented."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moto import mock_aws

from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.protocol import Direction, RecordStatus, Side, StepStatus
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.saga_log.rows import LogRow, done_put, tombstone_put, undone_update
from saga_runtime.shared import aws
from tests.unit.support.executions import AlreadyExists, Executions, ExecutionStatus, InvalidStart
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID, reservation_of
from tests.unit.support.settling import direct, park, settle, take_over
from tests.unit.support.world import TABLES

WHO: dict[str, Any] = {"request_id": REQUEST_ID, "execution": SAGA_ID, "now_ms": NOW_MS}
ROW: dict[str, Any] = {"table": "log", "saga_id": SAGA_ID, "step": "Transfer", "attempt": "a", "now_ms": NOW_MS}
HOLDER = Holder(
    table="log",
    saga_id=SAGA_ID,
    row_name="Transfer",
    side=Side.PIVOT,
    attempt="a",
    deadline=NOW_MS + 10,
    keep_days=1,
)
LATER = dataclasses.replace(HOLDER, attempt="b", deadline=NOW_MS + 20)
INTENT = LogRow(saga_id=SAGA_ID, step="Transfer", status=StepStatus.INTENT, output=None, updated_at=NOW_MS, attempt="a")
CALLS: dict[str, Any] = {
    "reserve": lambda db: db.put_item(TableName="requests", **reserve_put(reservation_of())),
    "reserve later": lambda db: db.put_item(
        TableName="requests", **reserve_put(reservation_of(now_ms=NOW_MS + 8 * 86_400_000))
    ),
    "reserve strictly": lambda db: db.put_item(TableName="requests", **reserve_put(reservation_of())),
    "complete": lambda db: db.update_item(**settle(**WHO, status=RecordStatus.COMPLETED)),
    "fail": lambda db: db.update_item(**settle(**WHO, status=RecordStatus.FAILED)),
    "park": lambda db: db.update_item(**park(**WHO)),
    "compensate": lambda db: db.update_item(**direct(**WHO, direction=Direction.COMPENSATE)),
    "forward": lambda db: db.update_item(**direct(**WHO, direction=Direction.FORWARD)),
    "take over": lambda db: db.update_item(**take_over(_found(db), NOW_MS)),
    "do": lambda db: db.transact_write_items(
        TransactItems=[done_put(**ROW, side=Side.PIVOT, output="{}", keep_days=1)]
    ),
    "bury": lambda db: db.transact_write_items(TransactItems=[tombstone_put(**ROW, side=Side.PIVOT, keep_days=1)]),
    "intend": lambda db: db.put_item(**HOLDER.intent(NOW_MS)["Put"]),
    "take over a step": lambda db: db.update_item(**LATER.take_over(INTENT, NOW_MS)["Update"]),
    "take over a step too late": lambda db: db.update_item(**HOLDER.take_over(INTENT, NOW_MS)["Update"]),
    "be done": lambda db: db.update_item(**HOLDER.done("{}", NOW_MS)["Update"]),
    "be refused": lambda db: db.update_item(**LATER.failed("Declined", "no", NOW_MS)["Update"]),
    "be undoing": lambda db: db.update_item(**HOLDER.undoing(NOW_MS)["Update"]),
    "be undone": lambda db: db.update_item(**HOLDER.undone(NOW_MS)["Update"]),
    "undo": lambda db: db.transact_write_items(TransactItems=[undone_update(**ROW)]),
}


def _found(db: Any) -> RequestRecord:
    found = db.get_item(TableName="requests", Key={"id": {"S": REQUEST_ID}})
    return RequestRecord.from_item(found["Item"]) if "Item" in found else _RESERVED


def _reserved() -> RequestRecord:
    db = MemoryDynamoDB()
    CALLS["reserve"](db)
    item = db.item("requests", REQUEST_ID)
    assert item is not None
    return RequestRecord.from_item(item)


_RESERVED = _reserved()


@pytest.fixture
def moto() -> Iterator[Any]:
    """Moto's DynamoDB, with the tables."""
    with mock_aws():
        client: Any = boto3.client("dynamodb", region_name="eu-central-1")
        for request in TABLES:
            client.create_table(**request)
        yield client


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(calls=st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=8))
def test_every_call_of_the_protocol_has_the_same_effect_in_the_fake(moto: Any, calls: list[str]) -> None:
    memory = MemoryDynamoDB()
    _empty(moto)

    for name in calls:
        assert _outcome(CALLS[name], memory) == _outcome(CALLS[name], moto)
        for table in ("requests", "log"):
            assert memory.items(table) == moto.scan(TableName=table)["Items"]


def _empty(client: Any) -> None:
    client.delete_item(TableName="requests", Key={"id": {"S": REQUEST_ID}})
    client.delete_item(TableName="log", Key={"saga_id": {"S": SAGA_ID}, "step": {"S": "Transfer"}})


def _outcome(call: Any, client: Any) -> Any:
    try:
        call(client)
    except ClientError as error:
        response: Mapping[str, Any] = error.response
        reasons = [(reason["Code"], reason.get("Item")) for reason in response.get("CancellationReasons", ())]
        return aws.error_code(error), response.get("Item"), reasons
    return None


def test_a_start_by_the_same_name_and_input_is_idempotent_while_it_runs() -> None:
    executions = Executions()

    assert executions.start("n", "{}") is executions.start("n", "{}")


@pytest.mark.parametrize("status", [ExecutionStatus.SUCCEEDED, ExecutionStatus.FAILED])
def test_any_other_use_of_a_taken_name_is_refused(status: ExecutionStatus) -> None:
    executions = Executions()
    executions.start("n", "{}")

    with pytest.raises(AlreadyExists):
        executions.start("n", '{"other":1}')
    executions.end("n", status)
    with pytest.raises(AlreadyExists):
        executions.start("n", "{}")


@pytest.mark.parametrize(("name", "text"), [("", "{}"), ("a b", "{}"), ("n" * 81, "{}"), ("n", "{"), ("n", "")])
def test_a_bad_name_or_input_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidStart):
        Executions().start(name, text)


def test_a_name_is_free_again_when_it_has_expired() -> None:
    executions = Executions()
    executions.start("n", "{}")
    executions.end("n")
    executions.forget("n")

    assert executions.start("n", '{"other":1}').input == '{"other":1}'
