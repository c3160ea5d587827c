"""Clients of the wallet: payments, top-ups, transfers and refunds, each repeated, while everything fails a little."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from examples.wallet.audit import audit_wallet
from tests.local.wallet_system import WalletSystem

CARDS: Final = tuple(f"card-{number}" for number in range(8))
SHOP: Final = "shop"
Request = tuple[str, str, dict[str, Any]]
"""Face, operation, body."""


class Tellers:
    """Clients that send one request after another, each twice under its key.

    Args:
        wallet: the deployed wallet; its cards are opened here.
        seed: decides the requests.
        clients: how many there are.
    """

    def __init__(self, wallet: WalletSystem, *, seed: int, clients: int) -> None:
        self._wallet = wallet
        self._seed = seed
        self._numbers = itertools.count()
        self._over = threading.Event()
        self._payments: list[dict[str, Any]] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(clients)]
        self.statuses: list[int] = []
        self.contradictions: list[str] = []

    def open_cards(self) -> None:
        """Open the cards and the shop, and put money on the cards."""
        for uuid in (*CARDS, SHOP):
            self._wallet.send("Admin", "cards", {"card": uuid}, key=f"open-{uuid}")
        for uuid in CARDS:
            self._wallet.send("Terminal", "top-ups", {"card": uuid, "amount": 500}, key=f"top-{uuid}")

    def start(self) -> None:
        """Send requests from now on."""
        for thread in self._threads:
            thread.start()

    def begin_nothing_more(self) -> None:
        """Finish the requests that were begun."""
        self._over.set()

    def problems(self, *, within: float) -> Iterator[str]:
        """Wait for the last responses, for so many seconds each; then what must not be."""
        for thread in self._threads:
            thread.join(within)
        if any(thread.is_alive() for thread in self._threads):
            yield "wallet: a client has no response yet"
        if self.statuses.count(200) == 0:
            yield "wallet: no request succeeded: the soak does not test it"
        for contradiction in self.contradictions:
            yield f"wallet: {contradiction}"
        for invariant in self.audit():
            for violation in invariant.violations:
                yield f"wallet: {invariant.name}: {violation}"

    def audit(self) -> list[Invariant]:
        """Audit the wallet's table."""
        return audit_wallet(self._wallet.items())

    def _work(self) -> None:
        while not self._over.is_set():
            number = next(self._numbers)
            face, operation, body = self._wish(random.Random(f"{self._seed}/wallet/{number}"))
            try:
                first = self._wallet.send(face, operation, body, key=f"{number}")
                again = self._wallet.send(face, operation, body, key=f"{number}")
            except AssertionError:
                self.contradictions.append(f"{operation} {number} got no final response")
                continue
            if (first.status, first.body) != (again.status, again.body):
                self.contradictions.append(f"{operation} {number} got {first.status} {first.text}, then {again.text}")
            if operation == "payments" and first.status == 200:
                payment = first.json()["result"]["payment"]
                self._payments.append({**body, "payment": payment})
            self.statuses.append(first.status)

    def _wish(self, wish: random.Random) -> Request:
        card, other = wish.sample(CARDS, 2)
        pay = {"card": card, "merchant": SHOP, "amount": wish.randint(1, 60)}
        wishes: list[Request] = [
            ("Terminal", "payments", pay),
            ("Customer", "payments", pay),
            ("Terminal", "top-ups", {"card": card, "amount": wish.randint(1, 200)}),
            ("Customer", "transfers", {"card": card, "to": other, "amount": wish.randint(1, 60), "unit": "ECOPAY"}),
        ]
        if self._payments:
            paid = wish.choice(self._payments)
            wishes.append(("Merchant", "refunds", {**paid, "amount": wish.randint(1, paid["amount"])}))
        return wish.choice(wishes)
