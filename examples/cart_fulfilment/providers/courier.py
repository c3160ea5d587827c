"""Delivers a provider's events: signed, until they are accepted, and with the planned trouble."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from examples.cart_fulfilment.providers.books import BookKeeper, Delivery, delivery_of

WAITS: Final = (2, 5, 15, 30, 60, 120, 300, 600)
"""Seconds before each redelivery; after the last one the event is dropped."""
_AT_ONCE: Final = 4
_PATIENCE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.02

Sign = Callable[[str, str, bytes, int], Mapping[str, str]]
"""Secret, event id, body, epoch seconds: the headers that prove who sent it."""


def sign_like_stripe(secret: str, _event: str, body: bytes, at: int) -> dict[str, str]:
    """``Stripe-Signature: t=…,v1=…``."""
    proof = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Stripe-Signature": f"t={at},v1={proof}"}


def sign_standard(secret: str, event: str, body: bytes, at: int) -> dict[str, str]:
    """Standard Webhooks: ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature``."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    proof = base64.b64encode(hmac.new(key, f"{event}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
    return {"webhook-id": event, "webhook-timestamp": str(at), "webhook-signature": f"v1,{proof}"}


def sign_plainly(secret: str, _event: str, body: bytes, at: int) -> dict[str, str]:
    """A header with the time, and one with an HMAC over time and body: what many providers invent for themselves."""
    proof = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Carrier-Timestamp": str(at), "X-Carrier-Signature": f"sha256={proof}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Subscriber of events.

    Attributes:
        url: where events are posted to.
        secret: what they are signed with.
    """

    url: str
    secret: str


class Courier:
    """Sends what is due, until it is stopped.

    Args:
        keeper: keeps the books.
        sign: how events are signed.
        speed: how many times faster than real time the provider's time passes.
    """

    def __init__(self, keeper: BookKeeper, *, sign: Sign, speed: float) -> None:
        self._keeper = keeper
        self._sign = sign
        self._speed = speed
        self._pool = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="courier")
        self._lock = threading.Lock()
        self._under_way: set[int] = set()
        self._ended = threading.Event()
        self.address: Address | None = None

    def run(self) -> None:
        """Look for what is due, again and again."""
        while not self._ended.wait(_LOOK_SECONDS):
            for delivery in self._due() if self.address else ():
                with suppress(RuntimeError):  # stopped meanwhile
                    self._pool.submit(self._deliver, delivery)

    def stop(self) -> None:
        """Send no more."""
        self._ended.set()
        self._pool.shutdown(cancel_futures=True)

    def deliver_of(self, reference: str) -> None:
        """Deliver the events of a reference at once, and return when they were answered."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self.address and time.monotonic() < until:
            mine = [delivery for delivery in self._due() if delivery.reference == reference]
            for delivery in mine:
                self._deliver(delivery)
            with self._lock:
                busy = bool(self._under_way)
            if not mine and not busy:
                return

    def _due(self) -> list[Delivery]:
        with self._keeper.page() as page:
            rows = page.execute(
                "SELECT * FROM deliveries WHERE open AND due_ms <= ? ORDER BY due_ms, number", page.now_ms
            ).fetchall()
        with self._lock:
            return [found for found in map(delivery_of, rows) if found.number not in self._under_way]

    def _deliver(self, delivery: Delivery) -> None:
        with self._taken(delivery) as mine:
            if mine and self.address:
                self._note(delivery, self._post(self.address, delivery))

    @contextmanager
    def _taken(self, delivery: Delivery) -> Iterator[bool]:
        """Lock a delivery: no other thread sends it meanwhile, and it was not sent since it was read."""
        with self._lock:
            free = delivery.number not in self._under_way
            self._under_way |= {delivery.number}
        try:
            yield free and self._is_as_it_was(delivery)
        finally:
            if free:
                with self._lock:
                    self._under_way -= {delivery.number}

    def _is_as_it_was(self, delivery: Delivery) -> bool:
        with self._keeper.page() as page:
            row = page.execute("SELECT attempts, open FROM deliveries WHERE number = ?", delivery.number).fetchone()
        return row is not None and (row[0], bool(row[1])) == (delivery.attempts, True)

    def _post(self, address: Address, delivery: Delivery) -> int:
        body = delivery.body.encode()
        # Another secret: as long as the right one, in the same alphabet, and wrong.
        refused = any(400 <= status < 500 for status in delivery.answers)
        secret = address.secret[::-1] if delivery.forged and not refused else address.secret
        proof = self._sign(secret, delivery.event, body, self._keeper.now_ms() // 1000)
        headers = {"Content-Type": "application/json", **proof}
        # The address is an argument of the test that started this process.
        request = Request(address.url, data=body, headers=headers, method="POST")  # noqa: S310
        try:
            with urlopen(request, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - address given by the test
                return int(answer.status)
        except HTTPError as error:
            return error.code
        except (OSError, ValueError):
            return 0

    def _note(self, delivery: Delivery, status: int) -> None:
        accepted, attempts = 200 <= status < 300, delivery.attempts + 1
        given_up = attempts > len(WAITS)
        wait = 0 if accepted or given_up else WAITS[attempts - 1]
        with self._keeper.page() as page:
            page.execute(
                "UPDATE deliveries SET attempts = ?, answers = answers || ? || ' ', open = ?, due_ms = ?"
                " WHERE number = ?",
                attempts, str(status), not accepted and not given_up, page.now_ms + wait * 1000, delivery.number,
            )  # fmt: skip
