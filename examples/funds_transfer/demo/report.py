"""Result of a run: the report as data, and as a readable table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from constructs_lib.testing.invariants import Invariant
from saga_runtime import Money
from saga_runtime.protocol import LogAttribute, Ran, StepStatus

from .accounts import CURRENCY, LEDGERS, MAIN, PARTNER
from .evidence import FROM_MAIN, REFUND, SUSPENSE, TO_PARTNER, Evidence
from .plan import Transfer
from .screen import Style, Table
from .trouble import Kind

_MEANING = {
    "200": "settled, or the status was returned",
    "202": "accepted",
    "400": "turned away: no key, or nonsense",
    "402": "refused: insufficient funds",
    "404": "refused: no such account",
    "409": "duplicate of one in progress",
    "413": "turned away: too large",
    "422": "key taken by another body, or refused",
    "500": "refused: interrupted, and undone",
    "429": "too many at once: sent again",
    "502": "gatekeeper died: sent again",
    "503": "nothing promised: sent again",
    "504": "no answer in time: sent again",
    "none": "connection lost: sent again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a run.

    Attributes:
        evidence: Everything that is known of it.
        invariants: What was checked.
        seconds: How long the clients were at it.
    """

    evidence: Evidence
    invariants: Sequence[Invariant]
    seconds: float

    @property
    def holds(self) -> bool:
        """True if every invariant holds, and each checked something."""
        return all(invariant.holds and invariant.checked for invariant in self.invariants)

    @property
    def answers(self) -> dict[str, int]:
        """Count the answers by status."""
        counted = Counter("none" if e.status is None else str(e.status) for e in self.evidence.exchanges)
        return dict(sorted(counted.items()))

    def settled_with(self, *, completed: bool) -> int:
        """Count the keys that are settled, as completed or as refused."""
        ends = [self.evidence.end_of(transfer) for transfer in self.evidence.plan.transfers]
        return sum(end is not None and (end.status == 200) is completed for end in ends)

    def to_json(self) -> dict[str, Any]:
        """The report as data."""
        return {
            "requests": len(self.evidence.exchanges),
            "answers": self.answers,
            "settled": self.settled_with(completed=True),
            "refused": self.settled_with(completed=False),
            "invariants": {i.name: {"checked": i.checked, "violated": len(i.violations)} for i in self.invariants},
            "faults": {"planned": self.evidence.faults.planned, "fired": self.evidence.faults.fired},
            "seconds": round(self.seconds, 3),
        }


def render(report: Report, style: Style) -> str:
    """The report as a table."""
    table = Table(style)
    _headline(table, report)
    _requests(table, report)
    _transfers(table, report)
    _afterwards(table, report.evidence)
    _ledgers(table, report.evidence)
    _faults(table, report)
    _invariants(table, report)
    return table.text()


def _headline(table: Table, report: Report) -> None:
    s = table.style
    if report.holds:
        table.line(s.bold("Every transfer happened exactly once, or not at all"), s.good("all hold"))
    else:
        broken = sum(not (invariant.holds and invariant.checked) for invariant in report.invariants)
        table.line(s.bold("An invariant is broken"), s.bad(f"{broken} broken"))


def _requests(table: Table, report: Report) -> None:
    count = len(report.evidence.exchanges)
    table.section("Requests")
    table.line(f"{count:,} in {report.seconds:.1f} s", f"{count / max(report.seconds, 1e-9):.0f} per second")
    times = sorted(exchange.seconds * 1000 for exchange in report.evidence.exchanges)
    quantiles = "   ".join(f"p{q} {_quantile(times, q / 100):.0f} ms" for q in (50, 90, 99))
    table.line(f"latency   {quantiles}   max {_quantile(times, 1):.0f} ms")
    table.gap()
    top = max(report.answers.values(), default=1)
    for status, number in report.answers.items():
        table.bar(f"{status:<4} {_MEANING.get(status, ''):<38}", number, top, alarming=status == "none")


