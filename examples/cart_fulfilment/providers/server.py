"""Common code of the three providers: HTTP, idempotency keys, trouble on demand, and the clock of their timers.

The same key and body again: the first answer. The same key, another body: 422. A key in progress: 409.

For tests: ``GET``, ``POST`` and ``DELETE /admin/troubles``, ``DELETE /admin/books``, and ``PUT /admin/address`` with
``{url, secret, now_ms}``: the subscriber of events, and its time.
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from examples.cart_fulfilment.providers.books import Answer, BookKeeper, problem
from examples.cart_fulfilment.providers.business import Asked, Business, Operation
from examples.cart_fulfilment.providers.courier import Address, Courier
from examples.cart_fulfilment.providers.troubles import Action, Moment, Plan, Trouble
from examples.payment_gateway.callers import kill_caller

HOST: Final = "127.0.0.1"
_MAX_BODY: Final = 65_536
_TICK_SECONDS: Final = 0.02


class Clock:
    """The provider's time: faster than real time by a factor, and set by the test that starts it."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.set(int(time.time() * 1000))

    def set(self, now_ms: int) -> None:
        """It is this late now."""
        self._real, self._told = time.time(), now_ms

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return int(self._told + (time.time() - self._real) * 1000 * self.speed)


class ProviderServer(ThreadingHTTPServer):
    """One provider.

    Args:
        port: loopback port; 0 for a free one.
        business: what it does, made with the plan of its troubles.
        books: file of its books.
        window_ms: how long a key is remembered.
        speed: how many times faster than real time its time passes.
        pace: how many times longer than usual its work takes.
        spare: processes that are never killed, whatever is planned.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        port: int,
        *,
        business: Callable[[Plan], Business],
        books: Path,
        window_ms: int,
        speed: float,
        pace: float,
        spare: Collection[int] = (),
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.clock = Clock(speed)
        self.plan = Plan()
        self.business = business(self.plan)
        self.keeper = BookKeeper(books, window_ms=window_ms, now_ms=self.clock.now_ms, pace=pace)
        self.courier = Courier(self.keeper, sign=self.business.sign, speed=speed)
        self.spare = spare
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of the server; a caller that has disconnected is not one."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def serve_until(self, end: Callable[[], object]) -> None:
        """Serve until `end` returns."""
        work = (self.serve_forever, self.courier.run, self._keep_time)
        for one in work:
            threading.Thread(target=one, daemon=True).start()
        end()
        self.ended.set()
        self.courier.stop()
        self.shutdown()
        self.server_close()
        self.keeper.close()

    def work_off(self) -> None:
        """Let everything happen that is due."""
        with self.keeper.page() as page:
            for job, name in page.due():
                self.business.on_timer(page, job, name)
        for errand in page.errands:
            threading.Thread(target=errand, daemon=True).start()

    def finish(self, key: str) -> None:
        """Let everything that was asked for under a key be done now."""
        while True:
            with self.keeper.page() as page:
                busy = page.hurry(key)
            if not busy:
                return
            self.work_off()

    def _keep_time(self) -> None:
        while not self.ended.wait(_TICK_SECONDS):
            self.work_off()


class _NoAnswer(Exception):
    """The connection is to be closed without an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: ProviderServer
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
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError:
            return problem(400, "not_json", "the body is not JSON")
        for operation in self.server.business.operations:
            named = operation.id_of(self.command, address.path)
            if named is not None:
                return self._operate(operation, named, parse_qs(address.query), body)
        return self._administer(address.path, body)

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
        number = server.keeper.note(operation.name, key, reference)
        met = server.plan.meet(operation.name, f"{key}\n{self.path}\n{json.dumps(body)}")
        outcome = "no answer"
        try:
            refused = met is not None and met.action is Action.REFUSE
            asked = Asked(key=key, id=id, body=body, refused=refused)
            answer = self._with(met, Moment.BEFORE) or self._handle(operation, asked, met)
            if met is not None and met.action is Action.EARLY:
                server.finish(key)
                server.courier.deliver_of(reference)
            outcome = str(answer.status)
            answer = self._with(met, Moment.AFTER) or answer
        finally:
            server.keeper.note_outcome(number, f"{outcome}, {met.action} {met.moment}" if met else outcome)
        return answer

    def _handle(self, operation: Operation, asked: Asked, met: Trouble | None) -> Answer:
        keeper, action = self.server.keeper, met.action if met else None
        if not operation.acts:
            with keeper.page() as page:
                return operation.run(page, asked)
        known = keeper.claim(operation.name, asked.key, asked.body)
        if known is not None:
            return known
        if met is not None and action is Action.SLOW:
            time.sleep((met.seconds or 0) / self.server.clock.speed)
        with keeper.page() as page:
            answer = operation.run(page, asked)
            page.remember(asked.key, answer)
            if action is Action.STALL:
                page.stall(asked.key)
        return answer

    def _with(self, met: Trouble | None, moment: Moment) -> Answer | None:
        """Apply a trouble to a request at a moment, and return its answer, if it has one."""
        if met is None or met.moment is not moment:
            return None
        if met.action is Action.ERROR:
            return problem(500, "internal", "something went wrong")
        if met.action is Action.HANG:
            select.select([self.connection], [], [])
            raise _NoAnswer
        if met.action is Action.DROP:
            raise _NoAnswer
        if met.action is Action.KILL:
            kill_caller(self.client_address[1], own_port=self.server.server_port, spare=self.server.spare)
            raise _NoAnswer
        return None

    def _administer(self, path: str, body: Any) -> Answer:
        server = self.server
        try:
            match (self.command, path):
                case ("POST", "/admin/troubles"):
                    server.plan.add([self._checked(Trouble.from_json(one)) for one in body["troubles"]])
                case ("DELETE", "/admin/troubles"):
                    server.plan.clear()
                case ("DELETE", "/admin/books"):
                    server.keeper.clear()
                case ("PUT", "/admin/address"):
                    server.clock.set(int(body["now_ms"]))
                    server.courier.address = Address(url=str(body["url"]), secret=str(body["secret"]))
                case ("GET", "/admin/troubles"):
                    pass
                case _:
                    return problem(404, "unknown", "there is nothing here")
        except (KeyError, TypeError, ValueError) as error:
            return problem(400, "invalid", str(error))
        reports = [
            {"trouble": report.trouble.as_json(), "matched": report.matched, "fired": report.fired}
            for report in server.plan.reports()
        ]
        return Answer(status=200, document={"troubles": reports})

    def _checked(self, trouble: Trouble) -> Trouble:
        business = self.server.business
        operations = {operation.name for operation in business.operations}
        jobs = {operation.name for operation in business.operations if operation.job}
        trouble.check(operations=operations, jobs=jobs, events=business.events)
        return trouble
