"""The demo's clients: they sign, send, and repeat a request until it is settled, as a careful client does."""

from __future__ import annotations

import functools
import http.client
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from constructs_lib.testing import ApiUser, HttpResponse
from saga_runtime.protocol import PREFERENCE_APPLIED_HEADER, REPLAYED_HEADER

from .plan import Nonsense, Transfer

PATIENCE_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 3
"""For which half of the clients prefer to wait for the settled answer."""
_LONGEST: Final = 4
"""How many times longer than it was asked to a client waits at most before it sends a request again."""
_LOOKS: Final = 4
"""How often a client polls a transfer in progress before it sends the request again."""


_TOO_FAST: Final = 429
_KEY_EXPIRED: Final = 410
_KEY_REUSED: Final = 422
_UNSENDABLE: Final = 507


class GaveUpError(Exception):
    """A request was not settled within a client's patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer.

    Attributes:
        user: Who asked.
        key: The Idempotency-Key, if there was one.
        method: HTTP method.
        imposter: Whether it is another body under a key that is taken.
        seconds: How long the answer took.
        answer: The answer; None if none came.
    """

    user: str
    key: str | None
    method: str
    imposter: bool
    seconds: float
    answer: HttpResponse | None

    @property
    def status(self) -> int | None:
        """The answer's status; None if none came."""
        return self.answer.status if self.answer is not None else None


class Clients:
    """Several users of one API. Every method may be called from any thread.

    Args:
        users: The users, by name.
        url: Where the operation is.
        speed: How many times faster than real time local AWS runs: clients wait that much less.
        heard: Called with the number of requests so far, after each.
    """

    def __init__(
        self,
        users: Mapping[str, ApiUser],
        url: str,
        *,
        speed: float = 1.0,
        heard: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._users = users
        self._url = url
        self._speed = speed
        self._heard = heard
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._stopped = threading.Event()

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every request that was answered or lost so far."""
        with self._lock:
            return tuple(self._exchanges)

    @property
    def stopped(self) -> bool:
        """True if clients must stop."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Let every client give up as soon as it can."""
        self._stopped.set()

    def post(
        self, user: str, key: str | None, body: object, *, imposter: bool = False, waits: bool = False
    ) -> HttpResponse | None:
        """Send a request once, and prefer to wait for its settled answer, or not. None if no answer came."""
        headers = {} if key is None else {"Idempotency-Key": key}
        if waits:
            headers["Prefer"] = f"wait={WAIT_SECONDS}"
        return self._send("POST", self._url, user, key, headers, body, imposter=imposter)

    def look(self, user: str, key: str, saga_id: str) -> HttpResponse | None:
        """Request the status of a saga. None if no answer came."""
        return self._send("GET", f"{self._url}/{saga_id}", user, key, {}, None, imposter=False)

    def turn_away(self, nonsense: Nonsense) -> None:
        """Send what must be turned away, until it is."""
        send = functools.partial(self.post, nonsense.user, nonsense.key, nonsense.body)
        self._until_settled(send, nonsense.user, nonsense.key, never_accepted=True)

    def drive(self, transfer: Transfer, pool: ThreadPoolExecutor) -> None:
        """Send a transfer's copies at once, then each again until it is settled.

        Raises:
            GaveUpError: If one is not settled within the clients' patience.
        """
        together = threading.Barrier(transfer.copies)

        def send(*, patient: bool) -> None:
            together.wait()
            self._one_copy(transfer, patient=patient)

        # One copy's sender polls the status; the others only repeat the request.
        _all(pool, [functools.partial(send, patient=number == 0) for number in range(transfer.copies)])
        if transfer.imposter:
            other = {**transfer.body, "amount": transfer.amount + 1}
            send_other = functools.partial(self.post, transfer.user, transfer.key, other, imposter=True)
            self._until_settled(send_other, transfer.user, transfer.key)

    def _one_copy(self, transfer: Transfer, *, patient: bool) -> HttpResponse:
        send = functools.partial(self.post, transfer.user, transfer.key, transfer.body, waits=transfer.waits)
        return self._until_settled(send, transfer.user, transfer.key, patient=patient)

    def _until_settled(
        self,
        send: Callable[[], HttpResponse | None],
        user: str,
        key: str | None,
        *,
        patient: bool = False,
        never_accepted: bool = False,
    ) -> HttpResponse:
        """Send a request until its answer is final.

        A refusal is about the attempt that it answers. Once an attempt may have been recorded, a later one that is
        refused (its credentials expired, a firewall, a stricter schema) proves nothing about it.

        Args:
            send: Sends it once.
            user: Who sends it.
            key: Under which key.
            patient: Whether to poll the status, and not only to repeat the request.
            never_accepted: Whether any refusal is final: no gatekeeper would ever have recorded such a request.

        Raises:
            GaveUpError: If it is not settled within the clients' patience.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        may_be_recorded = False
        for asked in itertools.count():
            if time.monotonic() >= deadline or self._stopped.is_set():
                break
            answer = send()
            if answer is not None and _is_final(answer):
                return answer
            if answer is None or answer.status >= 500:
                may_be_recorded = True
                self._wait(answer)
            elif answer.status == _TOO_FAST:
                self._wait(answer)
            elif answer.status in {202, 409} and key is not None:
                may_be_recorded = True
                if patient:
                    self._watch(user, key, answer)
                else:
                    self._wait(answer, longer=min(2**asked, _LONGEST))
            elif may_be_recorded and not never_accepted:
                self._wait(answer, longer=_LONGEST)
            else:
                return answer
        raise GaveUpError(f"{user}'s request {key} was not settled within {PATIENCE_SECONDS:.0f} s")

    def _watch(self, user: str, key: str, answer: HttpResponse) -> None:
        """Poll a transfer in progress until it is settled; not for ever, for its start may have been lost."""
        saga_id = str(answer.json()["saga_id"])
        for _ in range(_LOOKS):
            self._wait(answer)
            if self._stopped.is_set():
                return
            seen = self.look(user, key, saga_id)
            if seen is not None and seen.status == 200 and "answer" in seen.json():
                return

    def _wait(self, answer: HttpResponse | None, *, longer: int = 1) -> None:
        asked = answer.headers.get("retry-after", "2") if answer is not None else "2"
        self._stopped.wait(longer * (float(asked) if asked.isdigit() else 2.0) / self._speed)

    def _send(
        self,
        method: str,
        url: str,
        user: str,
        key: str | None,
        headers: Mapping[str, str],
        body: object,
        *,
        imposter: bool,
    ) -> HttpResponse | None:
        started = time.monotonic()
        try:
            answer = self._users[user].request(method, url, headers=headers, body=body)
        except (OSError, http.client.HTTPException):
            answer = None
        seconds = time.monotonic() - started
        exchange = Exchange(user=user, key=key, method=method, imposter=imposter, seconds=seconds, answer=answer)
        with self._lock:
            self._exchanges.append(exchange)
            count = len(self._exchanges)
        self._heard(count)
        return answer


def is_stored(answer: HttpResponse) -> bool:
    """Test whether an answer is the stored one of a settled request."""
    return any(header.lower() in answer.headers for header in (REPLAYED_HEADER, PREFERENCE_APPLIED_HEADER))


def _is_final(answer: HttpResponse) -> bool:
    """Test whether an answer speaks of the key, and not only of one attempt under it, and nothing will change it."""
    return is_stored(answer) or answer.status in {_KEY_EXPIRED, _KEY_REUSED, _UNSENDABLE}


def _all(pool: ThreadPoolExecutor, work: Sequence[Callable[[], None]]) -> None:
    for future in [pool.submit(one) for one in work]:
        future.result()
