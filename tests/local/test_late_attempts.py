"""Conditions that money depends on: duplicates, late attempts and late settles change nothing on local AWS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from constructs_lib.testing.faults import Every, Fault, First
from saga_runtime.idempotency.identity import saga_id_of
from saga_runtime.protocol import PROTOCOL_VERSION, CallField, RecordAttribute, Side

from .transfer_system import TransferSystem, transfer, until

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import ExecutionListItemTypeDef

MACHINE: Final = "Variant/Transfer/StateMachine"
WORKER: Final = "Variant/TransferFunction/Function"


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
    """A record in progress blocks every other reservation."""

    def _duplicates(self, system: TransferSystem) -> None:
        for _ in range(2):  # the second may find the first settled already
            assert system.post("k", transfer("rich", "target")).status in {200, 202}
        _wait_for_the_end(system)

    def test_keeps_a_duplicate_from_moving_money_again(self, system: TransferSystem) -> None:
        self._duplicates(system)

        assert _broken(system) == set()
        assert system.balances()["target"] == 100


class TestTheLogRowsCondition:
    """A fenced step stays fenced, however late an attempt of it arrives."""

    def _late_attempt(self, system: TransferSystem) -> dict[str, Any]:
        refused = system.settle("k", transfer("poor", "target"))
        assert refused.status == 402
        assert system.settle("salary", transfer("rich", "poor", 500)).status == 200
        return _invoke_worker(system, refused.json()["saga_id"], transfer("poor", "target"))

    def test_fences_an_attempt_that_arrives_after_the_refusal(self, system: TransferSystem) -> None:
        answer = self._late_attempt(system)

        assert answer["errorType"] == "SagaFenced"
        assert _broken(system) == set()
        assert system.balances()["target"] == 0


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


def test_saga_ids_of_two_reservations_differ() -> None:
    """The scenarios above need two sagas of one request: a reservation a millisecond later is another saga."""
    assert saga_id_of("a" * 26, 1, "requests") != saga_id_of("a" * 26, 2, "requests")


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
        Key={RecordAttribute.ID: {"S": request_id}},
        UpdateExpression="SET #expiration = :past",
        ExpressionAttributeNames={"#expiration": RecordAttribute.EXPIRATION},
        ExpressionAttributeValues={":past": {"N": "1"}},
    )


def _invoke_worker(system: TransferSystem, saga_id: str, body: dict[str, object]) -> dict[str, Any]:
    """Call the step's function as its state machine did: Lambda may deliver an invocation twice, and late."""
    event = {
        CallField.PROTOCOL: PROTOCOL_VERSION,
        CallField.SAGA_ID: saga_id,
        CallField.STEP: "Transfer",
        CallField.LOG_TABLE: system.outputs["LogTableName"],
        CallField.LOG_DAYS: 400,
        CallField.REQUEST: json.dumps(body),
        CallField.OUTPUTS: {},
        CallField.EXECUTION: saga_id,
        CallField.SIDE: Side.PIVOT,
    }
    name = system.aws.resolve_function(WORKER)
    answer = system.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    result: dict[str, Any] = json.loads(answer["Payload"].read())
    return result
