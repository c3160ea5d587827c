"""``cdk-sagas once``: run a command once in each period, however often and wherever it is started."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import subprocess
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from constructs_lib.cli.shared.aws import add_aws_options, one_line_errors, options_again, session_of
from constructs_lib.cli.shared.manifest import read_manifest
from constructs_lib.cli.shared.process import CommandError, moment, say
from constructs_lib.cli.shared.reads import Aws
from constructs_lib.cli.shared.saga import PLACEHOLDER, audit_of, require_reason_with, say_decisions
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.protocol import ONCE_PREFIX, OnceAttribute, RecordAttribute
from saga_runtime.shared import writes
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.decisions import Decision, decided, grown, stored
from saga_runtime.shared.expressions import RETURNS_ITEM, update, when

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RUN: Final = re.compile(r"[0-9a-f]{32}")
_PERIOD: Final = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNIT_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_KEPT_MS: Final = 90 * _UNIT_MS["d"]
_SHOWN: Final = 500
_RUNNING_STATUS: Final = 75
"""EX_TEMPFAIL of sysexits.h."""
_NOT_FOUND: Final = 127


class State(StrEnum):
    """States of a run."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run of one period.

    Attributes:
        owner: id of the process that made it.
        state: its state.
        host: where it was started.
        started_at: epoch milliseconds.
        exit_status: the command's, None while it is running.
        decisions: those to run it again, or that it is done, the earliest first.
    """

    owner: str
    state: State
    host: str
    started_at: int
    exit_status: int | None
    decisions: tuple[Decision, ...] = ()

    @classmethod
    def from_item(cls, item: Any) -> Run:
        """Read the item."""
        a = OnceAttribute
        return cls(
            owner=item[a.OWNER]["S"],
            state=State(item[a.STATE]["S"]),
            host=item[a.HOST]["S"],
            started_at=int(item[a.STARTED_AT]["N"]),
            exit_status=int(item[a.EXIT_STATUS]["N"]) if a.EXIT_STATUS in item else None,
            decisions=tuple(Decision.all_of(item)),
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``once``, and add its options."""
    parser.description = (
        "Runs a command, unless it was run in this period. Periods are counted from 1970-01-01 UTC. Of "
        "several starts, one runs. A run that failed, or whose process ended without a result, is run again with "
        "--again only; --done records that a run without a result succeeded. Exit status: the command's; 0 it was done "
        "before, or is recorded as done; 1 its end was not noted, or something was refused; 75 it is running, or its "
        "process ended without a result; of a run that failed before, its own."
    )
    parser.usage = "cdk-sagas once NAME PERIOD --stack NAME [options] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("name", metavar="NAME", help="of the job: letters, digits, dots, dashes, underscores")
    parser.add_argument("period", metavar="PERIOD", help="minutes, hours or days: 15m, 6h, 1d")
    parser.add_argument("command", metavar="COMMAND", nargs="+", help="what to run, behind --")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--stack", metavar="NAME", action="append", help="name of the stack that has the request table")
    where.add_argument("--table", help="name of the IdempotencyTable's table, for a job with few rights")
    decision = parser.add_mutually_exclusive_group()
    decision.add_argument(
        "--again",
        action="store_true",
        help="run it although it failed, or seems to be running: you have checked that its process is gone",
    )
    decision.add_argument(
        "--done",
        metavar="RUN",
        help="run nothing: record that this run of the period, which has no result, succeeded; you have checked that",
    )
    parser.add_argument("--reason", help="with --again and --done, and needed: why; kept with the run, and shown")
    add_aws_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if not _NAME.fullmatch(options.name):
        raise CommandError(f"NAME must be 1 to 100 letters, digits, dots, dashes, underscores, got {options.name!r}")
    found = _PERIOD.fullmatch(options.period)
    if found is None:
        raise CommandError(f"PERIOD must be a number of minutes, hours or days, like 1d, got {options.period!r}")
    if options.done is not None and not _RUN.fullmatch(options.done):
        raise CommandError(
            f"--done must be a run, 32 hexadecimal digits, got {options.done!r}; start it to see its run"
        )
    decides = options.again or options.done is not None
    require_reason_with("--again and --done", options.reason, changes=decides)
    command = options.behind or options.command
    period_ms = int(found[1]) * _UNIT_MS[found[2]]
    session = session_of(options)
    aws = Aws(session=session)
    with one_line_errors(f"{options.name} was not {'run' if options.done is None else 'recorded as done'}"):
        table = options.table or _table(aws, options.stack)
        now_ms = aws.now_ms(table)
        begins = now_ms - now_ms % period_ms
        until = moment(begins + period_ms)
        # A period is the same however it is written: 24h is 1d.
        key = {RecordAttribute.ID: {"S": f"{ONCE_PREFIX}{options.name}#{period_ms // 1_000}#{begins}"}}
        if options.done is not None:
            new = decided(audit_of(session, options.reason), "recorded as done", now_ms)
            _record(aws, table, key, options.done, new)
            say(f"{options.name} is recorded as done; the next period begins at {until}\n")
            return 0
        owner = uuid.uuid4().hex
        item: Any = {**key, **_item(owner, now_ms, expires_at=begins + period_ms + _KEPT_MS)}
        met = _begin(aws, table, item, owner)
        if met is not None and options.again and met.state is not State.DONE:
            what = f"run again, {met.state} since {moment(met.started_at)} on {safe(met.host)}"
            new = decided(audit_of(session, options.reason), what, now_ms)
            item |= {OnceAttribute.DECISIONS: stored(grown(met.decisions, new))}
            met = _take(aws, table, item, owner, met)
    if met is not None:
        return _explain(options.name, met, until)
    status = _execute(command)
    not_noted = f"{options.name} ended with {status}, which was not noted"
    try:
        with one_line_errors(not_noted):
            replaced = not _end(aws, table, key, owner, status)
    except CommandError as error:
        record = f"to record it, which runs nothing: {_to_record(options, owner, command)}"
        remedy = record if status == 0 else "--again runs it again"
        raise CommandError(f"{error}; it is treated as running until {until}; {remedy}") from None
    if replaced:
        raise CommandError(f"{not_noted}: another process was let run it with --again meanwhile")
    return status


