"""Every operation of the wallet once, through each face that has it, and events of Stripe in every order."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from constructs_lib.testing.simulator import Intent, World
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER

from .stripe import Report, Stripe
from .wallet import CARDS, SHOP, UNKNOWN, Wallet

_CARD, _OTHER = CARDS[0], CARDS[1]
_BEGINS: Final = 60 * SECOND
_PAID: Final = "pi_0"


class Faces(Wallet):
    """The wallet's operations, in a fixed order."""

    def prepare(self, world: World, random: Random) -> None:
        self._world, self._ended = world, False
        self._stripe = Stripe(world, random, CARDS)
        for number, kind in enumerate(("refunded", "paid")):
            self._stripe.plan(Report(_PAID, _CARD, kind, 400), after=(number + 2) * _BEGINS)
        self._stripe.plan(Report("pi_1", _CARD, "refunded", 10), after=2 * _BEGINS)  # of a payment that never comes
        world.kernel.after(_BEGINS, self._begin)

    def has_sent(self, world: World) -> bool:
        return self._ended and super().has_sent(world)

    def intent(self, number: int, random: Random) -> Intent:
        del random
        return Intent(operation="cards", body={"card": (_CARD, _OTHER, SHOP)[number], "name": "Ada"})

    def _begin(self) -> None:
        self._world.kernel.spawn(self._world.actor("faces"), self._use)

    def _use(self) -> None:
        card, shop = {"card": _CARD}, {"card": _CARD, "merchant": SHOP}
        self._send("Terminal", "top-ups", {**card, "amount": 600})
        self._send("Admin", "issues", {**card, "amount": 5, "unit": "POINT"})
        self._send("Admin", "profiles", {"card": UNKNOWN, "name": "Eve"}, status=404)
        self._send("Admin", "profiles", {**card, "name": "Eve"})
        self._send("Customer", "transfers", {**card, "to": _OTHER, "amount": 1, "unit": "ECOPAY"})
        self._send("Customer", "payments", {**shop, "amount": 10})
        payment = self._send("Terminal", "payments", {**shop, "amount": 10})["result"]["payment"]
        for face in ("Merchant", "Admin"):
            self._send(face, "refunds", {**shop, "payment": payment, "amount": 1})
        self._ended = True

    def _send(self, face: str, operation: str, body: dict[str, Any], *, status: int = 200) -> Any:
        response = self._world.gateway.send(
            self._world.actor(face),
            "POST",
            f"/{operation}",
            headers={"content-type": "application/json", IDEMPOTENCY_KEY_HEADER: f"{face}-{operation}-{status}"},
            body=json.dumps(body),
            user=face,
            api=self._world.output(f"{face}ApiId"),
        )
        assert response.status == status, (face, operation, response.status, response.body)
        return response.json()
