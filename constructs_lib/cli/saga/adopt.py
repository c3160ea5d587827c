"""``cdk-sagas adopt``: move a saga whose state machine was deleted to another one that writes the same saga log."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from constructs_lib.cli.saga.holds import add_decision_options, decider
from constructs_lib.cli.shared.aws import one_line_errors
from constructs_lib.cli.shared.process import CommandError, is_named
from constructs_lib.cli.shared.saga import FoundSaga, add_saga_options, find_saga
from saga_runtime.recovery.adoption import Adopter, CannotAdopt, Target
from saga_runtime.recovery.takeover import MachineGone


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``adopt``, and add its options."""
    parser.description = (
        "Moves a saga to other state machines by one conditional update, and starts its next recovery "
        "there; a parked saga is resumed by that. Refused unless one of its state machines is gone, and the others "
        "write the same saga log: its rows keep steps from happening twice. Repeat it if it was interrupted. Exit "
        "status: 0 it is moved, or was already; 1 anything was refused."
    )
    add_saga_options(parser)
    parser.add_argument(
        "--to",
        metavar="PATH",
        help="path of the SagaStateMachine, or the end of it; needed if several of the stack have the saga's requests",
    )
    add_decision_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    with one_line_errors(f"saga {options.saga} was not moved"):
        found = find_saga(options)
        audit = decider(found, options)
        target = _target(found, options.to)
        recoverer = replace(found.recoverer, log_days=target.log_days)
        adopter = Adopter(recoverer=recoverer, target=target, log_table=options.log_table, audit=audit)
        try:
            started = adopter.adopt(found.record, found.now_ms)
        except (CannotAdopt, MachineGone, ValueError) as refusal:
            raise CommandError(str(refusal)) from None
    sys.stdout.write(f"saga {options.saga} is on {target.recovery}{f': started {started}' if started else ''}\n")
    return 0


def _target(found: FoundSaga, path: str | None) -> Target:
    """Return the state machines that the saga is moved to: those of a saga of the stack on the same request table.

    Raises:
        CommandError: if there is not exactly one.
    """
    table = found.recoverer.table
    sagas = [saga for saga in found.manifest.sagas if saga.served.requests == table]
    if path is not None:
        sagas = [saga for saga in sagas if is_named(saga.path, path)]
    if len(sagas) != 1:
        names = ", ".join(saga.path for saga in sagas) or "none"
        raise CommandError(
            f"{found.manifest.said} must have one saga{f' {path}' if path is not None else ''} of table {table}, got "
            f"{names}; choose one with --to, or name its stack"
        )
    (saga,) = sagas
    return Target(forward=saga.arn, recovery=saga.recovery, log=saga.served.log, log_days=saga.served.days)
