"""Findings as a table for a terminal, or as a document. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.cli.doctor.findings import Finding, Flight, Severity
from constructs_lib.cli.shared.moments import moment
from constructs_lib.saga.graph.terminal import cells, clean, pad, widest, wrap
from constructs_lib.saga.graph.timeline import duration

_GAP: Final = "  "
_TITLES: Final = {
    Severity.OPERATOR: "needs an operator",
    Severity.REPAIR: "needs --repair",
    Severity.SOON: "repaired soon",
    Severity.OK: "nothing to do",
}
_COLOURS: Final = {Severity.OPERATOR: "31;1", Severity.REPAIR: "33;1", Severity.SOON: "36", Severity.OK: "2"}
_REPAIRED_TITLE: Final = "repaired"
_REPAIRED: Final = "32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Checked resources, and findings.

    Attributes:
        system: the checked resources.
        now_ms: when.
        sagas: names of the sagas' machines.
        records: how many records were read.
        token_tables: those that were read.
        deep: whether whole tables were.
        repair: whether it was repaired.
        flight: what is in flight.
        findings: in their order.
    """

    system: str
    now_ms: int
    sagas: Sequence[str]
    records: int
    token_tables: Sequence[str] = ()
    deep: bool = False
    repair: bool = False
    flight: Flight = field(default_factory=Flight)
    findings: Sequence[Finding] = ()


def text_of(report: Report, *, width: int = 100, unicode: bool = True, colour: bool = False) -> str:
    """The whole text.

    Args:
        report: what was found.
        width: columns of the terminal. Commands and ids are never wrapped, and never cut: they are to be copied.
        unicode: whether the terminal shows more than ASCII.
        colour: whether it shows colours.
    """
    page = _Page(report=report, width=max(width, 60), unicode=unicode, colour=colour)
    return "\n\n".join("\n".join(part) for part in page.parts()) + "\n"


def document_of(report: Report) -> dict[str, Any]:
    """Everything that was found, as JSON can hold it."""
    flight = report.flight
    return {
        "system": report.system,
        "now": report.now_ms,
        "sagas": list(report.sagas),
        "records": report.records,
        "token_tables": list(report.token_tables),
        "deep": report.deep,
        "repair": report.repair,
        "in_flight": {
            "sagas": flight.sagas,
            "parked": flight.parked,
            "oldest": flight.oldest,
            "money": dict(flight.money),
            "complete": flight.complete,
        },
        "findings": [_entry(finding, report.now_ms) for finding in report.findings],
        "totals": dict(_totals(report)),
    }


def _entry(finding: Finding, now_ms: int) -> dict[str, Any]:
    shown = {
        one.name: getattr(finding, one.name)
        for one in dataclasses.fields(finding)
        if one.name not in ("saga", "repair")
    }
    saga = finding.saga.served if finding.saga is not None else None
    return shown | {
        "machine": saga.machine if saga is not None else "",
        "request_table": saga.requests if saga is not None else "",
        "age_ms": max(now_ms - finding.since, 0) if finding.since is not None else None,
        "open": finding.open,
    }


