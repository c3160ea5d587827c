"""Holds of a saga, as commands about it alone find them: decisions leave another operator's hold alone."""

from __future__ import annotations

import argparse
import sys

from constructs_lib.cli.doctor.system import read_switches
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.shared.reads import Aws
from constructs_lib.cli.shared.saga import FoundSaga, audit_of
from constructs_lib.cli.shared.terminal import safe
from saga_runtime.recovery.hold import Held
from saga_runtime.recovery.resolution import CannotResolve, require_own
from saga_runtime.shared.decisions import Audit


def add_decision_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--reason``, which is kept with the decision, and ``--although-held``."""
    parser.add_argument("--reason", required=True, help="why; kept with the saga, and shown by cdk-sagas inspect")
    parser.add_argument(
        "--although-held",
        action="store_true",
        help="another operator holds the saga, or all, and knows of this (cdk-sagas hold)",
    )


def hold_of(aws: Aws, found: FoundSaga) -> Held | None:
    """The hold of all sagas, or of this one; None: neither is held, or that may not be read."""
    switches = [*read_switches(aws, found.manifest), *read_switches(aws, found.manifest, found.record.saga_id)]
    return next((one.held for one in switches if one.held is not None), None)


def decider(found: FoundSaga, options: argparse.Namespace) -> Audit:
    """Return who decides about a saga, and why; a hold of it that may not be read is reported.

    Raises:
        CommandError: naming the hold of another operator, without ``--although-held``; or if the reason is not one.
    """
    audit = audit_of(found.session, options.reason)
    if options.although_held:
        return audit
    aws = Aws(session=found.session)
    try:
        require_own(hold_of(aws, found), found.record.saga_id, audit.who)
    except CannotResolve as refusal:
        raise CommandError(safe(str(refusal))) from None
    for refused in aws.denied:
        sys.stderr.write(f"whether another operator holds the saga is not known: {refused.id}: {refused.what}\n")
    return audit
