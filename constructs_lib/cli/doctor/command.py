"""``cdk-sagas doctor``: the command, its report as text, and its report as a document."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.text import Text

from constructs_lib.cli.doctor.findings import (
    Finding,
    Flight,
    Kind,
    Severity,
    by_nobody,
    exit_status,
    ordered,
    while_held,
)
from constructs_lib.cli.doctor.jobs import Tokens, Watched
from constructs_lib.cli.doctor.records import Records
from constructs_lib.cli.doctor.repair import Repairer
from constructs_lib.cli.doctor.system import System, part_findings, read_system
from constructs_lib.cli.doctor.tables import Contradictions, Deep
from constructs_lib.cli.shared.aws import add_stack_options, one_line_errors, options_again, session_of
from constructs_lib.cli.shared.process import QUIET, environment, moment, say
from constructs_lib.cli.shared.reads import RATE, Aws, Scan, patient
from constructs_lib.cli.shared.saga import Asker, audit_of, require_reason_with
from constructs_lib.cli.shared.terminal import Line, Screen, counted, whole_seconds
from saga_runtime.shared import aws as runtime


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``doctor``, and add its options."""
    parser.description = (
        "Checks everything of a stack that is in flight, or that needs attention: sagas, jobs, "
        "queues, and the functions that reconcile them. Changes nothing without --repair. Exit status: 0 no operator "
        "action is required; 1 operator action is required, or a part, or everything, could not be checked; 2 wrong "
        "options; 130 interrupted."
    )
    add_stack_options(parser)
    parser.add_argument("--log-table", help="saga log of sagas whose state machine was replaced in the stack")
    parser.add_argument("--full-scan", action="store_true", help="also read whole tables: prints the reads beforehand")
    parser.add_argument(
        "--rate", metavar="UNITS", type=_positive, help="with --full-scan: at most so many read units a second (500)"
    )
    parser.add_argument("--repair", action="store_true", help="repair what needs no operator")
    parser.add_argument("--reason", help="with --repair, and needed: why; kept with each saga that is repaired")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, with everything in it")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if options.rate is not None and not options.full_scan:
        options.misused("--rate is about --full-scan")
    require_reason_with("--repair", options.reason, changes=options.repair)
    session = session_of(options)
    with one_line_errors("not everything was checked"), environment(QUIET), runtime.clients_of(patient(session)):
        report = _report(options, session)
    as_json = json.dumps(document_of(report), indent=2) + "\n"
    say(as_json if options.json else text_of(report, Screen.of(sys.stdout)))
    return exit_status(report.findings)


def _report(options: argparse.Namespace, session: Any) -> Report:
    aws = Aws(session=session)
    system = read_system(aws, options.stack)
    records = Records(
        aws=aws,
        sagas=system.sagas,
        now_ms=aws.now_ms(system.tables[0]),
        more=options_again(options),
        log=options.log_table or "",
    )
    more = options_again(options, "profile", "region")
    of_records = records.look()
    found = [
        *part_findings(system, more, parked=records.parked),
        *of_records,
        *_deeper(options, aws, system, records),
        *records.overdue,
    ]
    found = [by_nobody(one) if one.saga is not None and not records.attended(one.saga) else one for one in found]
    not_checked = (Finding(Kind.NOT_CHECKED, Severity.OPERATOR, one.what, one.then, id=one.id) for one in aws.denied)
    findings = ordered([*(while_held(one) for one in found), *not_checked])
    if options.repair:
        asker = Asker.of(aws.session, system.manifest)
        audit = audit_of(session, options.reason)
        findings = Repairer(records=records, system=system, audit=audit, asker=asker).repair(findings)
    findings = [records.with_money(one) for one in findings]
    return Report(
        system=system.manifest.said,
        now_ms=records.now_ms,
        sagas=sorted({saga.served.machine for saga in system.sagas if saga.served.machine}),
        records=records.looked_at,
        token_tables=system.token_tables,
        deep=options.full_scan,
        repair=options.repair,
        flight=records.flight,
        findings=findings,
    )


def _deeper(options: argparse.Namespace, aws: Aws, system: System, records: Records) -> list[Finding]:
    """Token tables, what is kept of hand-written machines, and with ``--full-scan`` whole tables."""
    watches = [Watched(aws=aws, watch=watch, now_ms=records.now_ms) for watch in system.manifest.watches]
    scan = Scan(aws=aws, rate=options.rate or RATE) if options.full_scan else None
    found: list[Finding] = []
    deep = None
    if scan is not None:
        contradictions = Contradictions(records=records, scan=scan, ledgers=system.manifest.ledgers)
        deep = Deep(records=records, scan=scan, contradictions=contradictions)
        scan.announce([*deep.tables(), *system.token_tables, *(watch.table for watch in watches)])
    for table in system.token_tables:
        at = system.integration_of(table)
        found += Tokens(records=records, table=table, swept=system.sweeps(table), integration=at).look(scan)
    for watch in watches:
        found += aws.gathered(f"table {watch.table}", watch.look(scan))
    if deep is not None:
        late = {one.id for one in found if one.kind is Kind.LATE}
        found += [one for one in deep.look() if one.kind is not Kind.LATE or one.id not in late]
    return found


