"""Invariants of these transfers at the end of a run. The general audits are the library's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from constructs_lib.testing.faults import FaultReport
from constructs_lib.testing.invariants import Invariant, audit_effects, audit_ledger, audit_sagas, together
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import RecordAttribute

from .accounts import MAIN, PARTNER
from .client import Exchange
from .evidence import CREDIT, DEBIT, FROM_MAIN, REFUND, SUSPENSE, TO_PARTNER, TRANSFER, Evidence, is_settled, saga_ids
from .plan import Transfer

_INTERNAL: Final = re.compile(
    rb"Traceback|stackTrace|errorType|Exception|\.py\b|File \"|0x[0-9a-f]{6}|/var/task|"
    rb"botocore|boto3|arn:aws|dynamodb|TableName"
)
STEPS: Final = ("Transfer", "Debit", "Credit")
"""Steps that post."""
_SENT_AGAIN: Final = frozenset({429, 502, 503, 504, None})
"""Answers of the gateway, and none at all: they promise nothing, and the client sends its request again."""


def check(evidence: Evidence) -> list[Invariant]:
    """Check everything that must hold."""
    everything = [item for items in evidence.ledgers.values() for item in items]
    return [
        _effects(evidence, "one effect per settled key", completed=True),
        _effects(evidence, "no refused key has an effect", completed=False),
        _the_ledgers_hold_what_was_asked_for(evidence),
        _money_is_conserved(evidence),
        _clearing_accounts_mirror_each_other(evidence),
        _every_refund_matches_its_debit(evidence),
        _every_end_was_told(evidence),
        *together(*(audit_ledger(items) for items in evidence.ledgers.values())),
        *audit_sagas(evidence.records, evidence.rows),
        *audit_effects(evidence.rows, everything, steps=STEPS),
        _every_request_ended_as_it_must(evidence),
        _answers_of_a_key_agree(evidence),
        _imposters_were_refused(evidence),
        _nothing_but_transfers_was_recorded(evidence),
        _nothing_internal_was_told(evidence.exchanges),
        _every_fault_fired(evidence.faults),
    ]


def _expected_effects(transfer: Transfer) -> dict[str, int]:
    if transfer.expected == 200:
        return {DEBIT: 1, CREDIT: 1} if transfer.to_partner else {TRANSFER: 1}
    return {DEBIT: 1, REFUND: 1} if transfer.refunded else {}


def _effects(evidence: Evidence, name: str, *, completed: bool) -> Invariant:
    violations = []
    checked = 0
    for transfer in evidence.plan.transfers:
        end = evidence.end_of(transfer)
        if end is None or (end.status == 200) is not completed:
            continue
        checked += 1
        effects = dict(evidence.effects_of(transfer))
        if effects != _expected_effects(transfer):
            violations.append(f"{transfer.user}'s {transfer.key} took effect as {effects}")
    return Invariant(name=name, checked=checked, violations=tuple(violations))


def _the_ledgers_hold_what_was_asked_for(evidence: Evidence) -> Invariant:
    """The postings of both ledgers are exactly what the transfers come to."""
    posted = Counter((e.ledger, e.account, e.counterparty, e.amount) for e in evidence.posted if e.request_id)
    wanted = Counter(entry for transfer in evidence.plan.transfers for entry in _entries(transfer))
    wrong = [f"{entry} was posted {posted[entry]} times, asked for {wanted[entry]} times"
             for entry in posted.keys() | wanted.keys() if posted[entry] != wanted[entry]]  # fmt: skip
    return Invariant(name="the ledgers hold what was asked for", checked=wanted.total(), violations=tuple(wrong))


def _entries(transfer: Transfer) -> Iterator[tuple[str, str, str, int]]:
    """Yield a transfer's entries: ledger, account, counterparty, amount."""
    source, target, amount = transfer.source, transfer.target, transfer.amount
    completed = transfer.expected == 200
    if completed and not transfer.to_partner:
        yield from ((MAIN, source, target, -amount), (MAIN, target, source, amount))
    elif completed or transfer.refunded:
        yield from ((MAIN, source, TO_PARTNER, -amount), (MAIN, TO_PARTNER, source, amount))
    if completed and transfer.to_partner:
        yield from ((PARTNER, FROM_MAIN, target, -amount), (PARTNER, target, FROM_MAIN, amount))
    if transfer.refunded:
        yield (MAIN, TO_PARTNER, source, -amount)
        # An amount in suspense has the name of the account that was closed.
        yield (MAIN, SUSPENSE, source, amount) if transfer.closed_meanwhile else (MAIN, source, TO_PARTNER, amount)


def _money_is_conserved(evidence: Evidence) -> Invariant:
    before, after = sum(account.balance for account in evidence.plan.accounts), evidence.money
    violations = () if before == after else (f"there were {before} minor units, and there are {after}",)
    return Invariant(name="no money made or lost", checked=len(evidence.plan.accounts), violations=violations)


def _clearing_accounts_mirror_each_other(evidence: Evidence) -> Invariant:
    """The amount into the one ledger's clearing account came out of the other's, for each request and in all."""
    clearing = {(MAIN, TO_PARTNER), (PARTNER, FROM_MAIN)}
    sums: Counter[str] = Counter()
    for entry in evidence.posted:
        if (entry.ledger, entry.account) in clearing:
            sums[entry.request_id] += entry.amount
    wrong = [f"{amount} of request {id_} remain in the clearing accounts" for id_, amount in sums.items() if amount]
    if total := evidence.sum_of(MAIN, TO_PARTNER) + evidence.sum_of(PARTNER, FROM_MAIN):
        wrong.append(f"both clearing accounts together hold {total}")
    return Invariant(name="clearing accounts mirror each other", checked=len(sums), violations=tuple(wrong))


