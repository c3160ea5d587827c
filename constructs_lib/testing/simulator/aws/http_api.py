"""HTTP APIs of API Gateway: events in payload format 2.0, what a function's result becomes, and routes' precedence.

https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs

from constructs_lib.testing.simulator.aws.functions import Outcome
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, REGION, ApiSpec, RouteSpec

DEFAULT: Final = "$default"
"""The stage without a name in its URL, and the route of what no other one has."""
_TEXTS: Final = frozenset({"application/json", "application/xml", "application/javascript"})
"""Besides ``text/…``, types of bodies that a function receives as text, as local AWS has them; others are in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request to an HTTP API.

    Attributes:
        number: of the request in its run.
        moment: microseconds since the epoch.
        method: HTTP method.
        parts: path and query behind the stage.
        parameters: those of the path.
        headers: as the client wrote them.
        body: its text.
    """

    number: int
    moment: int
    method: str
    parts: SplitResult
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: str


def precedence(route: RouteSpec) -> tuple[int, int, int]:
    """Sort routes of an API as it selects them: full matches, then greedy ones, then ``$default``."""
    if route.path == DEFAULT:
        return 2, 0, 0
    parts = route.path.strip("/").split("/")
    literal = sum(not part.startswith("{") for part in parts)
    return int(parts[-1].endswith("+}")), -literal, int(route.method == "ANY")


def event_of(api: ApiSpec, route: RouteSpec, sent: Sent, authorizer: Mapping[str, Any] | None) -> dict[str, Any]:
    """The event of a request. Members without a value are left out, as API Gateway does."""
    headers: dict[str, str] = {}
    for name, value in sent.headers.items():
        known = headers.get(name.lower())
        headers[name.lower()] = value if known is None else f"{known},{value}"
    path = sent.parts.path if api.stage == DEFAULT else f"/{api.stage}{sent.parts.path}"
    query = parse_qs(sent.parts.query, keep_blank_values=True)
    domain = f"{api.id}.execute-api.{REGION}.amazonaws.com"
    is_text = _is_text(headers.get("content-type", ""))
    moment = datetime.fromtimestamp(sent.moment // 1_000_000, UTC)
    context = {
        "accountId": ACCOUNT,
        "apiId": api.id,
        **({} if authorizer is None else {"authorizer": dict(authorizer)}),
        "domainName": domain,
        "domainPrefix": api.id,
        "http": {
            "method": sent.method,
            "path": path,
            "protocol": "HTTP/1.1",
            "sourceIp": "192.0.2.1",
            "userAgent": headers.get("user-agent", "simulated"),
        },
        "requestId": f"{sent.number:08x}-0000-4000-8000-000000000000",
        "routeKey": route.key,
        "stage": api.stage,
        "time": moment.strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "timeEpoch": sent.moment // 1_000,
    }
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": path,
        "rawQueryString": sent.parts.query,
        "headers": headers,
        "requestContext": context,
        "isBase64Encoded": bool(sent.body) and not is_text,
    }
    if query:
        event["queryStringParameters"] = {name: ",".join(values) for name, values in query.items()}
    if sent.parameters:
        event["pathParameters"] = dict(sent.parameters)
    if sent.body:
        event["body"] = sent.body if is_text else base64.b64encode(sent.body.encode()).decode()
    return event


def authorizer_of(route: RouteSpec, *, user: str, principal: str, issuer: str) -> dict[str, Any] | None:
    """``requestContext.authorizer`` of a user whom a route's authorizer accepts; None: the route has none."""
    if route.authorization == "NONE":
        return None
    if route.authorization == "AWS_IAM":
        identity = {
            "accessKey": f"AKIA{user}",
            "accountId": ACCOUNT,
            "callerId": principal,
            "cognitoIdentity": None,
            "principalOrgId": None,
            "userArn": f"arn:aws:iam::{ACCOUNT}:user/{user}",
            "userId": principal,
        }
        return {"iam": identity}
    return {"jwt": {"claims": {"iss": issuer, "sub": user}, "scopes": list(route.scopes) or None}}


def result_of(outcome: Outcome) -> tuple[int, dict[str, str], str] | None:
    """Status, headers and body of a function's result; None: the API responds that it failed.

    A result without a status is the body of a 200.
    """
    if outcome.error is not None:
        return None
    result = json.loads(outcome.payload)
    if not isinstance(result, dict) or "statusCode" not in result:
        text = result if isinstance(result, str) else json.dumps(result)
        return 200, {"content-type": "application/json"}, text
    status = result["statusCode"]
    if isinstance(status, bool) or not isinstance(status, int):
        return None
    headers = {name.lower(): str(value) for name, value in (result.get("headers") or {}).items()}
    return status, headers, str(result.get("body") or "")


def _is_text(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXTS
