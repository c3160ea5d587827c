"""Conditions that money hangs on, each removed from what is deployed: without it the audit finds a broken promise."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

import pytest

from constructs_lib.testing.faults import Every, Fault, First
from saga_runtime.idempotency import record
from saga_runtime.idempotency.identity import saga_id_of
from saga_runtime.protocol import PROTOCOL_VERSION, CallField, RecordAttribute, Side
from saga_runtime.saga_log import rows as saga_log

from .transfer_system import TransferSystem, transfer, until

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import ExecutionListItemTypeDef

MACHINE: Final = "Variant/Transfer/StateMachine"
WORKER: Final = "Variant/TransferFunction/Function"

ONE_SAGA: Final = "one saga per request took effect"
RECORDS_AGREE: Final = "records and log agree"


@pytest.fixture
def system(transfer_systems: dict[str, TransferSystem]) -> TransferSystem:
    """The system, emptied, with a rich account and a poor one."""
    emptied = transfer_systems["Variant"]
    emptied.aws.reset()
    emptied.open("rich")
    emptied.open("poor", balance=50)
    emptied.open("target", balance=0)
    return emptied


def _broken(system: TransferSystem) -> set[str]:
    audit = system.audit()
    assert all(invariant.checked for invariant in audit)
    return {invariant.name for invariant in audit if not invariant.holds}


class TestTheReserveCondition:
    """A record in progress stands in the way of every other reservation."""

    def _duplicates(self, system: TransferSystem) -> None:
        for _ in range(2):  # the second may find the first settled already
            assert system.post("k", transfer("rich", "target")).status in {200, 202}
        _wait_for_the_end(system)

    def test_keeps_a_duplicate_from_moving_money_again(self, system: TransferSystem) -> None:
        self._duplicates(system)

        assert _broken(system) == set()
        assert system.balances()["target"] == 100

    def test_is_missed_when_it_is_gone(self, system: TransferSystem) -> None:
        always = (
            "attribute_not_exists(#id) OR #status <> :completed OR #status <> :failed OR #expiration > :now_seconds"
        )
        with _other_code(system, system.gatekeeper, record.RESERVE, always):
            self._duplicates(system)

            assert ONE_SAGA in _broken(system)
            assert system.balances()["target"] == 200


class TestTheLogRowsCondition:
    """A step that was given up stays given up, however late an attempt of it arrives."""

    def _late_attempt(self, system: TransferSystem) -> dict[str, Any]:
        refused = system.settle("k", transfer("poor", "target"))
        assert refused.status == 402
        assert system.settle("salary", transfer("rich", "poor", 500)).status == 200
        return _invoke_worker(system, refused.json()["saga_id"], transfer("poor", "target"))

    def test_stops_an_attempt_that_comes_after_the_saga_was_refused(self, system: TransferSystem) -> None:
        answer = self._late_attempt(system)

        assert answer["errorType"] == "SagaFenced"
        assert _broken(system) == set()
        assert system.balances()["target"] == 0

    def test_is_missed_when_it_is_gone(self, system: TransferSystem) -> None:
        always = f"{saga_log.NO_ROW} OR attribute_exists(#saga_id)"
        with _other_code(system, WORKER, f'NO_ROW: Final = "{saga_log.NO_ROW}"', f'NO_ROW: Final = "{always}"'):
            self._late_attempt(system)

            assert RECORDS_AGREE in _broken(system)
            assert system.balances()["target"] == 100


class TestTheSettleCondition:
    """An execution settles the record only while it owns it: never that of its successor."""

    def _late_settle(self, system: TransferSystem) -> None:
        # The first saga is refused; the answer to its settle is lost, and sent again it does not get through, ...
        settle: dict[str, Any] = {
            "function": f"states:{MACHINE}",
            "call": "dynamodb:UpdateItem",
            "action": "drop",
            "containing": '"402"',
        }
        _, unreachable = system.aws.faults.plan(
            Fault(**settle, moment="after", on=First()), Fault(**settle, moment="before", on=Every())
        )
        first = system.settle("k", transfer("poor", "target"))
        assert first.status == 402
        until(lambda: system.aws.faults.report().outcomes[1].fired, "the second settle")
        # ... until the record's retention is over, and the key is used for a new request, which succeeds.
        _expire(system, system.records()[0][RecordAttribute.ID]["S"])
        assert system.settle("salary", transfer("rich", "poor", 500)).status == 200
        assert system.post("k", transfer("poor", "target")).status == 202
        assert system.settle("k", transfer("poor", "target")).status == 200
        system.aws.faults.clear(unreachable)
        _wait_for_the_end(system)

    def test_keeps_a_late_execution_from_its_successors_record(self, system: TransferSystem) -> None:
        self._late_settle(system)

        assert _broken(system) == set()
        assert system.post("k", transfer("poor", "target")).status == 200
        assert _error_of_the_failed(system) == "SagaFenced"

    def test_is_missed_when_it_is_gone(self, system: TransferSystem) -> None:
        always = record.OWNED.replace(" AND ", " OR ")
        with _other_definition(system, record.OWNED, always):
            self._late_settle(system)

            assert RECORDS_AGREE in _broken(system)
            assert system.post("k", transfer("poor", "target")).status == 402


def test_saga_ids_of_two_reservations_differ() -> None:
    """The scenarios above need two sagas of one request: a reservation a millisecond later is another saga."""
    assert saga_id_of("a" * 26, 1) != saga_id_of("a" * 26, 2)


def _executions(system: TransferSystem) -> list[ExecutionListItemTypeDef]:
    states = system.aws.client("stepfunctions")
    return states.list_executions(stateMachineArn=system.outputs["StateMachineArn"])["executions"]


def _wait_for_the_end(system: TransferSystem) -> None:
    until(lambda: all(one["status"] != "RUNNING" for one in _executions(system)), "the end of every saga")


def _error_of_the_failed(system: TransferSystem) -> str:
    (failed,) = (one for one in _executions(system) if one["status"] == "FAILED")
    described = system.aws.client("stepfunctions").describe_execution(executionArn=failed["executionArn"])
    return described.get("error", "")


def _expire(system: TransferSystem, request_id: str) -> None:
    """Let a record's retention be over; DynamoDB deletes it days later."""
    system.aws.client("dynamodb").update_item(
        TableName=system.outputs["RequestTableName"],
        Key={RecordAttribute.ID.value: {"S": request_id}},
        UpdateExpression="SET #expiration = :past",
        ExpressionAttributeNames={"#expiration": RecordAttribute.EXPIRATION.value},
        ExpressionAttributeValues={":past": {"N": "1"}},
    )


