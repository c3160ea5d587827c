"""``cdk-sagas list``: sagas of a stack, by what they wait for, their age, their client's key, or their request.

The command, its table, and the search: in the sparse index of what is open, or in whole tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from constructs_lib.cli.doctor.system import read_switches
from constructs_lib.cli.shared.aws import add_stack_options, one_line_errors, session_of
from constructs_lib.cli.shared.manifest import Manifest, read_manifest
from constructs_lib.cli.shared.process import CommandError, say
from constructs_lib.cli.shared.reads import RATE, UNREADABLE, Aws, Item, Scan, all_of
from constructs_lib.cli.shared.terminal import Screen, counted, safe
from constructs_lib.saga.graph.timeline import duration
from saga_runtime.idempotency.identity import request_id_of, scope_of
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute, RecordStatus
from saga_runtime.recovery.hold import Held
from saga_runtime.recovery.lists import stuck_at
from saga_runtime.recovery.proposals import Proposal
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.decisions import Decision

_AGE: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STATUSES: Final = ("IN_PROGRESS", "COMPLETED", "FAILED")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``list``, and add its options."""
    parser.description = (
        "Lists sagas in progress, the oldest first, from the sparse index of open sagas; with --scan all "
        "that are remembered, from whole tables, whose size is printed beforehand. Changes nothing. Exit status: 0 "
        "listed, also if none fits; 1 a record or a table is not readable, or AWS refused a call."
    )
    add_stack_options(parser)
    parser.add_argument("--parked", action="store_true", help="parked ones")
    parser.add_argument("--error", metavar="NAME", help="parked ones with this error")
    parser.add_argument("--older", metavar="AGE", type=_age, help="created longer ago: 90s, 15m, 1h, 2d")
    parser.add_argument("--operation", metavar="NAME", help="of this operation")
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


def _age(text: str) -> int:
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a number of s, m, h or d, like 1h, got {text!r}")
    return int(found[1]) * _UNIT_MS[found[2]]


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    for name in ("error", "operation", "key", "contains"):
        value = getattr(options, name)
        if value is not None and not value.strip():
            options.misused(f"--{name} must not be blank, got {value!r}")
    if options.status not in (None, "IN_PROGRESS") and not options.scan:
        options.misused(f"--status {options.status} needs --scan: no index has settled sagas")
    if options.status not in (None, "IN_PROGRESS") and (options.parked or options.error is not None):
        options.misused(f"--parked and --error need an open saga, got --status {options.status}")
    if options.rate is not None and (not options.scan or options.rate < 1):
        options.misused("--rate must be a number from 1 on, with --scan")
    if options.caller is not None and (options.key is None or options.operation is None):
        options.misused("--caller needs --key and --operation")
    session = session_of(options)
    with one_line_errors("sagas were not listed"):
        aws = Aws(session=session)
        manifest = read_manifest(aws.client("cloudformation"), options.stack)
        tables = manifest.requests
        if not tables:
            raise CommandError(f"{manifest.said} must have a saga, got none; name the stack of a SagaStateMachine")
        now_ms = aws.now_ms(tables[0])
        scan = Scan(aws=aws, rate=options.rate or RATE) if options.scan else None
        if scan is not None:
            scan.announce(tables)
        search = Search(aws=aws, manifest=manifest, scan=scan, unreadable=[])
        wanted = filter_of(options, now_ms)
        found = search.of(_scope(options), wanted) if options.caller is not None else search.find(wanted)
        found = _with_holds(Aws(session=session), manifest, found)
    if all(aws.was_refused(f"table {table}") for table in tables):
        raise CommandError(f"sagas were not listed: {'; '.join(f'{one.id}: {one.what}' for one in aws.denied)}")
    _print(options, found, now_ms)
    if not found and options.key is not None and options.caller is None and scan is None:
        sys.stderr.write("no client of an open saga used this key; name the client with --caller, or use --scan\n")
    for one in search.unreadable:
        sys.stderr.write(f"item {safe(one)} is not readable: see cdk-sagas doctor\n")
    for refused in aws.denied:
        sys.stderr.write(f"sagas are missing: {refused.id}: {refused.what}; {refused.then}\n")
    return 1 if search.unreadable or aws.denied else 0


def filter_of(options: argparse.Namespace, now_ms: int) -> Filter:
    """Conditions of the options."""
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
    try:
        return scope_of(options.operation, tuple(options.caller.split(",")))
    except ValueError:
        raise CommandError(
            f"--caller must be a kind and its parts, none of them blank, got {options.caller!r}; write "
            "iam,ACCOUNT,PRINCIPAL"
        ) from None


