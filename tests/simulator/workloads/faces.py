"""Every operation of the wallet, through each face that has it, and events of Stripe in every order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Intent, World
from constructs_lib.testing.simulator.aws.dynamodb import Condition, Table
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always
from constructs_lib.testing.simulator.aws.gateway import ConnectionLostError, Response
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER

from .stripe import Report, Stripe
from .wallet import CARDS, SHOP, UNKNOWN, Wallet

_CARD, _OTHER = CARDS[0], CARDS[1]
_BEGINS: Final = 60 * SECOND
_PAID: Final = "pi_0"
_NOT_FINAL: Final = frozenset({429, 500, 502, 503, 504})
_FACES: Final = ("topup", "issue", "transfer", "pay", "refund")
"""Operations of the history that only faces write."""
_MOVED: Final = Counter(
    {
        (_CARD, "topup", "ECOPAY", 720): 1,
        (_CARD, "issue", "POINT", 5): 1,
        (_CARD, "transfer", "ECOPAY", -1): 1,
        (_OTHER, "transfer", "ECOPAY", 1): 1,
        (_CARD, "pay", "ECOPAY", -10): 2,
        (SHOP, "pay", "ECOPAY", 10): 2,
        (_CARD, "refund", "ECOPAY", 1): 2,
        (SHOP, "refund", "ECOPAY", -1): 2,
    }
)
"""Rows of the history that the faces' requests must have written: card, operation, unit, amount."""


class Faces(Wallet):
    """The wallet's operations, in a fixed order, by a client who repeats each request until its response is final."""

    def prepare(self, world: World, random: Random) -> None:
        self._world, self._ended = world, False
        self._wrong: list[str] = []
        self._stripe = Stripe(world, random, CARDS)
        for number, kind in enumerate(("refunded", "paid")):
            self._stripe.plan(Report(_PAID, _CARD, kind, 100), after=(number + 2) * _BEGINS)
        world.kernel.after(_BEGINS, self._begin)

    def has_sent(self, world: World) -> bool:
        return self._ended and super().has_sent(world)

    def intent(self, number: int, random: Random) -> Intent:
        del random
        return Intent(operation="cards", body={"card": f"card-{number + 10}", "name": "Ada"})

    def audit(self, world: World) -> Iterable[Invariant]:
        rows = [row for row in world.table(world.output("WalletTableName")) if "operation" in row]
        moved = Counter(
            (row["uuid"]["S"], row["operation"]["S"], row["unit"]["S"], int(row["amount"]["N"]))
            for row in rows
            if row["operation"]["S"] in _FACES
        )
        wrong = [f"{row} was written {n} times, not {_MOVED[row]}" for row, n in moved.items() if n != _MOVED[row]]
        wrong += [f"{row} was not written" for row in _MOVED if row not in moved]
        name = "each request of a face has its effect once, and one response"
        own = Invariant(name=name, checked=len(rows), violations=(*self._wrong, *wrong))
        return [*super().audit(world), own]

    def _begin(self) -> None:
        self._world.kernel.spawn(self._world.actor("faces"), self._use)

    def _use(self) -> None:
        for opened in (_CARD, _OTHER, SHOP):
            self._ask("Admin", "cards", {"card": opened, "name": "Ada"})
        card, shop = {"card": _CARD}, {"card": _CARD, "merchant": SHOP}
        self._ask("Terminal", "top-ups", {**card, "amount": 600})
        self._ask("Terminal", "top-ups", {**card, "amount": 900}, status=400)  # more than the cap
        self._ask("Admin", "issues", {**card, "amount": 5, "unit": "POINT"})
        self._ask("Admin", "profiles", {"card": UNKNOWN, "name": "Eve"}, status=404)
        self._ask("Admin", "profiles", {**card, "name": "Eve"})
        self._ask("Customer", "transfers", {**card, "to": _OTHER, "amount": 1, "unit": "ECOPAY"})
        self._ask("Customer", "payments", {**shop, "amount": 10})
        self._ask("Terminal", "payments", {**shop, "amount": 900}, status=400)  # more than the card has
        paid = self._ask("Terminal", "payments", {**shop, "amount": 10}).json()
        for face in ("Merchant", "Admin"):
            payment = paid.get("result", {}).get("payment", "none")
            self._ask(face, "refunds", {**shop, "payment": payment, "amount": 1})
        self._ended = True

    def _ask(self, face: str, operation: str, body: dict[str, Any], *, status: int = 200) -> Response:
        """Send a request until its response is final, then again, and another body under its key."""
        key = f"{face}-{operation}-{body['card']}-{status}"
        first, again = (self._insist(face, operation, body, key) for _ in range(2))
        changed = self._insist(face, operation, {**body, "card": "card-8"}, key)
        if first.status != status:
            self._wrong.append(f"{face} {operation} got {first.status} {first.body}, not {status}")
        elif again.headers.get(REPLAYED_HEADER.lower()) != "true":
            self._wrong.append(f"{face} {operation} got no stored response: {again.status} {again.body}")
        if (again.status, again.body) != (first.status, first.body) or changed.status != 422:
            self._wrong.append(f"{face} {operation} got {again.status}, then {changed.status} for another body")
        return first

    def _insist(self, face: str, operation: str, body: dict[str, Any], key: str) -> Response:
        while (found := self._send(face, operation, body, key)) is None or found.status in _NOT_FINAL:
            self._world.kernel.sleep(5 * SECOND)
        return found

    def _send(self, face: str, operation: str, body: dict[str, Any], key: str) -> Response | None:
        try:
            return self._world.gateway.send(
                self._world.actor(face),
                "POST",
                f"/{operation}",
                headers={"content-type": "application/json", IDEMPOTENCY_KEY_HEADER: key},
                body=json.dumps(body),
                user=face,
                api=self._world.output(f"{face}ApiId"),
            )
        except ConnectionLostError:
            return None


class FacesAndKept(Faces):
    """The same, a payment above the cap, which is parked, and a refund of one that never comes, kept for a day."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        self._stripe.plan(Report("pi_1", _CARD, "refunded", 10), after=2 * _BEGINS)
        self._stripe.plan(Report("pi_2", _CARD, "paid", 400), after=4 * _BEGINS)


class Unreserved(Faces):
    """The same, where nothing that was written before refuses a request: neither its record nor its marker."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = self._unreserved

    def _unreserved(self, _table: Table, text: str, condition: Condition) -> Condition:
        return Always() if "attribute_not_exists" in text else condition
