"""Requests of the cart fulfilment, and its three providers and reviewers, which report later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

from constructs_lib.testing import audit_provider
from constructs_lib.testing.invariants import Invariant, Item
from constructs_lib.testing.simulator import Intent, Provider, Workload, World
from constructs_lib.testing.simulator.world import Parking
from examples.cart_fulfilment.audit import audit_events, audit_shop
from examples.cart_fulfilment.providers.business import Business
from examples.cart_fulfilment.providers.carrier import NOWHERE, Carrier
from examples.cart_fulfilment.providers.payments import BLOCKED_CARD, CONFIRMED_CARD, DECLINED_CARD, Payments
from examples.cart_fulfilment.providers.troubles import Plan
from examples.cart_fulfilment.providers.warehouse import EMPTY, UNLISTED, Warehouse
from saga_runtime.idempotency.identity import saga_id_of
from saga_runtime.protocol import UNANSWERED_FIELD, LogAttribute, StepStatus

from .parking import audit_parking
from .providers import SimulatedProvider
from .reviewers import Reviewers, audit_reviews

URLS: Final = {name: f"https://{name}.example.com" for name in ("payments", "warehouse", "carrier")}
STEPS: Final = {
    "payments": ("AuthorizePayment", "CapturePayment"),
    "warehouse": ("Pick",),
    "carrier": ("ShippingLabel",),
}
COUPONS: Final = ("SPRING", "SUMMER", "AUTUMN")
UNANSWERED: Final = tuple(
    f"{saga_id_of(f'{number:026d}', 1, 'requests')}#{step}" for number, step in enumerate(("Pick", "AuthorizePayment"))
)
"""Jobs of carts of another day, which no provider reported."""
STOCK: Final = {"book": 3, "lamp": 100, "piano": 100, EMPTY: 100, UNLISTED: 100}
PRICES: Final = {"piano": 200_000}
PRICE: Final = 1_250
_SECOND: Final = 1_000_000


class Carts(Workload):
    """Carts of few goods; some have to be reviewed, some cards are declined, some goods are not there."""

    def prepare(self, world: World, random: Random) -> None:
        del random
        for sku, stock in STOCK.items():
            numbers = {"price": PRICES.get(sku, PRICE), "stock": stock, "version": 0}
            item: dict[str, Any] = {
                "id": {"S": f"goods#{sku}"},
                "entry": {"S": "item"},
                "currency": {"S": "EUR"},
                **{name: {"N": str(number)} for name, number in numbers.items()},
            }
            world.db.put(world.output("ShopTableName"), item)
        for code in COUPONS:
            coupon: dict[str, Any] = {
                "id": {"S": f"coupon#{code}"},
                "entry": {"S": "coupon"},
                "state": {"S": "ISSUED"},
                "version": {"N": "1"},
                "off": {"N": "1"},
                "currency": {"S": "EUR"},
            }
            world.db.put(world.output("ShopTableName"), coupon)

        for job in UNANSWERED:
            saga, _, step = job.partition("#")
            entry = {"job_id": job, "saga_id": saga, "step": step}
            for _ in range(2):  # at least once
                world.queues.send(world.output("UnansweredQueueUrl"), json.dumps({UNANSWERED_FIELD: entry}))

    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        rules: dict[str, Callable[[Plan], Business]] = {
            "payments": Payments,
            "warehouse": partial(Warehouse, carrier=URLS["carrier"]),
            "carrier": Carrier,
        }
        self.by_name = {
            name: SimulatedProvider(
                world,
                name,
                business,
                webhook=world.output(f"{name.title()}WebhookUrl"),
                secret=world.output(f"{name.title()}SecretArn"),
            )
            for name, business in rules.items()
        }
        self._reviewers = Reviewers(world, random)
        self._reviewers.begin()
        return {URLS[name]: provider for name, provider in self.by_name.items()}

    def intent(self, number: int, random: Random) -> Intent:
        cards = ("card-1", "card-1", "card-1", CONFIRMED_CARD, DECLINED_CARD, BLOCKED_CARD)
        skus = random.sample(["book", "lamp", "lamp", "lamp", "piano", EMPTY, UNLISTED], random.choice((1, 1, 2)))
        body: dict[str, Any] = {
            "customer": random.choice(("ada", "eve")),
            "card": random.choice(cards),
            "address": random.choice(("10 Mill Lane", "10 Mill Lane", "10 Mill Lane", NOWHERE)),
            "items": [{"sku": sku, "quantity": random.choice((1, 2))} for sku in dict.fromkeys(skus)],
        }
        if number % 3 == 0:
            body["coupon"] = COUPONS[number // 3 % len(COUPONS)]
        return Intent(operation="carts", body=body, user="ada", other_body={**body, "customer": "mallory"})

    patience = timedelta(days=14)

    def find_out(self, world: World, row: Item) -> bool | None:
        """A label of a parcel on its way cannot be voided: the operator agrees with the carrier on the phone."""
        step, status = row[LogAttribute.STEP]["S"], row[LogAttribute.STATUS]["S"]
        if (step, status) == ("ShippingLabel", StepStatus.COMPENSATING):
            return self.by_name["carrier"].void_by_hand(row[LogAttribute.SAGA_ID]["S"])
        return None

    def audit(self, world: World) -> Iterable[Invariant]:
        rows = world.table(world.output("LogTableName"))
        return [
            *(
                invariant
                for name, provider in self.by_name.items()
                for invariant in audit_provider(rows, provider.effects(), steps=STEPS[name])
            ),
            *audit_shop(world.table(world.output("ShopTableName")), rows, STOCK),
            audit_events(
                world.table(world.output("ShopTableName")),
                world.table(world.output("OutboxTableName")),
                [(kind, detail) for source, kind, detail in world.events.put if source == "shop.orders"],
            ),
            audit_reviews(rows, _records(world), self._reviewers.shown),
            _investigated(world),
            audit_parking(world, legitimate=_must_wait),
        ]


class ReviewedCarts(Carts):
    """Carts whose cards are good, and that have to be reviewed."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        body = {**intent.body, "card": "card-1", "items": [{"sku": "piano", "quantity": 1}]}
        return replace(intent, body=body, other_body={**body, "customer": "mallory"})


def _must_wait(parking: Parking) -> bool:
    """True of a saga that compensates, whose parcel the driver has taken along; or whose jobs outlast all retries."""
    return parking.error == "StepFailed" or {(step, status) for _, step, status in parking.in_doubt} == {
        ("ShippingLabel", StepStatus.COMPENSATING)
    }


def _records(world: World) -> list[Item]:
    return [record for table in world.parts.requests for record in world.records(table)]


def _investigated(world: World) -> Invariant:
    """Operators are informed of each unanswered job: of what was found, or that nothing could be.

    An entry of which its reader died each time waits in the dead-letter queue, which has an alarm.
    """
    entries = world.queues.queue(world.output("UnansweredQueueUrl"))
    found, dead = world.output("FindingQueueUrl"), entries.spec.dead_letters
    queues = [world.queues.queue(queue) for queue in (found, dead) if queue is not None]
    informed = " ".join(message.body for queue in queues for message in queue.messages)
    violations = tuple(f"{job} was not investigated" for job in UNANSWERED if job not in informed)
    return Invariant(name="unanswered jobs are investigated", checked=len(UNANSWERED), violations=violations)
