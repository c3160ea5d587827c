"""The HTTP side of the three providers, and the clock of their timers.

For tests, besides the paths of every provider: ``PUT /admin/address`` with ``{url, secret, now_ms}``: the subscriber
of events, and its time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.providers.server import FakeProviderServer, Request
from examples.cart_fulfilment.providers.books import Answer, BookKeeper
from examples.cart_fulfilment.providers.business import Asked, Business, Operation
from examples.cart_fulfilment.providers.courier import Address, Courier
from examples.cart_fulfilment.providers.troubles import Action, Plan, Trouble

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


class ProviderServer(FakeProviderServer[Operation, Trouble, BookKeeper]):
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
        self.clock = Clock(speed)
        keeper = BookKeeper(books, window_ms=window_ms, now_ms=self.clock.now_ms, pace=pace)
        super().__init__(port, keeper=keeper, trouble=Trouble, speed=speed, spare=spare)
        self.business = business(self.plan)
        self.courier = Courier(self.keeper, sign=self.business.sign, speed=speed)
        self.ended = threading.Event()

    def operation_of(self, method: str, path: str) -> tuple[Operation, str] | None:
        """The operation of a request, and the value in its path."""
        for operation in self.business.operations:
            named = operation.id_of(method, path)
            if named is not None:
                return operation, named
        return None

    def run(self, request: Request[Operation, Trouble]) -> Answer:
        """Execute a request on one page of the books."""
        action = request.trouble.action if request.trouble is not None else None
        asked = Asked(key=request.key, id=request.id, body=request.body, refused=action is Action.REFUSE)
        with self.keeper.page() as page:
            answer = request.operation.run(page, asked)
            if request.operation.acts:
                page.remember(request.key, answer)
                if action is Action.STALL:
                    page.stall(request.key)
        return answer

    def before_answer(self, request: Request[Operation, Trouble]) -> None:
        """Finish the job, and deliver its event, if that comes early."""
        if request.trouble is not None and request.trouble.action is Action.EARLY:
            self.finish(request.key)
            self.courier.deliver_of(request.reference)

    def administer(self, method: str, path: str, body: Any) -> bool:
        """Subscribe to events."""
        if (method, path) != ("PUT", "/admin/address"):
            return False
        self.clock.set(int(body["now_ms"]))
        self.courier.address = Address(url=str(body["url"]), secret=str(body["secret"]))
        return True

    def checked(self, trouble: Trouble) -> Trouble:
        """Refuse a trouble of something that this provider does not have, with ValueError."""
        operations = {operation.name for operation in self.business.operations}
        jobs = {operation.name for operation in self.business.operations if operation.job}
        trouble.check(operations=operations, jobs=jobs, events=self.business.events)
        return trouble

    def serve_until(self, end: Callable[[], object]) -> None:
        """Serve, deliver events and work at jobs until `end` returns."""
        for work in (self.courier.run, self._keep_time):
            threading.Thread(target=work, daemon=True).start()

        def ended() -> None:
            end()
            self.ended.set()
            self.courier.stop()

        super().serve_until(ended)

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
