"""The gateway's HTTP side.

    POST /charges                Idempotency-Key, {"amount", "currency", "card", "reference"}   201, 402
    POST /refunds                Idempotency-Key, {"charge", "amount", "reference"}             201, 404
    GET  /charges?key=…          what was charged under a key, and whether a request is in work 200
    GET  /refunds?key=…          likewise                                                       200

The same key and body again: the first answer. The same key, another body: 422. A key in work: 409.

For tests: ``GET``, ``POST`` and ``DELETE /admin/troubles``, ``DELETE /admin/keys?key=…``, and ``DELETE /admin/books``.
"""

from __future__ import annotations

import json
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from examples.payment_gateway.books import Answer, BookKeeper, problem
from examples.payment_gateway.callers import kill_caller
from examples.payment_gateway.troubles import Action, Moment, Operation, Plan, Trouble

HOST: Final = "127.0.0.1"
_MAX_BODY: Final = 65_536
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_OPERATIONS: Final = {
    ("POST", "/charges"): Operation.CHARGE,
    ("POST", "/refunds"): Operation.REFUND,
    ("GET", "/charges"): Operation.FIND_CHARGE,
    ("GET", "/refunds"): Operation.FIND_REFUND,
}


class GatewayServer(ThreadingHTTPServer):
    """The gateway.

    Args:
        port: loopback port; 0 for a free one.
        keeper: writes the books.
        speed: how many times faster than real time the gateway's time passes.
        spare: processes that are never killed, whatever is planned.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, *, keeper: BookKeeper, speed: float, spare: Collection[int] = ()) -> None:
        super().__init__((HOST, port), _Handler)
        self.keeper = keeper
        self.plan = Plan()
        self.speed = speed
        self.spare = spare

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of the server; a caller that has disconnected is not one."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _NoAnswer(Exception):
    """The connection is to be closed without an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: GatewayServer
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[int] = 30

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """The journal is the log."""

    def _serve(self) -> None:
        try:
            answer = self._answer()
        except _NoAnswer:
            self.close_connection = True
            return
        text = json.dumps(answer.document).encode()
        with suppress(OSError):
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def _answer(self) -> Answer:
        address = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MAX_BODY:
            return problem(413, "too_large", f"a body has at most {_MAX_BODY} bytes")
        try:
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError:
            return problem(400, "not_json", "the body is not JSON")
        operation = _OPERATIONS.get((self.command, address.path))
        if operation is not None:
            return self._operate(operation, parse_qs(address.query), body)
        return self._administer(address.path, parse_qs(address.query), body)

    def _operate(self, operation: Operation, query: Mapping[str, list[str]], body: Any) -> Answer:
        if operation.moves_money:
            key = self.headers.get("Idempotency-Key", "").strip()
            wrong = None if key else "a request that moves money needs an Idempotency-Key"
            wrong = wrong or _wrong(operation, body)
        else:
            key = next(iter(query.get("key", ())), "")
            body, wrong = {}, None if key else "send the key to look for"
        if wrong:
            return problem(400, "invalid", wrong)
        reference = str(body.get("reference") or next(iter(query.get("reference", ())), ""))
        number = self.server.keeper.note(operation, key, reference)
        met = self.server.plan.meet(operation, f"{key}\n{self.path}\n{json.dumps(body)}")
        outcome = "no answer"
        try:
            answer = self._with(met, Moment.BEFORE) or self._handle(operation, key, body, met)
            outcome = str(answer.status)
            answer = self._with(met, Moment.AFTER) or answer
        finally:
            self.server.keeper.note_outcome(number, f"{outcome}, {met.action} {met.moment}" if met else outcome)
        return answer

    def _handle(self, operation: Operation, key: str, body: Mapping[str, Any], met: Trouble | None) -> Answer:
        keeper, action = self.server.keeper, met.action if met else None
        if not operation.moves_money:
            return keeper.find(operation, key)
        known = keeper.claim(operation, key, body)
        if known is not None:
            return known
        if met is not None and action is Action.SLOW:
            self._wait(met)
        if operation is Operation.CHARGE:
            return keeper.charge(key, body, decline=action is Action.DECLINE)
        return keeper.refund(key, body)

    def _with(self, met: Trouble | None, moment: Moment) -> Answer | None:
        """Apply a trouble to a request at a moment, and return its answer, if it has one."""
        if met is None or met.moment is not moment:
            return None
        if met.action is Action.ERROR:
            return problem(500, "internal", "something went wrong")
        if met.action is Action.LATE:
            self._wait(met)
        elif met.action is Action.HANG:
            self._until_the_caller_is_gone()
            raise _NoAnswer
        elif met.action is Action.DROP:
            raise _NoAnswer
        elif met.action is Action.KILL:
            kill_caller(self.client_address[1], own_port=self.server.server_port, spare=self.server.spare)
            raise _NoAnswer
        return None

    def _wait(self, met: Trouble) -> None:
        time.sleep((met.seconds or 0) / self.server.speed)

    def _until_the_caller_is_gone(self) -> None:
        select.select([self.connection], [], [])

    def _administer(self, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        plan = self.server.plan
        if (self.command, path) == ("POST", "/admin/troubles"):
            try:
                plan.add([Trouble.from_json(one) for one in body["troubles"]])
            except (KeyError, TypeError, ValueError) as error:
                return problem(400, "invalid", str(error))
        elif (self.command, path) == ("DELETE", "/admin/troubles"):
            plan.clear()
        elif (self.command, path) == ("DELETE", "/admin/books"):
            self.server.keeper.clear()
        elif (self.command, path) == ("DELETE", "/admin/keys"):
            for key in query.get("key", ()):
                self.server.keeper.forget(key)
        elif (self.command, path) != ("GET", "/admin/troubles"):
            return problem(404, "unknown", "there is nothing here")
        reports = [
            {"trouble": report.trouble.as_json(), "matched": report.matched, "fired": report.fired}
            for report in plan.reports()
        ]
        return Answer(status=200, document={"troubles": reports})


def _wrong(operation: Operation, body: Any) -> str | None:
    """Return the error in a body; None if it is valid."""
    texts = ("currency", "card", "reference") if operation is Operation.CHARGE else ("charge", "reference")
    if not isinstance(body, dict) or set(body) != {"amount", *texts}:
        return f"the body has amount, {', '.join(texts)}, and nothing else"
    if type(body["amount"]) is not int or body["amount"] < 1:
        return "amount is a whole number of minor units from 1 on"
    if not all(isinstance(body[name], str) and body[name] for name in texts):
        return f"{', '.join(texts)} are texts"
    if operation is Operation.CHARGE and not _CURRENCY.fullmatch(body["currency"]):
        return "currency has three capital letters"
    return None


def serve_until(server: GatewayServer, end: Callable[[], object]) -> None:
    """Serve until `end` returns."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    end()
    server.shutdown()
    server.server_close()
    server.keeper.close()
