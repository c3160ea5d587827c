"""The gatekeeper of a saga's operation: reserve, start, answer.

New request: two AWS calls (reserve, start). Duplicate: one. A reservation is never deleted, and once it is written
the client's answer is 202 also if the start is unclear: the record is durable, and is started again by the next
duplicate that comes after ``due_at``, or by the reconciler. A start that is refused for good is answered 503.

With a payload bucket, a body that is too large to travel is stored first, and a settled answer that refers to stored
payloads is put together for its reader: one call more for each of them.

An inline saga begins in its Express machine: a client that prefers to wait gets the response that it stored. The
Standard machine is started if the Express one refuses to start.

Where the operation allows it, ``Prefer: wait=N`` makes the gatekeeper read the record until it is settled or N seconds
are over. It writes nothing more, and answers with the record's response, or as it would have without waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import TransientError
from saga_runtime.http.idempotent_request import preferred_wait_of, proxy_event
from saga_runtime.http.inline import Begun, begin, run
from saga_runtime.http.operation import (
    RETRY_AFTER,
    KeyedRequest,
    OperationRequest,
    OperationSettings,
    answer_final,
    answer_in_progress,
    answer_settled,
    location,
    unavailable,
)
from saga_runtime.http.response import HttpAnswer, Problem, answer, problem
from saga_runtime.http.starting import SagaSettings, reserve, start
from saga_runtime.http.waiting import settled_in_time
from saga_runtime.idempotency.identity import canonical_json, saga_id_of
from saga_runtime.idempotency.record import Met, RequestRecord, Reservation, final_met, reserve_put, what_was_met
from saga_runtime.payloads.claim_check import store
from saga_runtime.payloads.request_paths import refuse_inexact
from saga_runtime.protocol import INLINE_BODY_BYTES, PREFERENCE_APPLIED_HEADER, Env, Metric, RecordStatus
from saga_runtime.saga_log.progress import steps_of
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.arns import execution_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configuration from the construct."""

    common: OperationSettings
    saga: SagaSettings
    log_table: str
    inline_body_bytes: int
    max_wait_seconds: int

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            common=OperationSettings.from_env(env),
            saga=SagaSettings.from_env(env),
            log_table=env[Env.LOG_TABLE],
            inline_body_bytes=int(env.get(Env.INLINE_BODY_BYTES, INLINE_BODY_BYTES)),
            max_wait_seconds=int(env.get(Env.MAX_WAIT_SECONDS, "0")),
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """This function's settings, read once."""
    aws.check_protocol()
    return Settings.from_env(os.environ)


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Answer ``POST /{operation}`` and ``GET /{operation}/{saga_id}``."""
    config, event = settings(), proxy_event(event)
    served = _Served(config, event, lambda: int(context.get_remaining_time_in_millis()))
    try:
        return (
            OperationRequest(
                common=config.common,
                event=event,
                check=lambda body: refuse_inexact(body, config.saga.expression_paths),
                serve=served.serve,
                meet=served.meet,
                steps=lambda saga_id: steps_of(config.log_table, saga_id),
            )
            .answer()
            .to_proxy()
        )
    finally:
        telemetry.flush()


class _Served:
    """One request."""

    def __init__(self, config: Settings, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> None:
        self._config = config
        self._event = event
        self._remaining_ms = remaining_ms

    def serve(self, keyed: KeyedRequest) -> HttpAnswer:
        """Reserve and start; a record that exists answers."""
        try:
            reservation = _travelling(self._config, _reservation(self._config, keyed))
            met = reserve(self._config.common.request_table, reservation)
        except (ClientError, BotoCoreError, TransientError) as error:
            telemetry.event("reserve_failed", error=type(error).__name__, code=aws.error_code(error))
            return unavailable()
        if met is None:
            telemetry.count(Metric.RESERVED, saga_id=reservation.saga_id)
            return self._started(reservation, reservation)
        return self._met(reservation, met)

    def meet(self, keyed: KeyedRequest, record: RequestRecord) -> HttpAnswer:
        """Answer by the record under the key."""
        return self._met(_reservation(self._config, keyed), record)

    def _met(self, reservation: Reservation, record: RequestRecord) -> HttpAnswer:
        met = what_was_met(record, reservation)
        if met in {Met.OTHER_BODY, Met.EXPIRED, Met.SETTLED}:
            return answer_final(self._config.common, self._event, met, record)
        if met is Met.OWN:
            telemetry.event("own_reservation_found", saga_id=record.saga_id)
            return self._started(reservation, record)
        telemetry.count(Metric.DUPLICATE_IN_PROGRESS, saga_id=record.saga_id)
        if met is Met.RUNNING_DUE:
            telemetry.count(Metric.RESTARTED)
            if not start(record):
                return _not_started(self._event, record.saga_id)

        def replayed(settled: RequestRecord) -> HttpAnswer:
            final = final_met(settled, reservation.fingerprint, clock.now_ms()) or Met.SETTLED
            return answer_final(self._config.common, self._event, final, settled)

        in_progress = answer_in_progress(self._config.common, self._event, record)
        return self._waited(reservation.request_id, record.saga_id, replayed, in_progress)

    def _started(self, reservation: Reservation, reserved: Reservation | RequestRecord) -> HttpAnswer:
        """Start what this request reserved, as the record has it, and give its client the first response."""
        saga_id = reserved.saga_id
        until = clock.now_ms() + self._seconds * 1_000
        settled = None
        begun = self._begun(saga_id, reserved.start_input)
        if begun.settled is not None:
            settled = RequestRecord.from_item({**reserve_put(reservation)["Item"], **begun.settled})
        elif not begun.started and not start(reserved):
            return _not_started(self._event, saga_id)

        def first(settled: RequestRecord) -> HttpAnswer:
            return answer_settled(self._config.common, settled, {"Location": location(self._event, saga_id)})

        accepted = _accepted(self._event, saga_id)
        return self._waited(reservation.request_id, saga_id, first, accepted, until=until, settled_at_once=settled)

    def _begun(self, saga_id: str, start_input: str) -> Begun:
        """Begin an inline saga in its Express machine; any other one is not started by this."""
        express_machine_arn = self._config.saga.express_machine_arn
        if express_machine_arn is None:
            return Begun(started=False)
        if self._seconds == 0:
            return begin(express_machine_arn, saga_id, start_input)
        remaining_ms = self._remaining_ms()
        return run(express_machine_arn, saga_id, start_input, seconds=self._seconds, remaining_ms=remaining_ms)

    @cached_property
    def _seconds(self) -> int:
        """Seconds that the client prefers to wait, as far as the operation allows it."""
        return min(self._config.max_wait_seconds, preferred_wait_of(self._event) or 0)

    def _waited(
        self,
        request_id: str,
        saga_id: str,
        settled: Callable[[RequestRecord], HttpAnswer],
        otherwise: HttpAnswer,
        *,
        until: int | None = None,
        settled_at_once: RequestRecord | None = None,
    ) -> HttpAnswer:
        """The settled response, if the client prefers to wait for it and it comes in time."""
        seconds = self._seconds
        if seconds == 0:
            return otherwise
        table = self._config.common.request_table
        until = until if until is not None else clock.now_ms() + seconds * 1_000
        record = settled_at_once or settled_in_time(table, request_id, saga_id, until, self._remaining_ms)
        telemetry.count(Metric.WAITED if record is not None else Metric.WAITED_IN_VAIN, saga_id=saga_id)
        if record is None:
            return otherwise
        response = settled(record)
        if response.status != (record.http_status or 200):  # the stored one cannot be read, or be sent
            return response
        return replace(response, headers={**response.headers, PREFERENCE_APPLIED_HEADER: f"wait={seconds}"})


def _reservation(config: Settings, keyed: KeyedRequest) -> Reservation:
    saga, now_ms = config.saga, clock.now_ms()
    saga_id = saga_id_of(keyed.request_id, now_ms, config.common.request_table)
    return Reservation(
        request_id=keyed.request_id,
        saga_id=saga_id,
        scope=keyed.scope,
        operation=config.common.operation,
        fingerprint=keyed.fingerprint,
        request=keyed.body.canonical,
        definition=saga.definition,
        recovery_machine_arn=saga.recovery_machine_arn,
        execution_arn=execution_of(saga.state_machine_arn, saga_id),
        alias=saga.alias,
        now_ms=now_ms,
        due_after_ms=saga.due_after_ms,
        due_shards=config.common.due_shards,
        money=saga.money.read(keyed.body.value) if saga.money is not None else None,
        express=saga.express_machine_arn is not None,
    )


def _travelling(config: Settings, reservation: Reservation) -> Reservation:
    """The reservation with its request as it travels: itself, or a reference. Stored before the record names it."""
    bucket, request = config.common.payloads, reservation.request
    if bucket is None or len(request.encode("utf-8")) <= config.inline_body_bytes:
        return reservation
    return replace(reservation, request=canonical_json(store(bucket, reservation.request_id, request)))


def _not_started(event: Mapping[str, Any], saga_id: str) -> HttpAnswer:
    return problem(
        Problem.NOT_STARTED,
        "the operators of this API are alarmed; send the same request under the same key again",
        headers={**RETRY_AFTER, "Location": location(event, saga_id)},
        saga_id=saga_id,
    )


def _accepted(event: Mapping[str, Any], saga_id: str) -> HttpAnswer:
    document = {"saga_id": saga_id, "status": RecordStatus.IN_PROGRESS}
    return answer(202, document, {"Location": location(event, saga_id)})
