"""``cdk-sagas recover``: recover an interrupted saga. Safe at any time, any number of times."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from constructs_lib.cli.saga.holds import add_decision_options, decider
from constructs_lib.cli.shared.aws import one_line_errors
from constructs_lib.cli.shared.manifest import DeployedSaga
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.shared.saga import (
    FOR_AN_OPERATOR,
    FoundSaga,
    add_saga_options,
    deployed,
    find_saga,
)
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.errors import Conflict
from saga_runtime.recovery.late_effects import LateFinding, undo_again, undo_late
from saga_runtime.recovery.takeover import MachineGone

_SAID = {
    "SETTLED": "is settled: nothing to do",
    "PARKED": "is parked: resolve it with cdk-sagas resolve",
    "NOT_STARTED": "was never started: started",
    "CANCELLED": "was cancelled, and an Express execution of it may run: left alone for 3 minutes after its request",
    "NAME_EXPIRED": "may have run before: operator action required",
    "RUNNING": "is running: left alone",
    "DEAD": "was interrupted: taken over",
    "OWNER_SUCCEEDED": "is in progress although its owner SUCCEEDED: its record was restored or edited; an operator "
    "decides, see cdk-sagas inspect",
    "ROWS_EXPIRED": "is not running and its log may have expired: operator action required",
}

_LATE = {
    "RUNNING": "being compensated",
    "STARTED": "compensating it",
    "EXHAUSTED": "not compensated after 20 attempts; once the cause is fixed, use --again",
}
_NO_REQUEST = "its request was removed, and it is not compensated: operator action required"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``recover``, and add its options."""
    parser.description = (
        "Reads the saga's record and its owner's execution. Takes an interrupted saga over by one "
        "conditional update, and starts a recovery, which goes forward or compensates: no effect is repeated. "
        "Compensates late effects, also of a settled saga. Your identity and your reason are kept with the saga, if "
        "anything is started. Exit status: 0 the saga continues, or needs no "
        "recovery; 1 operator action is required, the saga is unknown, or AWS refused a call."
    )
    add_saga_options(parser)
    parser.add_argument(
        "--again",
        action="store_true",
        help="also start compensations of late effects after 20 failed attempts: the cause is fixed",
    )
    add_decision_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    with one_line_errors(f"saga {options.saga} could not be read"):
        found = find_saga(options)
        saga, audit = deployed(found), decider(found, options)
        # Without its rows, a saga must not be run again.
        found = replace(found, recoverer=replace(found.recoverer, log_days=saga.served.days, audit=audit))
        try:
            finding, started = found.recoverer.recover(found.record, found.now_ms)
            waits = finding == "NOT_STARTED" and started is None
            sys.stdout.write(
                f"saga {options.saga} {_SAID['CANCELLED' if waits else finding]}{f' by {started}' if started else ''}\n"
            )
            exhausted = _undo_late(found, saga, again=options.again)
        except (Conflict, MachineGone, ValueError) as refusal:
            raise CommandError(str(refusal)) from None
    return 1 if exhausted or finding in {"PARKED", *FOR_AN_OPERATOR} else 0


def _undo_late(found: FoundSaga, saga: DeployedSaga, *, again: bool) -> bool:
    """Start compensations of late effects; return whether operator action is required."""
    if not saga.has_jobs:
        return False
    record = found.recoverer.read(found.record.request_id)  # a decision may have been appended
    if record is None or record.saga_id != found.record.saga_id:
        return False
    late = (undo_again if again else undo_late)(found.recoverer, record, saga.served.log, found.now_ms)
    if late.finding is not LateFinding.NOTHING:
        by = f" by {late.execution}" if late.execution else ""
        exhausted = late.finding is LateFinding.EXHAUSTED
        said = _NO_REQUEST if exhausted and found.record.tombstone else _LATE[late.finding]
        sys.stdout.write(f"{safe(', '.join(late.rows))} applied late: {said}{by}\n")
    return late.finding is LateFinding.EXHAUSTED
