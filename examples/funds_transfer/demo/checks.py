"""What must hold at the end of a run, of these transfers in particular. The general audits are the library's."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from constructs_lib.testing.faults import FaultReport
from constructs_lib.testing.invariants import Invariant, Item, audit_effects, audit_ledger, audit_sagas
from saga_runtime.identity import request_id_from
from saga_runtime.protocol import REPLAYED_HEADER, LedgerAttribute, RecordAttribute

from .client import Exchange
from .plan import Plan, Transfer

_INTERNAL: Final = re.compile(
    rb"Traceback|stackTrace|errorType|Exception|\.py\b|File \"|0x[0-9a-f]{6}|/var/task|"
    rb"botocore|boto3|arn:aws|dynamodb|TableName"
)
_ACCOUNT: Final = "account#"
STEPS: Final = ("Transfer",)
"""Steps that post."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is known when a run is over.

    Attributes:
        plan: What was to happen.
        exchanges: Every request and its answer.
        records: Every item of the request table.
        rows: Every item of the saga log.
        ledger: Every item of the ledger.
        faults: What became of the faults.
    """

    plan: Plan
    exchanges: Sequence[Exchange]
    records: Sequence[Item]
    rows: Sequence[Item]
    ledger: Sequence[Item]
    faults: FaultReport

    @cached_property
    def answered(self) -> Mapping[tuple[str, str], Sequence[Exchange]]:
        """The answers by user and key, without those to imposters."""
        found: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        for exchange in self.exchanges:
            if exchange.key is not None and not exchange.imposter and exchange.answer is not None:
                found[exchange.user, exchange.key].append(exchange)
        return found

    def settled(self, transfer: Transfer) -> Exchange | None:
        """The first settled answer of a transfer."""
        return next((e for e in self.answered.get((transfer.user, transfer.key), ()) if _is_settled(e)), None)

    @cached_property
    def effects(self) -> Mapping[tuple[str, str], int]:
        """How often each transfer took effect, by user and key: entries on its source under its request's sagas."""
        a = LedgerAttribute
        per_request = Counter(
            entry[a.ENTRY_ID]["S"].partition("-")[0]
            for entry in self.ledger
            if a.AMOUNT in entry and int(entry[a.AMOUNT]["N"]) < 0 and "#" in entry[a.ENTRY_ID]["S"]
        )
        return {
            (t.user, t.key): per_request[request_id_from(saga_id)]
            for t in self.plan.transfers
            for saga_id in list(_saga_ids(self.answered.get((t.user, t.key), ())))[:1]
        }

    @property
    def money(self) -> int:
        """Sum of all balances, in minor units."""
        return sum(int(item[LedgerAttribute.BALANCE]["N"]) for item in self.ledger if LedgerAttribute.BALANCE in item)


def check(evidence: Evidence) -> list[Invariant]:
    """Check everything that must hold."""
    return [
        _one_effect_per_settled_key(evidence),
        _no_effect_of_a_refused_key(evidence),
        _effects_are_as_asked(evidence),
        _money_is_conserved(evidence),
        *audit_ledger(evidence.ledger),
        *audit_sagas(evidence.records, evidence.rows),
        *audit_effects(evidence.rows, evidence.ledger, steps=STEPS),
        _every_request_ended_as_it_must(evidence),
        _answers_of_a_key_agree(evidence),
        _imposters_were_refused(evidence),
        _nothing_but_transfers_was_recorded(evidence),
        _nothing_internal_was_told(evidence.exchanges),
        _every_fault_fired(evidence.faults),
    ]


def _is_settled(exchange: Exchange) -> bool:
    answer = exchange.answer
    return exchange.method == "POST" and answer is not None and REPLAYED_HEADER.lower() in answer.headers


def _saga_ids(exchanges: Iterable[Exchange]) -> set[str]:
    ids = set()
    for exchange in exchanges:
        if exchange.answer is not None and exchange.status in {200, 202, 409, 402, 404, 422}:
            saga_id = exchange.answer.json().get("saga_id")
            ids |= {saga_id} if saga_id else set()
    return ids


def _one_effect_per_settled_key(evidence: Evidence) -> Invariant:
    return _effects(evidence, "one effect per settled key", completed=True, expected=1)


def _no_effect_of_a_refused_key(evidence: Evidence) -> Invariant:
    return _effects(evidence, "no effect of a refused key", completed=False, expected=0)


def _effects(evidence: Evidence, name: str, *, completed: bool, expected: int) -> Invariant:
    violations = []
    checked = 0
    for transfer in evidence.plan.transfers:
        settled = evidence.settled(transfer)
        if settled is None or (settled.status == 200) is not completed:
            continue
        checked += 1
        effects = evidence.effects.get((transfer.user, transfer.key), 0)
        if effects != expected:
            violations.append(f"{transfer.user}'s {transfer.key} took effect {effects} times")
    return Invariant(name=name, checked=checked, violations=tuple(violations))


