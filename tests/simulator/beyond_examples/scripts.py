"""Scripts of stacks without an example: each needs what the roles of its constructs may do."""

from __future__ import annotations

import json
from typing import Any, Final

from constructs_lib.testing.simulator import World
from saga_runtime.migration import Layout, Store
from saga_runtime.shared.decisions import Audit
from tests.local.migrating.layout import LAYOUT, legacy_items

from .hands import Hands

_AUDIT: Final = Audit(who="ann", why="it is time")
_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR


def migrate(world: World) -> None:
    """Move customers to the last phase, once back on the way; one is born and one deleted in between."""
    hands, table = Hands(world), world.output("TableName")
    for customer in ("c-00", "c-01", "c-02"):
        for item in legacy_items(customer, 100):
            world.db.put(table, item)

    def act(do: str, customer: str, number: int) -> None:
        done = hands.invoke("WriterFunction", {"do": do, "customer": customer, "op": f"{do}-{number}", "points": 1})
        assert done in ("Committed", "100", "101"), done

    last = LAYOUT.last
    phases = [*range(1, last - 1), last - 3, *range(last - 2, last + 1)]
    for number, phase in enumerate(phases):
        _to(LAYOUT, table, phase, hands.now_ms)
        act("add", "c-01", number)
        act("born", f"new-{number}", number)
        hands.wait(2 * _HOUR)
        act("gone", f"new-{number}", number)
    left = [item for item in world.db.items(table) if item["sk"] == {"S": LAYOUT.old_item}]
    assert not left, left


def _to(layout: Layout, table: str, phase: int, now_ms: int) -> None:
    store = Store(layout=layout, table=table)
    store.change_phase(store.phase(), phase, now_ms, _AUDIT)


def watch(world: World) -> None:
    """One import is stopped, and its lock is given back; one times out, and its function fails until it is left."""
    hands, machine = Hands(world), world.output("MachineArn")
    for supplier in ("late", "stopped", "good"):
        given = {"supplier": supplier, "seconds": 10 if supplier == "good" else _HOUR}
        execution = world.machines.start(machine, supplier, json.dumps(given))
        hands.wait(30)
        if supplier == "stopped":
            world.machines.stop(execution, "ABORTED")
    hands.wait(10 * _DAY)
    locked = [item["supplier"]["S"] for item in world.db.items(world.output("LocksTable"))]
    assert locked == ["late"], locked


def bank(world: World) -> None:
    """A hold expires, and a window of a collecting account closes: both are swept."""
    hands = Hands(world)

    def ask(do: str, key: str, account: str = "alice", amount: int = 1, **rest: Any) -> None:
        event = {"do": do, "key": key, "account": account, "amount": amount, **rest}
        assert hands.invoke("TellerFunction", event) == {"written": True}

    ask("open", "o-1", "alice", 10_000)
    ask("open", "o-2", "alice.points", 0, points=True)
    ask("open", "o-3", "merchant:7", 0)
    ask("pay", "p-1", amount=50)
    ask("hold", "h-1", amount=70, seconds=60)
    hands.wait(2 * _DAY)
    accounts = {item["pk"]["S"]: item for item in world.db.items(world.output("LedgerTableName")) if "held" in item}
    assert accounts["account#alice"]["held"]["N"] == "0"
    assert accounts["account#merchant:7"]["balance"]["N"] == "50"
