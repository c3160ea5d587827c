"""Holds of a ledger in sagas with its sweeper: captured in time, late or not at all; and collecting accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from constructs_lib import Run
from constructs_lib.testing import audit_provider
from constructs_lib.testing.invariants import Invariant, audit_ledger
from constructs_lib.testing.simulator import Deployment, Intent, Provider, Result, SimulatedProvider, Workload, World
from constructs_lib.testing.simulator.aws.dynamodb.trees import Always
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.run import simulate_once
from saga_runtime import LedgerBuilder, LedgerTerms, Money
from saga_runtime.protocol import LogAttribute, StepStatus

from .examples import assembly_of
from .held_payments.stack import CARRIER, HeldPaymentsStack

pytestmark = pytest.mark.proof

OPENING: Final = 1_000
CUSTOMERS: Final = ("ann", "bob")
MERCHANTS: Final = ("merchant:1", "merchant:2")
SHORT, LONG = 90, 7 * 86_400
SAGAS: Final = 40
"""As many as meet on few accounts."""


class HeldPayments(Workload):
    """Orders of customers with little money, of which some are captured too late or of too much; and payouts."""

    def prepare(self, world: World, random: Random) -> None:
        builder = LedgerBuilder(table=world.output("LedgerTableName"), terms=LedgerTerms(holds=True))
        for account in (*CUSTOMERS, *MERCHANTS):
            opening = Money(OPENING if account in CUSTOMERS else 0, "EUR")
            writes = builder.open_account(account_id=account, opening=opening, now_ms=1)
            world.call("dynamodb", "TransactWriteItems", {"TransactItems": [write.action for write in writes]})

    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        self.carrier = SimulatedProvider(
            world,
            {"ship": "/shipments", "return": "/returns"},
            idempotent_for=0,
            refuses=lambda operation, _body: operation == "ship" and random.random() < 0.1,
        )
        return {CARRIER: self.carrier}

    def intent(self, number: int, random: Random) -> Intent:
        if random.random() < 0.3:
            body = {"merchant": random.choice(MERCHANTS), "amount": random.choice((1, 99, 5_000))}
            return Intent(operation="payouts", body=body, user="office", other_body={**body, "note": "again"})
        price = random.choice((100, 300, 600))
        body = {
            "customer": random.choice(CUSTOMERS),
            "merchant": random.choice(MERCHANTS),
            "price": price,
            "shipped": random.choice((price, price, price - 50, price + 1)),
            "held_for": random.choice((SHORT, LONG)),
        }
        return Intent(operation="orders", body=body, user="web", other_body={**body, "note": "again"})

    def audit(self, world: World) -> Iterable[Invariant]:
        yield from audit_ledger(world.table(world.output("LedgerTableName")))
        rows = world.table(world.output("LogTableName"))
        yield from audit_provider(rows, self.carrier.effects(), steps=["Ship"])

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        wanted = Counter(dict.fromkeys(CUSTOMERS, OPENING))
        requests = {(one.intent.user, one.intent.operation, one.key): one for one in results}.values()
        done: dict[str, bool] = {}
        for one in requests:
            body: Any = one.intent.body
            if one.saga_id is not None:
                done[one.saga_id] = bool(one.completed)
            if one.completed and one.intent.operation == "orders":
                wanted[body["customer"]] -= body["shipped"]
                wanted[body["merchant"]] += body["shipped"] - 1
            elif one.completed:
                wanted[body["merchant"]] -= body["amount"]
        found: Counter[str] = Counter()
        items: list[Any] = world.table(world.output("LedgerTableName"))
        for item in items:
            if item["kind"]["S"] in ("account", "shard"):
                found[item["pk"]["S"].split("#")[1]] += int(item["balance"]["N"])
        wrong = [f"{name} has {found[name]}, not {wanted[name]}" for name in wanted if found[name] != wanted[name]]
        yield Invariant(name="what was captured is paid, once", checked=len(wanted), violations=tuple(wrong))
        left = [
            f"{item['sk']['S']} is open, and its saga has ended"
            for item in items
            if item["kind"]["S"] == "hold" and item["state"]["S"] == "OPEN"
            if item["sk"]["S"].split("#")[1] in done
        ]
        yield Invariant(name="nothing is held for an order that has ended", checked=len(done), violations=tuple(left))
        late = {
            row[LogAttribute.SAGA_ID]["S"]
            for row in world.table(world.output("LogTableName"))
            if row[LogAttribute.STATUS]["S"] == StepStatus.APPLIED_LATE
        }
        yield Invariant(name="no effect is late", checked=len(done), violations=tuple(sorted(late)))


class _Unconditional(HeldPayments):
    """The same, on a database that takes every change of an account or a hold."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.db.rewrite = lambda table, _text, condition: Always() if "Ledger" in table.name else condition


def _add(app: Any, run: str) -> object:
    return HeldPaymentsStack(app, "HeldPayments", run=Run(run))


@pytest.mark.parametrize("run", [Run.STANDARD, Run.INLINE])
def test_holds_are_captured_or_released_once(run: Run) -> None:
    with Deployment.of_assembly(assembly_of(_add, run)) as deployment:
        for seed in range(8):
            result = simulate_once(deployment, HeldPayments(), seed, sagas=SAGAS, coverage=Coverage())
            assert result.findings == [], (seed, result.hit)


def test_ledger_without_its_conditions_is_found() -> None:
    with Deployment.of_assembly(assembly_of(_add, Run.STANDARD)) as deployment:
        results = [
            simulate_once(deployment, _Unconditional(), seed, sagas=SAGAS, coverage=Coverage()) for seed in range(5)
        ]

    found = {finding.kind for result in results for finding in result.findings}
    assert found >= {"what was captured is paid, once", "balances equal their entries"}