def _transfers(table: Table, report: Report) -> None:
    evidence = report.evidence
    table.section("Transfers", "effects per key")
    ways = {"in one transaction": False, "saga of two ledgers": True}
    for way, to_partner in ways.items():
        transfers = [t for t in evidence.plan.transfers if t.to_partner is to_partner]
        table.line(f"{way:<20} {len(transfers):>5,} keys")
        for completed, name, right in ((True, "settled", 1), (False, "refused", 0)):
            counts = Counter(evidence.net_of(t) for t in transfers if _ended(evidence, t) is completed)
            told = ", ".join(f"{keys} x {number}" for number, keys in sorted(counts.items())) or "none"
            paint = table.style.good if set(counts) <= {right} else table.style.bad
            table.line(f"  {name:<18} {counts.total():>5,}", paint(told))
        if unsettled := sum(_ended(evidence, t) is None for t in transfers):
            table.line(f"  {'open':<18} {unsettled:>5,}", table.style.bad("never settled"))
    express, standard = (evidence.ran[machine] for machine in (Ran.EXPRESS, Ran.STANDARD))
    table.line(f"{'settled by Express':<20} {express:>5,}", f"{evidence.in_first_response:,} in their first response")
    table.line(f"{'settled by Standard':<20} {standard:>5,}", "which continues what Express cannot decide")


def _ended(evidence: Evidence, transfer: Transfer) -> bool | None:
    """Test whether a transfer completed; None if it never ended."""
    end = evidence.end_of(transfer)
    return None if end is None else end.status == 200


def _afterwards(table: Table, evidence: Evidence) -> None:
    """Print the recoveries and compensations of the sagas."""
    undone = sum(row[LogAttribute.STATUS]["S"] == StepStatus.COMPENSATED for row in evidence.rows)
    refunds = [entry for entry in evidence.posted if entry.step == REFUND and entry.amount > 0]
    suspended = sum(entry.account == SUSPENSE for entry in refunds)
    refunded = _money(sum(entry.amount for entry in refunds))
    told = Counter[str]()
    for of_one in evidence.told.values():
        told += of_one
    table.section("Outcome of trouble")
    for name, number, remark in (
        ("compensations", evidence.compensations, f"sagas turned back, {undone} undid a debit"),
        ("refunds", len(refunds), f"{refunded}, {suspended} of them to suspense"),
        ("recoveries", sum(evidence.recoveries), f"of {len(evidence.recoveries)} sagas that were stopped midway"),
        ("notices sent", len(evidence.notices), f"{told['receipt']} receipts, {told['failure']} of a failure"),
    ):
        table.line(f"{name:<20} {number:>5,}", remark)


def _ledgers(table: Table, evidence: Evidence) -> None:
    table.section("Ledgers", "accounts   entries          balances          clearing")
    clearing = {MAIN: TO_PARTNER, PARTNER: FROM_MAIN}
    for name in LEDGERS:
        balances = evidence.balances(name)
        entries = sum(entry.ledger == name for entry in evidence.posted)
        passed = evidence.sum_of(name, clearing[name])
        figures = f"{len(balances):>8,} {entries:>9,} {_money(sum(balances)):>17} {_money(passed):>17}"
        table.line(f"{name:<9}", figures)
    before, after = sum(account.balance for account in evidence.plan.accounts), evidence.money
    moved = sum(t.amount * evidence.net_of(t) for t in evidence.plan.transfers)
    paint = table.style.good if before == after else table.style.bad
    table.gap()
    table.line(f"money before {_money(before)}, after {paint(_money(after))}", f"moved {_money(moved)}")
    table.line("", f"of it in suspense {_money(evidence.sum_of(MAIN, SUSPENSE))}")


def _faults(table: Table, report: Report) -> None:
    table.section("Faults", "fired / planned")
    fired: Counter[Kind] = Counter()
    planned: Counter[Kind] = Counter()
    for trouble, outcome in zip(report.evidence.troubles, report.evidence.faults.outcomes, strict=True):
        planned[trouble.kind] += 1
        fired[trouble.kind] += outcome.fired > 0
    for kind in Kind:
        paint = table.style.good if fired[kind] == planned[kind] else table.style.bad
        table.line(kind, paint(f"{fired[kind]} / {planned[kind]}"))


def _invariants(table: Table, report: Report) -> None:
    s = table.style
    table.section("Invariants", "violated / checked")
    for invariant in report.invariants:
        good = invariant.holds and invariant.checked > 0
        mark = s.good(s.tick) if good else s.bad(s.cross)
        table.line(f"{mark} {invariant.name}", f"{len(invariant.violations)} / {invariant.checked:,}")
        for violation in invariant.violations[:3]:
            table.line(s.bad(f"    {violation}"))


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _money(minor_units: int) -> str:
    amount, currency = str(Money(abs(minor_units), CURRENCY)).split()
    whole, _, cents = amount.partition(".")
    return f"{'-' if minor_units < 0 else ''}{int(whole):,}.{cents} {currency}"
