"""What a run came to: the report as data, and as a table that a person wants to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from constructs_lib.testing.invariants import Invariant
from saga_runtime.money import Money

from .checks import Evidence
from .plan import CURRENCY, Trouble
from .screen import Style, Table

_MEANING = {
    "200": "settled, or told what became of it",
    "202": "accepted",
    "400": "turned away: no key, or nonsense",
    "402": "refused: insufficient funds",
    "404": "refused: no such account",
    "409": "duplicate of one in progress",
    "413": "turned away: too large",
    "422": "key taken by another body, or refused",
    "429": "too many at once: sent again",
    "502": "gatekeeper died: sent again",
    "503": "nothing promised: sent again",
    "504": "no answer in time: sent again",
    "none": "connection lost: sent again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run came to.

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
        """Whether every invariant holds, and each looked at something."""
        return all(invariant.holds and invariant.checked for invariant in self.invariants)

    @property
    def answers(self) -> dict[str, int]:
        """How many answers there were, by status."""
        counted = Counter("none" if e.status is None else str(e.status) for e in self.evidence.exchanges)
        return dict(sorted(counted.items()))

    def settled_with(self, *, completed: bool) -> int:
        """How many keys are settled, as completed or as refused."""
        ends = [self.evidence.settled(transfer) for transfer in self.evidence.plan.transfers]
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
        table.bar(f"{status:<4} {_MEANING.get(status, ''):<38}", number, top, alarming=status in {"500", "none"})


def _transfers(table: Table, report: Report) -> None:
    evidence = report.evidence
    table.section("Transfers")
    effects = {True: Counter[int](), False: Counter[int]()}
    moved = 0
    for transfer in evidence.plan.transfers:
        end = evidence.settled(transfer)
        if end is None:
            continue
        number = evidence.effects.get((transfer.user, transfer.key), 0)
        effects[end.status == 200][number] += 1
        moved += transfer.amount * number
    for completed, name, right in ((True, "settled", 1), (False, "refused", 0)):
        counts = effects[completed]
        told = ", ".join(f"{keys} x {number}" for number, keys in sorted(counts.items())) or "none"
        paint = table.style.good if set(counts) <= {right} else table.style.bad
        table.line(f"{name:<10} {counts.total():>5,} keys", f"effects per key: {paint(told)}")
    unsettled = len(evidence.plan.transfers) - sum(counts.total() for counts in effects.values())
    if unsettled:
        table.line(f"{'open':<10} {unsettled:>5,} keys", table.style.bad("never settled"))
    before, after = sum(evidence.plan.opening.values()), evidence.money
    table.gap()
    table.line(f"{'money':<10} before {_money(before)}", f"moved {_money(moved)}")
    paint = table.style.good if before == after else table.style.bad
    table.line(f"{'':<10} after  {paint(_money(after))}", f"in {len(evidence.plan.opening)} accounts")


def _faults(table: Table, report: Report) -> None:
    table.section("Faults", "fired / planned")
    outcomes = report.evidence.faults.outcomes
    fired: Counter[Trouble] = Counter()
    planned: Counter[Trouble] = Counter()
    for (trouble, _), outcome in zip(report.evidence.plan.faults, outcomes, strict=True):
        planned[trouble] += 1
        fired[trouble] += outcome.fired > 0
    for trouble in Trouble:
        paint = table.style.good if fired[trouble] == planned[trouble] else table.style.bad
        table.line(trouble.value, paint(f"{fired[trouble]} / {planned[trouble]}"))


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
    amount, currency = str(Money(minor_units, CURRENCY)).split()
    whole, _, cents = amount.partition(".")
    return f"{int(whole):,}.{cents} {currency}"
