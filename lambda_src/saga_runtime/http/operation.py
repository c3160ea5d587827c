"""Requests of an operation: what a saga's and a direct operation have in common.

Caller, key and body of a request; and the answer to a request whose key has a record already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import Invalid, TransientError
from saga_runtime.http.idempotent_request import BadKey, Body, NoIdentity, body_of, caller_of
from saga_runtime.http.key_source import KeySource
from saga_runtime.http.response import (
    HttpAnswer,
    Problem,
    answer,
    answer_about,
    documented,
    problem,
    shared_with_origin,
    stored,
)
from saga_runtime.http.schema import Validator, load_validator
from saga_runtime.idempotency.identity import (
    TooLarge,
    canonical_json,
    fingerprint_of,
    is_saga_id,
    request_id_from,
    request_id_of,
    scope_of,
)
from saga_runtime.idempotency.record import Met, RequestRecord
from saga_runtime.payloads.claim_check import Unsendable, put_in_place
from saga_runtime.protocol import (
    MAX_PAYLOAD_BYTES,
    REPLAYED_HEADER,
    SCHEMA_FILE,
    Env,
    InProgressResponse,
    KeyPolicy,
    Metric,
    RecordAttribute,
)
from saga_runtime.shared import aws, clock, telemetry

RETRY_AFTER: Final[Mapping[str, str]] = {"Retry-After": "2"}
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings:
    """Settings that every operation has."""

    operation: str
    identity: str
    request_table: str
    key_policy: KeyPolicy
    key_source: KeySource
    in_progress_response: InProgressResponse
    due_shards: int
    max_body_bytes: int
    payloads: str | None
    caller_member: str | None = None
    allowed_origins: tuple[str, ...] = ()
    docs_url: str | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> OperationSettings:
        """Read the environment; a missing variable is a KeyError at cold start."""
        return cls(
            operation=env[Env.OPERATION],
            identity=env[Env.IDENTITY],
            request_table=env[Env.REQUEST_TABLE],
            key_policy=KeyPolicy(env[Env.KEY_POLICY]),
            key_source=KeySource.from_json(env.get(Env.KEY_SOURCE)),
            in_progress_response=InProgressResponse(env[Env.IN_PROGRESS_RESPONSE]),
            due_shards=int(env[Env.DUE_SHARDS]),
            max_body_bytes=int(env[Env.MAX_BODY_BYTES]),
            payloads=env.get(Env.PAYLOADS),
            caller_member=env.get(Env.CALLER_MEMBER),
            allowed_origins=tuple(env.get(Env.ALLOWED_ORIGINS, "").split()),
            docs_url=env.get(Env.DOCS_URL),
        )


@lru_cache(maxsize=1)
def validator() -> Validator | None:
    """The operation's schema, if it has one, compiled once."""
    return load_validator(Path(__file__).resolve().parents[2] / SCHEMA_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request under its key.

    Attributes:
        fingerprint: of the body that the client sent.
        body: what functions receive: the same, with the caller's identity if the operation adds it.
    """

    idempotency_key: str
    scope: str
    request_id: str
    fingerprint: str
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRequest:
    """One event, and how its kind of operation serves it.

    Attributes:
        check: refuses what only this kind of operation refuses of a new request's body.
        serve: accepts a new request, or answers a duplicate.
        meet: answers a request whose key has this record.
        steps: reads the steps of a saga id for a ``GET``; None: the operation has no steps.
    """

    common: OperationSettings
    event: Event
    check: Callable[[Any], None]
    serve: Callable[[KeyedRequest], HttpAnswer]
    meet: Callable[[KeyedRequest, RequestRecord], HttpAnswer]
    steps: Callable[[str], Any] | None

    def answer(self) -> HttpAnswer:
        """Answer ``POST /{operation}`` and ``GET /{operation}/{saga_id}``."""
        response = documented(self._answer(), self.common.docs_url)
        return shared_with_origin(response, self.event, self.common.allowed_origins)

    def _answer(self) -> HttpAnswer:
        try:
            caller = caller_of(self.event, self.common.identity)
        except NoIdentity:
            return problem(Problem.NO_IDENTITY, "the authorizer did not name a caller")
        scope = scope_of(self.common.operation, caller)
        if self.event.get("httpMethod") == "GET":
            return self._look(scope, str((self.event.get("pathParameters") or {}).get("saga_id") or ""))
        return self._accept(scope, caller[-1])

    def _accept(self, scope: str, caller: str) -> HttpAnswer:
        source = self.common.key_source
        try:
            # Larger than a new request's: one that was recorded under an earlier limit has its key in there, too.
            keyed_by = body_of(self.event, MAX_PAYLOAD_BYTES).value if source.reads_body else None
            key = source.key_of(self.event, keyed_by)
        except BadKey as error:
            return problem(Problem.BAD_KEY, str(error))
        except Invalid as error:
            return problem(Problem.BAD_BODY, error.message)
        except TooLarge as error:
            return problem(Problem.TOO_LARGE, str(error))
        if key is None:
            if self.common.key_policy is KeyPolicy.REQUIRED:
                return problem(Problem.MISSING_KEY, source.remedy)
            telemetry.count(Metric.KEY_MISSING)
            key = str(uuid.uuid4())
        try:
            body = body_of(self.event, self.common.max_body_bytes)
        except Invalid as error:
            return problem(Problem.BAD_BODY, error.message)
        except TooLarge as error:
            return self._refused(scope, key, problem(Problem.TOO_LARGE, str(error)))
        check = validator()
        try:
            if check is not None:
                check(body.value)
            self.check(body.value)
            given = self._with_caller(body, caller)
        except Invalid as error:
            return self._refused(scope, key, problem(Problem.BAD_BODY, error.message))
        except TooLarge as error:
            return self._refused(scope, key, problem(Problem.TOO_LARGE, str(error)))
        return self.serve(replace(self._keyed(scope, key, body), body=given))

    def _with_caller(self, body: Body, caller: str) -> Body:
        """The body with the member that the operation adds: who calls, as the authorizer proved it."""
        member = self.common.caller_member
        if member is None:
            return body
        if not isinstance(body.value, dict):
            raise Invalid("the body must be a JSON object")
        if member in body.value:
            raise Invalid(f"the body must not have a member {member}, which is added to it; remove it")
        value = {**body.value, member: caller}
        return Body(value=value, canonical=canonical_json(value, max_bytes=self.common.max_body_bytes))

    def _keyed(self, scope: str, key: str, body: Body) -> KeyedRequest:
        return KeyedRequest(
            idempotency_key=key,
            scope=scope,
            request_id=request_id_of(scope, key),
            fingerprint=fingerprint_of(self.common.operation, body.canonical),
            body=body,
        )

    def _refused(self, scope: str, key: str, refusal: HttpAnswer) -> HttpAnswer:
        """Answer a request that a new one's limits refuse; one that was recorded under earlier limits is a duplicate.

        Bodies that no limits ever allowed have no fingerprint, and nothing was recorded of them.
        """
        try:
            record = read_record(self.common.request_table, request_id_of(scope, key))
        except (ClientError, BotoCoreError) as error:
            telemetry.event("read_failed", error=type(error).__name__, code=aws.error_code(error))
            return unavailable()
        if record is None or record.forgotten(clock.now_ms()):
            return refusal
        try:
            body = body_of(self.event, MAX_PAYLOAD_BYTES)
        except (Invalid, TooLarge):
            return refusal
        return self.meet(self._keyed(scope, key, body), record)

    def _look(self, scope: str, saga_id: str) -> HttpAnswer:
        """Status, steps and result of one request; another caller's is as absent as one that never was."""
        nothing = problem(Problem.NOT_FOUND, "there is no such saga")
        if not is_saga_id(saga_id):
            return nothing
        try:
            record = read_record(self.common.request_table, request_id_from(saga_id))
            if record is None:
                return nothing
            if record.scope != scope or record.saga_id != saga_id:
                return nothing
            document: dict[str, Any] = {"saga_id": saga_id, "status": record.status}
            if self.steps is not None:
                document["steps"] = self.steps(saga_id)
        except (ClientError, BotoCoreError) as error:
            telemetry.event("read_failed", error=type(error).__name__, code=aws.error_code(error))
            return problem(Problem.UNAVAILABLE, "try again", headers=RETRY_AFTER)
        if record.settled:
            document["http_status"] = record.http_status
            if record.response_expired(clock.now_ms()):
                return answer(200, document)

            return _settled(self.common, record, lambda body: answer_about(document, body, self.common.docs_url))
        return answer(200, document, RETRY_AFTER)


def read_record(request_table: str, request_id: str) -> RequestRecord | None:
    """The record of a request, read strongly; None if it does not exist."""
    found = aws.dynamodb().get_item(
        TableName=request_table, Key={RecordAttribute.ID: {"S": request_id}}, ConsistentRead=True
    )
    return RequestRecord.from_item(found["Item"]) if "Item" in found else None


def answer_final(common: OperationSettings, event: Event, met: Met, record: RequestRecord) -> HttpAnswer:
    """Answer a duplicate for which nothing is to be started: another body's, or of a settled request."""
    if met is Met.OTHER_BODY:
        telemetry.count(Metric.KEY_REUSED, saga_id=record.saga_id)
        # A repetition whose body differs gets this, too: its request may have taken effect, and a new key repeats that.
        detail = "this key was used for another request; repeat a request with its own body: a new key is a new request"
        return problem(Problem.KEY_REUSED, detail)
    if met is Met.EXPIRED:
        telemetry.count(Metric.KEY_EXPIRED, saga_id=record.saga_id)
        return problem(
            Problem.KEY_EXPIRED,
            "the request was settled, and is not repeated; a new request needs a new key",
            headers={"Location": location(event, record.saga_id)},
            saga_id=record.saga_id,
            saga_status=record.status,
            http_status=record.http_status,
        )
    telemetry.count(Metric.REPLAYED, saga_id=record.saga_id)
    headers = {REPLAYED_HEADER: "true", "Location": location(event, record.saga_id)}
    return answer_settled(common, record, headers)


def answer_settled(common: OperationSettings, record: RequestRecord, headers: Mapping[str, str]) -> HttpAnswer:
    """The stored response, with these headers."""
    return _settled(common, record, lambda body: stored(record.http_status or 200, body, headers))


def answer_in_progress(common: OperationSettings, event: Event, record: RequestRecord) -> HttpAnswer:
    """Answer a duplicate of a request whose saga is not settled."""
    headers = {**RETRY_AFTER, "Location": location(event, record.saga_id)}
    if common.in_progress_response is InProgressResponse.ACCEPTED:
        return answer(202, {"saga_id": record.saga_id, "status": record.status}, headers)
    return problem(
        Problem.IN_PROGRESS,
        "the first request with this key has not been settled yet",
        headers=headers,
        saga_id=record.saga_id,
    )


def _settled(common: OperationSettings, record: RequestRecord, send: Callable[[str], HttpAnswer]) -> HttpAnswer:
    """The settled answer with every reference replaced. What cannot be replaced is never sent as a reference."""
    try:
        return send(put_in_place(record.body or "{}", common.payloads, record.saga_id))
    except TransientError:
        telemetry.event("response_payload_unreadable", saga_id=record.saga_id)
        detail = "the saga is settled, and its response cannot be read now; send the same request again"
        return problem(Problem.UNAVAILABLE, detail, headers=RETRY_AFTER, saga_id=record.saga_id)
    except Unsendable as error:
        telemetry.event("response_unavailable", saga_id=record.saga_id, reason=str(error))
        return problem(
            Problem.UNSENDABLE,
            f"{error}; nothing will change that: ask the operators of this API, with the saga's id",
            saga_id=record.saga_id,
            saga_status=record.status,
            http_status=record.http_status,
        )


def unavailable() -> HttpAnswer:
    """The answer to a request of which nothing is known."""
    return problem(
        Problem.UNAVAILABLE,
        "nothing is promised; send the same request under the same key again",
        headers=RETRY_AFTER,
    )


def location(event: Event, saga_id: str) -> str:
    """Address of a request's outcome."""
    path = str((event.get("requestContext") or {}).get("path") or event.get("path") or "")
    return f"{path.rstrip('/')}/{saga_id}"
