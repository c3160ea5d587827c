"""Requests of the agentic payout."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant, Item, audit_effects
from constructs_lib.testing.simulator import Intent, Workload, World
from examples.agentic_payout.functions.payout.intent import Intent as Obligation
from examples.agentic_payout.functions.payout.intent import intent_key, request_of
from examples.agentic_payout.functions.payout.stand_in import BABBLE, GREEDY, HOLD
from saga_runtime import LedgerBuilder, Money
from saga_runtime.protocol import LedgerAttribute, LogAttribute

from .parking import audit_parking

PAYER: Final = "company"
PAYEES: Final = ("ada", "eve", f"{HOLD}-1", f"{GREEDY}-1", f"{BABBLE}-1")
AGENTS: Final = ("procurement", "procurement", "travel", "nobody")
PURPOSES: Final = 6
"""So many different invoices: some are asked for by several agents."""


class Payouts(Workload):
    """Payouts that agents ask for, some of them the same ones, some more than they may spend."""

    def prepare(self, world: World, random: Random) -> None:
        del random
        builder = LedgerBuilder(table=world.output("LedgerTableName"))
        for account in (PAYER, *PAYEES):
            opening = Money(10_000_000 if account == PAYER else 0, "EUR")
            writes = builder.open_account(account_id=account, opening=opening, now_ms=1)
            world.call("dynamodb", "TransactWriteItems", {"TransactItems": [write.action for write in writes]})

    def intent(self, number: int, random: Random) -> Intent:
        obligation = Obligation(
            payer=PAYER,
            payee=random.choice((*PAYEES[:2], *PAYEES)),
            amount=Money(random.choice((1_000, 60_000, 90_000)), "EUR"),
            purpose=f"invoice:{random.randrange(PURPOSES)}",
            period="2026-01",
        )
        body: dict[str, Any] = request_of(obligation, agent=random.choice(AGENTS))
        return Intent(
            operation="payouts",
            body=body,
            user="agents",
            other_body={**body, "amount": 1},
            key=intent_key(obligation, attempt=1 + number),
        )

    def audit(self, world: World) -> Iterable[Invariant]:
        rows, ledger = world.table(world.output("LogTableName")), world.table(world.output("LedgerTableName"))
        paying = [row for row in rows if not _is_held(row)]
        return [*audit_effects(paying, ledger, steps=("Act",)), _paid_once(world), audit_parking(world)]


def _is_held(row: Item) -> bool:
    """True if a row records that nothing was to be paid."""
    output = json.loads(row[LogAttribute.OUTPUT]["S"]) if LogAttribute.OUTPUT in row else {}
    return row[LogAttribute.STEP]["S"] == "Act" and output.get("decision") == "held"


def _paid_once(world: World) -> Invariant:
    """Each obligation is claimed by one saga at most, and what is paid is what is claimed as paid."""
    controls = world.table(world.output("ControlsTableName"))
    paid = [item for item in controls if item["id"]["S"].startswith("claim#") and item["state"]["S"] == "PAID"]
    entries = [
        item
        for item in world.table(world.output("LedgerTableName"))
        if item[LedgerAttribute.KIND]["S"] == "entry" and item[LedgerAttribute.ENTRY_ID]["S"].endswith("#Act")
    ]
    postings = Counter(item[LedgerAttribute.ENTRY_ID]["S"] for item in entries)
    violations = (
        () if len(paid) == len(postings) else (f"{len(paid)} claims are paid, and {len(postings)} payments made",)
    )
    return Invariant(name="each obligation is paid once", checked=len(paid), violations=violations)
