"""Middleware in front of the emulator: every request passes here, and the planned faults hit those of functions."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.faults.answers import answer, failure_of
from constructs_lib.testing.emulator.faults.callers import Callers, Sandbox
from constructs_lib.testing.emulator.faults.control import PREFIX, control
from constructs_lib.testing.emulator.faults.engine import Call, FaultEngine, Verdict
from constructs_lib.testing.emulator.faults.operations import call_of, signer_of
from constructs_lib.testing.fault_plan import Action, Fault, Moment

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_log: Final = logging.getLogger("cdk_sagas.faults")
_POLL_SECONDS: Final = 0.01


class FaultGate:
    """An ASGI application around the emulator's own."""

    def __init__(self, app: App, engine: FaultEngine, callers: Callers, clock: EmulatorClock) -> None:
        self._app = app
        self._engine = engine
        self._callers = callers
        self._clock = clock

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let a request pass, or do to it what is planned."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith(PREFIX):
            await self._control(scope, receive, send)
        elif not self._engine.armed:
            await self._app(scope, receive, send)
        else:
            await self._look(scope, receive, send)

    async def _control(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        body = await _read(receive)
        if body is None:
            return
        if not _is_local(scope, headers):
            status, content = 403, b'{"message": "faults are planned over loopback only"}'
        else:
            status, content = control(self._engine, scope["method"], scope["path"], body)
        await _respond(send, status, {"content-type": "application/json"}, content)

    async def _look(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        query = scope.get("query_string", b"").decode("utf-8", "replace")
        signer = signer_of(headers, query)
        sandbox = None if signer is None else self._callers.sandbox(signer.access_key_id)
        if signer is None or sandbox is None:
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return
        invocation = sandbox.invocation
        call = Call(
            caller=sandbox.function,
            call=call_of(signer.service, scope["method"], scope["path"], query, headers, body),
            body=body,
            logical_id=headers.get("amz-sdk-invocation-id"),
            attempt=_attempt(headers),
            request_id=None if invocation is None else invocation.request_id,
            execution=None if invocation is None else invocation.execution,
        )
        passing = _Passing(self._app, scope, body, receive, send)
        verdict = self._engine.arrive(call)
        if verdict.fault is None:
            await passing.through()
        else:
            _log.info("%s at %s %s of %s", verdict.fault.action, verdict.fault.moment, call.call, call.caller)
            await self._act(verdict, verdict.fault, call, sandbox, passing, is_json=_is_json(headers, signer.service))
        verdict.note(passing.status)

    async def _act(
        self, verdict: Verdict, fault: Fault, call: Call, sandbox: Sandbox, passing: _Passing, *, is_json: bool
    ) -> None:
        if fault.moment == Moment.AFTER:
            await passing.take_effect()
        if fault.action == Action.DELAY:
            await self._hold(verdict, fault, sandbox)
            if self._engine.is_planned(verdict.fault_id or ""):
                await passing.through()
            else:
                # The plan was cleared: what was held back must not take effect in the middle of the next test.
                await passing.abandon()
        elif fault.action == Action.KILL:
            sandbox.kill()
            await passing.abandon()
        elif fault.action == Action.DROP:
            await passing.abandon()
        else:
            service = call.call.partition(":")[0]
            await passing.respond(*answer(failure_of(fault, call.call, call.body), service, is_json=is_json))

    async def _hold(self, verdict: Verdict, fault: Fault, sandbox: Sandbox) -> None:
        invocation = sandbox.invocation
        until = None if fault.seconds is None else self._clock.now() + fault.seconds
        while self._engine.is_planned(verdict.fault_id or ""):
            if until is not None and self._clock.now() >= until:
                return
            if until is None and (invocation is None or invocation.over.is_set()):
                return
            await asyncio.sleep(_POLL_SECONDS)


class _Passing:
    """One request on its way through: it takes effect at most once, and is answered at most once."""

    def __init__(self, app: App, scope: MutableMapping[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        self.status: int | None = None
        self._app = app
        self._scope = scope
        self._body: bytes | None = body
        self._receive = receive
        self._send = send
        self._answer: list[Message] | None = None

    async def through(self) -> None:
        """Let it take effect, if it has not yet, and hand on the answer."""
        if self._answer is None:
            await self._app(self._scope, self._replay, self._forward)
            return
        for message in self._answer:
            await self._forward(message)

    async def take_effect(self) -> None:
        """Let it take effect, and keep the answer."""
        kept: list[Message] = []

        async def keep(message: Message) -> None:
            kept.append(message)

        await self._app(self._scope, self._replay, keep)
        self._answer = kept

    async def respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer in place of the service."""
        self.status = status
        await _respond(self._send, status, headers, body)

    async def abandon(self) -> None:
        """Close the connection without an answer."""
        stream = getattr(self._send, "__self__", None)
        if not isinstance(stream, HTTPStream):
            raise TypeError(f"expected the server's own stream, got {stream!r}; install the pinned emulator")
        # The server answers an unanswered request with a 500 of its own, unless the stream is closed already.
        stream.state = ASGIHTTPState.CLOSED
        await stream.send(StreamClosed(stream_id=stream.stream_id))

    async def _replay(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def _read(receive: Receive) -> bytes | None:
    """The whole body; None if the client has gone away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def _respond(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    named = {**headers, "content-length": str(len(body))}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _headers(scope: MutableMapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _attempt(headers: dict[str, str]) -> int:
    for part in headers.get("amz-sdk-request", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == "attempt" and value.isdigit():
            return int(value)
    return 1


def _is_json(headers: dict[str, str], service: str) -> bool:
    return service != "s3" and not headers.get("content-type", "").startswith("application/x-www-form-urlencoded")


def _is_local(scope: MutableMapping[str, Any], headers: dict[str, str]) -> bool:
    """Test whether a process of this machine asks, and not a web page in its browser."""
    client = scope.get("client")
    host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    try:
        loopback = client is not None and ipaddress.ip_address(client[0]).is_loopback
        named = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    return loopback and named and "origin" not in headers
