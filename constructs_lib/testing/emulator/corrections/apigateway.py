"""API Gateway (REST): answers of the gateway itself, limits, and what a proxied function sees and may answer."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ministack import app as gateway
from ministack.core.responses import new_uuid, request_scope
from ministack.services import apigateway_v1 as rest

from constructs_lib.testing.emulator.admin import HEADER_NAMES
from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

#: API Gateway's own limit, and that of a synchronous invocation, which the event must fit into.
_MAX_BODY_BYTES: Final = 10 * 1024 * 1024
_MAX_EVENT_BYTES: Final = 6 * 1024 * 1024
_LONGEST_INTEGRATION_MILLISECONDS: Final = 29_000
_ANSWER_KEYS: Final = frozenset({"statusCode", "headers", "multiValueHeaders", "body", "isBase64Encoded", "cookies"})

Invoke = Callable[..., Awaitable[Any]]

_header_names: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("header_names")


def denied_by_policy(_emulator: Emulator) -> None:
    """A caller without permission gets the API's own ACCESS_DENIED response.

    The emulator answers with a fixed body, so that a problem document of the API is never seen.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def enforce(service: str, action: str, headers: Any, query: Any, *args: Any, **options: Any) -> Any:
            make_error = options.get("auth_error_response")
            if action != "execute-api:Invoke" or make_error is None:
                return original(service, action, headers, query, *args, **options)
            failed_authentication: list[Any] = []

            def remember(error: Any) -> Any:
                failed_authentication.append(error)
                return make_error(error)

            response = original(service, action, headers, query, *args, **{**options, "auth_error_response": remember})
            if response is None or failed_authentication:
                return response
            return _access_denied(options["resource_arn"], headers, query, response)

        return enforce

    replace(gateway, "_enforce_data_plane", make)


def _access_denied(method_arn: str, headers: Any, query: Any, response: Any) -> Any:
    api_id, stage_name = method_arn.split(":", 5)[5].split("/")[:2]
    scope = rest.find_api_scope(api_id)
    stage = rest.stages_for_api(api_id).get(stage_name) if scope else None
    if scope is None or stage is None:
        return response
    body = json.loads(response[2])
    request = {
        "api_id": api_id,
        "stage_name": stage_name,
        "stage": stage,
        "headers": headers or {},
        "query_params": query or {},
        "path_params": {},
        "resource_path": "",
        "request_id": new_uuid(),
    }
    message = body.get("message") or body.get("Message") or "User is not authorized to access this resource"
    with request_scope(*scope):
        return rest._gateway_error_response(rest._GatewayError("ACCESS_DENIED", message), request)


def request_size(_emulator: Emulator) -> None:
    """A body above 10 MB is answered 413. The emulator has no limit."""

    def make(original: Invoke) -> Invoke:
        async def execute(request: Any, api_id: str, stage: str, method: str, path: str, headers: Any, body: Any,
                          *args: Any, **options: Any) -> Any:  # fmt: skip
            if body and len(body) > _MAX_BODY_BYTES and rest._stages_v1.get(api_id, {}).get(stage):
                request["stage"] = rest._stages_v1[api_id][stage]
                return rest._gw_error("REQUEST_TOO_LARGE", "Request Too Long")
            return await original(request, api_id, stage, method, path, headers, body, *args, **options)

        return execute

    replace(rest, "_execute_in_scope", make)


def event_size(_emulator: Emulator) -> None:
    """An event above 6 MB cannot be handed to a function: 413. The emulator has no limit.

    A model: Lambda refuses such an event; which status the gateway makes of it is not documented.
    """

    def make(original: Invoke) -> Invoke:
        async def call(function_ref: Any, event: Any, **options: Any) -> Any:
            if len(json.dumps(event).encode()) > _MAX_EVENT_BYTES:
                raise _TooLargeError
            return await original(function_ref, event, **options)

        return call

    def make_invoke(original: Invoke) -> Invoke:
        async def invoke(*args: Any, **options: Any) -> Any:
            try:
                return await original(*args, **options)
            except _TooLargeError:
                return rest._gw_error("REQUEST_TOO_LARGE", "Request Too Long")

        return invoke

    replace(rest, "_call_lambda_raw", make)
    replace(rest, "_invoke_lambda_proxy_v1", make_invoke)


class _TooLargeError(Exception):
    """The event does not fit into an invocation."""


