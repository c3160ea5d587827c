"""API Gateway: a client's request becomes a proxy event, and what the function answers a response."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from constructs_lib.testing.simulator.aws.functions import Functions, Outcome
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, ApiSpec, RouteSpec
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND, Elapsed, Kernel
from constructs_lib.testing.simulator.faults.climate import Trouble
from constructs_lib.testing.simulator.faults.weather import Weather

_TIMEOUT: Final = 29 * SECOND
_MOST_BYTES: Final = 10_485_760
_ISSUER: Final = "https://issuer.simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Response that a client receives.

    Attributes:
        status: HTTP status.
        headers: names in lower case.
        body: its text.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    def json(self) -> Any:
        """The body, read as JSON.

        Raises:
            ValueError: if it is not JSON.
        """
        return json.loads(self.body)


class ConnectionLostError(Exception):
    """A client got no response; the request may have been handled."""


class Gateway:
    """Every REST API of a run."""

    def __init__(
        self, kernel: Kernel, functions: Functions, weather: Weather, trace: Trace, apis: Mapping[str, ApiSpec]
    ) -> None:
        self._kernel = kernel
        self._functions = functions
        self._weather = weather
        self._trace = trace
        self.change(apis)
        self._number = 0

    def change(self, apis: Mapping[str, ApiSpec]) -> None:
        """Replace the APIs."""
        self._routes = [(api, route, _pattern(route.path)) for api in apis.values() for route in api.routes]

    def send(
        self,
        actor: Actor,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: str = "",
        user: str | None = None,
        api: str | None = None,
    ) -> Response:
        """Send a request as a client, and wait for the response.

        Args:
            actor: the client.
            method: HTTP method.
            path: path and query behind the stage.
            headers: headers.
            body: its text.
            user: the signer; None: it is not signed.
            api: id of the API; None: the first one that has the path.

        Raises:
            ConnectionLostError: if no response comes.
        """
        parts = urlsplit(path)
        told = f"{method} {path}"
        self._kernel.sleep(self._weather.latency())
        trouble = self._weather.trouble(actor, "api", method)
        if trouble in (Trouble.LOSE_REQUEST, Trouble.LATE_REQUEST):
            self._trace.note(actor.name, f"{told} -> request lost")
            raise ConnectionLostError
        if trouble is Trouble.THROTTLE:
            self._trace.note(actor.name, f"{told} -> 429")
            return Response(status=429, headers={"retry-after": "1"})
        if trouble is Trouble.ERROR_BEFORE:
            self._trace.note(actor.name, f"{told} -> 500")
            return Response(status=500)
        found = next(
            (
                (spec, route, match)
                for spec, route, pattern in self._routes
                if (api is None or spec.id == api)
                and route.method == method
                and (match := pattern.fullmatch(parts.path)) is not None
            ),
            None,
        )
        if found is None:
            return Response(status=403, body='{"message":"Missing Authentication Token"}')
        spec, route, match = found
        if route.authorization != "NONE" and user is None:
            return Response(status=403, body='{"message":"Missing Authentication Token"}')
        if len(body.encode()) > _MOST_BYTES:
            return Response(status=413)
        event = self._event(spec, route, match.groupdict(), method, parts, headers or {}, body, user)
        outcome = self._functions.invoke(route.function, json.dumps(event))
        try:
            handled = outcome.wait(_TIMEOUT)
        except Elapsed:
            self._trace.note(actor.name, f"{told} -> 504")
            return Response(status=504)
        response = _response(handled)
        self._kernel.sleep(self._weather.latency())
        if trouble is not None:
            self._trace.note(actor.name, f"{told} -> {response.status}, lost")
            raise ConnectionLostError
        self._trace.note(actor.name, f"{told} -> {response.status}")
        return response

    def _event(
        self,
        api: ApiSpec,
        route: RouteSpec,
        parameters: Mapping[str, str],
        method: str,
        parts: Any,
        headers: Mapping[str, str],
        body: str,
        user: str | None,
    ) -> dict[str, Any]:
        self._number += 1
        query = parse_qs(parts.query, keep_blank_values=True)
        context: dict[str, Any] = {
            "accountId": ACCOUNT,
            "apiId": api.id,
            "stage": api.stage,
            "requestId": f"{self._number:08x}-0000-4000-8000-000000000000",
            "requestTimeEpoch": self._kernel.now // 1_000,
            "httpMethod": method,
            "resourcePath": route.path,
            "path": f"/{api.stage}{parts.path}",
            "identity": {"sourceIp": "192.0.2.1", "userAgent": "simulated"},
        }
        if route.authorization == "AWS_IAM":
            context["identity"] |= {
                "accountId": ACCOUNT,
                "caller": _principal(user),
                "user": f"AIDA{user}",
                "userArn": f"arn:aws:iam::{ACCOUNT}:user/{user}",
                "accessKey": f"AKIA{user}",
            }
        elif route.authorization != "NONE":
            claims = {"iss": _ISSUER, "sub": user}
            context["authorizer"] = {"claims": claims, "principalId": user}
        return {
            "resource": route.path,
            "path": parts.path,
            "httpMethod": method,
            "headers": dict(headers),
            "multiValueHeaders": {name: [value] for name, value in headers.items()},
            "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
            "multiValueQueryStringParameters": query or None,
            "pathParameters": dict(parameters) or None,
            "stageVariables": None,
            "requestContext": context,
            "body": (base64.b64encode(body.encode()).decode() if api.binary else body) or None,
            "isBase64Encoded": api.binary,
        }


def callers_of(user: str) -> list[tuple[str, ...]]:
    """Identities of a user: one for each authorizer that an API may have."""
    return [("iam", ACCOUNT, _principal(user)), ("jwt", _ISSUER, user)]


def _principal(user: str | None) -> str:
    return f"AIDA{user}"


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-zA-Z0-9_]+)(\+?)\}", path)
    text = ""
    for number in range(0, len(parts), 3):
        text += re.escape(parts[number])
        if number + 1 < len(parts):
            text += f"(?P<{parts[number + 1]}>{'.+' if parts[number + 2] else '[^/]+'})"
    return re.compile(text)


def _response(outcome: Outcome) -> Response:
    if outcome.error is not None:
        return Response(status=502, body='{"message":"Internal server error"}')
    answer = json.loads(outcome.payload)
    if not isinstance(answer, dict) or not isinstance(answer.get("statusCode"), int):
        return Response(status=502, body='{"message":"Internal server error"}')
    headers = {name.lower(): str(value) for name, value in (answer.get("headers") or {}).items()}
    return Response(status=answer["statusCode"], headers=headers, body=str(answer.get("body") or ""))