def _print(options: argparse.Namespace, found: Sequence[Listed], now_ms: int) -> None:
    documents = [dataclasses.asdict(one) for one in found]
    if options.json:
        say(json.dumps({"now": now_ms, "sagas": documents}, indent=2) + "\n")
    elif options.lines is not None:
        _write(options.lines, "".join(json.dumps(one) + "\n" for one in documents))
    else:
        say(text_of(found, now_ms, Screen.of(sys.stdout)))


def _write(file: str, lines: str) -> None:
    if file == "-":
        say(lines)
        return
    try:
        Path(file).write_text(lines, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--lines must be a file that can be written, got {file}: {error.strerror}") from None
    say(f"{lines.count(chr(10)):,} in {file}\n")


def text_of(found: Sequence[Listed], now_ms: int, screen: Screen) -> str:
    """Return sagas as a table; ids are never cut."""
    if not found:
        return "no saga fits\n"
    rows = [("saga", "state", "age", "operation", "parked at", "moves")]
    for saga in found:
        moves = f"{saga.amount:,} {saga.currency}" if saga.amount is not None else ""
        where = ": ".join(part for part in (saga.step, saga.error) if part)
        proposed = ", ".join(str(one.number) for one in saga.proposals if now_ms < one.expires_at)
        more = f"{f', proposed {proposed}' if proposed else ''}{', held' if saga.held is not None else ''}"
        state = f"{'PARKED' if saga.parked else saga.status}{more}"
        age = duration(max(now_ms - saga.created_at, 0))
        rows.append((saga.saga_id, state, age, saga.operation or saga.path, where, moves))
    lines = [line for row in screen.table(rows, indent=0) for line in row]
    return screen.text([*lines, f"{counted(len(found), 'saga')}, {sum(saga.parked != '' for saga in found):,} parked"])


_A: Final = RecordAttribute
_NAMES: Final = tuple(RecordAttribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfirmed:
    """A proposal, by its number, and when it expires; epoch milliseconds."""

    number: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A saga, as its record has it.

    Attributes:
        saga_id: the saga.
        path: of its construct; the name of its state machine if its stack has that no more.
        operation: what the request asked for; empty: not recorded.
        status: of the record.
        created_at, updated_at: epoch milliseconds.
        recoveries: how many there were.
        parked: the execution that parked it; empty: it is not parked.
        step, error: where it was parked, and why; empty: it is not.
        amount, currency: what it moves, in minor units; None and empty: not recorded.
        scope: digest of its operation and its client.
        proposals: those that a second operator may confirm, as far as the record shows.
        held: since when, why and by whom this saga is held alone; None: it is not, it is settled, or that is not known.
    """

    saga_id: str
    path: str
    operation: str
    status: str
    created_at: int
    updated_at: int
    recoveries: int
    parked: str
    step: str
    error: str
    amount: int | None
    currency: str
    scope: str
    proposals: tuple[Unconfirmed, ...] = ()
    held: Held | None = None


def _with_holds(aws: Aws, manifest: Manifest, found: Sequence[Listed]) -> list[Listed]:
    """Sagas, those in progress each with its own hold; a table of holds that may not be read hides no saga."""

    def with_hold(one: Listed) -> Listed:
        if one.status != RecordStatus.IN_PROGRESS:
            return one
        holds = (switch.held for switch in read_switches(aws, manifest, one.saga_id))
        return replace(one, held=next((held for held in holds if held is not None), None))

    listed = all_of(with_hold, found)
    for refused in aws.denied:
        sys.stderr.write(f"which sagas are held is not known: {refused.id}: {refused.what}\n")
    return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions, all of which a listed saga fits; None: any.

    Attributes:
        parked: whether it must be parked.
        error: name of the error with which it was parked.
        created_before: epoch milliseconds.
        status: of its record; without one, and without ``key`` and ``text``, sagas in progress.
        operation: name of the operation.
        text: what its request contains, an order's number for example; a response's removal removes that, too.
        key: the client's idempotency key.
    """

    parked: bool = False
    error: str | None = None
    created_before: int | None = None
    status: str | None = None
    operation: str | None = None
    text: str | None = None
    key: str | None = None

    def fits(self, saga: Listed, request: str) -> bool:
        """Test whether a saga fits: all but its key, which is not stored."""
        any_status = self.status is None and (self.text is not None or self.key is not None)
        return (
            (any_status or saga.status == (self.status or RecordStatus.IN_PROGRESS))
            and (saga.parked != "" or not self.parked)
            and self.error in (None, saga.error)
            and self.operation in (None, saga.operation)
            and (self.created_before is None or saga.created_at <= self.created_before)
            and (self.text is None or self.text in request)
        )


@dataclass(slots=True, kw_only=True)
class Search:
    """Searches the request tables of some stacks. No table hides another one's sagas.

    An open saga that it finds was read strongly; a settled one does not change any more.

    Attributes:
        unreadable: ids of items with a saga id that are not records.
    """

    aws: Aws
    manifest: Manifest
    scan: Scan | None
    unreadable: list[str]
    _paths: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._paths = {saga.arn: saga.path for saga in self.manifest.sagas}

    def find(self, wanted: Filter) -> list[Listed]:
        """Sagas that fit, the oldest first."""
        found = self._of_each(lambda table: self._fitting(table, wanted))
        return sorted(found, key=lambda saga: (saga.created_at, saga.saga_id))

    def of(self, scope: str, wanted: Filter) -> list[Listed]:
        """The saga of a client's key, by the digest of its operation and its client."""
        ids = [request_id_of(scope, wanted.key or "")]
        return self._of_each(lambda table: [one for one, text in self._read(table, ids) if wanted.fits(one, text)])

    def _of_each(self, look: Callable[[str], list[Listed]]) -> list[Listed]:
        """Sagas of all tables that can be read; ``aws.denied`` has the others."""
        read = [self.aws.allowed(f"table {table}", partial(look, table)) for table in self.manifest.requests]
        return [saga for found in read if found is not None for saga in found]

    def _fitting(self, table: str, wanted: Filter) -> list[Listed]:
        read = self._every(table)
        if wanted.key is not None:
            scopes = dict.fromkeys(saga.scope for saga, _ in read)
            read = self._read(table, list(dict.fromkeys(request_id_of(scope, wanted.key) for scope in scopes)))
        return [saga for saga, request in read if wanted.fits(saga, request)]

    def _every(self, table: str) -> Iterator[tuple[Listed, str]]:
        """Sagas of a table, of which no more than a page is held; without a scan the open ones.

        A settled saga remains what the scan has. Any other one is read again, strongly.
        """
        if self.scan is None:
            yield from self._read(table, list(self._open(table)))
            return
        again: list[str] = []
        for item in self.scan.items(table, _NAMES):
            if _A.SAGA_ID not in item:
                continue
            try:
                record = RequestRecord.from_item(item)
                found = (self._listed(record, item), record.input) if record.settled else None
            except UNREADABLE:
                found = None
            if found is not None:
                yield found
            else:
                again.append(str(item[_A.ID]["S"]))
        yield from self._read(table, again)

    def _open(self, table: str) -> Iterator[str]:
        return self.aws.due(table, max(served.shards for served in self.manifest.served if served.requests == table))

    def _read(self, table: str, ids: Sequence[str]) -> Iterator[tuple[Listed, str]]:
        """Records with the texts of their requests; other writers' items are left out."""
        for item in self.aws.read_ids(table, ids):
            if _A.SAGA_ID not in item:
                continue
            try:
                record = RequestRecord.from_item(item)
                yield self._listed(record, item), record.input
            except UNREADABLE:
                self.unreadable.append(str(item[_A.ID]["S"]))

    def _listed(self, record: RequestRecord, item: Item) -> Listed:
        return _listed(record, item, self._paths.get)


def _listed(record: RequestRecord, item: Item, path: Callable[[str], str | None]) -> Listed:
    machine = machine_of(record.execution_arn)
    stuck, proposals = stuck_at(record), Proposal.all_of(item)
    return Listed(
        saga_id=record.saga_id,
        path=path(machine) or machine.rpartition(":")[2],
        operation=str(item.get(_A.OPERATION, {}).get("S", "")),
        status=record.status,
        created_at=record.created_at,
        updated_at=record.updated_at,
        recoveries=record.recoveries,
        parked=record.parked_by or "",
        step=str(stuck.get("step", "")),
        error=str(stuck.get("error", "")),
        amount=int(item[_A.AMOUNT]["N"]) if _A.AMOUNT in item else None,
        currency=str(item.get(_A.CURRENCY, {}).get("S", "")),
        scope=record.scope,
        proposals=tuple(
            Unconfirmed(number=one.number, expires_at=one.expires_at)
            for one in proposals
            if one.is_open(record, proposals, Decision.all_of(item), record.created_at)
        ),
    )