def _effects_are_as_asked(evidence: Evidence) -> Invariant:
    """The postings of the ledger are exactly the transfers that were wanted."""
    a = LedgerAttribute
    posted = Counter(
        (item[a.PK]["S"].removeprefix(_ACCOUNT), item[a.COUNTERPARTY]["S"], int(item[a.AMOUNT]["N"]))
        for item in evidence.ledger
        if a.AMOUNT in item and "-" in item[a.ENTRY_ID]["S"]
    )
    wanted: Counter[tuple[str, str, int]] = Counter()
    for transfer in evidence.plan.transfers:
        if transfer.expected == 200:
            wanted[transfer.source, transfer.target, -transfer.amount] += 1
            wanted[transfer.target, transfer.source, transfer.amount] += 1
    wrong = [f"{entry} was posted {posted[entry]} times, asked for {wanted[entry]} times"
             for entry in posted.keys() | wanted.keys() if posted[entry] != wanted[entry]]  # fmt: skip
    return Invariant(name="the ledger holds what was asked for", checked=wanted.total(), violations=tuple(wrong))


def _money_is_conserved(evidence: Evidence) -> Invariant:
    before, after = sum(evidence.plan.opening.values()), evidence.money
    violations = () if before == after else (f"there were {before} minor units, and there are {after}",)
    return Invariant(name="no money made or lost", checked=len(evidence.plan.opening), violations=violations)


def _every_request_ended_as_it_must(evidence: Evidence) -> Invariant:
    violations = []
    for transfer in evidence.plan.transfers:
        settled = evidence.settled(transfer)
        if settled is None or settled.status != transfer.expected:
            told = "nothing" if settled is None else settled.status
            violations.append(f"{transfer.user}'s {transfer.key} got {told}, expected {transfer.expected}")
    for nonsense in evidence.plan.nonsense:
        if nonsense.key is None:
            continue
        statuses = [exchange.status for exchange in evidence.answered.get((nonsense.user, nonsense.key), ())]
        if not statuses or statuses[-1] != nonsense.expected:
            violations.append(f"{nonsense.key} got {statuses}, expected {nonsense.expected}")
    without_key = [e.status for e in evidence.exchanges if e.key is None and e.status not in {429, None}]
    violations += [f"a request without a key got {status}, expected 400" for status in without_key if status != 400]
    checked = len(evidence.plan.transfers) + len(evidence.plan.nonsense)
    return Invariant(name="every request ended as it must", checked=checked, violations=tuple(violations))


def _answers_of_a_key_agree(evidence: Evidence) -> Invariant:
    """One saga per key in all its answers, one settled status and body, and ``GET`` says the same."""
    violations = []
    for transfer in evidence.plan.transfers:
        exchanges = evidence.answered.get((transfer.user, transfer.key), ())
        settled = {(e.status, e.answer.body) for e in exchanges if _is_settled(e) and e.answer is not None}
        looks = [e.answer.json() for e in exchanges if e.method == "GET" and e.status == 200 and e.answer is not None]
        told = [look["answer"] for look in looks if "answer" in look]
        first = next(iter(e.answer.json() for e in exchanges if _is_settled(e) and e.answer is not None), None)
        if len(_saga_ids(exchanges)) != 1 or len(settled) != 1 or any(answer != first for answer in told):
            violations.append(f"{transfer.user}'s {transfer.key} got answers that differ")
    return Invariant(
        name="answers of one key agree", checked=len(evidence.plan.transfers), violations=tuple(violations)
    )


def _imposters_were_refused(evidence: Evidence) -> Invariant:
    imposters = [
        e for e in evidence.exchanges if e.imposter and e.status is not None and e.status not in {429, 502, 503}
    ]
    wrong = tuple(f"{e.key} with another body got {e.status}" for e in imposters if e.status != 422)
    return Invariant(name="another body never gets a key's answer", checked=len(imposters), violations=wrong)


def _nothing_but_transfers_was_recorded(evidence: Evidence) -> Invariant:
    """What was turned away at the door left nothing behind."""
    accepted = {
        request_id_from(saga_id)
        for transfer in evidence.plan.transfers
        for saga_id in _saga_ids(evidence.answered.get((transfer.user, transfer.key), ()))
    }
    records = {record[RecordAttribute.ID]["S"] for record in evidence.records}
    wrong = tuple(f"request {id_} is recorded and was never accepted" for id_ in sorted(records - accepted))
    return Invariant(name="what was turned away left nothing", checked=len(records), violations=wrong)


def _nothing_internal_was_told(exchanges: Sequence[Exchange]) -> Invariant:
    answers = [exchange.answer for exchange in exchanges if exchange.answer is not None]
    wrong = tuple(f"{a.status}: {a.body[:120]!r}" for a in answers if _INTERNAL.search(a.body))
    return Invariant(name="no answer tells internals", checked=len(answers), violations=wrong)


def _every_fault_fired(faults: FaultReport) -> Invariant:
    return Invariant(
        name="every planned fault fired", checked=faults.planned, violations=tuple(str(f) for f in faults.not_fired)
    )
