"""Requests, reservations and events as tests need them, with every field given."""

from __future__ import annotations

import json
from typing import Any

from saga_runtime.idempotency.identity import (
    canonical_json,
    fingerprint_of,
    parse_json,
    request_id_of,
    saga_id_of,
    scope_of,
)
from saga_runtime.idempotency.record import Reservation
from saga_runtime.protocol import PROTOCOL_VERSION, CallField, Env, Side

NOW_MS = 1_700_000_000_000
DUE_AFTER_MS = 60_000
DAY_MS = 86_400_000
OPERATION = "transfers"
ACCOUNT = "111122223333"
MACHINE_ARN = f"arn:aws:states:eu-central-1:{ACCOUNT}:stateMachine:Transfers"
RECOVERY_MACHINE_ARN = f"{MACHINE_ARN}Recovery"
ALICE = ("iam", ACCOUNT, "AIDAALICE")
SCOPE = scope_of(OPERATION, ALICE)
REQUEST_ID = request_id_of(SCOPE, "key-1")
SAGA_ID = saga_id_of(REQUEST_ID, NOW_MS, "requests")
BODY = {"from": "alice", "to": "bob", "amount": 200, "currency": "EUR"}

GATEKEEPER_ENV: dict[str, str] = {
    Env.PROTOCOL: str(PROTOCOL_VERSION),
    Env.OPERATION: OPERATION,
    Env.IDENTITY: "iam",
    Env.REQUEST_TABLE: "requests",
    Env.LOG_TABLE: "log",
    Env.LEDGER_TABLE: "ledger",
    Env.STATE_MACHINE_ARN: MACHINE_ARN,
    Env.RECOVERY_MACHINE_ARN: RECOVERY_MACHINE_ARN,
    Env.DEFINITION: "definition-1",
    Env.KEY_POLICY: "REQUIRED",
    Env.IN_PROGRESS_RESPONSE: "CONFLICT",
    Env.DUE_AFTER_SECONDS: str(DUE_AFTER_MS // 1000),
    Env.DUE_SHARDS: "16",
    Env.MAX_BODY_BYTES: "100000",
}


def reservation_of(
    *, key: str = "key-1", body: str = '{"amount":200}', now_ms: int = NOW_MS, machine_arn: str = MACHINE_ARN
) -> Reservation:
    """The reservation that a gatekeeper makes of a request."""
    request_id = request_id_of(SCOPE, key)
    saga_id = saga_id_of(request_id, now_ms, "requests")
    canonical = canonical_json(parse_json(body))
    return Reservation(
        request_id=request_id,
        saga_id=saga_id,
        scope=SCOPE,
        operation=OPERATION,
        fingerprint=fingerprint_of(OPERATION, canonical),
        request=canonical,
        definition="definition-1",
        recovery_machine_arn=f"{machine_arn}Recovery",
        execution_arn=f"{machine_arn.replace(':stateMachine:', ':execution:')}:{saga_id}",
        now_ms=now_ms,
        due_after_ms=DUE_AFTER_MS,
        due_shards=16,
    )


def post(
    body: Any = BODY, *, key: str | None = "key-1", principal: str = "AIDAALICE", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """A ``POST`` in API Gateway's form."""
    sent = dict(headers or {})
    if key is not None:
        sent["Idempotency-Key"] = key
    return {
        "httpMethod": "POST",
        "path": "/transfers",
        "headers": sent,
        "multiValueHeaders": {name: [value] for name, value in sent.items()},
        "body": body if isinstance(body, str) else json.dumps(body),
        "isBase64Encoded": False,
        "requestContext": {
            "path": "/prod/transfers",
            "identity": {"accountId": ACCOUNT, "caller": principal},
        },
    }


def get(saga_id: str, *, principal: str = "AIDAALICE") -> dict[str, Any]:
    """A ``GET`` in API Gateway's form."""
    return {
        "httpMethod": "GET",
        "path": f"/transfers/{saga_id}",
        "headers": {},
        "pathParameters": {"saga_id": saga_id},
        "requestContext": {"identity": {"accountId": ACCOUNT, "caller": principal}},
    }


def step_event(
    *, saga_id: str = SAGA_ID, step: str = "Transfer", body: Any = BODY, outputs: Any = None
) -> dict[str, Any]:
    """Event of the state machine for a step function."""
    return {
        CallField.PROTOCOL: PROTOCOL_VERSION,
        CallField.SAGA_ID: saga_id,
        CallField.STEP: step,
        CallField.LOG_TABLE: "log",
        CallField.LOG_DAYS: 400,
        CallField.REQUEST: canonical_json(body),
        CallField.OUTPUTS: outputs or {},
        CallField.EXECUTION: saga_id,
        CallField.SIDE: Side.BEFORE,
    }