def _to_record(options: argparse.Namespace, run: str, command: list[str]) -> str:
    """Return the command that records a run as done."""
    given = options_again(options, "stack", "table", "profile", "region")
    words = ["cdk-sagas", "once", options.name, options.period, *given, "--done", run, "--reason", PLACEHOLDER]
    return shlex.join([*words, "--", *command])


def _table(aws: Aws, stacks: list[str]) -> str:
    """Return the request table of a stack."""
    manifest = read_manifest(aws.client("cloudformation"), stacks)
    if len(manifest.requests) != 1:
        names = ", ".join(manifest.requests) or "none"
        raise CommandError(f"{manifest.said} must have one request table, got {names}; choose one with --table")
    return manifest.requests[0]


def _begin(aws: Aws, table: str, item: Any, owner: str) -> Run | None:
    """Note that this process runs it; the run that is noted if it is another one's."""
    put = {"TableName": table, "Item": item, **when("attribute_not_exists(#id)"), **RETURNS_ITEM}
    return _met(aws, put, owner)


def _take(aws: Aws, table: str, item: Any, owner: str, met: Run) -> Run | None:
    """Put this process's run in place of one that is not done, if it is still that one."""
    as_met = when("#owner = :met AND #state = :state", met={"S": met.owner}, state={"S": met.state})
    return _met(aws, {"TableName": table, "Item": item, **as_met, **RETURNS_ITEM}, owner)


def _met(aws: Aws, put: Any, owner: str) -> Run | None:
    refused = writes.write({"Put": put}, retry=PATIENT, client=aws.dynamodb)
    if refused is None:
        return None
    if refused.item is None:
        raise CommandError("the run was deleted meanwhile; start it once more")
    met = Run.from_item(refused.item)
    return None if met.owner == owner else met


def _item(owner: str, now_ms: int, *, expires_at: int) -> dict[str, Any]:
    a = OnceAttribute
    return {
        a.OWNER: {"S": owner},
        a.STATE: {"S": State.RUNNING},
        a.HOST: {"S": socket.gethostname()},
        a.STARTED_AT: {"N": str(now_ms)},
        RecordAttribute.EXPIRATION: {"N": str(expires_at // 1_000)},
    }


def _end(aws: Aws, table: str, key: Any, owner: str, status: int) -> bool:
    """Note the command's end; False: an operator has let another process run it meanwhile."""
    a = OnceAttribute
    sets: dict[OnceAttribute, Any] = {
        a.STATE: {"S": State.DONE if status == 0 else State.FAILED},
        a.EXIT_STATUS: {"N": str(status)},
    }
    change = {"TableName": table, "Key": key, **update(when("#owner = :owner", owner={"S": owner}), sets)}
    return writes.write({"Update": change}, retry=PATIENT, client=aws.dynamodb) is None


def _record(aws: Aws, table: str, key: Any, run: str, decision: Decision) -> None:
    """Note for a run without a result that it succeeded, unless another one has taken its place, or it has ended.

    Raises:
        CommandError: if it is not such a run; nothing was written.
    """
    a = OnceAttribute
    sets: dict[OnceAttribute, Any] = {
        a.STATE: {"S": State.DONE},
        a.EXIT_STATUS: {"N": "0"},
        a.DECISIONS: f"list_append(if_not_exists(#{a.DECISIONS}, :none), :new)",
    }
    as_seen = when("#owner = :run AND #state = :running", run={"S": run}, running={"S": State.RUNNING})
    change = update(as_seen, sets, values={"none": stored(()), "new": stored((decision,))})
    entry = {"Update": {"TableName": table, "Key": key, **change, **RETURNS_ITEM}}
    refused = writes.write(entry, retry=PATIENT, client=aws.dynamodb)
    if refused is None:
        return
    met = Run.from_item(refused.item) if refused.item is not None else None
    if met is not None and (met.owner, met.state) == (run, State.DONE):
        return  # by this command, whose answer was lost; or by another process
    got = f"{met.owner}, {met.state}" if met is not None else "none"
    raise CommandError(f"--done must be the run of this period, without a result, got {got}; start it to see its state")


def _execute(command: list[str]) -> int:
    try:
        return subprocess.run(command, check=False, env=os.environ.copy()).returncode
    except OSError as error:
        say(f"{command[0][:_SHOWN]} cannot be run: {error}\n")
        return _NOT_FOUND


def _explain(name: str, met: Run, until: str) -> int:
    started = f"at {moment(met.started_at)} on {safe(met.host)}"
    say_decisions(met.decisions)
    if met.state is State.DONE:
        say(f"{name} was done {started}; the next period begins at {until}\n")
        return 0
    if met.state is State.FAILED:
        say(f"{name} was started {started} and failed with {met.exit_status}; --again runs it again before {until}\n")
        return met.exit_status or 1
    say(
        f"{name} was started {started} and has no result: it is running, or its process is gone; see --again, and, if "
        f"you know that it succeeded, --done {safe(met.owner)}\n"
    )
    return _RUNNING_STATUS
