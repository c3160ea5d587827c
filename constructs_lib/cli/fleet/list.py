"""``cdk-sagas list``: sagas of a stack, by what they wait for, their age, their client's key, or their request."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.aws import add_aws_options, add_stack_option, one_line_errors, session_of
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.output import say

if TYPE_CHECKING:
    from constructs_lib.cli.fleet.search import Filter, Listed

_AGE: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STATUSES: Final = ("IN_PROGRESS", "COMPLETED", "FAILED")


def add_parser(commands: Any) -> None:
    """Add ``list`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list sagas of a stack, or find one",
        description="Lists sagas in progress, the oldest first, from the sparse index of open sagas; with --scan all "
        "that are remembered, from whole tables, whose size is printed beforehand. Changes nothing. Exit status: 0 "
        "listed, also if none fits; 1 a record or a table is not readable, or AWS refused a call.",
    )
    add_stack_option(parser)
    add_filter_options(parser)
    parser.add_argument("--status", choices=_STATUSES, help="status of the record (IN_PROGRESS)")
    parser.add_argument("--key", help="the client's own idempotency key; any status")
    parser.add_argument(
        "--caller",
        metavar="KIND,PART,...",
        help="with --key and --operation: the client, as iam,ACCOUNT,PRINCIPAL or jwt,ISSUER,SUBJECT; without it, "
        "clients of open sagas are tried, or with --scan all",
    )
    parser.add_argument("--contains", metavar="TEXT", help="what its request contains, an order's number; any status")
    parser.add_argument("--scan", action="store_true", help="also settled sagas: reads whole tables")
    parser.add_argument("--rate", metavar="UNITS", type=int, help="with --scan: read units a second (500)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument(
        "--lines", metavar="FILE", help="write one JSON object a line, as cdk-sagas resume reads it; - prints them"
    )
    add_aws_options(parser)
    parser.set_defaults(run=partial(_run, parser))


def add_filter_options(parser: argparse.ArgumentParser) -> None:
    """Add the conditions that are known of each open saga."""
    parser.add_argument("--parked", action="store_true", help="parked ones")
    parser.add_argument("--error", metavar="NAME", help="parked ones with this error")
    parser.add_argument("--older", metavar="AGE", type=_age, help="created longer ago: 90s, 15m, 1h, 2d")
    parser.add_argument("--operation", metavar="NAME", help="of this operation")


def _age(text: str) -> int:
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a number of s, m, h or d, like 1h, got {text!r}")
    return int(found[1]) * _UNIT_MS[found[2]]


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    for name in ("error", "operation", "key", "contains"):
        value = getattr(options, name)
        if value is not None and not value.strip():
            parser.error(f"--{name} must not be blank, got {value!r}")
    if options.status not in (None, "IN_PROGRESS") and not options.scan:
        parser.error(f"--status {options.status} needs --scan: no index has settled sagas")
    if options.rate is not None and (not options.scan or options.rate < 1):
        parser.error("--rate must be a number from 1 on, with --scan")
    if options.caller is not None and (options.key is None or options.operation is None):
        parser.error("--caller needs --key and --operation")
    session = session_of(options)
    from constructs_lib.cli.doctor.aws import Aws
    from constructs_lib.cli.doctor.scan import RATE, Scan
    from constructs_lib.cli.fleet.search import Search
    from constructs_lib.cli.shared.manifest import read_manifest

    with one_line_errors("sagas were not listed"):
        aws = Aws(session=session)
        manifest = read_manifest(aws.client("cloudformation"), options.stack)
        tables = list(dict.fromkeys(served.requests for served in manifest.served))
        if not tables:
            raise CommandError(f"{manifest.said} must have a saga, got none; name the stack of a SagaStateMachine")
        now_ms = aws.now_ms(tables[0])
        scan = Scan(aws=aws, rate=options.rate or RATE) if options.scan else None
        if scan is not None:
            scan.announce(tables)
        search = Search(aws=aws, manifest=manifest, scan=scan, unreadable=[])
        wanted = filter_of(options, now_ms)
        found = search.of(_scope(options), wanted) if options.caller is not None else search.find(wanted)
    if all(aws.was_refused(f"table {table}") for table in tables):
        raise CommandError(f"sagas were not listed: {'; '.join(f'{one.id}: {one.what}' for one in aws.denied)}")
    _print(options, found, now_ms)
    if not found and options.key is not None and options.caller is None and scan is None:
        sys.stderr.write("no client of an open saga used this key; name the client with --caller, or use --scan\n")
    for one in search.unreadable:
        sys.stderr.write(f"item {one} is not readable: see cdk-sagas doctor\n")
    for refused in aws.denied:
        sys.stderr.write(f"sagas are missing: {refused.id}: {refused.what}; {refused.then}\n")
    return 1 if search.unreadable or aws.denied else 0


def filter_of(options: argparse.Namespace, now_ms: int) -> Filter:
    """Conditions of the options."""
    from constructs_lib.cli.fleet.search import Filter

    return Filter(
        parked=options.parked or options.error is not None,
        error=options.error,
        created_before=now_ms - options.older if options.older is not None else None,
        operation=options.operation,
        status=options.status,
        text=options.contains,
        key=options.key,
    )


def _scope(options: argparse.Namespace) -> str:
    from saga_runtime.idempotency.identity import scope_of

    try:
        return scope_of(options.operation, tuple(options.caller.split(",")))
    except ValueError:
        raise CommandError(
            f"--caller must be a kind and its parts, none of them blank, got {options.caller!r}; write "
            "iam,ACCOUNT,PRINCIPAL"
        ) from None


def _print(options: argparse.Namespace, found: Sequence[Listed], now_ms: int) -> None:
    from constructs_lib.saga.graph.timeline import can_draw

    documents = [dataclasses.asdict(one) for one in found]
    if options.json:
        say(json.dumps({"now": now_ms, "sagas": documents}, indent=2) + "\n")
    elif options.lines is not None:
        _write(options.lines, "".join(json.dumps(one) + "\n" for one in documents))
    else:
        say(text_of(found, now_ms, unicode=can_draw(sys.stdout.encoding)))


def _write(file: str, lines: str) -> None:
    if file == "-":
        say(lines)
        return
    try:
        Path(file).write_text(lines, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--lines must be a file that can be written, got {file}: {error.strerror}") from None
    say(f"{lines.count(chr(10)):,} in {file}\n")


def text_of(found: Sequence[Listed], now_ms: int, *, unicode: bool = True) -> str:
    """Return sagas as a table; ids are never cut."""
    from constructs_lib.saga.graph.terminal import clean
    from constructs_lib.saga.graph.timeline import duration

    if not found:
        return "no saga fits\n"
    rows = [("saga", "state", "age", "operation", "parked at", "moves")]
    for saga in found:
        moves = f"{saga.amount:,} {saga.currency}" if saga.amount is not None else ""
        where = ": ".join(part for part in (saga.step, saga.error) if part)
        state = "PARKED" if saga.parked else saga.status
        age = duration(max(now_ms - saga.created_at, 0))
        operation = clean(saga.operation or saga.path, unicode=unicode)
        rows.append((saga.saga_id, state, age, operation, clean(where, unicode=unicode), moves))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    count = "1 saga" if len(found) == 1 else f"{len(found):,} sagas"
    return "\n".join(lines) + f"\n{count}, {sum(saga.parked != '' for saga in found):,} parked\n"
