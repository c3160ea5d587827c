"""The ``cdk-sagas`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from constructs_lib.cli import cost, diff, graph, hold, local, migrate, once, openapi, trial_balance
from constructs_lib.cli.callbacks import command as callbacks
from constructs_lib.cli.doctor import command as doctor
from constructs_lib.cli.fleet import list as list_sagas
from constructs_lib.cli.fleet import resume
from constructs_lib.cli.init import command as init
from constructs_lib.cli.saga import adopt, cancel, inspect, recover, resolve
from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.submit import command as submit
from constructs_lib.cli.verify import command as verify
from constructs_lib.shared.version import __version__

COMMANDS: Final = (
    init,
    list_sagas,
    inspect,
    resolve,
    resume,
    recover,
    cancel,
    adopt,
    doctor,
    hold,
    callbacks,
    migrate,
    trial_balance,
    submit,
    once,
    cost,
    diff,
    graph,
    openapi,
    verify,
    local,
)
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: The command line; that of the process by default.
    """
    parser = argparse.ArgumentParser(prog="cdk-sagas", description="Tools for sagas on AWS.")
    parser.add_argument("--version", action="version", version=f"cdk-sagas {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    behind = once.behind_dashes(sys.argv[1:] if arguments is None else arguments)
    parsed = parser.parse_args(arguments, argparse.Namespace(behind=behind))
    try:
        status: int = parsed.run(parsed)
    except CommandError as error:
        sys.stderr.write(f"cdk-sagas: {error}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status
