"""Reserving a saga's record, and starting its state machine."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.idempotency.record import RequestRecord, Reservation, reserve_put
from saga_runtime.protocol import Metric
from saga_runtime.shared import aws, telemetry, writes
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.executions import start_execution

aws.at_init(aws.step_functions)


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
