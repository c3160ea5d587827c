"""The direct operation: a function returns data, and the runtime commits it with the request's record, once.

New request: one AWS call besides what the function reads. Duplicate: one. No state machine: the first response has
the result.

What can come back of the transaction, and what it means:

* committed: record and writes exist, and the response is given;
* the record refused: the record that exists answers (also after a lost answer of one's own);
* a conflict: nothing was written, planned again after a jittered delay, then 503;
* a throttle: nothing was written, 503;
* a write refused, whatever else conflicted, or the function itself refuses: a refusal. ``FINAL``: it is stored under
  the key, by a put with the record's condition, so that no copy of the request moves anything afterwards; if it meets
  the transaction of one, it is sent again. ``OPEN``: the record is read before the refusal is given;
* no answer: unknown, sent again; then 503, which promises nothing.
"""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Invalid, PermanentError, TransientError, code_of
from saga_runtime.http.idempotent_request import proxy_event
from saga_runtime.http.operation import (
    Event,
    KeyedRequest,
    OperationRequest,
    OperationSettings,
    answer_final,
    answer_in_progress,
    location,
    read_record,
    unavailable,
)
from saga_runtime.http.response import HttpAnswer, stored
from saga_runtime.idempotency.identity import canonical_json, saga_id_of
from saga_runtime.idempotency.record import DirectRecord, Met, RequestRecord, direct_put, final_met
from saga_runtime.payloads.claim_check import copied
from saga_runtime.payloads.references import has_reserved_member
from saga_runtime.protocol import (
    MAX_BODY_BYTES,
    PROBLEM_TYPES,
    REFERENCE_FIELD,
    STATUS_OF_REFUSAL,
    Env,
    Metric,
    RecordStatus,
    RefusalPolicy,
)
from saga_runtime.saga_log.external_rows import MAX_DETAIL
from saga_runtime.saga_log.transaction import Committed, commit_first
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock, telemetry, writes
from saga_runtime.shared.backoff import Backoff, Retry
from saga_runtime.steps.step import Commit, require_commit, require_def

