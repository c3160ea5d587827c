"""The ``cdk-sagas`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from ._version import __version__
from .commands import adopt, callbacks, cost, doctor, graph, hold, inspect, local, recover, resolve, trial_balance
from .commands.errors import CommandError

COMMANDS: Final = (inspect, resolve, recover, adopt, doctor, hold, callbacks, trial_balance, cost, graph, local)
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
    parsed = parser.parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
    except CommandError as error:
        sys.stderr.write(f"cdk-sagas: {error}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
