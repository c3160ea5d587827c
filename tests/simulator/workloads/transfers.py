"""Requests of the funds transfer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from constructs_lib.testing.invariants import Invariant, audit_effects
from constructs_lib.testing.simulator import Intent, Workload, World
from constructs_lib.testing.simulator.aws.dynamodb import Condition, Table, clauses_of, without
from saga_runtime import LedgerBuilder, Money

from .parking import audit_parking

LEDGERS: Final = ("LedgerTableName", "PartnerLedgerTableName")
ACCOUNTS: Final = "abc"
MISSING: Final = "x"
STEPS: Final = ("Transfer", "Debit", "Credit")


class Transfers(Workload):
    """Transfers between few accounts, within a ledger and to the partner's; some cannot be made."""

    def prepare(self, world: World, random: Random) -> None:
        for ledger in LEDGERS:
            builder = LedgerBuilder(table=world.output(ledger))
            for account in ACCOUNTS:
                opening = Money(random.choice((150, 100_000, 100_000)), "EUR")
                writes = builder.open_account(account_id=account, opening=opening, now_ms=1)
                world.call("dynamodb", "TransactWriteItems", {"TransactItems": [write.action for write in writes]})

    def intent(self, number: int, random: Random) -> Intent:
        body = {
            "from": random.choice(3 * ACCOUNTS + MISSING),
            "to": random.choice(3 * ACCOUNTS + MISSING),
            "amount": random.choice((1, 50, 100)),
            "currency": "EUR",
        }
        if random.random() < 0.6:
            body["to_ledger"] = "partner"
        return Intent(
            operation="transfers", body=body, user=random.choice(("ann", "bob")), other_body={**body, "amount": 7}
        )

    def audit(self, world: World) -> Iterable[Invariant]:
        rows = world.table(world.output("LogTableName"))
        entries = [item for ledger in LEDGERS for item in world.table(world.output(ledger))]
        return [*audit_effects(rows, entries, steps=STEPS), audit_parking(world)]


class InlineTransfers(Transfers):
    """The same; half of the clients prefer to wait for their response."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), wait=random.choice((0, 10)))


class Weakened(Transfers):
    """Transfers whose log rows may be written again."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = self._weakened

    def _weakened(self, table: Table, _text: str, condition: Condition) -> Condition:
        if "LogTable" in table.name:
            for clause in list(clauses_of(condition)):
                if str(clause) == "attribute_not_exists(#saga_id)":
                    condition = without(condition, clause)
        return condition
