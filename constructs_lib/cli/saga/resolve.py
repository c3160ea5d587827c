"""``cdk-sagas resolve``: record an operator's answer about a step in doubt, and resume its saga."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.cli.saga.holds import add_decision_options, decider
from constructs_lib.cli.shared.aws import one_line_errors, options_again
from constructs_lib.cli.shared.process import CommandError, moment
from constructs_lib.cli.shared.saga import (
    PLACEHOLDER,
    add_saga_options,
    asking,
    deployed,
    find_saga,
    of_hold,
)
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.errors import Conflict, Invalid
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.protocol import StepStatus
from saga_runtime.recovery.resolution import CannotResolve, Change, Statement, contradiction
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import MachineGone
from saga_runtime.shared.decisions import Decision
from saga_runtime.steps.step import encode_output

_LONGEST_NAME: Final = 1_024
"""Bytes of a sort key, which a step's name is."""
_RESUMED: Final = {
    "SETTLED": "is settled",
    "NOT_STARTED": "was resumed before, and not started: started",
    "NAME_EXPIRED": "may have run before: taken over",
    "RUNNING": "is running",
    "OWNER_SUCCEEDED": "was in progress although its owner's execution SUCCEEDED: taken over",
    "DEAD": "was resumed before, and interrupted: taken over",
    "PARKED": "resumes: started",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``resolve``, and add its options."""
    parser.description = (
        "Writes the outcome that you know into the step's row, on condition that the row is as it was "
        "read; then starts the parked saga's next recovery. Repeat the command if it was interrupted. Ask the provider "
        "first: the saga relies on your answer, and moves money by it. Your identity and your reason are kept with the "
        "saga. Exit status: 0 the saga continues, or did so "
        "already; 1 a part was refused."
    )
    add_saga_options(parser)
    parser.add_argument("step", metavar="STEP", nargs="?", help="the step; in a map, STEP[ITEM KEY]")
    said = parser.add_mutually_exclusive_group(required=True)
    said.add_argument("--applied", action="store_true", help="it happened")
    said.add_argument("--not-applied", action="store_true", help="it did not happen")
    said.add_argument("--resume", action="store_true", help="nothing is in doubt: the cause is fixed, resume")
    parser.add_argument("--compensation", action="store_true", help="the answer is about the step's compensation")
    parser.add_argument("--output", metavar="JSON", help="with --applied: what the step would have returned ({})")
    parser.add_argument(
        "--log-retention-days",
        type=int,
        metavar="DAYS",
        help="with --resume, of a saga parked as SagaLogExpired: the smallest log_retention_days that was deployed "
        "since it began; its rows are there if it is younger",
    )
    parser.add_argument("--attempt", help="the attempt that you saw: refused if another one wrote the row since")
    add_decision_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    statement = _statement(options)
    with one_line_errors(f"saga {options.saga} was not resolved"):
        answer = _asked(options, statement)
        if answer is None:
            try:
                return _resolve(options, statement)
            except CommandError as refusal:
                raise CommandError(f"{refusal}{_contradicted(options, statement)}") from None
        say_answer(options, answer, options.step, statement)
    return 0


def _resolve(options: argparse.Namespace, statement: Statement | None) -> int:
    """Decide with the caller's own rights."""
    found = find_saga(options, asked=True)
    saga, audit = deployed(found), decider(found, options)
    resolver = Resolver(
        recoverer=found.recoverer, log_table=saga.served.log, audit=audit, log_days=saga.served.days, ways=saga.ways
    )
    try:
        if statement is not None:
            change, _ = resolver.answer(found.record, options.step, saga.steps, statement, found.now_ms)
            sys.stdout.write(_say(options.step, change, statement) + "\n")
        if found.record.settled and statement is not None:
            return 0  # what was left to undo is undone; the saga itself has ended
        resumed = resolver.resume(found.record, found.now_ms, options.log_retention_days)
    except (CannotResolve, Conflict, MachineGone, ValueError) as refusal:
        raise CommandError(str(refusal)) from None
    _say_resumed(options.saga, resumed.finding, resumed.started)
    return 0


def _contradicted(options: argparse.Namespace, statement: Statement | None) -> str:
    """The last decision about the step, behind a refusal of its opposite; empty: without one, or it is not readable."""
    if statement is None:
        return ""
    try:
        decisions = Decision.all_of(find_saga(options, asked=True).item)
    except (BotoCoreError, ClientError, CommandError):
        return ""
    return safe(contradiction(decisions, options.step, statement))


def _asked(options: argparse.Namespace, statement: Statement | None) -> Mapping[str, Any] | None:
    """Ask the function; about what it shows now, and nothing later: a request that arrives twice acts once."""
    ask = asking(options)
    shown = ask(do="show", **({} if statement is None else {"step": options.step})) if ask is not None else None
    if ask is None or shown is None:
        return None
    seen = dict(shown["shown"])
    if statement is None:
        stated = {} if options.log_retention_days is None else {"log_days": options.log_retention_days}
        return ask(do="resolve", resume=True, **stated, seen=seen, **of_hold(options))
    if statement.attempt is not None:
        seen["attempt"] = statement.attempt
    answer = {"applied": statement.applied, "compensation": statement.undo, "output": statement.output}
    return ask(do="resolve", step=options.step, **answer, seen=seen, **of_hold(options))


def say_answer(
    options: argparse.Namespace, answer: Mapping[str, Any], step: str = "", statement: Statement | None = None
) -> None:
    """Print what the deployed function answers."""
    if "proposed" in answer:
        told = answer["proposed"]
        again = " ".join(options_again(options))
        sys.stdout.write(
            f"proposed as {told['number']}: {safe(told['what'])}\n"
            f"a second operator confirms it before {moment(told['expires_at'])}: cdk-sagas confirm {options.saga} "
            f"--proposal {told['number']} --reason {PLACEHOLDER} {again}\n"
        )
    if "confirmed" in answer:
        told = answer["confirmed"]
        sys.stdout.write(f"proposal {told['number']} is executed: {safe(told['what'])}\n")
    if "change" in answer and statement is not None:
        to = answer["change"]["to"]
        change = Change(to=StepStatus(to) if to is not None else None, written=answer["change"]["written"])
        sys.stdout.write(_say(step, change, statement) + "\n")
    if "resumed" in answer:
        _say_resumed(options.saga, answer["resumed"]["finding"], answer["resumed"]["started"])


def _say_resumed(saga_id: str, finding: str, started: str | None) -> None:
    sys.stdout.write(f"saga {saga_id} {_RESUMED[finding]}{f' by {started}' if started else ''}\n")


def _statement(options: argparse.Namespace) -> Statement | None:
    """The operator's answer; None to resume."""
    if options.resume:
        given = [name for name in ("step", "compensation", "output", "attempt") if getattr(options, name)]
        if given:
            raise CommandError(f"--resume decides nothing; leave {', '.join(given)} out")
        return None
    if options.log_retention_days is not None:
        raise CommandError("--log-retention-days is of a saga that is resumed; use it with --resume")
    if options.step is None:
        raise CommandError("name the step that was or was not applied, or use --resume")
    if not options.step.strip() or len(options.step.encode()) > _LONGEST_NAME:
        raise CommandError(f"STEP must be 1 to {_LONGEST_NAME} bytes, got {options.step[:40]!r}; see cdk-sagas inspect")
    if options.output is not None and not options.applied:
        raise CommandError("a step that was not applied has no output; leave --output out")
    output = _output(options.output) if options.output is not None else None
    return Statement(applied=options.applied, undo=options.compensation, output=output, attempt=options.attempt)


def _output(text: str) -> str:
    """A step's output as it is stored; refused as a step's own would be."""
    try:
        return encode_output(parse_json(text))
    except Invalid as refusal:
        raise CommandError(f"--output: {refusal.message}") from None


def _say(name: str, change: Change, statement: Statement) -> str:
    state = change.to if change.to is not None else "free to be called again"
    what = f"the undo of {name}" if statement.undo else name
    happened = "happened" if statement.applied else "did not happen"
    return f"{what} {happened}: its row {'is' if change.written else 'was already'} {state}"
