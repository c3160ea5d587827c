"""Requests to the wallet: direct operations of four faces, and events of Stripe."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Intent, Workload, World
from examples.wallet.audit import audit_wallet

from .stripe import Stripe

CARDS: Final = ("card-1", "card-2", "card-3")
UNKNOWN: Final = "card-9"
SHOP: Final = "shop"


class Wallet(Workload):
    """Cards that are opened, topped up, charged and emptied into each other; some requests are refused."""

    def prepare(self, world: World, random: Random) -> None:
        self._stripe = Stripe(world, Random(random.getrandbits(64)), (*CARDS, UNKNOWN))
        self._stripe.begin()

    def has_sent(self, world: World) -> bool:
        del world
        return self._stripe.has_sent()

    def intent(self, number: int, random: Random) -> Intent:
        card, other = random.sample((*CARDS, UNKNOWN) if number > len(CARDS) else CARDS, 2)
        amount = random.choice((1, 60, 600))
        wishes: list[tuple[str, dict[str, Any]]] = [
            ("payments", {"card": card, "merchant": SHOP, "amount": amount}),
            ("transfers", {"card": card, "to": other, "amount": amount, "unit": "ECOPAY"}),
            ("top-ups", {"card": card, "amount": amount}),
        ]
        opened = (*CARDS, SHOP)
        name, body = ("cards", {"card": opened[number]}) if number < len(opened) else random.choice(wishes)
        return Intent(operation=name, body=body, other_body={**body, "card": "card-8"})

    def audit(self, world: World) -> Iterable[Invariant]:
        return [*audit_wallet(world.table(world.output("WalletTableName"))), *self._stripe.audit()]
