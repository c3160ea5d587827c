"""HTTP answers of operations and of webhooks. Errors are ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from saga_runtime.protocol import PREFERENCE_APPLIED_HEADER, PROBLEM_TYPES, REPLAYED_HEADER

ANY_ORIGIN: Final = "*"
EXPOSED: Final = ("Location", "Retry-After", "Link", REPLAYED_HEADER, PREFERENCE_APPLIED_HEADER)
"""Headers of responses that a page of another origin needs, and that a browser hides unless they are named."""
PROBLEM: Final = "application/problem+json"
JSON: Final = "application/json"


class Problem(StrEnum):
    """Stable codes of operations' and the webhooks' own problems; ``type`` is ``urn:cdk-sagas:problem:<code>``."""

    BAD_KEY = "invalid-idempotency-key"
    MISSING_KEY = "missing-idempotency-key"
    KEY_REUSED = "idempotency-key-reused"
    KEY_EXPIRED = "idempotency-key-expired"
    IN_PROGRESS = "request-in-progress"
    BAD_BODY = "invalid-body"
    TOO_LARGE = "body-too-large"
    NO_IDENTITY = "missing-identity"
    NOT_FOUND = "not-found"
    UNAVAILABLE = "service-unavailable"
    NOT_STARTED = "saga-not-started"
    UNSENDABLE = "response-unavailable"
    NO_SIGNATURE = "missing-signature"
    MALFORMED_SIGNATURE = "malformed-signature"
    SIGNATURE_MISMATCH = "signature-mismatch"
    STALE_SIGNATURE = "expired-signature"


FUNCTION_PROBLEMS: Final[dict[Problem, tuple[int, str]]] = {
    Problem.BAD_KEY: (400, "The Idempotency-Key is malformed"),
    Problem.MISSING_KEY: (400, "The Idempotency-Key is missing"),
    Problem.KEY_REUSED: (422, "The Idempotency-Key was used with another request"),
    Problem.KEY_EXPIRED: (410, "The response to this Idempotency-Key has expired"),
    Problem.IN_PROGRESS: (409, "The request is in progress"),
    Problem.BAD_BODY: (400, "Invalid request body"),
    Problem.TOO_LARGE: (413, "The body is too large"),
    Problem.NO_IDENTITY: (403, "Caller identity is missing"),
    Problem.NOT_FOUND: (404, "Not found"),
    Problem.UNAVAILABLE: (503, "Service unavailable; the outcome of the request is unknown"),
    Problem.NOT_STARTED: (503, "The request is recorded, and its saga cannot be started"),
    # Neither a 4xx nor a 500: those mean that a settled saga has no remaining effects.
    Problem.UNSENDABLE: (507, "The saga has settled, but its response cannot be returned"),
    Problem.NO_SIGNATURE: (401, "The signature is missing"),
    Problem.MALFORMED_SIGNATURE: (400, "The signature is malformed"),
    Problem.SIGNATURE_MISMATCH: (401, "The signature does not match"),
    Problem.STALE_SIGNATURE: (400, "The signature is too old"),
}
"""Status and title of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer, before it takes the form that API Gateway wants."""

    status: int
    body: str
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_proxy(self) -> dict[str, Any]:
        """The answer as a Lambda proxy integration returns it."""
        fixed = {"Content-Type": self.content_type, "Cache-Control": "no-store"}
        return {
            "statusCode": self.status,
            "headers": {**fixed, **self.headers},
            "body": self.body,
            "isBase64Encoded": False,
        }


def problem(kind: Problem, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> HttpAnswer:
    """A problem answer. ``detail`` is shown to the client."""
    status, title = FUNCTION_PROBLEMS[kind]
    document = {
        "type": f"{PROBLEM_TYPES}{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        **members,
    }
    return HttpAnswer(status=status, body=_compact(document), content_type=PROBLEM, headers=headers or {})


def answer(status: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> HttpAnswer:
    """A JSON answer."""
    return HttpAnswer(status=status, body=_compact(document), headers=headers or {})


def answer_about(document: Mapping[str, Any], stored_body: str, docs_url: str | None) -> HttpAnswer:
    """A document with a stored response as its member ``answer``: byte for byte, since a float would lose digits.

    Args:
        document: the other members.
        stored_body: the response.
        docs_url: of the page about a problem, as of ``linked``.
    """
    parsed = json.loads(stored_body)
    shown = linked(parsed, docs_url)
    text = stored_body if shown is parsed else _compact(shown)
    return HttpAnswer(status=200, body=f'{_compact(document)[:-1]},"answer":{text}}}')


def stored(status: int, body: str, headers: Mapping[str, str]) -> HttpAnswer:
    """A settled request's stored answer, byte for byte."""
    return HttpAnswer(status=status, body=body, content_type=PROBLEM if status >= 400 else JSON, headers=headers)


def linked(document: Any, docs_url: str | None) -> Any:
    """A document whose ``type``, if it is a problem's, is the address of the page about it."""
    kind = document.get("type") if isinstance(document, Mapping) else None
    if docs_url is None or not isinstance(kind, str) or not kind.startswith(PROBLEM_TYPES):
        return document
    return {**document, "type": docs_url + kind.removeprefix(PROBLEM_TYPES)}


def link_to(page: str) -> str:
    """Value of a ``Link`` header to the page about a problem (RFC 8288)."""
    return f'<{page}>; rel="describedby"'


def documented(answer: HttpAnswer, docs_url: str | None) -> HttpAnswer:
    """A response whose problem names the page about it, in its ``type`` and in a ``Link``.

    So draft-ietf-httpapi-idempotency-key-header asks for it. Responses are stored without the address: it is that of
    the API which responds, and the same for every duplicate.

    Args:
        answer: the response.
        docs_url: address to which the code is appended; None: the response is returned as it is.
    """
    if docs_url is None or answer.content_type != PROBLEM:
        return answer
    document = linked(json.loads(answer.body), docs_url)
    headers = {**answer.headers, "Link": link_to(document["type"])}
    return replace(answer, body=_compact(document), headers=headers)


def _compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def shared_with_origin(answer: HttpAnswer, event: Mapping[str, Any], allowed: Sequence[str]) -> HttpAnswer:
    """The response with the headers by which a browser lets a page of an allowed origin read it (CORS).

    Args:
        answer: the response.
        event: in payload format 1.0.
        allowed: origins, or ``*``; none: responses have no such headers.
    """
    if not allowed:
        return answer
    headers = {"Access-Control-Expose-Headers": ", ".join(EXPOSED)}
    if ANY_ORIGIN in allowed:
        return replace(answer, headers={**answer.headers, **headers, "Access-Control-Allow-Origin": ANY_ORIGIN})
    origin = next((str(v) for k, v in (event.get("headers") or {}).items() if k.lower() == "origin"), None)
    if origin in allowed:
        headers["Access-Control-Allow-Origin"] = str(origin)
    return replace(answer, headers={**answer.headers, **headers, "Vary": "Origin"})
