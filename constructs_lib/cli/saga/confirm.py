"""``cdk-sagas confirm``: execute what another operator proposed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from constructs_lib.cli.saga.holds import add_decision_options
from constructs_lib.cli.saga.resolve import say_answer
from constructs_lib.cli.shared.aws import one_line_errors
from constructs_lib.cli.shared.process import CommandError, moment
from constructs_lib.cli.shared.saga import add_saga_options, asking, of_hold
from constructs_lib.cli.shared.terminal import safe


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``confirm``, and add its options."""
    parser.description = (
        "Shows a proposal, and asks whether it is right; then the deployed function executes it, exactly "
        "as it was shown, if its record and its "
        "row are as they were then. Refused for its proposer, and when its time is over. Your identity and your reason "
        "are kept with the saga. Repeat it if it was interrupted. Exit status: 0 it is executed, or was before; 1 "
        "it was refused."
    )
    add_saga_options(parser)
    parser.add_argument("--proposal", type=int, required=True, metavar="N", help="its number, as inspect shows it")
    add_decision_options(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask: I have read the proposal")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if options.log_table is not None:
        raise CommandError("the deployed function knows its saga's log; leave --log-table out")
    with one_line_errors(f"proposal {options.proposal} of saga {options.saga} was not confirmed"):
        ask = asking(options)
        shown = ask(do="show", proposal=options.proposal) if ask is not None else None
        answer = None
        if ask is not None and shown is not None:
            proposal = shown["shown"]["proposal"]
            _require_consent(options, proposal)
            answer = ask(do="confirm", proposal=options.proposal, digest=proposal["digest"], **of_hold(options))
    if answer is None:
        raise CommandError(
            f"stack {', '.join(options.stack)} must have an OperatorAccess with the reconciler of saga {options.saga}, "
            "got none; check the id and the stack"
        )
    say_answer(options, answer)
    return 0


def _require_consent(options: argparse.Namespace, proposal: Mapping[str, Any]) -> None:
    """Show a proposal, and ask on a terminal.

    Raises:
        CommandError: without a yes.
    """
    sys.stdout.write(
        f"proposal {options.proposal} of {safe(proposal['who'])}, until {moment(proposal['expires_at'])}\n"
        f"  what  {safe(proposal['what'])}\n  why   {safe(proposal['why'])}\n"
    )
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("a terminal must be there to answer yes, got none; read the proposal, and use --yes")
    sys.stdout.write("execute it? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("the proposal was not confirmed; nothing is changed")
