"""The gatekeeper of a saga's operation: reserve, start, answer.

New request: two AWS calls (reserve, start). Duplicate: one. A reservation is never deleted, and once it is written
the client's answer is 202 also if the start is unclear: the record is durable, and is started again by the next
duplicate that comes after ``due_at``, or by the reconciler. A start that is refused for good is answered 503.

With a payload bucket, a body that is too large to travel is stored first, and a settled answer that refers to stored
payloads is put together for its reader: one call more for each of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import TransientError
from saga_runtime.http.operation import (
    RETRY_AFTER,
    KeyedRequest,
    OperationRequest,
    OperationSettings,
    answer_final,
    answer_in_progress,
    location,
    unavailable,
)
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem
from saga_runtime.idempotency.amounts import MoneyPath
from saga_runtime.idempotency.identity import canonical_json, saga_id_of
from saga_runtime.idempotency.record import Met, RequestRecord, Reservation, reserve_put, what_was_met
from saga_runtime.payloads.claim_check import store
from saga_runtime.payloads.request_paths import Paths, refuse_inexact
from saga_runtime.protocol import INLINE_BODY_BYTES, Env, Metric, RecordStatus
from saga_runtime.saga_log.progress import steps_of
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.arns import execution_of, machine_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the construct configured."""

    common: OperationSettings
    log_table: str
    state_machine_arn: str
    recovery_machine_arn: str
    definition: str
    due_after_ms: int
    inline_body_bytes: int
    money: MoneyPath | None
    expression_paths: Paths

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            common=OperationSettings.from_env(env),
            log_table=env[Env.LOG_TABLE],
            state_machine_arn=env[Env.STATE_MACHINE_ARN],
            recovery_machine_arn=env[Env.RECOVERY_MACHINE_ARN],
            definition=env[Env.DEFINITION],
            due_after_ms=int(env[Env.DUE_AFTER_SECONDS]) * 1000,
            inline_body_bytes=int(env.get(Env.INLINE_BODY_BYTES, INLINE_BODY_BYTES)),
            money=MoneyPath.from_json(env[Env.MONEY]) if Env.MONEY in env else None,
            expression_paths=json.loads(env.get(Env.EXPRESSION_PATHS, "[]")),
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """This function's settings, read once."""
    aws.check_protocol()
    return Settings.from_env(os.environ)


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Answer ``POST /{operation}`` and ``GET /{operation}/{saga_id}``."""
    try:
        return _answer(event).to_proxy()
    finally:
        telemetry.flush()


def _answer(event: Mapping[str, Any]) -> HttpAnswer:
    config = settings()
    return OperationRequest(
        common=config.common,
        event=event,
        check=lambda body: refuse_inexact(body, config.expression_paths),
        serve=partial(_serve, config, event),
        meet=lambda keyed, record: _answer_met(config, event, _reservation(config, keyed), record),
        steps=partial(steps_of, config.log_table),
    ).answer()


def _serve(config: Settings, event: Mapping[str, Any], keyed: KeyedRequest) -> HttpAnswer:
    try:
        reservation = _travelling(config, _reservation(config, keyed))
        met = _reserve(config, reservation)
    except (ClientError, BotoCoreError, TransientError) as error:
        telemetry.event("reserve_failed", error=type(error).__name__, code=aws.error_code(error))
        return unavailable()
    if met is None:
        telemetry.count(Metric.RESERVED, saga_id=reservation.saga_id)
        if not _start(reservation.execution_arn, reservation.saga_id, reservation.start_input):
            return _not_started(event, reservation.saga_id)
        return _accepted(event, reservation.saga_id)
    return _answer_met(config, event, reservation, met)


def _reservation(config: Settings, keyed: KeyedRequest) -> Reservation:
    now_ms = clock.now_ms()
    saga_id = saga_id_of(keyed.request_id, now_ms)
    return Reservation(
        request_id=keyed.request_id,
        saga_id=saga_id,
        scope=keyed.scope,
        operation=config.common.operation,
        fingerprint=keyed.fingerprint,
        request=keyed.body.canonical,
        definition=config.definition,
        recovery_machine_arn=config.recovery_machine_arn,
        execution_arn=execution_of(config.state_machine_arn, saga_id),
        now_ms=now_ms,
        due_after_ms=config.due_after_ms,
        due_shards=config.common.due_shards,
        money=config.money.read(keyed.body.value) if config.money is not None else None,
    )


def _travelling(config: Settings, reservation: Reservation) -> Reservation:
    """The reservation with its request as it travels: itself, or a reference. Stored before the record names it."""
    bucket, request = config.common.payloads, reservation.request
    if bucket is None or len(request.encode("utf-8")) <= config.inline_body_bytes:
        return reservation
    return replace(reservation, request=canonical_json(store(bucket, reservation.request_id, request)))


def _reserve(config: Settings, reservation: Reservation) -> RequestRecord | None:
    """Reserve; None if this call did it, otherwise the record that stands in the way."""
    try:
        aws.dynamodb().put_item(TableName=config.common.request_table, **reserve_put(reservation))
    except ClientError as error:
        if aws.error_code(error) != aws.CONDITION_FAILED:
            raise
        refusal: Any = error.response  # its Item is there: ALL_OLD was asked for
        return RequestRecord.from_item(refusal["Item"])
    return None


def _answer_met(
    config: Settings, event: Mapping[str, Any], reservation: Reservation, record: RequestRecord
) -> HttpAnswer:
    met = what_was_met(record, reservation)
    if met in {Met.OTHER_BODY, Met.EXPIRED, Met.SETTLED}:
        return answer_final(config.common, event, met, record)
    if met is Met.OWN:
        telemetry.event("own_reservation_met", saga_id=record.saga_id)
        if not _start(record.execution_arn, record.saga_id, record.input):
            return _not_started(event, record.saga_id)
        return _accepted(event, record.saga_id)
    telemetry.count(Metric.DUPLICATE_IN_PROGRESS, saga_id=record.saga_id)
    if met is Met.RUNNING_DUE:
        telemetry.count(Metric.RESTARTED)
        if not _start(record.execution_arn, record.saga_id, record.input):
            return _not_started(event, record.saga_id)
    return answer_in_progress(config.common, event, record)


def _start(execution_arn: str, saga_id: str, start_input: str) -> bool:
    """Start the record's own state machine by name, with the stored bytes.

    Already there: another gatekeeper started it. Unclear: whoever looks next will.

    Returns:
        False: Step Functions refuses this start, and would refuse it again until a person changes something.
    """
    try:
        aws.step_functions().start_execution(stateMachineArn=machine_of(execution_arn), name=saga_id, input=start_input)
    except (ClientError, BotoCoreError) as error:
        code = aws.error_code(error)
        if code == "ExecutionAlreadyExists":
            return True
        if aws.is_transient(error):
            telemetry.count(Metric.START_FAILED)
            telemetry.event("start_unclear", saga_id=saga_id, error=type(error).__name__, code=code)
            return True
        telemetry.count(Metric.START_REFUSED)
        telemetry.event("start_refused", saga_id=saga_id, code=code)
        return False
    return True


def _not_started(event: Mapping[str, Any], saga_id: str) -> HttpAnswer:
    return problem(
        Problem.NOT_STARTED,
        "the operators of this API are alarmed; send the same request under the same key again",
        headers={**RETRY_AFTER, "Location": location(event, saga_id)},
        saga_id=saga_id,
    )


def _accepted(event: Mapping[str, Any], saga_id: str) -> HttpAnswer:
    document = {"saga_id": saga_id, "status": RecordStatus.IN_PROGRESS.value}
    return answer(202, document, {"Location": location(event, saga_id)})
