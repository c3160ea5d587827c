"""The in-memory DynamoDB agrees with moto on our expressions; Step Functions' names behave as documented."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.protocol import Direction, RecordStatus, Side, StepStatus
from saga_runtime.saga_log.external_rows import Holder
from saga_runtime.saga_log.rows import LogRow, done_put, tombstone_put, undone_update
from saga_runtime.shared import aws
from tests.unit.support.executions import AlreadyExists, Executions, ExecutionStatus, InvalidStart
from tests.unit.support.expressions import BadExpression, check_placeholders, holds
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID, reservation_of
from tests.unit.support.settling import direct, park, settle, take_over
from tests.unit.support.world import World

NAMES = {"#a": "a", "#b": "b"}
VALUES: dict[str, dict[str, str]] = {":one": {"N": "1"}, ":two": {"N": "2"}, ":text": {"S": "x"}, ":other": {"S": "y"}}

OPERANDS = {"#a": [":one", ":two"], "#b": [":text", ":other"]}
"""By path: moto cannot compare attributes of two types, and neither do we."""


def _comparisons(path: str) -> st.SearchStrategy[str]:
    operands = st.sampled_from(OPERANDS[path])
    return st.one_of(
        st.builds(f"{path} {{}} {{}}".format, st.sampled_from(["=", "<", "<=", ">", ">="]), operands),
        st.builds(f"{path} IN ({{}}, {{}})".format, operands, operands),
    )


paths = st.sampled_from(sorted(NAMES))
leaves = st.one_of(
    st.builds("attribute_exists({})".format, paths),
    st.builds("attribute_not_exists({})".format, paths),
    paths.flatmap(_comparisons),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("({} AND {} OR {})".format, inner, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=5,
)
numbers = st.sampled_from([None, VALUES[":one"], VALUES[":two"]])
texts = st.sampled_from([None, VALUES[":text"], VALUES[":other"]])


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=conditions, a=numbers, b=texts)
def test_a_condition_holds_here_when_it_holds_there(world: World, condition: str, a: Any, b: Any) -> None:
    key = {"pk": {"S": "k"}, "sk": {"S": "k"}}
    item = {**key, **({"a": a} if a else {}), **({"b": b} if b else {})}
    names = {name: path for name, path in NAMES.items() if name in condition}
    values = {name: value for name, value in VALUES.items() if name in condition}
    aws.dynamodb().put_item(TableName="ledger", Item=item)
    optional: dict[str, Any] = {"ExpressionAttributeValues": values} if values else {}

    there = not _refused(
        lambda: aws.dynamodb().put_item(
            TableName="ledger", Item=item, ConditionExpression=condition, ExpressionAttributeNames=names, **optional
        )
    )

    assert holds(condition, item, names, values) is there


def _refused(call: Any) -> bool:
    try:
        call()
    except ClientError as error:
        if aws.error_code(error) != aws.CONDITION_FAILED:
            raise
        return True
    return False


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


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=8))
def test_every_call_of_the_protocol_has_the_same_effect_in_the_fake(world: World, calls: list[str]) -> None:
    memory, moto = MemoryDynamoDB(), aws.dynamodb()
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


def test_a_placeholder_that_is_undefined_or_unused_is_an_error() -> None:
    for names in ({}, {"#a": "a", "#b": "b"}):
        with pytest.raises(BadExpression):
            check_placeholders(["attribute_exists(#a)"], names, {})


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
