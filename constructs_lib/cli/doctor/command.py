"""``cdk-sagas doctor``: stuck sagas in a deployed stack, their repairs, and an operator's tasks."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from constructs_lib.cli.shared.aws import (
    add_aws_options,
    add_stack_option,
    environment,
    one_line_errors,
    options_again,
    session_of,
)
from constructs_lib.cli.shared.output import say

if TYPE_CHECKING:
    from constructs_lib.cli.doctor.aws import Aws
    from constructs_lib.cli.doctor.findings import Finding
    from constructs_lib.cli.doctor.records import Records
    from constructs_lib.cli.doctor.stack import System
    from constructs_lib.cli.doctor.text import Report

_QUIET = {"POWERTOOLS_LOG_LEVEL": "CRITICAL", "POWERTOOLS_METRICS_DISABLED": "true"}
"""The runtime's own log is for CloudWatch; the command prints what it does."""


def add_parser(commands: Any) -> None:
    """Add ``doctor`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="find what is stuck in a deployed stack, and repair it",
        description="Checks everything of a stack that is in flight, or that needs attention: sagas, jobs, "
        "queues, and the functions that reconcile them. Changes nothing without --repair. Exit status: 0 no operator "
        "action is required; 1 operator action is required, or a part, or everything, could not be checked; 2 wrong "
        "options; 130 interrupted.",
    )
    add_stack_option(parser)
    parser.add_argument("--log-table", help="saga log of sagas whose state machine was replaced in the stack")
    parser.add_argument("--full-scan", action="store_true", help="also read whole tables: prints the reads beforehand")
    parser.add_argument(
        "--rate", metavar="UNITS", type=_positive, help="with --full-scan: at most so many read units a second (500)"
    )
    parser.add_argument("--repair", action="store_true", help="repair what needs no operator")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, with everything in it")
    add_aws_options(parser)
    parser.set_defaults(run=partial(_run, parser))


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return value


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.rate is not None and not options.full_scan:
        parser.error("--rate is about --full-scan")
    session = session_of(options)
    from constructs_lib.cli.doctor.aws import patient
    from constructs_lib.cli.doctor.findings import exit_status
    from saga_runtime.shared import aws as runtime

    with one_line_errors("not everything was checked"), environment(_QUIET), runtime.clients_of(patient(session)):
        report = _report(options, session)
    _print(report, as_json=options.json)
    return exit_status(report.findings)


def _report(options: argparse.Namespace, session: Any) -> Report:
    from constructs_lib.cli.doctor.aws import Aws
    from constructs_lib.cli.doctor.findings import by_nobody, ordered, while_held
    from constructs_lib.cli.doctor.records import Records
    from constructs_lib.cli.doctor.repair import Repairer
    from constructs_lib.cli.doctor.resource_findings import part_findings
    from constructs_lib.cli.doctor.stack import read_system
    from constructs_lib.cli.doctor.text import Report

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
    findings = ordered([*(while_held(one) for one in found), *aws.denied])
    if options.repair:
        findings = Repairer(records=records, system=system).repair(findings)
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
    from constructs_lib.cli.doctor.contradictions import Contradictions
    from constructs_lib.cli.doctor.findings import Kind
    from constructs_lib.cli.doctor.saga_log_scan import Deep
    from constructs_lib.cli.doctor.scan import RATE, Scan
    from constructs_lib.cli.doctor.tokens import Tokens
    from constructs_lib.cli.doctor.watched import Watched

    watches = [Watched(aws=aws, watch=watch, now_ms=records.now_ms) for watch in system.manifest.watches]
    scan = Scan(aws=aws, rate=options.rate or RATE) if options.full_scan else None
    found: list[Finding] = []
    deep = None
    if scan is not None:
        contradictions = Contradictions(records=records, scan=scan, ledgers=system.manifest.ledgers)
        deep = Deep(records=records, scan=scan, contradictions=contradictions)
        scan.announce([*deep.tables(), *system.token_tables, *(watch.table for watch in watches)])
    for table in system.token_tables:
        found += Tokens(records=records, table=table, swept=system.sweeps(table)).look(scan)
    for watch in watches:
        found += aws.gathered(f"table {watch.table}", watch.look(scan))
    if deep is not None:
        late = {one.id for one in found if one.kind is Kind.LATE}
        found += [one for one in deep.look() if one.kind is not Kind.LATE or one.id not in late]
    return found


def _print(report: Report, *, as_json: bool) -> None:
    from constructs_lib.cli.doctor.text import document_of, text_of
    from constructs_lib.saga.graph.timeline import can_draw

    if as_json:
        say(json.dumps(document_of(report), indent=2) + "\n")
        return
    width = shutil.get_terminal_size((100, 40)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    say(text_of(report, width=width, unicode=can_draw(sys.stdout.encoding), colour=colour))
