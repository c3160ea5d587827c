"""Reserving a saga's record, and starting its state machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.idempotency.amounts import MoneyPath
from saga_runtime.idempotency.record import RequestRecord, Reservation, reserve_put
from saga_runtime.payloads.request_paths import Paths
from saga_runtime.protocol import Env, Metric
from saga_runtime.shared import aws, telemetry, writes
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.executions import start_execution

aws.at_init(aws.step_functions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaSettings:
    """Settings of what begins sagas: an operation's gatekeeper, or an ``EventIntake``."""

    state_machine_arn: str
    recovery_machine_arn: str
    express_machine_arn: str | None
    alias: str | None
    definition: str
    due_after_ms: int
    expression_paths: Paths
    money: MoneyPath | None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> SagaSettings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            state_machine_arn=env[Env.STATE_MACHINE_ARN],
            recovery_machine_arn=env[Env.RECOVERY_MACHINE_ARN],
            express_machine_arn=env.get(Env.EXPRESS_MACHINE_ARN),
            alias=env.get(Env.ALIAS),
            definition=env[Env.DEFINITION],
            due_after_ms=int(env[Env.DUE_AFTER_SECONDS]) * 1_000,
            expression_paths=json.loads(env.get(Env.EXPRESSION_PATHS, "[]")),
            money=MoneyPath.from_json(env[Env.MONEY]) if Env.MONEY in env else None,
        )


def reserve(request_table: str, reservation: Reservation) -> RequestRecord | None:
    """Reserve; None if this call did it, otherwise the record that exists."""
    refused = writes.write({"Put": {"TableName": request_table, **reserve_put(reservation)}})
    if refused is None:
        return None
    return RequestRecord.from_item(refused.item or {})  # it is there: ALL_OLD was asked for


def start(reserved: Reservation | RequestRecord) -> bool:
    """Start the record's own state machine by name, with the stored bytes: the version of its alias, if it has one.

    Already there: it was started before. Unclear: the next duplicate after ``due_at``, or the reconciler, starts it.

    Returns:
        False: Step Functions refuses this start, and would refuse it again until an operator changes something.
    """
    machine, saga_id = machine_of(reserved.execution_arn), reserved.saga_id
    try:
        start_execution(aws.step_functions(), machine, saga_id, reserved.start_input, alias=reserved.alias)
    except (ClientError, BotoCoreError) as error:
        code = aws.error_code(error)
        if code == "ExecutionAlreadyExists":
            return True
        if aws.is_transient(error):
            telemetry.count(Metric.START_FAILED)
            telemetry.event("start_unconfirmed", saga_id=saga_id, error=type(error).__name__, code=code)
            return True
        telemetry.count(Metric.START_REFUSED)
        telemetry.event("start_refused", saga_id=saga_id, code=code)
        return False
    return True
