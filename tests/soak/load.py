"""Clients: each sends one request after the other, as clients do that do not know the outcome of the last one."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing import HttpResponse
from tests.local.transfer_system import at_once, is_settled
from tests.local.two_ledgers import TwoLedgers, drain

from .wishes import Example, Manner, Wish, number_of, wish
from .world import World

_SHORTEST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 2.0
_REVIEW_PAUSE: Final = 0.5
_WAIT_SECONDS: Final = 2
"""Of this machine's time: a gateway that is ten times faster waits for less than three."""


@dataclass(slots=True, kw_only=True)
class Told:
    """Responses to one client.

    Attributes:
        wish: its request.
        saga_id: of its saga, once it was returned.
        answer: the settled response's status and text, once it arrived.
        refused: status and text of a response without a saga.
        posts: number of requests.
        contradictions: impossible responses.
    """

    wish: Wish
    saga_id: str | None = None
    answer: tuple[int, str] | None = None
    refused: tuple[int, str] | None = None
    posts: int = 0
    contradictions: list[str] = field(default_factory=list)


class Load:
    """All clients of all examples, and the reviewers of expensive carts.

    Args:
        world: where they send their requests.
        seed: determines their requests.
        clients: concurrent clients, by example. Each sends its next request when its last one has ended.
    """

    def __init__(self, world: World, *, seed: int, clients: Mapping[Example, int]) -> None:
        self._world = world
        self._seed = seed
        self._told: dict[Example, list[Told]] = {example: [] for example in Example}
        self._numbers: dict[Example, Iterator[int]] = {example: itertools.count() for example in Example}
        self._lock = threading.Lock()
        self._no_more = threading.Event()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(example,), daemon=True)
            for example, count in clients.items()
            for _ in range(count)
        ]
        self._reviewing = threading.Thread(target=self._review, daemon=True)
        self._errors: list[BaseException] = []
        self.decisions = 0

    def start(self) -> None:
        """Begin."""
        for thread in (*self._threads, self._reviewing):
            thread.start()

    def begin_nothing_more(self) -> None:
        """Let no client send another request; waiting clients continue."""
        self._no_more.set()

    def stop(self) -> None:
        """Stop all clients. Raises a client's exception: a failure of the soak, not of the sagas."""
        self._no_more.set()
        self._over.set()
        for thread in (*self._threads, self._reviewing):
            thread.join(60)
        if self._errors:
            raise self._errors[0]

    @property
    def told(self) -> Mapping[Example, list[Told]]:
        """Responses to clients, by example."""
        return self._told

    @property
    def waiting(self) -> int:
        """Number of waiting clients."""
        return sum(thread.is_alive() for thread in self._threads)

    def _serve(self, example: Example) -> None:
        try:
            while not self._no_more.is_set():
                with self._lock:
                    told = Told(wish=wish(example, self._seed, next(self._numbers[example])))
                    self._told[example].append(told)
                self._ask(self._world.systems[example], told)
        except BaseException as error:  # noqa: BLE001 - raised when the load is stopped
            self._errors.append(error)

    def _ask(self, system: TwoLedgers, told: Told) -> None:
        pauses = _pauses(told.wish.name)
        if told.wish.manner is Manner.GONE:
            self._post(system, told)
            return
        if told.wish.manner is Manner.DOUBLED:
            at_once([lambda: self._post(system, told)] * 2)
        while not (self._is_answered(told) or self._over.is_set()):
            self._post(system, told)
            if not self._is_answered(told):
                self._over.wait(next(pauses))
        if told.refused is not None:
            return
        pauses = _pauses(told.wish.name)
        while told.answer is None and not self._over.wait(next(pauses)):
            # A client that repeats all the time loads a small machine more than its sagas do: most read the status, as
            # after a notification.
            if told.wish.manner is Manner.IMPATIENT or self._is_settled(system, told):
                self._post(system, told)

    def _is_answered(self, told: Told) -> bool:
        return told.saga_id is not None or told.refused is not None

    def _is_settled(self, system: TwoLedgers, told: Told) -> bool:
        return told.saga_id is not None and system.record(told.saga_id).settled

    def _post(self, system: TwoLedgers, told: Told) -> None:
        try:
            answer = system.post(told.wish.key, told.wish.body, wait=_wait_of(told.wish))
        except (OSError, http.client.HTTPException):
            answer = None
        with self._lock:
            told.posts += 1
            if answer is not None:
                _note(told, answer)

    def _review(self) -> None:
        """Decide about expensive carts, once for each review mail."""
        carts = self._world.carts
        try:
            while not self._over.wait(_REVIEW_PAUSE):
                for mail in drain(self._world.aws, carts.outputs["ReviewMailQueueUrl"]):
                    asked = wish(Example.CARTS, self._seed, number_of(mail["customer"]))
                    for decision in asked.decision:
                        carts.decide(mail["link"], decision)
                        self.decisions += 1
        except BaseException as error:  # noqa: BLE001 - raised when the load is stopped
            self._errors.append(error)


def _wait_of(wish: Wish) -> int | None:
    """Seconds that a client prefers to wait: each third one of those whose saga runs inline."""
    inline = wish.example in {Example.TRANSFERS, Example.ORDERS}
    return _WAIT_SECONDS if inline and number_of(wish.name) % 3 == 0 else None


def _note(told: Told, answer: HttpResponse) -> None:
    """Record one response, and whether it agrees with earlier ones."""
    if not is_settled(answer) and (answer.status >= 500 or answer.status == 429):
        return  # of an interrupted saga, the settled answer is a 500, too
    try:
        said: Mapping[str, Any] = json.loads(answer.body)
    except ValueError:
        return  # cut off
    saga_id = said.get("saga_id")
    if saga_id is None:
        told.refused = (answer.status, answer.text)
        return
    if told.saga_id not in {None, saga_id}:
        told.contradictions.append(f"saga {told.saga_id}, and then {saga_id}")
    told.saga_id = str(saga_id)
    if is_settled(answer):
        settled = (answer.status, answer.text)
        if told.answer not in {None, settled}:
            told.contradictions.append(f"answered {told.answer}, and then {settled}")
        told.answer = settled


def _pauses(name: str) -> Iterator[float]:
    """Seconds between two looks: longer and longer, and not all clients at once."""
    draw = random.Random(f"pauses of {name}")
    pause = _SHORTEST_PAUSE
    while True:
        yield pause * draw.uniform(0.7, 1.3)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
