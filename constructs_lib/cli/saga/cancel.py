"""``cdk-sagas cancel``: cancel a running saga before its pivot."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Final

from constructs_lib.cli.saga.holds import add_decision_options, decider
from constructs_lib.cli.shared.aws import one_line_errors
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.shared.saga import (
    add_saga_options,
    asking,
    deployed,
    find_saga,
    of_hold,
)
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.protocol import OUTLIVE_EXPRESS_SECONDS
from saga_runtime.recovery.cancel import Cancelled, CannotCancel, cancel
from saga_runtime.recovery.takeover import MachineGone

_THEN: Final = {
    "SETTLED": "it has settled as FAILED, without remaining effects",
    "PARKED": "it was parked; see cdk-sagas inspect",
    "NOT_STARTED": "its owner had not been started; a recovery settles it",
    "RUNNING": "its execution is being stopped, or a recovery runs; cdk-sagas inspect shows whether this was in time",
    "DEAD": "a recovery compensates it, or goes forward if its pivot is applied",
}
_JOBS: Final = (
    "accepted by the provider, and without an outcome: compensated when the provider reports it, or parked until then"
)
_EXPRESS_RUNS: Final = (
    f"an Express execution of it may run; a recovery follows within {OUTLIVE_EXPRESS_SECONDS} s after its request, by "
    "the reconciler or by repeating this"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``cancel``, and add its options."""
    parser.description = (
        "Writes by one conditional update that the saga is cancelled, stops its execution, and recovers "
        "it: the saga is compensated and settles as refused, with SagaCancelled; or, if its pivot is applied, it goes "
        "forward. Your identity and your reason are kept with the saga. Repeat it if it was interrupted. Exit status: "
        "0 it is cancelled, or was already; 1 it is settled, parked, past its pivot, or compensates already."
    )
    add_saga_options(parser)
    add_decision_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    with one_line_errors(f"saga {options.saga} was not cancelled, or not stopped; repeat this"):
        ask = asking(options)
        answer = ask(do="cancel", **of_hold(options)) if ask is not None else None
        if answer is not None:
            _say(options.saga, Cancelled(**{**answer["cancelled"], "jobs": tuple(answer["cancelled"]["jobs"])}))
            return 0
        found = find_saga(options, asked=True)
        served = deployed(found).served
        recoverer = replace(found.recoverer, log_days=served.days)
        audit = decider(found, options)
        try:
            done = cancel(recoverer, served.log, found.record, audit, found.now_ms)
        except (CannotCancel, MachineGone, ValueError) as refusal:
            raise CommandError(str(refusal)) from None
    _say(options.saga, done)
    return 0


def _say(saga_id: str, done: Cancelled) -> None:
    waits = done.finding == "NOT_STARTED" and done.started is None
    then = _EXPRESS_RUNS if waits else _THEN.get(done.finding, "an operator decides; see cdk-sagas inspect")
    by = f": {done.started}" if done.started else ""
    sys.stdout.write(f"saga {saga_id} {'was' if done.earlier else 'is'} cancelled; {then}{by}\n")
    if done.jobs:
        sys.stdout.write(f"{safe(', '.join(done.jobs))}: {_JOBS}\n")
