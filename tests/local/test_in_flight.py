"""Sagas in flight, on local AWS: a schedule sums the amounts of requests, also in another stack than the saga's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from constructs_lib.testing import Every, Fault, LocalAws
from saga_runtime.idempotency.amounts import StatedMoney
from saga_runtime.idempotency.identity import request_id_of, saga_id_of
from saga_runtime.idempotency.record import Reservation, reserve_put
from saga_runtime.protocol import Look, LookField, Metric, RecordAttribute, RecordStatus
from saga_runtime.shared.arns import execution_of

from .transfer_system import TransferSystem, deployed, transfer, until

SPEED = 30.0
"""A measuring every five minutes comes every ten seconds."""
FUNCTION_SECONDS = 900
EUROS = 700


@pytest.fixture(scope="module")
def system() -> Iterator[TransferSystem]:
    """Transfers without a running reconciler."""
    with deployed(speed=SPEED) as systems:
        system = systems["FundsTransfer"]
        # Emulated time is fast, and a process that starts on a busy machine is not.
        for name in (system.aws.resolve_function(system.gatekeeper), system.outputs["ReconcilerName"]):
            system.aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
        yield system


def told(system: TransferSystem) -> list[dict[str, Any]]:
    """Every metric line of the reconciler's function."""
    lines = [line for entry in system.aws.function_logs(system.outputs["ReconcilerName"]) for line in entry.lines]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [document for document in found if "_aws" in document]


def test_the_schedule_sums_the_sagas_in_flight(system: TransferSystem) -> None:
    system.open("alice", "bob")
    # However often it is asked for: a duplicate that comes late would start it.
    system.aws.faults.plan(Fault(function=system.gatekeeper, call="states:StartExecution", action="kill", on=Every()))

    def is_reserved() -> bool:
        system.post("in-flight", transfer("alice", "bob", EUROS))
        return bool(system.aws.faults.report().fired)

    until(is_reserved, "a reservation")
    rule = system.outputs["ReconcilerMeasureRule"]
    system.aws.client("events").enable_rule(Name=rule)

    euros = until(lambda: [line for line in told(system) if line.get("currency") == "EUR"], "a measuring")
    system.aws.client("events").disable_rule(Name=rule)
    assert euros[0][Metric.MONEY_IN_FLIGHT] == [EUROS]
    assert euros[0]["service"] == "FundsTransfer-Reconciler-Function"
    (sagas, *_) = (line for line in told(system) if Metric.IN_FLIGHT in line)
    assert (sagas[Metric.IN_FLIGHT], sagas[Metric.PARKED]) == ([1], [0])
    assert sagas[Metric.OLDEST_IN_FLIGHT][0] >= 0


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalAws, dict[str, str]]]:
    """A saga in one stack, its reconciler in another one; permissions are enforced."""
    from aws_cdk import App, CfnOutput, Stack

    from constructs_lib import (
        IdempotencyTable,
        LedgerTable,
        SagaStateMachine,
        Step,
        StepFunction,
        TimeoutReconciler,
    )
    from examples.funds_transfer.stack import FUNCTIONS

    folder = tmp_path_factory.mktemp("apart")
    app = App(outdir=str(folder))
    there, here = Stack(app, "There"), Stack(app, "Here")
    ledger, requests = LedgerTable(there, "Ledger"), IdempotencyTable(there, "Requests")
    move = StepFunction(there, "Move", code=FUNCTIONS, handler="transfer.handler", environment=ledger.environment)
    ledger.grant_post(move)
    saga = SagaStateMachine(there, "Saga", requests=requests, steps=[Step.atomic("Transfer", fn=move)])
    reconciler = TimeoutReconciler(here, "Reconciler", sagas=[saga])
    outputs = {
        "RequestTableName": requests.table_name,
        "StateMachineArn": saga.state_machine.state_machine_arn,
        "RecoveryMachineArn": saga.recovery_machine.state_machine_arn,
    }
    for name, value in outputs.items():
        CfnOutput(there, name, value=value)
    CfnOutput(here, "ReconcilerName", value=reconciler.function.function.function_name)
    for rule in (reconciler.schedule, reconciler.measure):
        CfnOutput(here, f"{rule.node.id}Rule", value=rule.rule_name)
    app.synth()
    with LocalAws() as aws:
        deployed_stacks = aws.deploy(folder)
        for rule_name in (deployed_stacks["Here"]["ScheduleRule"], deployed_stacks["Here"]["MeasureRule"]):
            aws.client("events").disable_rule(Name=rule_name)
        yield aws, {**deployed_stacks["There"], **deployed_stacks["Here"]}


def test_a_reconciler_in_another_stack_has_its_permissions(apart: tuple[LocalAws, dict[str, str]]) -> None:
    aws, outputs = apart
    long_ago = int(aws.now().timestamp() * 1_000) - 3_600_000
    request_id = request_id_of("0" * 64, "orphan")
    saga_id = saga_id_of(request_id, long_ago, "requests")
    reservation = Reservation(
        request_id=request_id,
        saga_id=saga_id,
        scope="0" * 64,
        operation="transfers",
        fingerprint="0" * 64,
        request=json.dumps(transfer("alice", "nobody", EUROS)),
        definition="unknown",
        execution_arn=execution_of(outputs["StateMachineArn"], saga_id),
        recovery_machine_arn=outputs["RecoveryMachineArn"],
        now_ms=long_ago,
        due_after_ms=60_000,
        due_shards=16,
        money=StatedMoney(amount=EUROS, currency="EUR"),
    )
    put: Any = reserve_put(reservation)
    aws.client("dynamodb").put_item(TableName=outputs["RequestTableName"], **put)

    def asked(payload: dict[str, str]) -> dict[str, Any]:
        answer = aws.client("lambda").invoke(FunctionName=outputs["ReconcilerName"], Payload=json.dumps(payload))
        said: dict[str, Any] = json.loads(answer["Payload"].read())
        assert answer.get("FunctionError") is None, said
        return said

    found = asked({LookField.LOOK: Look.IN_FLIGHT})
    assert (found["sagas"], found["money"], found["oldest_seconds"] >= 3_600) == (1, {"EUR": EUROS}, True)
    looked = asked({})
    assert (looked["started"], looked["failed"]) == (1, 0)

    def settled() -> Any:
        key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id}}
        item = aws.client("dynamodb").get_item(TableName=outputs["RequestTableName"], Key=key)["Item"]
        return item if item[RecordAttribute.STATUS]["S"] == RecordStatus.FAILED else None

    item = until(settled, "the transfer from an account that does not exist is refused")
    assert item[RecordAttribute.AMOUNT] == {"N": str(EUROS)}
    assert asked({LookField.LOOK: Look.IN_FLIGHT})["sagas"] == 0
