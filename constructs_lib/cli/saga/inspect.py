"""``cdk-sagas inspect``: a saga's state, and an operator's available actions. Reads only."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.aws import one_line_errors, options_again
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.output import say
from constructs_lib.cli.shared.saga import add_saga_options, deployed, find_saga

if TYPE_CHECKING:
    from constructs_lib.cli.saga.inspection import Inspection

_FOLLOW_SECONDS: Final = 2.0


def add_parser(commands: Any) -> None:
    """Add ``inspect`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="show a saga's state and the available actions",
        description="Reads the saga's record, its executions and its log, and draws them. Changes nothing. Shows the "
        "steps' outputs, which may be confidential. Exit status: 0 shown, whatever the saga's status; 1 the saga is "
        "unknown, or AWS refused a call.",
    )
    add_saga_options(parser)
    parser.add_argument("--full", action="store_true", help="show outputs whole")
    parser.add_argument(
        "--follow", action="store_true", help="show it again whenever it changed, until it does not run"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, with everything in it")
    parser.set_defaults(run=partial(_run, parser))


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.follow and options.json:
        parser.error("--follow shows texts; leave --json out")
    # Imported here: `cdk-sagas --help` needs none of it.
    from saga_runtime.recovery.takeover import Finding

    saga = _inspected(options)
    _print(options, saga)
    while options.follow and saga.finding is Finding.RUNNING:
        time.sleep(_FOLLOW_SECONDS)
        before, saga = saga, _inspected(options)
        if _shape(saga) != _shape(before):
            _print(options, saga)
    return 0


def _inspected(options: argparse.Namespace) -> Inspection:
    from constructs_lib.cli.saga.inspection import inspect_saga

    with one_line_errors(f"saga {options.saga} could not be read"):
        found = find_saga(options)
        try:
            return inspect_saga(found, deployed(found))
        except KeyError as error:
            raise CommandError(
                f"saga {options.saga} has an item that is not a saga's: it lacks {error.args[0]}"
            ) from None
        except ValueError as error:
            raise CommandError(f"saga {options.saga} has an item that is not a saga's: {error}") from None


def _shape(saga: Inspection) -> object:
    """Everything that changes but the time."""
    retries = [(one.state, one.failed, one.error) for one in saga.retries or ()]
    executions = [(one.name, one.machine, one.status) for one in saga.executions]
    return saga.finding, saga.status, saga.owner, saga.steps, saga.decisions, retries, executions


def _print(options: argparse.Namespace, saga: Inspection) -> None:
    from constructs_lib.cli.saga.advice import advice
    from constructs_lib.cli.saga.inspect_text import text_of
    from constructs_lib.saga.graph.timeline import can_draw

    advices = advice(saga, options_again(options))
    if options.json:
        document = dataclasses.asdict(saga) | {"advice": [dataclasses.asdict(one) for one in advices]}
        say(json.dumps(document, indent=2) + "\n")
        return
    width = shutil.get_terminal_size((100, 40)).columns
    unicode = can_draw(sys.stdout.encoding)
    say(text_of(saga, advices, width=width, unicode=unicode, full=options.full))
