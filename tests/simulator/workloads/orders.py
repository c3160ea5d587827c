"""Requests of the order processing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from constructs_lib.testing import audit_provider
from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Intent, Provider, Workload, World
from examples.order_processing.audit import audit_shop
from examples.payment_gateway.books import DECLINED_CARD

from .parking import audit_parking
from .payment_gateway import SimulatedGateway

URL: Final = "https://payments.example.com"
PRICE: Final = 1_250
STOCK: Final = {"book": 3, "lamp": 100, "song": 100}
DIGITAL: Final = ("song",)
UNKNOWN: Final = "unicorn"


class Orders(Workload):
    """Orders of few goods, of which some run out; some cards are declined."""

    def prepare(self, world: World, random: Random) -> None:
        del random
        for sku, stock in STOCK.items():
            numbers = {"price": PRICE, "stock": stock, "reserved": 0, "on_shelf": stock}
            item: dict[str, Any] = {
                "id": {"S": f"goods#{sku}"},
                "entry": {"S": "item"},
                "currency": {"S": "EUR"},
                "digital": {"BOOL": sku in DIGITAL},
                **{name: {"N": str(number)} for name, number in numbers.items()},
            }
            world.db.put(world.output("ShopTableName"), item)

    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        del random
        self.gateway = SimulatedGateway(world)
        return {URL: self.gateway}

    def intent(self, number: int, random: Random) -> Intent:
        skus = random.sample([*STOCK, *STOCK, UNKNOWN], random.choice((1, 1, 2)))
        body = {
            "order_id": f"o-{number}",
            "customer": random.choice(("ada", "eve")),
            "card": random.choice(("card-1", "card-1", "card-1", DECLINED_CARD)),
            "items": [{"sku": sku, "quantity": random.choice((1, 2))} for sku in dict.fromkeys(skus)],
        }
        return Intent(operation="orders", body=body, user="ada", other_body={**body, "customer": "mallory"})

    def audit(self, world: World) -> Iterable[Invariant]:
        rows = world.table(world.output("LogTableName"))
        return [
            *audit_provider(rows, self.gateway.effects(), steps=["ProcessPayment"]),
            *audit_shop(world.table(world.output("ShopTableName")), rows, STOCK),
            audit_parking(world),
        ]