def _totals(report: Report) -> dict[Severity, int]:
    counted = Counter(finding.severity for finding in report.findings)
    return {severity: counted[severity] for severity in Severity}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    report: Report
    width: int
    unicode: bool
    colour: bool

    def parts(self) -> Iterator[list[str]]:
        yield self._head()
        for title, colour, found in self._groups():
            yield self._section(f"{title} ({len(found)})", colour, found)
        yield [self._sum()]

    def _groups(self) -> Iterator[tuple[str, str, list[Finding]]]:
        """Findings under their titles; repaired ones that need no more action, under their own."""
        findings = self.report.findings
        left = [one for one in findings if one.open or not one.repaired]
        for severity, title in _TITLES.items():
            found = [one for one in left if one.severity is severity]
            if found:
                yield title, _COLOURS[severity], found
        if repaired := [one for one in findings if one.repaired and not one.open]:
            yield _REPAIRED_TITLE, _REPAIRED, repaired

    def _head(self) -> list[str]:
        report, flight = self.report, self.report.flight
        looked = [_counted(len(report.sagas), "saga"), _counted(report.records, "record")]
        if report.token_tables:
            looked.append(_counted(len(report.token_tables), "token table"))
        lines = [
            f"{report.system}, {moment(report.now_ms)}",
            f"checked: {', '.join(looked)}{', and whole tables' if report.deep else ''}",
        ]
        least = "" if flight.complete else "at least "
        if flight.sagas and flight.oldest is not None:
            age = _whole(report.now_ms - flight.oldest)
            sagas = _counted(flight.sagas, "saga")
            lines.append(f"in flight: {least}{sagas}, {flight.parked} parked, the oldest for {age}")
        if flight.money:
            amounts = ", ".join(f"{currency} {amount:,}" for currency, amount in flight.money.items())
            lines.append(f"money in flight, in minor units: {least}{amounts}")
        if not flight.complete and not flight.sagas:
            lines.append("in flight: not known")
        return [line for text in lines for line in wrap(self._show(text), self.width)]

    def _section(self, title: str, colour: str, found: Sequence[Finding]) -> list[str]:
        kinds, times, ages = self._columns()
        room = self.width - sum((kinds, times, ages)) - 4 * len(_GAP)
        room = max((size for size in self._sizes() if size <= room), default=0)
        lines = [self._painted(title, colour)]
        for one in found:
            name, (when, age) = self._show(one.id), self._since(one)
            fits = cells(name) <= room
            named = [pad(name if fits else "", room)] if room else []
            columns = [pad(one.kind, kinds), *named, pad(when, times), pad(age, ages, right=True)]
            lines.append(f"{_GAP}{_GAP.join(columns)}".rstrip())
            lines += [] if fits else [f"      {name}"]
            lines += self._below(one)
        return lines

    def _sizes(self) -> Iterator[int]:
        return (cells(self._show(one.id)) for one in self.report.findings)

    def _columns(self) -> tuple[int, int, int]:
        """Widths, the same in every part of the table."""
        findings = self.report.findings
        since = [self._since(one) for one in findings]
        return (
            widest([one.kind for one in findings]),
            widest([when for when, _ in since]),
            widest([age for _, age in since]),
        )

    def _since(self, finding: Finding) -> tuple[str, str]:
        if finding.since is None:
            return "", ""
        return moment(finding.since).removesuffix(" UTC"), _whole(self.report.now_ms - finding.since)

    def _below(self, finding: Finding) -> Iterator[str]:
        room = self.width - 6
        yield from (f"      {line}" for line in wrap(self._show(finding.what), room))
        if finding.amount is not None:
            moves = f"it moves {finding.currency} {finding.amount:,}, in minor units"
            yield from (f"      {line}" for line in wrap(self._show(moves), room))
        if finding.repaired:
            for line in wrap(self._show(f"repaired: {finding.repaired}"), room):
                yield f"      {self._painted(line, _REPAIRED)}"
            if not finding.open:
                return
        for place, line in enumerate(wrap(self._show(finding.then), room - 3)):
            yield f"      {'   ' if place else '-> '}{line}"
        if finding.command:
            yield f"         {clean(finding.command, unicode=self.unicode)}"

    def _sum(self) -> str:
        report = self.report
        if not report.findings:
            return self._painted("nothing found", _REPAIRED)
        counted = [f"{title}: {len(found)}" for title, _, found in self._groups()]
        left = sum(finding.open for finding in report.findings)
        return "; ".join([*counted, f"{left} left to do" if left else "nothing left to do"])

    def _show(self, text: str) -> str:
        return clean(text, unicode=self.unicode)

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self.colour and cells(text) else text


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _whole(milliseconds: int) -> str:
    """A duration in whole seconds."""
    show: Callable[[int], str] = duration
    return show(max(milliseconds, 0) // 1_000 * 1_000).removeprefix("0 ms") or "0 s"