_TITLES: Final = {
    Severity.OPERATOR: "needs an operator",
    Severity.REPAIR: "needs --repair",
    Severity.SOON: "repaired soon",
    Severity.OK: "nothing to do",
}
_STYLES: Final = {
    Severity.OPERATOR: "bold red",
    Severity.REPAIR: "bold yellow",
    Severity.SOON: "cyan",
    Severity.OK: "dim",
}
_REPAIRED: Final = "green"
_SHOWN: Final = tuple("kind severity id what then since command saga_id table amount currency repaired".split())
"""Fields of a finding in the document."""


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


def text_of(report: Report, screen: Screen) -> str:
    """The whole text."""
    findings = report.findings
    rows = screen.table([_row(one, report.now_ms) for one in findings], name=1) if findings else []
    lines = {id(one): row for one, row in zip(findings, rows, strict=True)}
    sections = (
        [
            Text(f"{title} ({len(found)})", style),
            *(line for one in found for line in (*lines[id(one)], *_below(one, screen))),
        ]
        for title, style, found in _groups(findings)
    )
    return screen.text(_head(report, screen), *sections, [_sum(findings)])


def _groups(findings: Sequence[Finding]) -> Iterator[tuple[str, str, list[Finding]]]:
    """Findings under their titles; repaired ones that need no more action, under their own."""
    for severity, title in _TITLES.items():
        found = [one for one in findings if one.severity is severity and (one.open or not one.repaired)]
        if found:
            yield title, _STYLES[severity], found
    if repaired := [one for one in findings if one.repaired and not one.open]:
        yield "repaired", _REPAIRED, repaired


def _head(report: Report, screen: Screen) -> Iterator[Line]:
    flight = report.flight
    looked = [counted(len(report.sagas), "saga"), counted(report.records, "record")]
    if report.token_tables:
        looked.append(counted(len(report.token_tables), "token table"))
    lines = [
        f"{report.system}, {moment(report.now_ms)}",
        f"checked: {', '.join(looked)}{', and whole tables' if report.deep else ''}",
    ]
    least = "" if flight.complete else "at least "
    if flight.sagas and flight.oldest is not None:
        age = whole_seconds(report.now_ms - flight.oldest)
        lines.append(f"in flight: {least}{counted(flight.sagas, 'saga')}, {flight.parked} parked, the oldest for {age}")
    if flight.money:
        amounts = ", ".join(f"{currency} {amount:,}" for currency, amount in flight.money.items())
        lines.append(f"money in flight, in minor units: {least}{amounts}")
    if not flight.complete and not flight.sagas:
        lines.append("in flight: not known")
    return (line for text in lines for line in screen.paragraph(text))


def _row(finding: Finding, now_ms: int) -> tuple[str, str, str, str]:
    if finding.since is None:
        return finding.kind, finding.id, "", ""
    return finding.kind, finding.id, moment(finding.since).removesuffix(" UTC"), whole_seconds(now_ms - finding.since)


def _below(finding: Finding, screen: Screen) -> Iterator[Line]:
    yield from screen.paragraph(finding.what, 6)
    if finding.amount is not None:
        yield from screen.paragraph(f"it moves {finding.currency} {finding.amount:,}, in minor units", 6)
    if finding.repaired:
        yield from screen.paragraph(f"repaired: {finding.repaired}", 6, style=_REPAIRED)
        if not finding.open:
            return
    yield from screen.paragraph(finding.then, 9, "-> ")
    if finding.command:
        yield f"         {screen.clean(finding.command)}"


def _sum(findings: Sequence[Finding]) -> Line:
    if not findings:
        return Text("nothing found", _REPAIRED)
    titles = [f"{title}: {len(found)}" for title, _, found in _groups(findings)]
    left = sum(finding.open for finding in findings)
    return "; ".join([*titles, f"{left} left to do" if left else "nothing left to do"])


def document_of(report: Report) -> dict[str, Any]:
    """Everything that was found, as JSON can hold it."""
    totals = Counter(finding.severity for finding in report.findings)
    return {
        "system": report.system,
        "now": report.now_ms,
        "sagas": list(report.sagas),
        "records": report.records,
        "token_tables": list(report.token_tables),
        "deep": report.deep,
        "repair": report.repair,
        "in_flight": asdict(report.flight),
        "findings": [_entry(finding, report.now_ms) for finding in report.findings],
        "totals": {severity: totals[severity] for severity in Severity},
    }


def _entry(finding: Finding, now_ms: int) -> dict[str, Any]:
    shown = {name: getattr(finding, name) for name in _SHOWN}
    saga = finding.saga.served if finding.saga is not None else None
    return shown | {
        "machine": saga.machine if saga is not None else "",
        "request_table": saga.requests if saga is not None else "",
        "age_ms": max(now_ms - finding.since, 0) if finding.since is not None else None,
        "open": finding.open,
    }
