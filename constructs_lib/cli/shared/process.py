"""The process of a command: errors in one line, output to a reader who may have stopped reading, variables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from saga_runtime.shared.clock import moment

__all__ = [
    "ASSEMBLY",
    "QUIET",
    "CommandError",
    "add_assembly",
    "environment",
    "is_named",
    "json_in",
    "moment",
    "say",
    "time_of_day",
]

QUIET: Final = {"POWERTOOLS_LOG_LEVEL": "CRITICAL", "POWERTOOLS_METRICS_DISABLED": "true"}
"""The runtime's own log is for CloudWatch; a command prints what it does."""


ASSEMBLY: Final = Path("cdk.out")


class CommandError(Exception):
    """The command cannot run as requested; the message has the reason and the remedy."""


def say(text: str) -> None:
    """Write to the standard output; a closed pipe, as after ``| head``, is not an error.

    The exit status does not depend on whether the output was read.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain then.
        with Path(os.devnull).open("w", encoding="utf-8") as nobody:
            os.dup2(nobody.fileno(), sys.stdout.fileno())


def time_of_day(epoch_ms: int) -> str:
    """The time alone, in UTC: operators may be in different time zones.

    >>> time_of_day(1_700_000_000_123)
    '22:13:20 UTC'
    """
    return datetime.fromtimestamp(epoch_ms // 1_000, UTC).strftime("%H:%M:%S UTC")


def json_in(text: str | bytes) -> Any:
    """The value of a JSON text; None for another text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_named(path: str, wanted: str) -> bool:
    """Test whether a construct's path, or the end of it, is the wanted one.

    >>> is_named("Shop/Order", "/Order"), is_named("Shop/Reorder", "order")
    (True, False)
    """
    return f"/{path}".endswith(f"/{wanted.strip('/')}")


def add_assembly(parser: argparse.ArgumentParser) -> None:
    """Add ``ASSEMBLY``."""
    parser.add_argument(
        "assembly",
        nargs="?",
        type=Path,
        default=ASSEMBLY,
        metavar="ASSEMBLY",
        help="what cdk synth wrote (%(default)s)",
    )


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables by which the runtime finds what it works on, or is quiet; as they were, afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
