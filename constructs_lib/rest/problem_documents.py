"""Problem documents (RFC 9457) of the gateway itself: what the client sees when no function was reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_apigateway as apigateway

from constructs_lib.shared.arguments import require_match
from saga_runtime.http.response import PROBLEM, link_to
from saga_runtime.protocol import PROBLEM_TYPES

_T: Final = apigateway.ResponseType

GATEWAY_PROBLEMS: Final[tuple[tuple[apigateway.ResponseType, str, str, str], ...]] = (
    (_T.ACCESS_DENIED, "403", "access-denied", "Access denied"),
    (_T.API_CONFIGURATION_ERROR, "500", "gateway-misconfigured", "The gateway is misconfigured"),
    (_T.AUTHORIZER_CONFIGURATION_ERROR, "500", "authorizer-misconfigured", "The authorizer is misconfigured"),
    (_T.AUTHORIZER_FAILURE, "500", "authorizer-failed", "The authorizer failed"),
    (_T.BAD_REQUEST_BODY, "400", "invalid-body", "Invalid request body"),
    (_T.BAD_REQUEST_PARAMETERS, "400", "invalid-parameters", "Invalid request parameters"),
    (_T.EXPIRED_TOKEN, "403", "expired-token", "The token has expired"),
    (_T.INTEGRATION_FAILURE, "504", "integration-failed", "The request may or may not have been accepted"),
    (_T.INTEGRATION_TIMEOUT, "504", "integration-timeout", "The request may or may not have been accepted"),
    (_T.INVALID_API_KEY, "403", "invalid-api-key", "The API key is invalid"),
    (_T.INVALID_SIGNATURE, "403", "invalid-signature", "The signature is invalid"),
    (_T.MISSING_AUTHENTICATION_TOKEN, "403", "missing-authentication", "Missing authentication token, or unknown path"),
    (_T.QUOTA_EXCEEDED, "429", "quota-exceeded", "The quota is exceeded"),
    (_T.REQUEST_TOO_LARGE, "413", "body-too-large", "The body is too large"),
    (_T.RESOURCE_NOT_FOUND, "404", "not-found", "Not found"),
    (_T.THROTTLED, "429", "throttled", "Too many requests"),
    (_T.UNAUTHORIZED, "401", "unauthorized", "Unauthorized"),
    (_T.UNSUPPORTED_MEDIA_TYPE, "415", "unsupported-media-type", "The media type is not supported"),
    (_T.WAF_FILTERED, "403", "blocked-by-waf", "A rule of the web ACL blocked the request"),
)
"""Gateway response, status, code and title of each."""
_RETRY_LATER: Final = frozenset({"429", "504", "500"})


_DOCS_URL: Final = r"^https?://[A-Za-z0-9._~:/?&%=#-]{1,180}[/#=]$"


def require_docs_url(docs_url: str | None) -> None:
    """Refuse an address that no code can follow, or that does not fit into a header or a template of the gateway.

    Raises:
        ValueError: naming the address and the remedy.
    """
    if docs_url is not None:
        remedy = "write an address that ends with /, # or =: a problem's code follows it"
        require_match("docs_url", docs_url, _DOCS_URL, remedy)


def problem_headers(code: str, docs_url: str | None) -> dict[str, str]:
    """Headers that refer to the page about a problem."""
    return {} if docs_url is None else {"Link": link_to(docs_url + code)}


def problem_type(code: str, docs_url: str | None) -> str:
    """The ``type`` of a problem."""
    return (docs_url or PROBLEM_TYPES) + code


def add_problem_responses(api: apigateway.RestApi, origins: Sequence[str] = (), docs_url: str | None = None) -> None:
    """Let every answer of the gateway itself be ``application/problem+json``."""
    for kind, status, code, title in GATEWAY_PROBLEMS:
        _add(api, kind, status, code, title, origins, docs_url)
    add_default_responses(api, origins, docs_url)


def add_default_responses(api: apigateway.RestApi, origins: Sequence[str] = (), docs_url: str | None = None) -> None:
    """Let the gateway's own answers be ``application/problem+json``, with its status, in two resources for all."""
    unclear = "The request may or may not have been accepted"
    _add(api, _T.DEFAULT_4_XX, None, "request-rejected", "The request was rejected", origins, docs_url)
    _add(api, _T.DEFAULT_5_XX, None, "gateway-error", unclear, origins, docs_url)


def _add(
    api: apigateway.RestApi,
    kind: apigateway.ResponseType,
    status: str | None,
    code: str,
    title: str,
    origins: Sequence[str],
    docs_url: str | None,
) -> None:
    # The gateway fills in messageString and brings its quotes. validationErrorString has more detail, but comes as it
    # is: the quotes in it would break the document.
    status_member = f'"status":{status},' if status else ""
    template = (
        f'{{"type":"{problem_type(code, docs_url)}","title":"{title}",{status_member}'
        '"detail":$context.error.messageString,"request_id":"$context.requestId"}'
    )
    # The gateway picks its template and sends application/json whatever the client accepts: the header corrects that.
    headers = {"Content-Type": f"'{PROBLEM}'", "Cache-Control": "'no-store'"}
    headers |= {name: f"'{value}'" for name, value in problem_headers(code, docs_url).items()}
    if origins:
        # One origin cannot be chosen among several here, and these documents hold nothing of a caller.
        headers["Access-Control-Allow-Origin"] = f"'{origins[0] if len(origins) == 1 else '*'}'"
    if status in _RETRY_LATER:
        headers["Retry-After"] = "'2'"
    api.add_gateway_response(
        "".join(part.capitalize() for part in kind.response_type.split("_")),
        type=kind,
        status_code=status,
        response_headers=headers,
        templates={"application/json": template, PROBLEM: template},
    )
