"""Any history of postings, holds, sweeps and late transactions keeps the ledger's promises.

Each history is drawn: clients and the sweeper act one after another, or one acts between what another reads and what it
writes; transactions arrive a second time; time passes. The audits run after each step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from constructs_lib.cli.trial_balance import add_up
from constructs_lib.testing.invariants import assert_all_hold, audit_ledger
from saga_runtime import Clearing, CollectingAccounts, DirectEntry, Ledger, LedgerTerms, Money, Unit
from saga_runtime.errors import Conflict, PermanentError
from saga_runtime.ledger.items import Leg, Party
from saga_runtime.ledger.sweep import sweep_due
from saga_runtime.shared import aws, clock, telemetry
from tests.unit.support.memory_dynamodb import MemoryDynamoDB
from tests.unit.support.samples import NOW_MS
from tests.unit.support.sleeps import replace_sleep

HISTORIES = 60
STEPS = 40
POINT = Unit("POINT", 0)
TERMS = LedgerTerms(units=(POINT,), collecting=(CollectingAccounts(prefix="shop:", unit="EUR", shards=1),), holds=True)
ACCOUNTS: dict[str, Money] = {
    "alice": Money(150, "EUR"),
    "bob": Money(50, "EUR"),
    "alice.points": Money(5, POINT),
    "shop:1": Money(20, "EUR"),
}
EUROS: list[Party] = ["alice", "bob", "shop:1", "shop:1", "shop:gone", Clearing("fx")]
POINTS: list[Party] = ["alice.points", Clearing("issuance")]
Operation = Callable[[], object]


class Interrupted(MemoryDynamoDB):
    """Something else happens between what an operation reads and what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Operation | None = None
        self.sent: list[Sequence[Mapping[str, Any]]] = []

    def transact_write_items(self, **arguments: Any) -> dict[str, Any]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.sent.append(arguments["TransactItems"])
        return super().transact_write_items(**arguments)


