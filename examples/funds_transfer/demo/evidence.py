"""Everything that is known when a run is over: answers, tables, messages, and what follows from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from constructs_lib.testing.faults import FaultReport
from constructs_lib.testing.invariants import Item
from saga_runtime.idempotency.identity import is_saga_id, request_id_from
from saga_runtime.protocol import Direction, LedgerAttribute, RecordAttribute

from .accounts import MAIN, PARTNER
from .client import Exchange, is_stored
from .plan import Plan, Transfer
from .trouble import Trouble

TO_PARTNER: Final = "partner-clearing"
FROM_MAIN: Final = "main-clearing"
SUSPENSE: Final = "suspense"
DEBIT, CREDIT, TRANSFER, REFUND = "Debit", "Credit", "Transfer", "Debit#undo"
_ANSWERED: Final = frozenset({200, 202, 402, 404, 409, 422, 500})


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """One entry of one account under a request, as stored in a ledger.

    Attributes:
        ledger: In which ledger.
        account: Of which account, whether it has a balance or only passes money through.
        counterparty: Where the money came from or went.
        amount: Minor units, negative for what went out.
        request_id: Under which request; empty for an opening balance.
        step: Which step posted it, with ``#undo`` for its compensation.
    """

    ledger: str
    account: str
    counterparty: str
    amount: int
    request_id: str
    step: str

    @classmethod
    def from_item(cls, ledger: str, item: Item) -> Posted:
        """Read an entry."""
        a = LedgerAttribute
        saga_id, _, step = item[a.ENTRY_ID]["S"].partition("#")
        return cls(
            ledger=ledger,
            account=item[a.PK]["S"].split("#")[1],
            counterparty=item[a.COUNTERPARTY]["S"],
            amount=int(item[a.AMOUNT]["N"]),
            request_id=request_id_from(saga_id) if is_saga_id(saga_id) else "",
            step=step,
        )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is known when a run is over.

    Attributes:
        plan: What was to happen.
        exchanges: Every request and its answer.
        records: Every item of the request table.
        rows: Every item of the saga log.
        ledgers: Every item of each ledger, by name.
        notices: Every message in the queue of notices.
        troubles: What each fault was planned for, in the order of planning.
        faults: The outcomes of the faults.
    """

    plan: Plan
    exchanges: Sequence[Exchange]
    records: Sequence[Item]
    rows: Sequence[Item]
    ledgers: Mapping[str, Sequence[Item]]
    notices: Sequence[Mapping[str, Any]]
    troubles: Sequence[Trouble]
    faults: FaultReport

    @cached_property
    def answered(self) -> Mapping[tuple[str, str], Sequence[Exchange]]:
        """The answers by user and key, without those to imposters."""
        found: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        for exchange in self.exchanges:
            if exchange.key is not None and not exchange.imposter and exchange.answer is not None:
                found[exchange.user, exchange.key].append(exchange)
        return found

    def answers_to(self, transfer: Transfer) -> Sequence[Exchange]:
        """The answers to a transfer."""
        return self.answered.get((transfer.user, transfer.key), ())

    @cached_property
    def settled(self) -> Mapping[tuple[str, str], Exchange]:
        """The first settled answer by user and key."""
        return {key: e for key, exchanges in self.answered.items() for e in reversed(exchanges) if is_settled(e)}

    def end_of(self, transfer: Transfer) -> Exchange | None:
        """The first settled answer of a transfer."""
        return self.settled.get((transfer.user, transfer.key))

    def request_of(self, transfer: Transfer) -> str:
        """The id of a transfer's request; empty if it never got one."""
        return request_id_from(min(ids)) if (ids := saga_ids(self.answers_to(transfer))) else ""

    @cached_property
    def posted(self) -> Sequence[Posted]:
        """Every entry of both ledgers."""
        a = LedgerAttribute
        return [Posted.from_item(name, i) for name, items in self.ledgers.items() for i in items if a.AMOUNT in i]

    @cached_property
    def _effects(self) -> Mapping[str, Counter[str]]:
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for entry in self.posted:
            # Every posting takes from one account, and gives to another: it is counted where it takes.
            if entry.request_id and entry.amount < 0:
                found[entry.request_id][entry.step] += 1
        return found

    def effects_of(self, transfer: Transfer) -> Counter[str]:
        """Count the effects of each step of a transfer."""
        return self._effects.get(self.request_of(transfer), Counter())

    def net_of(self, transfer: Transfer) -> int:
        """Count the effects of a transfer, less debits that were refunded."""
        effects = self.effects_of(transfer)
        return effects[TRANSFER] + effects[DEBIT] - effects[REFUND]

    @cached_property
    def told(self) -> Mapping[str, Counter[str]]:
        """Notices by request: how many receipts, and how many of a failure."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for notice in self.notices:
            found[request_id_from(notice["saga_id"])]["receipt" if notice["step"] == "Receipt" else "failure"] += 1
        return found

    @cached_property
    def ran(self) -> Counter[str]:
        """Count the sagas that each type of state machine settled."""
        return Counter(record[RecordAttribute.RAN]["S"] for record in self.records if RecordAttribute.RAN in record)

    @property
    def in_first_response(self) -> int:
        """Count the transfers whose first response was the settled one."""
        first = (next(iter(self.answers_to(transfer)), None) for transfer in self.plan.transfers if transfer.waits)
        return sum(answer is not None and answer.status not in {202, 409} for answer in first)

    @cached_property
    def recoveries(self) -> Sequence[int]:
        """Count the recoveries of each request whose execution had been stopped."""
        a = RecordAttribute.RECOVERIES
        return [int(record[a]["N"]) for record in self.records if a in record]

    @property
    def compensations(self) -> int:
        """Count the sagas that failed with all their effects compensated."""
        a = RecordAttribute
        return sum(a.DIRECTION in r and r[a.DIRECTION]["S"] == Direction.COMPENSATE for r in self.records)

    def sum_of(self, ledger: str, account: str) -> int:
        """Sum the entries of an account without a balance of its own, in minor units."""
        return sum(entry.amount for entry in self.posted if (entry.ledger, entry.account) == (ledger, account))

    def balances(self, ledger: str) -> list[int]:
        """The balances of a ledger's accounts, in minor units."""
        a = LedgerAttribute
        return [int(item[a.BALANCE]["N"]) for item in self.ledgers.get(ledger, ()) if a.BALANCE in item]

    @property
    def money(self) -> int:
        """All there is: the balances of both ledgers, and what waits in suspense."""
        return sum(self.balances(MAIN)) + sum(self.balances(PARTNER)) + self.sum_of(MAIN, SUSPENSE)


def is_settled(exchange: Exchange) -> bool:
    """Test whether an answer is a settled request's stored one."""
    answer = exchange.answer
    return exchange.method == "POST" and answer is not None and is_stored(answer)


def saga_ids(exchanges: Iterable[Exchange]) -> set[str]:
    """The sagas that answers name: one, for one request."""
    ids = set()
    for exchange in exchanges:
        if exchange.answer is not None and exchange.status in _ANSWERED:
            saga_id = exchange.answer.json().get("saga_id")
            ids |= {saga_id} if saga_id else set()
    return ids
