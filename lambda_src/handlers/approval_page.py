"""The page on which a person approves or rejects what a step waits for.

``GET`` shows it and never decides: mail programs look at links before their reader does. ``POST`` decides. A decision
is one conditional write, and then a callback like any other; if the process dies in between, whoever opens a link to
the job again has the decision carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime import aws, clock, telemetry
from saga_runtime.approval_html import (
    ask_page,
    decided_page,
    expired_page,
    forged_page,
    refused_page,
    settled_page,
    used_page,
)
from saga_runtime.approvals import APPROVED, REJECTED, TOKEN_PARAMETER, Claims, Decision, decide, link_claims
from saga_runtime.callback_store import read_token, token_table, write
from saga_runtime.callback_writes import token_key
from saga_runtime.callbacks import receive
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.front_door import TooLarge
from saga_runtime.http import HttpAnswer
from saga_runtime.http_request import HttpRequest
from saga_runtime.protocol import APPROVAL_PREFIX, Metric, TokenAttribute, TokenStatus

MAX_FORM_BYTES: Final = 16_384
KEEP_DAYS: Final = 400
"""So long a decision can be looked up: as long as the saga log keeps its rows by default."""
RETRY_AFTER_SECONDS: Final = "2"

_CHOICES: Final = {"approve": True, "reject": False}


def handler(event: Any, _context: object = None) -> dict[str, Any]:
    """Answer ``GET`` and ``POST``."""
    aws.check_protocol()
    try:
        return _answer(event).to_proxy()
    finally:
        telemetry.flush()


def _answer(event: Any) -> HttpAnswer:
    try:
        request = HttpRequest.from_event(event, max_bytes=MAX_FORM_BYTES)
    except TooLarge:
        return refused_page(413, "Too much was sent", "Shorten the note, and try again.")
    except Invalid:
        return refused_page(400, "This was not understood", "Open the link from the message again.")
    if request.method not in ("GET", "HEAD", "POST"):
        return refused_page(405, "This was not understood", "Open the link in a browser.", {"Allow": "GET, HEAD, POST"})
    try:
        claims = link_claims(request.query.get(TOKEN_PARAMETER, ""))
        if claims is None:
            telemetry.count(Metric.SIGNATURE_REFUSED, reason="LINK")
            return forged_page()
        return _answer_link(claims, request)
    except (ClientError, BotoCoreError, TransientError) as error:
        telemetry.event("approval_failed", error=type(error).__name__, code=aws.error_code(error))
        return refused_page(
            503,
            "Please try again",
            "This cannot be answered right now. Nothing is lost: try again in a moment.",
            {"Retry-After": RETRY_AFTER_SECONDS},
        )


def _answer_link(claims: Claims, request: HttpRequest) -> HttpAnswer:
    decision, waiting = _read(claims.job_id), read_token(claims.job_id)
    if decision is not None:
        if waiting is not None and waiting.outcome is None:
            receive(decision.callback(claims.job_id))  # its effect was lost on the way
        return used_page(claims, decision)
    if claims.is_over(clock.now_ms()):
        return expired_page(claims)
    if waiting is not None and waiting.outcome is not None:
        return settled_page(claims)
    return _decide(claims, request) if request.method == "POST" else ask_page(claims)


def _decide(claims: Claims, request: HttpRequest) -> HttpAnswer:
    choice, note = _form(request.body)
    if choice is None:
        return ask_page(claims, status=400, complaint="Press Approve or Reject.")
    decision = decide(claims, approved=choice, note=note, now_ms=clock.now_ms())
    counts = _write(claims.job_id, decision)
    receipt = receive(counts.callback(claims.job_id))
    verdict = APPROVED if counts.approved else REJECTED
    telemetry.event("approval_decided", job_id=claims.job_id, decision=verdict, receipt=receipt.value)
    return decided_page(claims, counts, receipt) if counts == decision else used_page(claims, counts)


def _form(body: bytes) -> tuple[bool | None, str]:
    try:
        fields = parse_qs(body.decode("utf-8", errors="replace"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return None, ""
    choices = fields.get("decision", [])
    return _CHOICES.get(choices[0]) if len(choices) == 1 else None, "\n".join(fields.get("note", []))


def _read(job_id: str) -> Decision | None:
    found = aws.dynamodb().get_item(
        TableName=token_table(), Key=token_key(f"{APPROVAL_PREFIX}{job_id}"), ConsistentRead=True
    )
    return _decision_in(found["Item"]) if "Item" in found else None


def _write(job_id: str, decision: Decision) -> Decision:
    """Write a decision down; the one that counts: this one, or that of whoever was first."""
    a, now_ms = TokenAttribute, clock.now_ms()
    item = {
        **token_key(f"{APPROVAL_PREFIX}{job_id}"),
        a.STATUS.value: {"S": TokenStatus.DECIDED.value},
        a.JOB_ID.value: {"S": job_id},
        a.DECISION.value: {"S": decision.encode()},
        a.CREATED_AT.value: {"N": str(now_ms)},
        a.UPDATED_AT.value: {"N": str(now_ms)},
        a.EXPIRATION.value: {"N": str(now_ms // 1_000 + KEEP_DAYS * 86_400)},
    }
    result = write(
        {
            "Put": {
                "TableName": token_table(),
                "Item": item,
                "ConditionExpression": "attribute_not_exists(#id)",
                "ExpressionAttributeNames": {"#id": a.ID.value},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
    )
    if result is True:
        return decision
    if not isinstance(result, Mapping):
        raise TransientError("the decision on this job changes while it is read")
    return _decision_in(result)


def _decision_in(item: Mapping[str, Any]) -> Decision:
    return Decision.decode(item[TokenAttribute.DECISION]["S"])
