"""Customers whose points are moved to items of their own while a function adds to them, and an operator advances."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Intent, Workload, World
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.errors import SagaError
from saga_runtime.migration import Layout, Store
from saga_runtime.migration.gates import Facts, ahead, back
from saga_runtime.migration.progress import Job
from saga_runtime.migration.terms import Terms
from saga_runtime.migration.worker import read_progress
from saga_runtime.protocol import Env
from saga_runtime.shared.decisions import Audit
from tests.local.migrating.layout import legacy_items

OPENING: Final = 100
CUSTOMERS: Final = ("c-00", "c-01", "c-02")
_NEW: Final = "BALANCE#POINT"
_OVER: Final = 12 * 3_600
_ONCE_MORE: Final = 0.2
_EVERY: Final = 600 * SECOND
_AGAIN: Final = 30 * SECOND
_AUDIT: Final = Audit(who="ann", why="it is time")


class Customers(Workload):
    """Points are added over hours, in which the migration goes from its first phase to its last.

    Attributes:
        operations: how many.
    """

    operations = 30

    def prepare(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._table = world.output("TableName")
        for customer in CUSTOMERS:
            for item in legacy_items(customer, OPENING):
                world.db.put(self._table, item)
        functions = world.deployment.blueprint.functions
        (self._writer,) = [name for name in functions if "WriterFunction" in name]
        (worker,) = [name for name in functions if "Worker" in name]
        told = json.loads(functions[worker].environment[Env.MIGRATION])
        self._terms = Terms.from_json(told)
        self._layout: Layout = self._terms.layout
        self._wanted: dict[tuple[str, str], int] = {}
        for number in range(self.operations):
            customer, points = random.choice(CUSTOMERS), random.choice((1, 7))
            self._wanted[customer, f"op-{number}"] = points
            add = partial(self._add, customer, f"op-{number}", points)
            world.kernel.after(int(random.random() * _OVER) * SECOND, partial(self._begin, f"client {number}", add))
        self._begin("operator", self._advance)

    def _begin(self, name: str, work: Any) -> None:
        self._world.kernel.spawn(self._world.actor(name), work)

    def _add(self, customer: str, operation: str, points: int) -> None:
        """Repeat an operation under its id until it is recorded, and now and then once more."""
        event = {"do": "add", "customer": customer, "op": operation, "points": points}
        while (customer, f"op#{operation}") not in self._items() or self._random.random() < _ONCE_MORE:
            with contextlib.suppress(BotoCoreError, ClientError):  # what it did is unknown then
                boto3.client("lambda").invoke(FunctionName=self._writer, Payload=json.dumps(event))
            self._world.kernel.sleep(_AGAIN)

    def _advance(self) -> None:
        """Change the phase as ``cdk-sagas migrate`` does, sometimes back, until it is the last one."""
        store = Store(layout=self._layout, table=self._table)
        while True:
            try:
                facts = self._facts(store)
                number = facts.phase.number
                if number == self._layout.last:
                    return
                hesitates = not self._world.weather.is_over and self._random.random() < 0.1
                if hesitates and not back(self._terms, facts):
                    store.change_phase(facts.phase, number - 1, facts.now_ms, _AUDIT)
                elif not ahead(self._terms, facts):
                    store.change_phase(facts.phase, number + 1, facts.now_ms, _AUDIT)
            except (BotoCoreError, ClientError, SagaError) as error:
                self._world.trace.note("operator", f"repeats it after {type(error).__name__}")
            self._world.kernel.sleep(_EVERY)

    def _facts(self, store: Store) -> Facts:
        segments = self._terms.segments

        def last(job: Job) -> list[Any]:
            return [read_progress(store, job, segment, segments).last for segment in range(segments)]

        return Facts(
            phase=store.phase(),
            now_ms=self._world.kernel.now // 1_000,
            moved=last(Job.BACKFILL),
            compared=last(Job.VERIFY),
            deployed={self._writer: 0},
        )

    def _items(self) -> dict[tuple[str, str], Any]:
        return {(item["pk"]["S"], item["sk"]["S"]): item for item in self._world.db.items(self._table)}

    def intent(self, number: int, random: Random) -> Intent:
        raise NotImplementedError

    def has_sent(self, world: World) -> bool:
        items = self._items()
        recorded = all((customer, f"op#{operation}") in items for customer, operation in self._wanted)
        return recorded and all((customer, self._layout.old_item) not in items for customer in CUSTOMERS)

    def audit(self, world: World) -> Iterable[Invariant]:
        yield Invariant(
            name="points are those of the history", checked=len(CUSTOMERS), violations=tuple(self._problems())
        )

    def _problems(self) -> Iterator[str]:
        items = self._items()
        for customer in CUSTOMERS:
            wanted = OPENING + sum(points for (of, _), points in self._wanted.items() if of == customer)
            new = items.get((customer, _NEW))
            if new is None or int(new["balance"]["N"]) != wanted:
                yield f"{customer} has {new}, not {wanted}"
            for prefix in ("tx#", "history#"):
                rows = [item for (pk, sk), item in items.items() if pk == customer and sk.startswith(prefix)]
                if rows and sum(int(row["points"]["N"]) for row in rows) != wanted:
                    yield f"{customer}: rows of {prefix} do not add up to {wanted}"