LambdaHandler = Callable[[Any, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectCall:
    """One request of a direct operation.

    Attributes:
        key: id of the operation: the request id and the time of this invocation. Use it as the id of whatever the
            operation creates. It is the same however often the function is called again in one invocation; another
            invocation has another one, and only one of them commits.
        idempotency_key: the client's key, or the one that was generated; of an event its business key.
        request: the request's body. Integers are exact, fractions are ``Decimal``.
        now_ms: time of the invocation, epoch milliseconds.
    """

    key: str
    idempotency_key: str
    request: Any
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a direct operation."""

    common: OperationSettings
    replay_seconds: int
    remember_seconds: int
    refusal_policy: RefusalPolicy
    http_status_by_error: Mapping[str, int]
    backoff: Backoff

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            common=OperationSettings.from_env(env),
            replay_seconds=int(env[Env.REPLAY_SECONDS]),
            remember_seconds=int(env[Env.REMEMBER_SECONDS]),
            refusal_policy=RefusalPolicy(env[Env.REFUSAL_POLICY]),
            http_status_by_error=json.loads(env[Env.FAILURE_STATUS]),
            backoff=Backoff.from_json(env.get(Env.CONFLICT_BACKOFF)),
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """This function's settings, read once."""
    aws.check_protocol()
    return Settings.from_env(os.environ)


def direct_operation(function: Callable[[DirectCall], Commit]) -> LambdaHandler:
    """Make a Lambda handler of a function from a request to its writes and its result.

    Guaranteed: of any number of requests by one caller under one key, the writes of one take effect, together with the
    record that holds its response; every other one gets that response byte for byte, with ``Idempotent-Replayed:
    true``. With ``RefusalPolicy.FINAL`` the same holds for a refusal: a client that was refused knows that nothing
    moved, and that nothing will under this key.

    Not guaranteed: that ``function`` is called once: it is called again after a conflict, so it must do nothing but
    read (strongly) and return data. An answer: a 5xx without ``Idempotent-Replayed`` promises nothing; the same request
    under a new key would pay twice. With ``RefusalPolicy.OPEN`` a refusal means that nothing has moved yet: a copy of
    the request that is still travelling may move it.

    Of the function: ``Commit.output``, a JSON object, is the response's ``result``; the whole body has at most 65,536
    bytes, and the form of a completed saga's. A ``PermanentError`` is a refusal; its status is the operation's
    ``http_status_by_error``, and the response has the first 1,000 characters of its message. Any other error stores
    nothing.

    Raises:
        TypeError: if the function is async, a generator, or takes other arguments: its call would do nothing.

    Example:
        >>> from saga_runtime import Commit, DirectCall, direct_operation
        >>> @direct_operation
        ... def handler(call: DirectCall) -> Commit:
        ...     return Commit(output={"greeting": f"hello {call.request['name']}"})
    """
    require_def(function, "call")

    @functools.wraps(function)
    def handler(event: Any, context: Any) -> dict[str, Any]:
        config, event = settings(), proxy_event(event)
        served = _Served(config, event, function, context.get_remaining_time_in_millis)
        try:
            return (
                OperationRequest(
                    common=config.common,
                    event=event,
                    check=lambda _: None,
                    serve=served.serve,
                    meet=served.meet,
                    steps=None,
                )
                .answer()
                .to_proxy()
            )
        finally:
            telemetry.flush()

    return handler


class _Served:
    """One invocation."""

    def __init__(
        self,
        config: Settings,
        event: Event,
        function: Callable[[DirectCall], Commit],
        remaining_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._event = event
        self._function = function
        self._remaining_ms = remaining_ms
        self._owner = uuid.uuid4().hex
        self._now_ms = clock.now_ms()

    def serve(self, keyed: KeyedRequest) -> HttpAnswer:
        """Plan and commit; a record that exists answers."""
        call = DirectCall(
            key=self._saga_id(keyed),
            idempotency_key=keyed.idempotency_key,
            request=keyed.body.value,
            now_ms=self._now_ms,
        )
        body = ""

        def plan() -> tuple[Any, Sequence[Write]]:
            nonlocal body
            wanted = require_commit(self._function(replace(call, request=copied(call.request))), "a direct operation")
            body = response_of(call.key, wanted.output)
            put = self._put(keyed, RecordStatus.COMPLETED, 200, body)
            return {"Put": put}, wanted.writes

        try:
            result = commit_first(plan, remaining_ms=self._remaining_ms, backoff=self._config.backoff, throttles=False)
            if isinstance(result, Committed):
                telemetry.event("direct_done", saga_id=call.key)
                return self._first(200, body, call.key)
            if result.item is not None:
                return self.meet(keyed, RequestRecord.from_item(result.item))
        except PermanentError as refusal:
            return self._refuse(keyed, call.key, refusal)
        except Exception as error:
            # The plan of a request that was applied may fail by now: the record answers.
            try:
                found = read_record(self._config.common.request_table, keyed.request_id)
            except (ClientError, BotoCoreError) as unread:
                return self._unavailable(unread)
            if found is not None and not found.forgotten(self._now_ms):
                return self.meet(keyed, found)
            if isinstance(error, TransientError | ClientError | BotoCoreError):
                return self._unavailable(error)
            raise
        return unavailable()

    def meet(self, keyed: KeyedRequest, record: RequestRecord) -> HttpAnswer:
        """Answer by the record under the key. A saga's that is in progress is never started from here."""
        met = final_met(record, keyed.fingerprint, self._now_ms)
        if met is Met.SETTLED and record.owner == self._owner:  # this invocation's: its answer was lost
            return self._first(record.http_status or 200, record.body or "{}", record.saga_id)
        if met is not None:
            return answer_final(self._config.common, self._event, met, record)
        telemetry.count(Metric.DUPLICATE_IN_PROGRESS, saga_id=record.saga_id)
        return answer_in_progress(self._config.common, self._event, record)

    def _refuse(self, keyed: KeyedRequest, saga_id: str, refusal: PermanentError) -> HttpAnswer:
        """Refuse, unless a record exists: an earlier attempt may have changed the very state that refuses this one."""
        status = self._config.http_status_by_error.get(type(refusal).__name__, STATUS_OF_REFUSAL)
        body = canonical_json(
            {
                "type": f"{PROBLEM_TYPES}saga-refused",
                "title": "The request was refused, and nothing was written",
                "status": status,
                "detail": _detail(refusal.message),
                "error": type(refusal).__name__,
                "saga_id": saga_id,
            }
        )
        try:
            if self._config.refusal_policy is RefusalPolicy.OPEN:
                found = read_record(self._config.common.request_table, keyed.request_id)
                if found is not None and not found.forgotten(self._now_ms):
                    return self.meet(keyed, found)
            else:
                retry = Retry(backoff=self._config.backoff, throttled=False, remaining_ms=self._remaining_ms)
                refused = writes.write({"Put": self._put(keyed, RecordStatus.FAILED, status, body)}, retry=retry)
                if refused is not None:
                    return self.meet(keyed, RequestRecord.from_item(refused.item or {}))
        except (TransientError, ClientError, BotoCoreError) as error:
            return self._unavailable(error)
        telemetry.event("direct_refused", saga_id=saga_id, code=code_of(refusal))
        if self._config.refusal_policy is RefusalPolicy.OPEN:
            return stored(status, body, {})  # no record, to which an address could lead
        return self._first(status, body, saga_id)

    def _saga_id(self, keyed: KeyedRequest) -> str:
        return saga_id_of(keyed.request_id, self._now_ms, self._config.common.request_table)

    def _put(self, keyed: KeyedRequest, status: RecordStatus, http_status: int, body: str) -> dict[str, Any]:
        record = DirectRecord(
            request_id=keyed.request_id,
            saga_id=self._saga_id(keyed),
            scope=keyed.scope,
            operation=self._config.common.operation,
            fingerprint=keyed.fingerprint,
            owner=self._owner,
            status=status,
            http_status=http_status,
            body=body,
            now_ms=self._now_ms,
            replay_seconds=self._config.replay_seconds,
            remember_seconds=self._config.remember_seconds,
            due_shards=self._config.common.due_shards,
        )
        return {"TableName": self._config.common.request_table, **direct_put(record)}

    def _first(self, status: int, body: str, saga_id: str) -> HttpAnswer:
        return stored(status, body, {"Location": location(self._event, saga_id)})

    @staticmethod
    def _unavailable(error: BaseException) -> HttpAnswer:
        """Nothing is known: 503. What AWS refuses for good fails the invocation."""
        if isinstance(error, ClientError) and not writes.passes(error):
            raise error
        telemetry.event("direct_unclear", error=type(error).__name__, code=aws.error_code(error))
        return unavailable()


def _detail(message: str) -> str:
    """An error's message, as it is stored: at most 1,000 characters, and no half of a surrogate pair."""
    return message[:MAX_DETAIL].encode("utf-8", errors="replace").decode("utf-8")


def response_of(saga_id: str, output: Any) -> str:
    """The body of a response: that of a saga which completed with this result.

    Raises:
        TypeError: if it is not an object.
        ValueError: if it is too large, or holds what a response must not hold. Nothing is written.
    """
    if not isinstance(output, Mapping):
        raise TypeError(f"output must be an object, got {type(output).__name__}; return a JSON object")
    try:
        text = canonical_json({"saga_id": saga_id, "status": RecordStatus.COMPLETED, "result": output})
    except Invalid as error:
        raise ValueError(f"output must be JSON without floats, got another value; {error.message}") from error
    if has_reserved_member(text):
        raise ValueError(f"output must not have a member {REFERENCE_FIELD}, got one; rename it")
    size = len(text.encode("utf-8"))
    if size > MAX_BODY_BYTES:
        raise ValueError(f"a response must have at most {MAX_BODY_BYTES} bytes, got {size}; return less output")
    return text
