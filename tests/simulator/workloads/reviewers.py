"""Reviewers of carts: they open links, decide, and rely on what the page shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final
from urllib.parse import urlencode, urlsplit

from constructs_lib.testing.invariants import Invariant, Item
from constructs_lib.testing.simulator import ConnectionLostError, World
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, StepStatus

STEP: Final = "FraudReview"
_SECOND: Final = 1_000_000
_SHOWN: Final = re.compile(r'role="status">(?P<text>[^<]+)')
_FOLLOWS: Final = {
    re.compile(r"Approved\.|Already decided: approved"): {StepStatus.RECORDED},
    re.compile(r"Rejected\.|Already decided: rejected"): {StepStatus.REFUSED},
    re.compile(r".*(came too late|settled in another way)"): set[StepStatus](),
}
"""Statuses that a review may have at the end, by what was shown; none, too, if its saga failed elsewhere."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Status that the page showed a reviewer who had decided.

    Attributes:
        saga_id: of the cart.
        text: the status that was shown.
    """

    saga_id: str
    text: str


class Reviewers:
    """Reviewers who read the mail, and decide, or do not, or both ways.

    Attributes:
        shown: what the page showed them, in order.
    """

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = Random(random.getrandbits(64))
        self._seen: set[str] = set()
        self.shown: list[Shown] = []

    def begin(self) -> None:
        """Look now and then."""
        self._world.kernel.after(600 * _SECOND, self._look)

    def _look(self) -> None:
        queue = self._world.queues.queue(self._world.output("ReviewMailQueueUrl"))
        for message in list(queue.messages):
            if message.id not in self._seen:
                self._seen.add(message.id)
                mail = json.loads(message.body)
                for _ in range(self._random.choice((0, 1, 1, 1, 1, 2))):
                    delay = int(self._random.random() * 8 * 3_600) * _SECOND
                    decide = partial(self._begin, mail["order"], mail["link"], self._random.random() < 0.7)
                    self._world.kernel.after(delay, decide)
        self.begin()

    def _begin(self, saga_id: str, link: str, approves: bool) -> None:
        self._world.kernel.spawn(self._world.actor("reviewer"), lambda: self._decide(saga_id, link, approves))

    def _decide(self, saga_id: str, link: str, approves: bool) -> None:
        parts = urlsplit(link)
        body = urlencode({"decision": "approve" if approves else "reject", "note": "seen"})
        for _ in range(20):
            try:
                response = self._world.gateway.send(
                    self._world.actor("reviewer"),
                    "POST",
                    f"/?{parts.query}",
                    headers={"content-type": "application/x-www-form-urlencoded"},
                    body=body,
                    api=parts.netloc.partition(".")[0],
                )
            except ConnectionLostError:
                response = None
            if response is not None and response.status < 500 and response.status != 429:
                if found := _SHOWN.search(response.body):
                    self.shown.append(Shown(saga_id, found["text"]))
                return
            self._world.kernel.sleep(30 * _SECOND)


def audit_reviews(rows: Iterable[Item], records: Iterable[Item], shown: Iterable[Shown]) -> Invariant:
    """Compare what the page showed with the log: a reviewer acts on it."""
    statuses = {
        row[LogAttribute.SAGA_ID]["S"]: StepStatus(row[LogAttribute.STATUS]["S"])
        for row in rows
        if row[LogAttribute.STEP]["S"] == STEP
    }
    by_saga = {record[RecordAttribute.SAGA_ID]["S"]: record for record in records}
    violations = []
    checked = 0
    for one in shown:
        follows = next((follows for pattern, follows in _FOLLOWS.items() if pattern.match(one.text)), None)
        if follows is None:
            continue
        checked += 1
        status = statuses.get(one.saga_id)
        undone = status in (None, StepStatus.TOMBSTONE)
        if not (undone and (not follows or _failed_elsewhere(by_saga[one.saga_id]))) and status not in follows:
            violations.append(f"cart {one.saga_id}: a reviewer was shown {one.text!r}, and the review is {status}")
    return Invariant(name="reviewers are shown what happened", checked=checked, violations=tuple(violations))


def _failed_elsewhere(record: Item) -> bool:
    """True of a saga that failed otherwise: it was cancelled, or interrupted before the decision was recorded."""
    failed = record[RecordAttribute.STATUS]["S"] == RecordStatus.FAILED
    response = record.get(RecordAttribute.RESPONSE)
    return failed and (response is None or json.loads(response["S"]).get("step") != STEP)
