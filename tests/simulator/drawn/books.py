"""Accounts of drawn sagas, and what must be in the books, and of which events consumers must have heard, at the end."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant, Item
from constructs_lib.testing.simulator import World
from saga_runtime import LedgerBuilder, LedgerTerms, Money
from saga_runtime.protocol import LedgerAttribute, LogAttribute

from .names import CONSUMED, LEDGER, PUBLISHED_BY

CUSTOMERS: Final = ("ann", "bob", "cat")
CAPPED: Final = "cat"
"""A customer whose account may be full when an amount is given back."""
MERCHANTS: Final = ("merchant:1", "merchant:2")
AMOUNTS: Final = (1, 40, 400)
_OPENING: Final = 3_000
_SUSPENSE: Final = "suspense"
_UNDO: Final = "#undo"

Entry = tuple[str, str, int]
"""Id of a posting, account, and amount. What waits in suspense is the account's."""


def open_accounts(world: World) -> None:
    """Open an account for each customer and merchant."""
    builder = LedgerBuilder(table=world.output(LEDGER), terms=LedgerTerms(holds=True))
    for account in (*CUSTOMERS, *MERCHANTS):
        writes = builder.open_account(
            account_id=account,
            opening=Money(_OPENING if account in CUSTOMERS else 0, "EUR"),
            cap=_OPENING if account == CAPPED else None,
            now_ms=1,
        )
        world.call("dynamodb", "TransactWriteItems", {"TransactItems": [write.action for write in writes]})


def books_agree(world: World, rows: Mapping[str, tuple[str, Item]]) -> Invariant:
    """Check that accounts have the entries of what was done, and of what was undone, and no other ones.

    Args:
        world: where the ledger is.
        rows: what each step posts, and its row, by the key of what was done or undone.
    """
    held = {row[LogAttribute.SAGA_ID]["S"]: row for posts, row in rows.values() if posts.startswith("hold")}
    expected = Counter(entry for key, (posts, row) in rows.items() for entry in _entries(key, posts, row, held))
    found = Counter(_found(world.table(world.output(LEDGER))))
    wrong = [f"{entry} is missing" for entry in (expected - found).elements()]
    wrong += [f"{entry} is of no step that was done" for entry in (found - expected).elements()]
    return Invariant(name="books and rows agree", checked=expected.total(), violations=tuple(wrong))


def _entries(key: str, posts: str, row: Item, held: Mapping[str, Item]) -> Iterator[Entry]:
    """Entries of accounts that a step, or its compensation, must have made."""
    customer, merchant, amount = (
        _drawn(row, CUSTOMERS, "from"),
        _drawn(row, MERCHANTS, "to"),
        _drawn(row, AMOUNTS, "amount"),
    )
    undone = key.endswith(_UNDO)
    match posts:
        case "debit":
            yield key, customer, amount if undone else -amount
        case "transfer":
            target = _drawn(row, (*MERCHANTS, CAPPED), "to")
            yield key, customer, -amount
            yield key, CUSTOMERS[0] if customer == target else target, amount
        case "pay out":
            yield key, merchant, -amount
        case "credit":
            yield key, merchant, amount
        case "capture":
            hold = held[row[LogAttribute.SAGA_ID]["S"]]
            taken = max(1, _drawn(hold, AMOUNTS, "amount") - _drawn(row, (0, 1), "less"))
            yield key, _drawn(hold, CUSTOMERS, "from"), taken if undone else -taken
            if not undone:
                yield key, merchant, taken


def _drawn(row: Item, values: Sequence[Any], salt: str) -> Any:
    """Choose one of the values, as the step's function does."""
    text = f"{row[LogAttribute.SAGA_ID]['S']} {row[LogAttribute.STEP]['S']} {salt}"
    return values[zlib.crc32(text.encode()) % len(values)]


def _found(items: Iterable[Item]) -> Iterator[Entry]:
    """Entries of accounts and of suspense, but those of openings and of sweeps."""
    a = LedgerAttribute
    for item in items:
        entry_id = item[a.ENTRY_ID]["S"] if a.ENTRY_ID in item else ""
        if item[a.KIND]["S"] != "entry" or entry_id.startswith(("open#", "sweep#")):
            continue
        kind, name, *_ = item[a.PK]["S"].split("#")
        if kind != "clearing":
            yield entry_id, name, int(item[a.AMOUNT]["N"])
        elif name == _SUSPENSE:
            yield entry_id, item[a.COUNTERPARTY]["S"], int(item[a.AMOUNT]["N"])


def events_were_consumed(world: World, of_outbox: Collection[str], of_machines: Collection[str]) -> Invariant:
    """Check that each event was published, and consumed once; of the outbox, no other one was.

    Args:
        world: where they were.
        of_outbox: ids of all events that had to be published by the outbox.
        of_machines: ids of events that steps of settled sagas had to publish.
    """
    wanted = {*of_outbox, *of_machines}
    published = {detail["event_id"] for source, _, detail in world.events.put if source == PUBLISHED_BY[0]}
    consumed = {
        item["id"]["S"]: int(item["times"]["N"]) for item in world.table(world.output(CONSUMED)) if "times" in item
    }
    wrong = [f"{event} was never consumed" for event in sorted(wanted - consumed.keys())]
    wrong += [f"{event} was consumed {times} times" for event, times in consumed.items() if times > 1]
    wrong += [f"{event} was published, and did not happen" for event in sorted(published.difference(of_outbox))]
    return Invariant(name="events are consumed once", checked=len(wanted), violations=tuple(wrong))
