"""Stripe, which reports top-ups of cards and their refunds to the wallet's webhook."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import World
from constructs_lib.testing.simulator.aws.gateway import ConnectionLostError
from constructs_lib.testing.simulator.engine.kernel import SECOND
from examples.wallet.functions.wallet.keys import stripe_type

_MOST_WAIT: Final = 3_600 * SECOND
_ATTEMPTS: Final = 60
"""Stripe sends an event again for three days."""
_SHAPES: Final = (
    *(("paid",), ("paid", "refunded"), ("refunded", "paid"), ("paid", "paid")) * 4,
    ("refunded",),  # for a payment that is never reported: it is kept for a day
)


@dataclass(slots=True)
class Report:
    """An event that Stripe sends until it is accepted.

    Attributes:
        payment: id of the payment.
        card: the card that was topped up.
        kind: ``paid`` or ``refunded``.
        amount: minor units.
        accepted: True if a response was 2xx.
        ended: True if it is not sent again.
    """

    payment: str
    card: str
    kind: str
    amount: int
    accepted: bool = False
    ended: bool = False

    def text(self, event_id: str) -> str:
        """The event as JSON."""
        data: dict[str, Any] = {"metadata": {"wallet_card": self.card}}
        if self.kind == "paid":
            return json.dumps(
                {
                    "id": event_id,
                    "type": "payment_intent.succeeded",
                    "data": {"object": {**data, "id": self.payment, "amount": self.amount}},
                }
            )
        refund = {**data, "payment_intent": self.payment, "amount_refunded": self.amount}
        return json.dumps({"id": event_id, "type": "charge.refunded", "data": {"object": refund}})


@dataclass(slots=True)
class Stripe:
    """Sends events, in any order, some of them twice.

    Attributes:
        world: where the wallet is.
        random: what events and moments are drawn from.
        cards: cards that are topped up.
        reports: every event.
    """

    world: World
    random: Random
    cards: tuple[str, ...]
    reports: list[Report] = field(default_factory=list)

    def begin(self) -> None:
        """Plan the events of a run."""
        for number in range(self.random.choice((0, 0, 0, 1, 3))):
            payment, card = f"pi_{number}", self.random.choice(self.cards)
            amount = self.random.choice((10, 400))
            for kind in self.random.choice(_SHAPES):
                self.plan(Report(payment, card, kind, amount), after=int(self.random.random() ** 2 * 600 * SECOND))

    def plan(self, report: Report, *, after: int) -> None:
        """Send an event after some microseconds."""
        self.reports.append(report)
        self.world.kernel.after(after, partial(self._spawn, report, f"evt_{len(self.reports)}"))

    def has_sent(self) -> bool:
        """True if no event is sent again."""
        return all(report.ended for report in self.reports)

    def _spawn(self, report: Report, event_id: str) -> None:
        self.world.kernel.spawn(self.world.actor("stripe"), partial(self._send, report, event_id))

    def _send(self, report: Report, event_id: str) -> None:
        world, text = self.world, report.text(event_id)
        for attempt in range(_ATTEMPTS):
            at = world.kernel.now // SECOND
            secret = world.secrets.signing(world.output("StripeSecretArn")).encode()
            signed = hmac.new(secret, f"{at}.{text}".encode(), hashlib.sha256).hexdigest()
            headers = {"Stripe-Signature": f"t={at},v1={signed}", "Content-Type": "application/json"}
            try:
                response = world.gateway.send(
                    world.actor("stripe"), "POST", "/", headers=headers, body=text, api=world.output("StripeApiId")
                )
            except ConnectionLostError:
                pass
            else:
                report.accepted = report.accepted or 200 <= response.status < 300
            if report.accepted and self.random.random() < 0.8:
                break  # otherwise it is sent again, although it was accepted
            world.kernel.sleep(min(_MOST_WAIT, 5 * SECOND * 2**attempt))
        report.ended = True

    def audit(self) -> list[Invariant]:
        """Check that accepted events are applied or parked, each payment and refund at most once."""
        world = self.world
        items = world.table(world.output("WalletTableName"))
        payments = {(item["uuid"]["S"], item["type"]["S"]): item for item in items}
        parked = " ".join(message.body for message in world.queues.queue(world.output("ParkedQueueUrl")).messages)
        violations = [
            f"stripe sent {report.kind} of {report.payment} in vain" for report in self.reports if not report.accepted
        ]
        for report in self.reports:
            found = payments.get((report.card, stripe_type(report.payment)))
            state = (found["state"]["S"], int(found["amount"]["N"])) if found is not None else ("", 0)
            applied = found is not None if report.kind == "paid" else state == ("REFUNDED", report.amount)
            if report.accepted and not applied and report.payment not in parked:
                violations.append(f"{report.kind} of {report.payment} was accepted, and is neither applied nor parked")
        for kind in ("stripe", "stripe-refund"):
            moved = [item["other"]["S"] for item in items if item.get("operation", {}).get("S") == kind]
            violations += [f"{kind} of {payment} moved money twice" for payment, n in Counter(moved).items() if n > 1]
        name = "events of Stripe are applied once, or parked"
        return [Invariant(name=name, checked=len(self.reports), violations=tuple(violations))]
