"""Settings of an emulator process."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ACCOUNT: Final = "000000000000"
REGION: Final = "us-east-1"
HOST: Final = "127.0.0.1"
#: The emulator's root credentials; they may do everything, so no client that plays a user has them.
ROOT_ACCESS_KEY_ID: Final = "test"
ROOT_SECRET_ACCESS_KEY: Final = "test"  # noqa: S105 - the emulator's published root pair, good nowhere else

#: Exit status of the launcher when the port that was asked for is taken.
EXIT_PORT_TAKEN: Final = 98
#: In the run folder, written once the emulator listens: one line, its port.
PORT_FILE: Final = "port"
#: In the run folder: what the emulator printed.
LOG_FILE: Final = "emulator.log"


def check_options(*, speed: Any, concurrency: Any, port: Any) -> None:
    """Refuse options that cannot work.

    Raises:
        ValueError: If a value is out of range, or of another type.
    """
    if not (_is_number(speed, int | float) and math.isfinite(speed) and speed > 0):
        raise ValueError(f"speed must be a finite number above 0, got {speed!r}; 1 is real time")
    if not (_is_number(concurrency, int) and concurrency >= 1):
        raise ValueError(f"concurrency must be at least 1, got {concurrency!r}; every call needs one")
    if not (_is_number(port, int) and 0 <= port <= 65535):
        raise ValueError(f"port must be between 0 and 65535, got {port!r}; 0 takes any free one")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSettings:
    """Settings with which an emulator process starts.

    Attributes:
        run_folder: Folder of its own: everything the emulator writes is in it, and it is deleted at the end.
        port: Loopback port to listen on; 0 takes any free one.
        speed: How many times faster than real time waits, retries, timeouts, heartbeats and schedules pass.
        concurrency: Execution environments a function has at most; a further call waits for a free one.
        without: Names of corrections to leave out, to show what the bare emulator does.
        detached: Whether the emulator outlives its parent (``local up``), instead of ending with it.
    """

    run_folder: Path
    port: int = 0
    speed: float = 1.0
    concurrency: int = 4
    without: frozenset[str] = frozenset()
    detached: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: If a value is out of range.
        """
        check_options(speed=self.speed, concurrency=self.concurrency, port=self.port)

    def arguments(self) -> list[str]:
        """Return the command line arguments from which `parse` builds the same settings."""
        arguments = [f"--run-folder={self.run_folder}", f"--port={self.port}"]
        arguments += [f"--speed={self.speed}", f"--concurrency={self.concurrency}"]
        arguments += [f"--without={name}" for name in sorted(self.without)]
        return [*arguments, "--detached"] if self.detached else arguments

    @classmethod
    def parse(cls, arguments: Sequence[str] | None = None) -> EmulatorSettings:
        """Build settings from command line arguments.

        Args:
            arguments: The arguments; those of the process by default.
        """
        parser = argparse.ArgumentParser(prog="python -m constructs_lib.testing.emulator")
        parser.add_argument("--run-folder", type=Path, required=True)
        parser.add_argument("--port", type=int, default=0)
        parser.add_argument("--speed", type=float, default=1.0)
        parser.add_argument("--concurrency", type=int, default=4)
        parser.add_argument("--without", action="append", default=[], metavar="NAME")
        parser.add_argument("--detached", action="store_true")
        parsed = parser.parse_args(arguments)
        return cls(
            run_folder=parsed.run_folder,
            port=parsed.port,
            speed=parsed.speed,
            concurrency=parsed.concurrency,
            without=frozenset(parsed.without),
            detached=parsed.detached,
        )
