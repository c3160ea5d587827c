"""``cdk-sagas resolve``: record an operator's answer about a step in doubt, and resume its saga."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.aws import one_line_errors
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.saga import (
    FoundSaga,
    add_reason_option,
    add_saga_options,
    audit_of,
    deployed,
    find_saga,
)

if TYPE_CHECKING:
    from constructs_lib.cli.shared.manifest import DeployedSaga
    from saga_runtime.recovery.resolution import Change, DeclaredStep, Statement
    from saga_runtime.recovery.resolver import Resolver

_ROW: Final = re.compile(r"^([^\[\]]+)(?:\[([^\[\]]+)\])?$")
_RESUMED: Final = {
    "SETTLED": "is settled",
    "NOT_STARTED": "was resumed before, and not started: started",
    "NAME_EXPIRED": "may have run before: taken over",
    "RUNNING": "is running",
    "OWNER_SUCCEEDED": "was in progress although its owner's execution SUCCEEDED: taken over",
    "DEAD": "was resumed before, and interrupted: taken over",
    "PARKED": "resumes: started",
}


def add_parser(commands: Any) -> None:
    """Add ``resolve`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "resolve",
        help="record the outcome of an in-doubt step and resume its parked saga",
        description="Writes the outcome that you know into the step's row, on condition that the row is as it was "
        "read; then starts the parked saga's next recovery. Repeat the command if it was interrupted. Ask the provider "
        "first: the saga relies on your answer, and moves money by it. Your identity and your reason are kept with the "
        "saga. Exit status: 0 the saga continues, or did so "
        "already; 1 a part was refused.",
    )
    add_saga_options(parser)
    parser.add_argument("step", metavar="STEP", nargs="?", help="the step; in a map, STEP[ITEM KEY]")
    said = parser.add_mutually_exclusive_group(required=True)
    said.add_argument("--applied", action="store_true", help="it happened")
    said.add_argument("--not-applied", action="store_true", help="it did not happen")
    said.add_argument("--resume", action="store_true", help="nothing is in doubt: the cause is fixed, resume")
    parser.add_argument("--compensation", action="store_true", help="the answer is about the step's compensation")
    parser.add_argument("--output", metavar="JSON", help="with --applied: what the step would have returned ({})")
    parser.add_argument("--attempt", help="the attempt that you saw: refused if another one wrote the row since")
    add_reason_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    statement = _statement(options)
    with one_line_errors(f"saga {options.saga} was not resolved"):
        from saga_runtime.recovery.resolution import CannotResolve
        from saga_runtime.recovery.resolver import Resolver
        from saga_runtime.recovery.takeover import MachineGone

        found = find_saga(options)
        saga = deployed(found)
        resolver = Resolver(
            recoverer=found.recoverer,
            log_table=saga.served.log,
            audit=audit_of(found.session, options.reason),
            log_days=saga.served.days,
        )
        try:
            if statement is not None:
                change = _resolve(found, saga, options.step, statement, resolver)
                sys.stdout.write(_say(options.step, change, statement) + "\n")
            if found.record.settled and statement is not None:
                return 0  # what was left to undo is undone; the saga itself has ended
            resumed = resolver.resume(found.record, found.now_ms)
        except (CannotResolve, MachineGone, ValueError) as refusal:
            raise CommandError(str(refusal)) from None
    started = f" by {resumed.started}" if resumed.started else ""
    sys.stdout.write(f"saga {options.saga} {_RESUMED[resumed.finding]}{started}\n")
    return 0


def _statement(options: argparse.Namespace) -> Statement | None:
    """The operator's answer; None to resume."""
    from saga_runtime.recovery.resolution import Statement

    if options.resume:
        given = [name for name in ("step", "compensation", "output", "attempt") if getattr(options, name)]
        if given:
            raise CommandError(f"--resume decides nothing; leave {', '.join(given)} out")
        return None
    if options.step is None:
        raise CommandError("name the step that was or was not applied, or use --resume")
    if options.output is not None and not options.applied:
        raise CommandError("a step that was not applied has no output; leave --output out")
    output = _output(options.output) if options.output is not None else None
    return Statement(applied=options.applied, undo=options.compensation, output=output, attempt=options.attempt)


def _output(text: str) -> str:
    """A step's output as it is stored; refused as a step's own would be."""
    from saga_runtime.errors import Invalid
    from saga_runtime.idempotency.identity import parse_json
    from saga_runtime.steps.step import encode_output

    try:
        return encode_output(parse_json(text))
    except Invalid as refusal:
        raise CommandError(f"--output: {refusal.message}") from None


def _resolve(found: FoundSaga, saga: DeployedSaga, name: str, statement: Statement, resolver: Resolver) -> Change:
    from saga_runtime.recovery.resolution import CannotResolve

    try:
        return resolver.resolve(found.record, name, _declared(saga, name), statement, found.now_ms)
    except CannotResolve as refusal:
        step = name.partition("[")[0]
        if not saga.steps or step in saga.steps:
            raise
        # A row may be of a step that the definition no longer has; without one, it is a slip of the pen.
        raise CannotResolve(f"{refusal}; the saga's steps are {', '.join(saga.steps)}") from None


def _declared(saga: DeployedSaga, name: str) -> DeclaredStep | None:
    """The step that a row's name names; None if the definition does not have it, or could not be read.

    Raises:
        CommandError: if it has not the form of one, or names an item of a step that has none.
    """
    from saga_runtime.idempotency.identity import row_name_of

    match = _ROW.match(name)
    step, item = match.groups() if match else (name, None)
    try:
        row_name_of(step, item)
    except ValueError as error:
        raise CommandError(str(error)) from None
    there = saga.steps.get(step)
    if there is None:
        return None
    if there.in_map and item is None:
        raise CommandError(f"step {step} runs once per item; name one of them: '{step}[ITEM KEY]'")
    if item is not None and not there.in_map:
        raise CommandError(f"step {step} runs once, not per item; name it without [{item}]")
    return there.declared


def _say(name: str, change: Change, statement: Statement) -> str:
    state = change.to if change.to is not None else "free to be called again"
    what = f"the undo of {name}" if statement.undo else name
    happened = "happened" if statement.applied else "did not happen"
    return f"{what} {happened}: its row {'is' if change.written else 'was already'} {state}"
