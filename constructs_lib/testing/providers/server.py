"""HTTP side of a fake provider: idempotency keys, planned troubles, and the paths for tests.

The same key and body again: the first answer. The same key, another body: 422. A key in progress: 409.

For tests: ``GET``, ``POST`` and ``DELETE /admin/troubles``, ``DELETE /admin/keys?key=…``, ``DELETE /admin/books``.
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

from constructs_lib.testing.fault_plan import Moment
from constructs_lib.testing.providers.books import Answer, BookKeeper, problem
from constructs_lib.testing.providers.callers import kill_caller
from constructs_lib.testing.providers.troubles import DROP, ERROR, HANG, KILL, LATE, SLOW, Plan, TroubleOf

HOST: Final = "127.0.0.1"
_MAX_BODY: Final = 65_536
KeeperOf = TypeVar("KeeperOf", bound=BookKeeper[Any])


class Operation(Protocol):
    """An operation of a provider; ``str`` of it is its name in troubles and in the journal."""

    @property
    def acts(self) -> bool:
        """True if it has an effect, and needs an idempotency key."""

    def wrong(self, body: Any) -> str | None:
        """Return the error in a body; None if it is valid."""


OperationOf = TypeVar("OperationOf", bound=Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[OperationOf, TroubleOf]):
    """A request for an operation.

    Attributes:
        operation: the operation.
        key: the idempotency key, or the one that is looked for.
        id: the value in the path; empty without one.
        body: the body.
        reference: the caller's name of the subject.
        trouble: its trouble, if it has one.
    """

    operation: OperationOf
    key: str
    id: str
    body: Mapping[str, Any]
    reference: str
    trouble: TroubleOf | None


class FakeProviderServer(ThreadingHTTPServer, Generic[OperationOf, TroubleOf, KeeperOf]):
    """One provider. A subclass knows its operations, and carries them out.

    Args:
        port: loopback port; 0 for a free one.
        keeper: keeps its books.
        trouble: class of its troubles.
        speed: how many times faster than real time its time passes.
        spare: processes that are never killed, whatever is planned.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, port: int, *, keeper: KeeperOf, trouble: type[TroubleOf], speed: float, spare: Collection[int] = ()
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.keeper = keeper
        self.trouble = trouble
        self.plan: Plan[TroubleOf] = Plan()
        self.speed = speed
        self.spare = spare
        self.emptied = 0
        """How often the books were emptied: requests that are on their way then are dropped."""

    @abstractmethod
    def operation_of(self, method: str, path: str) -> tuple[OperationOf, str] | None:
        """The operation of a request, and the value in its path; None for an unknown one."""

    @abstractmethod
    def run(self, request: Request[OperationOf, TroubleOf]) -> Answer:
        """Execute a request whose key is reserved, or a query."""

    def is_kept_after(self, seconds: float | None) -> bool:
        """Let a request wait; False if the books were emptied meanwhile: it belongs to an earlier test."""
        emptied = self.emptied
        time.sleep((seconds or 0) / self.speed)
        return emptied == self.emptied

    def claim(self, request: Request[OperationOf, TroubleOf]) -> Answer | None:
        """Reserve a request's key; an answer if it was used before, for this or another request."""
        return self.keeper.claim(f"{request.operation} {request.id}", request.key, request.body)

    def before_answer(self, request: Request[OperationOf, TroubleOf]) -> None:
        """Do what precedes the answer; nothing by default."""

    def administer(self, method: str, path: str, body: Any) -> bool:  # noqa: ARG002 - a subclass may need them
        """Serve another path for tests; False for an unknown one. Errors of ``body`` are answered with 400."""
        return False

    def checked(self, trouble: TroubleOf) -> TroubleOf:
        """Refuse a trouble that this provider cannot have, with ValueError."""
        return trouble

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of the server; a caller that has disconnected is not one."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def serve_until(self, end: Callable[[], object]) -> None:
        """Serve until ``end`` returns."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        end()
        self.shutdown()
        self.server_close()
        self.keeper.close()


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


class _NoAnswer(Exception):
    """The connection is to be closed without an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: FakeProviderServer[Any, Any, Any]
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[int] = 30

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
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
            body = json.loads(self.rfile.read(length) or b"{}", parse_constant=_no_constant)
        except ValueError:
            return problem(400, "not_json", "the body is not JSON")
        found = self.server.operation_of(self.command, address.path)
        if found is not None:
            return self._operate(*found, parse_qs(address.query), body)
        return self._administer(address.path, parse_qs(address.query), body)

    def _operate(self, operation: Operation, id: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        if operation.acts:
            key = self.headers.get("Idempotency-Key", "").strip()
            wrong = operation.wrong(body) if key else "a request that acts needs an Idempotency-Key"
        else:
            key, body = next(iter(query.get("key", ())), ""), {}
            wrong = None if key else "send the key to look for"
        if wrong:
            return problem(400, "invalid", wrong)
        server = self.server
        reference = str(body.get("reference") or next(iter(query.get("reference", ())), ""))
        number = server.keeper.note(str(operation), key, reference)
        met = server.plan.meet(str(operation), f"{key}\n{self.path}\n{json.dumps(body)}")
        request = Request(operation=operation, key=key, id=id, body=body, reference=reference, trouble=met)
        outcome = "no answer"
        try:
            answer = self._with(met, Moment.BEFORE) or self._handle(request)
            server.before_answer(request)
            outcome = str(answer.status)
            answer = self._with(met, Moment.AFTER) or answer
        finally:
            server.keeper.note_outcome(number, f"{outcome}, {met.action} {met.moment}" if met else outcome)
        return answer

    def _handle(self, request: Request[Operation, Any]) -> Answer:
        if request.operation.acts:
            known: Answer | None = self.server.claim(request)
            if known is not None:
                return known
            if request.trouble is not None and request.trouble.action == SLOW:
                self._wait(request.trouble.seconds)
        return self.server.run(request)

    def _with(self, met: Any, moment: Moment) -> Answer | None:
        """Apply a trouble to a request at a moment, and return its answer, if it has one."""
        if met is None or met.moment is not moment:
            return None
        if met.action == ERROR:
            return problem(500, "internal", "something went wrong")
        if met.action == LATE:
            self._wait(met.seconds)
        elif met.action == HANG:
            select.select([self.connection], [], [])
            raise _NoAnswer
        elif met.action == DROP:
            raise _NoAnswer
        elif met.action == KILL:
            kill_caller(self.client_address[1], own_port=self.server.server_port, spare=self.server.spare)
            raise _NoAnswer
        return None

    def _wait(self, seconds: float | None) -> None:
        if not self.server.is_kept_after(seconds):
            raise _NoAnswer

    def _administer(self, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        server = self.server
        try:
            match (self.command, path):
                case ("POST", "/admin/troubles"):
                    server.plan.add([server.checked(server.trouble.from_json(one)) for one in body["troubles"]])
                case ("DELETE", "/admin/troubles"):
                    server.plan.clear()
                case ("DELETE", "/admin/books"):
                    server.emptied += 1
                    server.keeper.clear()
                case ("DELETE", "/admin/keys"):
                    for key in query.get("key", ()):
                        server.keeper.forget(key)
                case ("GET", "/admin/troubles"):
                    pass
                case _:
                    if not server.administer(self.command, path, body):
                        return problem(404, "unknown", "there is nothing here")
        except (KeyError, TypeError, ValueError) as error:
            return problem(400, "invalid", str(error))
        reports = [
            {"trouble": report.trouble.as_json(), "matched": report.matched, "fired": report.fired}
            for report in server.plan.reports()
        ]
        return Answer(status=200, document={"troubles": reports})