class History:
    """One drawn history."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.db = Interrupted()
        self.ledger = Ledger("ledger", TERMS)
        self.now_ms = NOW_MS
        self.entries = 0
        self.holds: list[tuple[str, str]] = []

    def open_accounts(self) -> None:
        """The accounts that everything begins with."""
        for account, opening in ACCOUNTS.items():
            writes = self.ledger.builder.open_account(account_id=account, opening=opening, now_ms=self.now_ms)
            self.db.transact_write_items(TransactItems=[write.action for write in writes])

    def step(self) -> None:
        """Let something happen."""
        match self.draw.randrange(10):
            case 0 | 1 | 2 | 3:
                self._operation()()
            case 4 | 5 | 6 | 7:
                first, self.db.meanwhile = self._operation(), self._operation()
                first()
                self.db.meanwhile = None
            case 8:
                again = self.draw.choice(self.db.sent[-6:])
                with suppress(ClientError):
                    MemoryDynamoDB.transact_write_items(self.db, TransactItems=again)
            case _:
                self.now_ms += self.draw.choice([1, 10, 60, 24 * 60]) * 60_000

    def check(self) -> None:
        """Check the invariants."""
        items = self.db.items("ledger")
        assert_all_hold(audit_ledger(items))
        assert add_up(items).wrong == []
        for item in items:
            kind = item["kind"]["S"]
            if kind == "account":
                assert 0 <= int(item["held"]["N"]) <= int(item["balance"]["N"])
            if kind == "hold":
                assert 0 <= int(item.get("captured", {"N": "0"})["N"]) <= int(item["amount"]["N"])
            if kind in {"hold", "shard"}:
                assert ("due_at" in item, "due_shard" in item) == (item["state"]["S"] == "OPEN",) * 2

    def finish(self) -> None:
        """Check that the sweeper leaves no money in shards and none held, once all actions have ended."""
        self.now_ms += 3 * 24 * 3_600_000
        sweep_due(self.ledger, remaining_ms=lambda: 60_000)
        items = self.db.items("ledger")
        assert not [item for item in items if "due_at" in item]
        assert not [item for item in items if item["kind"]["S"] == "shard" and item["balance"]["N"] != "0"]
        assert not [item for item in items if item["kind"]["S"] == "account" and item["held"]["N"] != "0"]
        self.check()

    def _operation(self) -> Operation:
        kinds: list[Callable[[], Operation]] = [self._post, self._post, self._hold, self._sweep, self._due]
        if self.holds:
            kinds += [self._capture, self._capture, self._void]
        operation = self.draw.choice(kinds)()

        def act() -> None:
            with suppress(PermanentError, Conflict):
                operation()

        return act

    def _call(self) -> DirectEntry:
        """Mostly a new entry id; sometimes one that was used before."""
        if self.draw.random() < 0.9:
            self.entries += 1
        return DirectEntry(f"e-{self.entries}", self.now_ms)

    def _post(self) -> Operation:
        giver, taker = self.draw.sample(EUROS, 2)
        amount, fee = self.draw.randint(1, 60), self.draw.choice([0, 0, 1, 3])
        legs: list[Leg] = [(giver, Money(-amount, "EUR")), (taker, Money(amount, "EUR"))]
        if fee:
            legs += [(giver, Money(-fee, "EUR")), (self.draw.choice(EUROS), Money(fee, "EUR"))]
        points = self.draw.choice([0, 0, 1, 3])
        if points:
            source, target = self.draw.sample(POINTS, 2)
            legs += [(source, Money(-points, POINT)), (target, Money(points, POINT))]
        call = self._call()
        return lambda: self.ledger.commit(lambda: self.ledger.post(call, legs))

    def _hold(self) -> Operation:
        account, call = self.draw.choice(["alice", "shop:1"]), self._call()
        amount = Money(self.draw.randint(1, 80), "EUR")
        expires_in = timedelta(minutes=self.draw.randint(1, 30))
        self.holds.append((account, call.key))
        return lambda: self.ledger.commit(
            lambda: self.ledger.authorize(call, account=account, amount=amount, expires_in=expires_in)
        )

    def _capture(self) -> Operation:
        account, hold = self.draw.choice(self.holds[-3:])
        legs: list[Leg] = [("bob", Money(self.draw.randint(1, 90), "EUR"))]
        if self.draw.random() < 0.3:
            legs.append((Clearing("fees"), Money(self.draw.randint(1, 3), "EUR")))
        call = self._call()
        return lambda: self.ledger.commit(lambda: self.ledger.capture(call, account=account, hold=hold, legs=legs))

    def _void(self) -> Operation:
        account, hold = self.draw.choice(self.holds[-3:])
        call = self._call()
        return lambda: self.ledger.commit(lambda: self.ledger.void(call, account=account, hold=hold))

    def _sweep(self) -> Operation:
        return lambda: self.ledger.sweep("shop:1")

    def _due(self) -> Operation:
        minutes = self.draw.choice([1, 10, 24 * 60])

        def later() -> None:
            self.now_ms += minutes * 60_000
            sweep_due(self.ledger, remaining_ms=lambda: 60_000)

        return later


@pytest.fixture
def history(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> History:
    """A history, with its own clock and database."""
    made = History(request.param)
    monkeypatch.setattr(aws, "dynamodb", lambda: made.db)
    monkeypatch.setattr(clock, "now_ms", lambda: made.now_ms)
    replace_sleep(monkeypatch, lambda _: None)
    for name in ("count", "event", "seconds"):
        monkeypatch.setattr(telemetry, name, lambda *_, **__: None)
    made.open_accounts()
    return made


@pytest.mark.parametrize("history", range(HISTORIES), indirect=True)
def test_every_history_keeps_the_books_right(history: History) -> None:
    for _ in range(STEPS):
        history.step()
        history.check()

    history.finish()