def _every_refund_matches_its_debit(evidence: Evidence) -> Invariant:
    """A refund gives back what was taken, to whom it was taken from, or to suspense if that account was closed."""
    closed = {evidence.request_of(t) for t in evidence.plan.transfers if t.closed_meanwhile}
    taken = {
        e.request_id: (e.account, -e.amount) for e in evidence.posted if e.step == DEBIT and e.account != TO_PARTNER
    }
    given = [e for e in evidence.posted if e.step == REFUND and e.account != TO_PARTNER]
    wrong = []
    for entry in given:
        suspended = entry.account == SUSPENSE
        to_whom = entry.counterparty if suspended else entry.account
        if taken.get(entry.request_id) != (to_whom, entry.amount) or suspended is not (entry.request_id in closed):
            wrong.append(f"{entry.amount} went to {entry.account}, taken was {taken.get(entry.request_id)}")
    return Invariant(name="every refund matches its debit", checked=len(given), violations=tuple(wrong))


def _every_end_was_told(evidence: Evidence) -> Invariant:
    """One receipt for each completed request; a notice of failure, once or more, for each that was refused."""
    wrong = []
    for transfer in evidence.plan.transfers:
        told: Mapping[str, int] = evidence.told.get(evidence.request_of(transfer), Counter())
        receipts, failures = told.get("receipt", 0), told.get("failure", 0)
        if not ((receipts, failures) == (1, 0) if transfer.expected == 200 else receipts == 0 and failures >= 1):
            wrong.append(f"{transfer.user}'s {transfer.key} got {receipts} receipts, {failures} notices of failure")
    return Invariant(
        name="every end was notified, receipts once", checked=len(evidence.notices), violations=tuple(wrong)
    )


def _every_request_ended_as_it_must(evidence: Evidence) -> Invariant:
    violations = []
    for transfer in evidence.plan.transfers:
        settled = evidence.end_of(transfer)
        if settled is None or settled.status != transfer.expected:
            told = "nothing" if settled is None else settled.status
            violations.append(f"{transfer.user}'s {transfer.key} got {told}, expected {transfer.expected}")
    for nonsense in evidence.plan.nonsense:
        if nonsense.key is None:
            continue
        statuses = [exchange.status for exchange in evidence.answered.get((nonsense.user, nonsense.key), ())]
        if not statuses or statuses[-1] != nonsense.expected:
            violations.append(f"{nonsense.key} got {statuses}, expected {nonsense.expected}")
    without_key = [e.status for e in evidence.exchanges if e.key is None and e.status not in _SENT_AGAIN]
    violations += [f"a request without a key got {status}, expected 400" for status in without_key if status != 400]
    checked = len(evidence.plan.transfers) + len(evidence.plan.nonsense)
    return Invariant(name="every request ended as it must", checked=checked, violations=tuple(violations))


def _answers_of_a_key_agree(evidence: Evidence) -> Invariant:
    """One saga per key in all its answers, one settled status and body, and ``GET`` returns the same."""
    violations = []
    for transfer in evidence.plan.transfers:
        exchanges = evidence.answers_to(transfer)
        settled = {(e.status, e.answer.body) for e in exchanges if is_settled(e) and e.answer is not None}
        looks = [e.answer.json() for e in exchanges if e.method == "GET" and e.status == 200 and e.answer is not None]
        told = [look["answer"] for look in looks if "answer" in look]
        first = next(iter(e.answer.json() for e in exchanges if is_settled(e) and e.answer is not None), None)
        if len(saga_ids(exchanges)) != 1 or len(settled) != 1 or any(answer != first for answer in told):
            heard = ", ".join(f"{e.method} {e.status}" for e in exchanges)
            violations.append(f"{transfer.user}'s {transfer.key} got answers that differ, or no settled one: {heard}")
    return Invariant(
        name="answers of one key agree", checked=len(evidence.plan.transfers), violations=tuple(violations)
    )


def _imposters_were_refused(evidence: Evidence) -> Invariant:
    imposters = [e for e in evidence.exchanges if e.imposter and e.status not in _SENT_AGAIN]
    wrong = tuple(f"{e.key} with another body got {e.status}" for e in imposters if e.status != 422)
    return Invariant(name="another body never gets a key's answer", checked=len(imposters), violations=wrong)


def _nothing_but_transfers_was_recorded(evidence: Evidence) -> Invariant:
    """Refused requests left no row."""
    accepted = {
        request_id_from(saga_id)
        for transfer in evidence.plan.transfers
        for saga_id in saga_ids(evidence.answers_to(transfer))
    }
    records = {record[RecordAttribute.ID]["S"] for record in evidence.records}
    wrong = tuple(f"request {id_} is recorded and was never accepted" for id_ in sorted(records - accepted))
    return Invariant(name="what was turned away left nothing", checked=len(records), violations=wrong)


def _nothing_internal_was_told(exchanges: Sequence[Exchange]) -> Invariant:
    answers = [exchange.answer for exchange in exchanges if exchange.answer is not None]
    wrong = tuple(f"{a.status}: {a.body[:120]!r}" for a in answers if _INTERNAL.search(a.body))
    return Invariant(name="no answer contains internals", checked=len(answers), violations=wrong)


def _every_fault_fired(faults: FaultReport) -> Invariant:
    return Invariant(
        name="every planned fault fired", checked=faults.planned, violations=tuple(str(f) for f in faults.not_fired)
    )
