"""A deployed migration: its worker, a function that writes its items, and the state of its table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from constructs_lib.testing import LocalAws
from constructs_lib.testing.invariants import read_table

from .migrating.layout import legacy_items

STACK: Final = "Migrating"
WORKER, WRITER = f"{STACK}/Split/Worker/Function", f"{STACK}/Writer/Function"
CUSTOMERS: Final = tuple(f"c-{number:02d}" for number in range(6))
OPENING: Final = 100
SEGMENTS: Final = ("0", "1")


@dataclass(slots=True, kw_only=True)
class MigratingSystem:
    """The deployed stack."""

    aws: LocalAws
    outputs: Mapping[str, str]

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.outputs["TableName"]

    def open(self) -> None:
        """Put customers as legacy code has left them: an item and a row of the history each."""
        for customer in CUSTOMERS:
            for item in legacy_items(customer, OPENING):
                self.aws.client("dynamodb").put_item(TableName=self.table, Item=item)

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        """Invoke a function; None: it failed."""
        name = self.aws.resolve_function(function)
        answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
        document = json.loads(answer["Payload"].read())
        return None if answer.get("FunctionError") else document

    def passed(self, job: str, segment: str) -> bool | None:
        """Let the worker run as its schedule does; None: it failed, or left something."""
        done = self.invoke(WORKER, {"job": job, "segment": segment})
        return True if done is not None and done["left"] == 0 else None

    @property
    def items(self) -> dict[tuple[str, str], Any]:
        """Every item by its keys."""
        return {
            (item["pk"]["S"], item["sk"]["S"]): item for item in read_table(self.aws.client("dynamodb"), self.table)
        }

    def problems(self, added: Mapping[str, int]) -> Iterator[str]:
        """Violations: of each customer's points, of the items' places, of the history."""
        items = self.items
        for customer in CUSTOMERS:
            old, new = items.get((customer, "customer")), items.get((customer, "BALANCE#POINT"))
            mark = old.get("at_POINT", {}).get("S", "OLD") if old else "NEW"
            if (new is None) != (mark == "OLD"):
                yield f"{customer}: mark {mark}, new item {new}"
            if mark == "DUAL" and old and new and old["point"] != new["balance"]:
                yield f"{customer}: {old['point']} and {new['balance']}"
            truth = new["balance"] if new is not None else old["point"] if old is not None else {"N": "0"}
            expected = OPENING + added.get(customer, 0)
            if int(truth["N"]) != expected:
                yield f"{customer}: {truth['N']} points, not {expected}"
            rows = [item for (pk, sk), item in items.items() if pk == customer and sk.startswith("tx#")]
            if sum(int(row["points"]["N"]) for row in rows) != expected:
                yield f"{customer}: {len(rows)} rows do not add up to {expected}"

    def rows(self, prefix: str) -> int:
        """Number of rows of the history in one form."""
        return sum(sk.startswith(prefix) for _, sk in self.items)
