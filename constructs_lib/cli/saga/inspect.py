"""``cdk-sagas inspect``: a saga's state, and an operator's available actions. Reads only."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from typing import Any

from constructs_lib.cli.shared.aws import one_line_errors, options_again
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.saga import add_saga_options, deployed, find_saga


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
    parser.add_argument("--json", action="store_true", help="print one JSON document instead, with everything in it")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    # Imported here: `cdk-sagas --help` needs none of it.
    from constructs_lib.cli.saga.advice import advice
    from constructs_lib.cli.saga.inspect_text import text_of
    from constructs_lib.cli.saga.inspection import inspect_saga
    from constructs_lib.saga.graph.timeline import can_draw

    with one_line_errors(f"saga {options.saga} could not be read"):
        found = find_saga(options)
        try:
            saga = inspect_saga(found, deployed(found))
        except KeyError as error:
            raise CommandError(
                f"saga {options.saga} has an item that is not a saga's: it lacks {error.args[0]}"
            ) from None
        except ValueError as error:
            raise CommandError(f"saga {options.saga} has an item that is not a saga's: {error}") from None
    advices = advice(saga, options_again(options))
    if options.json:
        document = dataclasses.asdict(saga) | {"advice": [dataclasses.asdict(one) for one in advices]}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return 0
    width = shutil.get_terminal_size((100, 40)).columns
    unicode = can_draw(sys.stdout.encoding)
    sys.stdout.write(text_of(saga, advices, width=width, unicode=unicode, full=options.full))
    return 0
