"""API Gateway: a client's request becomes a proxy event, and what the function answers a response."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from constructs_lib.testing.simulator.aws.functions import MOST_PAYLOAD_BYTES, Functions, Outcome
from constructs_lib.testing.simulator.aws.http_api import DEFAULT, Sent, authorizer_of, event_of, precedence, result_of
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, ApiSpec, RequestChecks, RouteSpec
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, Elapsed, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError, json_of
from constructs_lib.testing.simulator.faults.climate import Trouble
from constructs_lib.testing.simulator.faults.weather import Weather

_MOST_BYTES: Final = 10_485_760
_EVERYTHING: Final = re.compile(r".*")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """Responses of an API itself, as status and message: no route, no signature, no time left, a failed function."""

    missing: tuple[int, str]
    unsigned: tuple[int, str]
    large: tuple[int, str]
    late: tuple[int, str]
    failed: tuple[int, str]


_REST: Final = _Own(
    missing=(403, "Missing Authentication Token"),
    unsigned=(403, "Missing Authentication Token"),
    large=(413, ""),
    late=(504, ""),
    failed=(502, "Internal server error"),
)
_HTTP: Final = _Own(
    missing=(404, "Not Found"),
    unsigned=(403, "Forbidden"),
    large=(413, "Request Entity Too Large"),
    late=(503, "Service Unavailable"),
    failed=(500, "Internal Server Error"),
)


_THROTTLED: Final = (429, "Too Many Requests")
_KEYLESS: Final = (403, "Forbidden")
_NO_JSON: Final = (400, "Invalid request body")
KEY_HEADER: Final = "x-api-key"
"""Header of a request with a client's API key."""


class ConnectionLostError(Exception):
    """A client got no response; the request may have been handled."""


class Gateway:
    """Every REST API and every HTTP API of a run."""

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
        self._apis = dict(apis)
        self._paths: dict[tuple[str, str | None], str] = {}
        self._keys: dict[tuple[str, str | None], str | None] = {}
        routes = [
            (api, route)
            for api in apis.values()
            for route in (sorted(api.routes, key=precedence) if api.http else api.routes)
        ]
        # What an API has no route for may be another one's.
        routes.sort(key=lambda one: one[1].path == DEFAULT)
        self._routes = [(api, route, _pattern(route.path)) for api, route in routes]

    def path_of(self, operation: str, stack: str | None = None) -> str:
        """The path to which requests of an operation are posted, of an API of a stack; None: of any one."""
        if (operation, stack) not in self._paths:
            self._paths[operation, stack] = path_of(self._apis, operation, stack) or f"/{operation}"
        return self._paths[operation, stack]

    def key_of(self, operation: str, stack: str | None = None) -> str | None:
        """An API key for requests of an operation, likewise; None: they need none."""
        if (operation, stack) not in self._keys:
            path = self.path_of(operation, stack)
            found = (
                route.checks.keys
                for api, route, pattern in self._routes
                if stack in (None, api.stack) and pattern.fullmatch(path)
            )
            self._keys[operation, stack] = next((min(keys) for keys in found if keys), None)
        return self._keys[operation, stack]

    def function_of(self, operation: str, stack: str | None) -> str | None:
        """The function that receives the requests of an operation, likewise; None: no API has it."""
        path = self.path_of(operation, stack)
        return next(
            (
                route.function
                for api, route, pattern in self._routes
                if stack in (None, api.stack) and route.method in ("POST", "ANY") and pattern.fullmatch(path)
            ),
            None,
        )

    def behind(self, url: str) -> tuple[str, str]:
        """Id of the API that a URL is of, and the path behind its stage."""
        address = urlsplit(url)
        api = address.netloc.partition(".")[0]
        path = address.path.strip("/")
        if api in self._apis and self._apis[api].http and self._apis[api].stage == DEFAULT:
            return api, f"/{path}"
        return api, "/" + path.partition("/")[2]

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
        stack: str | None = None,
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
            stack: name of the stack whose API it is; None: any one.

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
            return _own(_THROTTLED)
        if trouble is Trouble.ERROR_BEFORE:
            self._trace.note(actor.name, f"{told} -> 500")
            return Response(status=500)
        found = next(
            (
                (spec, route, match)
                for spec, route, pattern in self._routes
                if api in (None, spec.id)
                and stack in (None, spec.stack)
                and route.method in (method, "ANY")
                and (match := pattern.fullmatch(parts.path)) is not None
            ),
            None,
        )
        if found is None:
            asked = self._apis.get(api) if api is not None else next(iter(self._apis.values()), None)
            return _own((_HTTP if asked is not None and asked.http else _REST).missing)
        spec, route, match = found
        own = _HTTP if spec.http else _REST
        if route.refused is not None:
            raise NotSimulatedError(f"a request is sent to {route.key}, and {route.refused}")
        if route.authorization != "NONE" and user is None:
            return _own((401, "Unauthorized") if route.authorization == "JWT" else own.unsigned)
        if len(body.encode()) > _MOST_BYTES:
            return _own(own.large)
        if (refused := _checked(route.checks, match.groupdict(), parts, headers or {}, body)) is not None:
            return _own(refused)
        event = self._event(spec, route, match.groupdict(), method, parts, headers or {}, body, user)
        text = json.dumps(event)
        if len(text) > MOST_PAYLOAD_BYTES:  # Lambda refuses it
            return _own(own.large)
        outcome = self._functions.invoke(route.function, text)
        try:
            handled = outcome.wait(route.timeout * MILLISECOND)
        except Elapsed:
            self._trace.note(actor.name, f"{told} -> {own.late[0]}")
            return _own(own.late)
        response = _result(handled) if spec.http else _response(handled)
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
        parts: SplitResult,
        headers: Mapping[str, str],
        body: str,
        user: str | None,
    ) -> dict[str, Any]:
        self._number += 1
        if api.http:
            sent = Sent(
                number=self._number,
                moment=self._kernel.now,
                method=method,
                parts=parts,
                parameters=parameters,
                headers=headers,
                body=body,
            )
            who = authorizer_of(route, user=user or "", principal=_principal(user), issuer=_ISSUER)
            return event_of(api, route, sent, who)
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


