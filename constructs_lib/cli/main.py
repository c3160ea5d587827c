"""The ``cdk-sagas`` command. Imports the one subcommand that is run: help and version need none of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from constructs_lib.cli.shared.process import QUIET, CommandError, environment
from constructs_lib.shared.version import __version__

COMMANDS: Final = {
    "init": ("init.command", "write a small app with one saga"),
    "list": ("fleet.list", "list sagas of a stack, or find one"),
    "inspect": ("saga.inspect", "show a saga's state and the available actions"),
    "resolve": ("saga.resolve", "record the outcome of an in-doubt step and resume its parked saga"),
    "confirm": ("saga.confirm", "execute what another operator proposed with resolve"),
    "resume": ("fleet.resume", "resume many parked sagas, after showing which"),
    "recover": ("saga.recover", "recover an interrupted saga"),
    "cancel": ("saga.cancel", "cancel a running saga before its pivot"),
    "adopt": ("saga.adopt", "move a saga whose state machine was deleted to another one"),
    "doctor": ("doctor.command", "find what is stuck in a deployed stack, and repair it"),
    "hold": ("hold", "keep a stack's reconcilers from acting, on all sagas or on one, or let them act again"),
    "callbacks": ("callbacks.command", "list jobs that sagas wait for and dead ones, and have them tried again"),
    "migrate": ("migrate", "show a migration's progress, move and compare items, and change its phase"),
    "trial-balance": ("trial_balance", "prove that a ledger sums to zero"),
    "submit": ("submit", "send a file of requests, each under its own key"),
    "once": ("once", "run a command once in each period"),
    "cost": ("cost", "what a saga uses and costs"),
    "diff": ("diff", "which sagas in flight and retried keys survive a deployment"),
    "graph": ("graph", "draw the sagas of a synthesized app"),
    "openapi": ("openapi", "print the OpenAPI document of an API"),
    "verify-definition": ("verify.command", "let AWS evaluate every state of synthesized state machines"),
    "local": ("local", "local AWS in the background"),
}
"""Subcommands by name: their modules, each with ``add_options`` and ``run``, and what they do."""
_INTERRUPTED: Final = 130


def parser_of(loaded: Iterable[str] = COMMANDS) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of subcommands, and those of each by name.

    Args:
        loaded: the subcommands, with their options: their modules are imported. Empty: all, by name only.
    """
    parser = argparse.ArgumentParser(prog="cdk-sagas", description="Tools for sagas on AWS.")
    parser.add_argument("--version", action="version", version=f"cdk-sagas {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = list(loaded)
    of_each = {name: commands.add_parser(name, help=COMMANDS[name][1]) for name in named or COMMANDS}
    for name in named:
        with environment(QUIET):  # the runtime's logger reads its level when it is imported
            module = import_module(f"constructs_lib.cli.{COMMANDS[name][0]}")
        module.add_options(of_each[name])
        of_each[name].set_defaults(run=module.run, misused=of_each[name].error)
    return parser, of_each


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: The command line; that of the process by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser, _ = parser_of([word for word in words[:1] if word in COMMANDS])
    # Words behind the first `--` are another command's, unchanged: argparse drops a second one.
    behind = words[words.index("--") + 1 :] if "--" in words else []
    options = parser.parse_args(words, argparse.Namespace(behind=behind))
    try:
        status: int = options.run(options)
    except CommandError as error:
        # It may quote a table. Imported here: `cdk-sagas --help` needs none of it.
        from constructs_lib.saga.graph.terminal import harmless

        sys.stderr.write(f"cdk-sagas: {harmless(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status