def _invoke_worker(system: TransferSystem, saga_id: str, body: dict[str, object]) -> dict[str, Any]:
    """Call the step's function as its state machine did: Lambda may deliver an invocation twice, and late."""
    event = {
        CallField.PROTOCOL.value: PROTOCOL_VERSION,
        CallField.SAGA_ID.value: saga_id,
        CallField.STEP.value: "Transfer",
        CallField.LOG_TABLE.value: system.outputs["LogTableName"],
        CallField.LOG_DAYS.value: 400,
        CallField.REQUEST.value: json.dumps(body),
        CallField.OUTPUTS.value: {},
        CallField.EXECUTION.value: saga_id,
        CallField.SIDE.value: Side.PIVOT.value,
    }
    name = system.aws.resolve_function(WORKER)
    answer = system.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    result: dict[str, Any] = json.loads(answer["Payload"].read())
    return result


@contextmanager
def _other_code(system: TransferSystem, function: str, old: str, new: str) -> Iterator[None]:
    """Deploy a function with one piece of its code replaced, and put the original back."""
    client = system.aws.client("lambda")
    name = system.aws.resolve_function(function)
    location = client.get_function(FunctionName=name)["Code"]["Location"]
    with urlopen(location) as stream:
        original = stream.read()
    client.update_function_code(FunctionName=name, ZipFile=_replaced(original, old, new))
    try:
        yield
    finally:
        client.update_function_code(FunctionName=name, ZipFile=original)


def _replaced(code: bytes, old: str, new: str) -> bytes:
    found = 0
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(code)) as source, zipfile.ZipFile(buffer, "w") as target:
        for entry in source.infolist():
            content = source.read(entry)
            if Path(entry.filename).parts[0] == "saga_runtime" and old.encode() in content:
                found += content.count(old.encode())
                content = content.replace(old.encode(), new.encode())
            target.writestr(entry, content)
    assert found == 1, f"{old!r} stands {found} times in the function's code"
    return buffer.getvalue()


@contextmanager
def _other_definition(system: TransferSystem, old: str, new: str) -> Iterator[None]:
    """Deploy the state machine with another condition of its settles, and put the original back."""
    client = system.aws.client("stepfunctions")
    arn = system.outputs["StateMachineArn"]
    original = client.describe_state_machine(stateMachineArn=arn)["definition"]
    definition = json.loads(original)
    settles = [state for name, state in definition["States"].items() if name.startswith("Settle")]
    assert len(settles) == 2
    for state in settles:
        assert state["Arguments"]["ConditionExpression"] == old
        state["Arguments"]["ConditionExpression"] = new
    client.update_state_machine(stateMachineArn=arn, definition=json.dumps(definition))
    try:
        yield
    finally:
        client.update_state_machine(stateMachineArn=arn, definition=original)
