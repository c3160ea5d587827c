"""The front door of one operation: reserve, start, answer.

New request: two AWS calls (reserve, start). Duplicate: one. A reservation is never deleted, and once it is written
the client's answer is 202 also if the start is unclear: the record is durable, and is started again by the next
duplicate that comes after ``due_at``, or by the reconciler. A start that is refused for good is answered 503.

With a payload bucket, a body that is too large to travel is stored first, and a settled answer that refers to stored
payloads is put together for its reader: one call more for each of them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Invalid, TransientError
from saga_runtime.http.idempotent_request import BadKey, Body, NoIdentity, body_of, caller_of, idempotency_key_of
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem, stored
from saga_runtime.http.schema import Validator, load_validator
from saga_runtime.idempotency.amounts import MoneyPath
from saga_runtime.idempotency.identity import (
    TooLarge,
    canonical_json,
    fingerprint_of,
    is_saga_id,
    request_id_from,
    request_id_of,
    saga_id_of,
    scope_of,
)
from saga_runtime.idempotency.record import Met, RequestRecord, Reservation, reserve_put, what_was_met
from saga_runtime.payloads.claim_check import Unsendable, put_in_place, store
from saga_runtime.payloads.request_paths import Paths, refuse_inexact
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    INLINE_BODY_BYTES,
    MAX_PAYLOAD_BYTES,
    REPLAYED_HEADER,
    SCHEMA_FILE,
    Env,
    InProgressAnswer,
    KeyPolicy,
    Metric,
    RecordAttribute,
    RecordStatus,
)
from saga_runtime.saga_log.progress import steps_of
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.arns import execution_of, machine_of

RETRY_AFTER_SECONDS: Final = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the construct configured."""

    operation: str
    identity: str
    request_table: str
    log_table: str
    state_machine_arn: str
    recovery_machine_arn: str
    definition: str
    key_policy: KeyPolicy
    in_progress_answer: InProgressAnswer
    due_after_ms: int
    due_shards: int
    max_body_bytes: int
    payloads: str | None
    inline_body_bytes: int
    money: MoneyPath | None
    expression_paths: Paths

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            operation=env[Env.OPERATION],
            identity=env[Env.IDENTITY],
            request_table=env[Env.REQUEST_TABLE],
            log_table=env[Env.LOG_TABLE],
            state_machine_arn=env[Env.STATE_MACHINE_ARN],
            recovery_machine_arn=env[Env.RECOVERY_MACHINE_ARN],
            definition=env[Env.DEFINITION],
            key_policy=KeyPolicy(env[Env.KEY_POLICY]),
            in_progress_answer=InProgressAnswer(env[Env.IN_PROGRESS_ANSWER]),
            due_after_ms=int(env[Env.DUE_AFTER_SECONDS]) * 1000,
            due_shards=int(env[Env.DUE_SHARDS]),
            max_body_bytes=int(env[Env.MAX_BODY_BYTES]),
            payloads=env.get(Env.PAYLOADS),
            inline_body_bytes=int(env.get(Env.INLINE_BODY_BYTES, INLINE_BODY_BYTES)),
            money=MoneyPath.from_json(env[Env.MONEY]) if Env.MONEY in env else None,
            expression_paths=json.loads(env.get(Env.EXPRESSION_PATHS, "[]")),
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """This function's settings, read once."""
    aws.check_protocol()
    return Settings.from_env(os.environ)