def integration_timeout(emulator: Emulator) -> None:
    """After an integration's timeout (29 s) the API responds with 504, while the function continues.

    The emulator waits for as long as the function's own timeout allows: more permissive than AWS.
    """

    def make(original: Invoke) -> Invoke:
        async def invoke(integration: Any, *args: Any, **options: Any) -> Any:
            limit = integration.get("timeoutInMillis") or _LONGEST_INTEGRATION_MILLISECONDS
            running = asyncio.ensure_future(original(integration, *args, **options))
            done, _ = await asyncio.wait({running}, timeout=emulator.clock.real(limit / 1000))
            if not done:
                return rest._gw_error("INTEGRATION_TIMEOUT", "Endpoint request timed out")
            return running.result()

        return invoke

    replace(rest, "_invoke_lambda_proxy_v1", make)


def integration_failure(_emulator: Emulator) -> None:
    """If a function fails, or its response is not an HTTP response, the gateway responds with 502.

    The emulator sends the function's error with its stack trace to the client, and any value as a 200.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def answer(result: Any) -> Any:
            body = result.get("body")
            if not result.get("throttle") and (result.get("error") or not _is_http_answer(body)):
                return None, _BAD_GATEWAY
            return original(result)

        return answer

    def make_invoke(original: Invoke) -> Invoke:
        async def invoke(*args: Any, **options: Any) -> Any:
            response = await original(*args, **options)
            if isinstance(response, tuple) and response[0] == 502 and response[2] == _BAD_GATEWAY_BODY:
                error = rest._gw_error("DEFAULT_5XX", "Internal server error")
                error.status = 502
                return error
            return response

        return invoke

    def make_error_response(original: Callable[..., Any]) -> Callable[..., Any]:
        def render(error: Any, request: Any) -> Any:
            status, headers, body = original(error, request)
            customized = rest._deployed_gateway_responses.get(request["api_id"], {}).get(
                request["stage"].get("deploymentId"), {}
            )
            own_status = (customized.get(error.response_type) or {}).get("statusCode")
            return (int(own_status or getattr(error, "status", status)), headers, body)

        return render

    replace(rest, "_lambda_proxy_response", make)
    replace(rest, "_invoke_lambda_proxy_v1", make_invoke)
    replace(rest, "_gateway_error_response", make_error_response)


_BAD_GATEWAY: Final = "<<<integration failed>>>"
_BAD_GATEWAY_BODY: Final = json.dumps({"message": _BAD_GATEWAY}).encode()


def _is_http_answer(value: Any) -> bool:
    """Return whether a function's result is an answer that API Gateway understands."""
    if not isinstance(value, dict) or not value.keys() <= _ANSWER_KEYS or "statusCode" not in value:
        return False
    try:
        status = int(value["statusCode"])
    except (TypeError, ValueError):
        return False
    headers = value.get("headers") or {}
    plain = isinstance(headers, dict) and all(isinstance(one, str | int | float | bool) for one in headers.values())
    return 100 <= status <= 599 and isinstance(value.get("body"), str | None) and plain


def source_address(_emulator: Emulator) -> None:
    """``identity.sourceIp`` is the peer's address. The emulator believes the client's X-Forwarded-For."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def build(*args: Any, **options: Any) -> Any:
            event = original(*args, **options)
            event["requestContext"]["identity"]["sourceIp"] = "127.0.0.1"
            return event

        return build

    replace(rest, "_build_lambda_event_v1", make)


def header_names(_emulator: Emulator) -> None:
    """A function sees header names as the client wrote them.

    The emulator writes them all in lower case: a function that looks for that only works here and fails on AWS.
    """

    def make_app(original: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            _header_names.set(scope.get(HEADER_NAMES, {}))
            await original(scope, receive, send)

        return app

    def make_build(original: Callable[..., Any]) -> Callable[..., Any]:
        def build(*args: Any, **options: Any) -> Any:
            event = original(*args, **options)
            names = _header_names.get({})
            for field in ("headers", "multiValueHeaders"):
                event[field] = {names.get(name, name): value for name, value in (event[field] or {}).items()}
            return event

        return build

    replace(gateway, "app", make_app)
    replace(rest, "_build_lambda_event_v1", make_build)


def method_throttling(_emulator: Emulator) -> None:
    """A method's own rate applies. The emulator does not recognize the method, whose path templates write as ``/~1a``.

    The path of a method setting is a JSON pointer: ``~1`` encodes a slash.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def settings(stage: dict[str, Any], resource_path: str, http_method: str) -> Any:
            decoded = {
                "*/*" if key == "*/*" else "/" + key.replace("~1", "/").lstrip("/"): setting
                for key, setting in (stage.get("methodSettings") or {}).items()
            }
            return original({**stage, "methodSettings": decoded}, resource_path, http_method)

        return settings

    replace(rest, "_method_throttle_settings", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (
    denied_by_policy,
    request_size,
    event_size,
    integration_failure,
    integration_timeout,
    source_address,
    header_names,
    method_throttling,
)
