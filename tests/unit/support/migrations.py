"""A migrated table over serialized DynamoDB: its layout, its items, operations and workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from saga_runtime import InsufficientFunds, Write
from saga_runtime.migration import Change, Concern, Layout, Store
from saga_runtime.migration.progress import Job, Pass
from saga_runtime.migration.worker import Worker, _Page
from saga_runtime.saga_log.transaction import commit_first
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Audit
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

AUDIT = Audit(who="arn:aws:iam::123456789012:user/operator", why="its gate is open")

TABLE, OLD = "customers", "customer"
PROFILE = Concern(name="PROFILE", item="PROFILE", attributes={"name": "name", "mail": "email"})
POINT = Concern(name="POINT", item="BALANCE#POINT", attributes={"balance": "point"})
CASH = Concern(name="CASH", item="BALANCE#CASH", attributes={"balance": "cash", "at_most": "cash_limit"})
LAYOUT = Layout(name="split", old_item=OLD, groups=((PROFILE,), (POINT, CASH)), pilots=("pilot",))
LAST = LAYOUT.last
HOUR_MS = 3_600_000
Item = dict[str, Any]


@dataclass
class Table:
    """The table."""

    world: World
    layout: Layout = LAYOUT

    @property
    def store(self) -> Store:
        """The migration's store."""
        return Store(layout=self.layout, table=TABLE)

    def put(self, customer: str, **attributes: Any) -> None:
        """Put an old item, as legacy code does."""
        values = {name: {"S": v} if isinstance(v, str) else {"N": str(v)} for name, v in attributes.items()}
        aws.dynamodb().put_item(TableName=TABLE, Item={"pk": {"S": customer}, "sk": {"S": OLD}, **values})

    def item(self, customer: str, sort_key: str) -> Item | None:
        """An item."""
        found = [
            one
            for one in self.world.database.items(TABLE)
            if (one["pk"], one["sk"]) == ({"S": customer}, {"S": sort_key})
        ]
        return found[0] if found else None

    def balances(self, customer: str) -> tuple[int | None, int | None]:
        """Points in the old item, and in the new one."""
        old, new = self.item(customer, OLD), self.item(customer, POINT.item)
        return (
            int(old["point"]["N"]) if old and "point" in old else None,
            int(new["balance"]["N"]) if new and "balance" in new else None,
        )

    def marks(self, customer: str) -> tuple[str | None, str | None]:
        """Marks of the points."""
        old, new = self.item(customer, OLD), self.item(customer, POINT.item)
        return (
            old["at_POINT"]["S"] if old and "at_POINT" in old else None,
            new["at"]["S"] if new and "at" in new else None,
        )

    def go_to(self, phase: int) -> None:
        """Change the phase, step by step, without a gate; time passes."""
        while (read := self.store.phase()).number != phase:
            self.world.clock.ms += 1
            self.store.change_phase(read, read.number + (1 if phase > read.number else -1), self.world.clock.ms, AUDIT)
        self.world.clock.ms += 1

    def run(self, job: Job = Job.BACKFILL, **options: Any) -> Pass | None:
        """Run a worker once."""
        return self.worker(job, **options).run()

    def worker(self, job: Job = Job.BACKFILL, **options: Any) -> Worker:
        """A worker of one segment."""
        given: Any = {"segment": 0, "segments": 1, "remaining_ms": lambda: 60_000, **options}
        return Worker(store=self.store, job=job, **given)

    def move_to(self, phase: int) -> None:
        """Go through the phases one by one, each moved as a whole."""
        while (at := self.store.phase().number) != phase:
            self.go_to(at + (1 if phase > at else -1))
            self.run()

    def add(self, customer: str, points: int, operation: str = "op-1") -> None:
        """Add points, once per operation; retried as an operation is."""
        commit_first(lambda: (marker(customer, operation), self.writes(customer, points)), remaining_ms=lambda: 60_000)

    def sent(self, planned: list[Any]) -> bool:
        """Send what was planned before, as a worker does; False: it is refused."""
        page = _Page(phase=self.store.phase(), until_ms=self.world.clock.ms + HOUR_MS)
        return self.worker()._commit(planned, page) is None

    def writes(self, customer: str, points: int) -> list[Write]:
        """Writes that add points, or take some."""
        change = Change(
            add={"balance": points},
            at_least={"balance": -points} if points < 0 else {},
            refusal=lambda: InsufficientFunds("too few points"),
        )
        return self.store.writes(customer, {"POINT": change})


def marker(customer: str, operation: str) -> Any:
    """An operation's record."""
    put = {
        "TableName": TABLE,
        "Item": {"pk": {"S": customer}, "sk": {"S": f"op#{operation}"}},
        "ConditionExpression": "attribute_not_exists(pk)",
    }
    return {"Put": put}


def kills(table: Table, act: Callable[[], object], moments: Iterable[Moment] = Moment) -> Iterator[str]:
    """Kill an action before and after each of its calls, from the same items and the same time on."""
    database, clock, wire = table.world.database, table.world.clock, table.world.wire
    taken, now_ms = database.take(), clock.ms
    wire.forget()
    act()
    calls = list(wire.sent)
    for (number, call), moment in product(enumerate(calls), moments):
        database.put_back(taken)
        clock.ms = now_ms
        wire.forget()
        wire.plan(Fault(operation=call, action=Action.KILL, moment=moment, on=calls[: number + 1].count(call), times=1))
        with contextlib.suppress(Killed):
            act()
        assert wire.fired
        wire.forget()
        yield f"killed {moment} {number + 1}. {call}"


def open_table(world: World, layout: Layout = LAYOUT) -> Table:
    """Create the table, with a customer and a pilot in old items."""
    dynamodb: Any = aws.dynamodb()
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )
    table = Table(world, layout)
    for customer in ("anna", "pilot"):
        table.put(customer, name="A", email="a@example.com", point=100, cash=Decimal("5.50"))
    world.wire.forget()
    return table