@lru_cache(maxsize=1)
def validator() -> Validator | None:
    """The operation's schema, if it has one, compiled once."""
    return load_validator(Path(__file__).resolve().parent.parent / SCHEMA_FILE)


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Answer ``POST /{operation}`` and ``GET /{operation}/{saga_id}``."""
    try:
        return _answer(event).to_proxy()
    finally:
        telemetry.flush()


def _answer(event: Mapping[str, Any]) -> HttpAnswer:
    config = settings()
    try:
        scope = scope_of(config.operation, caller_of(event, config.identity))
    except NoIdentity:
        return problem(Problem.NO_IDENTITY, "the authorizer did not say who calls")
    if event.get("httpMethod") == "GET":
        return _look(config, scope, str((event.get("pathParameters") or {}).get("saga_id") or ""))
    return _accept(config, scope, event)


def _accept(config: Settings, scope: str, event: Mapping[str, Any]) -> HttpAnswer:
    try:
        key = idempotency_key_of(event)
    except BadKey as error:
        return problem(Problem.BAD_KEY, str(error))
    if key is None:
        if config.key_policy is KeyPolicy.REQUIRED:
            return problem(Problem.MISSING_KEY, f"send an {IDEMPOTENCY_KEY_HEADER} header, the same for every retry")
        telemetry.count(Metric.KEY_MISSING)
        key = str(uuid.uuid4())
    try:
        body = body_of(event, config.max_body_bytes)
    except Invalid as error:
        return problem(Problem.BAD_BODY, error.message)
    except TooLarge as error:
        return _refused(config, scope, key, event, problem(Problem.TOO_LARGE, str(error)))
    check = validator()
    try:
        if check is not None:
            check(body.value)
        refuse_inexact(body.value, config.expression_paths)
    except Invalid as error:
        return _refused(config, scope, key, event, problem(Problem.BAD_BODY, error.message))
    try:
        reservation = _travelling(config, _reservation(config, scope, key, body), body)
        met = _reserve(config, reservation)
    except (ClientError, BotoCoreError, TransientError) as error:
        telemetry.event("reserve_failed", error=type(error).__name__, code=aws.error_code(error))
        return _unavailable()
    if met is None:
        telemetry.count(Metric.RESERVED, saga_id=reservation.saga_id)
        if not _start(reservation.execution_arn, reservation.saga_id, reservation.start_input):
            return _not_started(event, reservation.saga_id)
        return _accepted(event, reservation.saga_id)
    return _answer_met(config, event, reservation, met)


def _refused(config: Settings, scope: str, key: str, event: Mapping[str, Any], refusal: HttpAnswer) -> HttpAnswer:
    """Answer a request that a new one's limits refuse; one that was recorded under earlier limits is a duplicate.

    Bodies that no limits ever allowed have no fingerprint, and nothing was recorded of them.
    """
    try:
        record = _record(config, request_id_of(scope, key))
    except (ClientError, BotoCoreError) as error:
        telemetry.event("look_failed", error=type(error).__name__, code=aws.error_code(error))
        return _unavailable()
    if record is None or record.forgotten(clock.now_ms()):
        return refusal
    try:
        body = body_of(event, MAX_PAYLOAD_BYTES)
    except (Invalid, TooLarge):
        return refusal
    return _answer_met(config, event, _reservation(config, scope, key, body), record)


def _unavailable() -> HttpAnswer:
    return problem(
        Problem.UNAVAILABLE,
        "nothing is promised; send the same request under the same key again",
        headers={"Retry-After": RETRY_AFTER_SECONDS},
    )


def _reservation(config: Settings, scope: str, key: str, body: Body) -> Reservation:
    now_ms = clock.now_ms()
    request_id = request_id_of(scope, key)
    saga_id = saga_id_of(request_id, now_ms)
    return Reservation(
        request_id=request_id,
        saga_id=saga_id,
        scope=scope,
        operation=config.operation,
        fingerprint=fingerprint_of(config.operation, body.canonical),
        request=body.canonical,
        definition=config.definition,
        recovery_machine_arn=config.recovery_machine_arn,
        execution_arn=execution_of(config.state_machine_arn, saga_id),
        now_ms=now_ms,
        due_after_ms=config.due_after_ms,
        due_shards=config.due_shards,
        money=config.money.read(body.value) if config.money is not None else None,
    )


def _travelling(config: Settings, reservation: Reservation, body: Body) -> Reservation:
    """The reservation with its request as it travels: itself, or a reference. Stored before the record names it."""
    if config.payloads is None or len(body.canonical.encode("utf-8")) <= config.inline_body_bytes:
        return reservation
    reference = store(config.payloads, reservation.request_id, body.canonical)
    return replace(reservation, request=canonical_json(reference))


def _reserve(config: Settings, reservation: Reservation) -> RequestRecord | None:
    """Reserve; None if this call did it, otherwise the record that stands in the way."""
    try:
        aws.dynamodb().put_item(TableName=config.request_table, **reserve_put(reservation))
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
    if met is Met.OTHER_BODY:
        telemetry.count(Metric.KEY_REUSED, saga_id=record.saga_id)
        return problem(Problem.KEY_REUSED, "this key was used for another request; use a new key for a new request")
    if met is Met.EXPIRED:
        telemetry.count(Metric.KEY_EXPIRED, saga_id=record.saga_id)
        return problem(
            Problem.KEY_EXPIRED,
            "the request was settled, and is not repeated; a new request needs a new key",
            headers={"Location": _location(event, record.saga_id)},
            saga_id=record.saga_id,
            saga_status=record.status.value,
            http_status=record.http_status,
        )
    if met is Met.SETTLED:
        telemetry.count(Metric.REPLAYED, saga_id=record.saga_id)
        headers = {REPLAYED_HEADER: "true", "Location": _location(event, record.saga_id)}
        return _settled(config, record, lambda body: stored(record.http_status or 200, body, headers))
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
    headers = {"Retry-After": RETRY_AFTER_SECONDS, "Location": _location(event, record.saga_id)}
    if config.in_progress_answer is InProgressAnswer.ACCEPTED:
        return answer(202, {"saga_id": record.saga_id, "status": record.status.value}, headers)
    return problem(
        Problem.IN_PROGRESS,
        "the first request with this key has not been settled yet",
        headers=headers,
        saga_id=record.saga_id,
    )


def _settled(config: Settings, record: RequestRecord, send: Callable[[str], HttpAnswer]) -> HttpAnswer:
    """The settled answer with every reference replaced. What cannot be replaced is never sent as a reference."""
    try:
        return send(put_in_place(record.body or "{}", config.payloads, record.saga_id))
    except TransientError:
        telemetry.event("answer_not_read", saga_id=record.saga_id)
        return problem(Problem.UNAVAILABLE, "try again", headers={"Retry-After": RETRY_AFTER_SECONDS})
    except Unsendable as error:
        telemetry.event("answer_unsendable", saga_id=record.saga_id, reason=str(error))
        return problem(
            Problem.UNSENDABLE,
            f"{error}; nothing will change that: ask whoever runs this API, with the saga's id",
            saga_id=record.saga_id,
            saga_status=record.status.value,
            http_status=record.http_status,
        )


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
        headers={"Retry-After": RETRY_AFTER_SECONDS, "Location": _location(event, saga_id)},
        saga_id=saga_id,
    )


def _accepted(event: Mapping[str, Any], saga_id: str) -> HttpAnswer:
    document = {"saga_id": saga_id, "status": RecordStatus.IN_PROGRESS.value}
    return answer(202, document, {"Location": _location(event, saga_id)})


def _location(event: Mapping[str, Any], saga_id: str) -> str:
    path = str((event.get("requestContext") or {}).get("path") or event.get("path") or "")
    return f"{path.rstrip('/')}/{saga_id}"


def _record(config: Settings, request_id: str) -> RequestRecord | None:
    """The record of a request, read strongly; None if there is none."""
    found = aws.dynamodb().get_item(
        TableName=config.request_table, Key={RecordAttribute.ID.value: {"S": request_id}}, ConsistentRead=True
    )
    return RequestRecord.from_item(found["Item"]) if "Item" in found else None


def _look(config: Settings, scope: str, saga_id: str) -> HttpAnswer:
    """Status, steps and result of one saga; another caller's saga is as absent as one that never was."""
    nothing = problem(Problem.NOT_FOUND, "there is no such saga")
    if not is_saga_id(saga_id):
        return nothing
    try:
        record = _record(config, request_id_from(saga_id))
        if record is None:
            return nothing
        if record.scope != scope or record.saga_id != saga_id:
            return nothing
        steps = steps_of(config.log_table, saga_id)
    except (ClientError, BotoCoreError) as error:
        telemetry.event("look_failed", error=type(error).__name__, code=aws.error_code(error))
        return problem(Problem.UNAVAILABLE, "try again", headers={"Retry-After": RETRY_AFTER_SECONDS})
    document: dict[str, Any] = {"saga_id": saga_id, "status": record.status.value, "steps": steps}
    if record.settled:
        document["http_status"] = record.http_status
        if record.response_expired(clock.now_ms()):
            return answer(200, document)
        return _settled(config, record, lambda body: answer(200, {**document, "answer": json.loads(body)}))
    return answer(200, document, {"Retry-After": RETRY_AFTER_SECONDS})
