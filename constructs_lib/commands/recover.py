"""``cdk-sagas recover``: take an interrupted saga up again. Safe at any time, any number of times."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from .aws import add_aws_options, one_line_errors, session_of
from .errors import CommandError

_SAID = {
    "SETTLED": "is settled: nothing to do",
    "PARKED": "is parked: a person decides",
    "NOT_STARTED": "was never started: started",
    "NAME_EXPIRED": "is too old to tell whether it ever ran: a person decides",
    "RUNNING": "is running: left alone",
    "DEAD": "was interrupted: taken over",
}

_FOR_A_PERSON = frozenset({"PARKED", "NAME_EXPIRED"})


def add_parser(commands: Any) -> None:
    """Add ``recover`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "recover",
        help="take an interrupted saga up again",
        description="Looks at the saga's record and at its owner's execution. An interrupted saga is taken over by one "
        "conditional update, and a recovery is started, which goes forward or compensates: no effect is repeated.",
    )
    parser.add_argument("saga", metavar="SAGA", help="saga id, as in the answer of the API")
    parser.add_argument("--table", required=True, help="name of the IdempotencyTable's table")
    add_aws_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    session = session_of(options)
    from saga_runtime.identity import is_saga_id, request_id_from
    from saga_runtime.recovery import Recoverer

    if not is_saga_id(options.saga):
        raise CommandError(f"not a saga id: {options.saga!r}; give it as the API answered it")
    with one_line_errors(f"saga {options.saga} was not looked at"):
        recoverer = Recoverer(
            table=options.table,
            dynamodb=session.client("dynamodb"),
            step_functions=session.client("stepfunctions"),
        )
        record = recoverer.read(request_id_from(options.saga))
        if record is None or record.saga_id != options.saga:
            raise CommandError(f"table {options.table} has no saga {options.saga}; look at the table's name and the id")
        finding, started = recoverer.recover(record, int(time.time() * 1000))
    sys.stdout.write(f"saga {options.saga} {_SAID[finding.value]}{f' by {started}' if started else ''}\n")
    return 1 if finding.value in _FOR_A_PERSON else 0
