"""The page on which a person approves or rejects what a step waits for.

``GET`` shows it and never decides: mail programs open links before their reader does. ``POST`` decides. A decision
is one conditional write, and then a callback like any other; if the process crashes in between, opening a link to
the job applies the stored decision.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.approvals.html import (
    ask_page,
    closed_page,
    decided_page,
    expired_page,
    forged_page,
    refused_page,
    settled_page,
    unknown_page,
    used_page,
)
from saga_runtime.approvals.links import APPROVED, REJECTED, TOKEN_PARAMETER, Claims, decide, link_claims
from saga_runtime.approvals.store import Standing, read_standing, write_decision
from saga_runtime.callbacks import Receipt, receive
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.http.request import HttpRequest
from saga_runtime.http.response import HttpAnswer
from saga_runtime.idempotency.identity import TooLarge
from saga_runtime.protocol import Metric
from saga_runtime.shared import aws, clock, telemetry
from saga_runtime.shared.secrets import SecretUnusable

MAX_FORM_BYTES: Final = 16_384
RETRY_AFTER_SECONDS: Final = "2"

_CHOICES: Final = {"approve": True, "reject": False}


def handler(event: Any, _context: object = None) -> dict[str, Any]:
    """Answer ``GET``, ``HEAD`` and ``POST``."""
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
            telemetry.count(Metric.UNSIGNED, reason="LINK")
            return forged_page()
        return _answer_link(claims, request)
    except (ClientError, BotoCoreError, Invalid, TransientError) as error:
        telemetry.event("approval_failed", error=type(error).__name__, code=aws.error_code(error))
        if isinstance(error, SecretUnusable):
            telemetry.count(Metric.CALLBACK_REFUSED, reason="SECRET")
        return refused_page(
            503,
            "Please try again",
            "This cannot be answered right now. Try again in a moment; what was decided stays decided.",
            {"Retry-After": RETRY_AFTER_SECONDS},
        )


def _answer_link(claims: Claims, request: HttpRequest) -> HttpAnswer:
    standing = read_standing(claims.job_id)
    decision, receipt = standing.decision, Receipt.UNDELIVERED if standing.is_unheard else None
    if decision is not None and standing.is_lost:
        receipt = receive(decision.callback(claims.job_id))
    if claims.is_over(clock.now_ms()):
        # Nothing more: links are kept in mail boxes for years.
        return expired_page()
    if decision is not None and not standing.is_open_anew:
        if not standing.is_of(decision):
            return settled_page(claims)
        return used_page(claims, decision, receipt)
    if standing.waiting is None:
        return unknown_page(claims)
    if standing.is_answered:
        return settled_page(claims)
    if not standing.is_open(claims, clock.now_ms()):
        return closed_page(claims)
    return _decide(claims, request, standing) if request.method == "POST" else _ask(claims, standing)


def _ask(claims: Claims, standing: Standing, *, status: int = 200, complaint: str = "") -> HttpAnswer:
    return ask_page(claims, closes_at=standing.closes_at(claims), status=status, complaint=complaint)


def _decide(claims: Claims, request: HttpRequest, standing: Standing) -> HttpAnswer:
    choice, note = _form(request.body)
    if choice is None:
        return _ask(claims, standing, status=400, complaint="Press Approve or Reject.")
    attempt = standing.waiting.order if standing.waiting is not None else ""
    decision = decide(claims, approved=choice, note=note, attempt=attempt, now_ms=clock.now_ms())
    if not standing.has_room_for(decision):
        return _ask(
            claims, standing, status=400, complaint="Shorten the note: there is no room for one of this length."
        )
    counts = write_decision(claims.job_id, decision, instead_of=standing.decision)
    receipt = receive(counts.callback(claims.job_id))
    verdict = APPROVED if counts.approved else REJECTED
    telemetry.event("approval_decided", job_id=claims.job_id, decision=verdict, receipt=receipt)
    return decided_page(claims, counts, receipt) if counts == decision else used_page(claims, counts)


def _form(body: bytes) -> tuple[bool | None, str]:
    try:
        fields = parse_qs(body.decode("utf-8", errors="replace"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return None, ""
    choices = fields.get("decision", [])
    return _CHOICES.get(choices[0]) if len(choices) == 1 else None, "\n".join(fields.get("note", []))