def path_of(apis: Mapping[str, ApiSpec], operation: str, stack: str | None = None) -> str | None:
    """The path to which requests of an operation are posted, at the root or below a resource; None: no API has it.

    Args:
        apis: by id.
        operation: its name.
        stack: name of the stack whose API it is; None: any one.
    """
    found = [api for api in apis.values() if stack in (None, api.stack)]
    routes = [route for api in found for route in api.routes if route.method in ("POST", "ANY")]
    path = f"/{operation}"
    if any(_pattern(route.path).fullmatch(path) for route in routes):
        return path
    return next((route.path for route in routes if route.path.endswith(path)), None)


def callers_of(user: str) -> list[tuple[str, ...]]:
    """Identities of a user: one for each authorizer that an API may have."""
    return [("iam", ACCOUNT, _principal(user)), ("jwt", _ISSUER, user)]


def _principal(user: str | None) -> str:
    return f"AIDA{user}"


def _pattern(path: str) -> re.Pattern[str]:
    if path == DEFAULT:
        return _EVERYTHING
    parts = re.split(r"\{([a-zA-Z0-9_]+)(\+?)\}", path)
    text = ""
    for number in range(0, len(parts), 3):
        text += re.escape(parts[number])
        if number + 1 < len(parts):
            text += f"(?P<{parts[number + 1]}>{'.+' if parts[number + 2] else '[^/]+'})"
    return re.compile(text)


def _checked(
    checks: RequestChecks, path: Mapping[str, str], parts: SplitResult, headers: Mapping[str, str], body: str
) -> tuple[int, str] | None:
    """The response to a request that a REST API refuses; None: it does not."""
    named = {name.lower(): value for name, value in headers.items()}
    if checks.keys is not None and named.get(KEY_HEADER) not in checks.keys:
        return _KEYLESS
    if checks.parameters:
        given = {f"header.{name}": value for name, value in named.items()}
        given |= {f"path.{name}": value for name, value in path.items()}
        given |= {f"querystring.{name}": values[-1] for name, values in parse_qs(parts.query).items()}
        missing = [one for one in checks.parameters if not given.get(_lower(one))]
        if missing:
            names = ", ".join(one.partition(".")[2] for one in missing)
            return 400, f"Missing required request parameters: [{names}]"
    if checks.json:
        kind = named.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind in checks.json or "$default" in checks.json:
            try:
                json_of(body)
            except ValueError:
                return _NO_JSON
    return None


def _lower(parameter: str) -> str:
    """Names of headers have no case."""
    return parameter.lower() if parameter.startswith("header.") else parameter


def _own(given: tuple[int, str]) -> Response:
    status, message = given
    return Response(status=status, body=f'{{"message":"{message}"}}' if message else "")


def _result(outcome: Outcome) -> Response:
    """Return the response that an HTTP API makes of an outcome."""
    found = result_of(outcome)
    if found is None:
        return _own(_HTTP.failed)
    status, headers, body = found
    return Response(status=status, headers=headers, body=body)


def _response(outcome: Outcome) -> Response:
    if outcome.error is not None:
        return _own(_REST.failed)
    answer = json.loads(outcome.payload)
    if not isinstance(answer, dict) or not isinstance(answer.get("statusCode"), int):
        return _own(_REST.failed)
    if not isinstance(answer.get("body"), str | None):
        return _own(_REST.failed)
    headers = {name.lower(): str(value) for name, value in (answer.get("headers") or {}).items()}
    return Response(status=answer["statusCode"], headers=headers, body=str(answer.get("body") or ""))
