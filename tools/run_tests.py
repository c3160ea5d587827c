"""Runs all tests in four streams at once: three on local AWS, which mostly wait, and the rest, which mostly compute.

With ``--fast``, the fast tier in two. The first is shown as it runs; what the others said comes behind it. Each may
fail, and all run to their end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCAL: Final = "tests/local"
LOGS: Final = ROOT / "build"
SECOND: Final = (
    "test_agentic_payout.py",
    "test_interruptions.py",
    "test_order_crash_matrix.py",
    "test_order_mailer.py",
    "test_order_processing.py",
    "test_payout_crash_matrix.py",
    "test_soak.py",
)
"""Files on local AWS that run beside the others: those of orders and payouts, which they deploy once for all."""
THIRD: Final = (
    "test_bank.py",
    "test_callbacks.py",
    "test_cart_crash_matrix.py",
    "test_cart_fulfilment.py",
    "test_corrections_callbacks.py",
    "test_corrections_events.py",
    "test_large_data.py",
    "test_many_callbacks.py",
    "test_reconciler.py",
    "test_recovery.py",
    "test_redrive.py",
    "test_saga_crash_matrix.py",
    "test_step_kinds.py",
)
"""Further ones: as many as make the streams about equally long."""
BEHIND_SECOND: Final = (
    "tests/unit/test_callback_orders.py",
    "tests/unit/test_reconciler_at_once.py",
    "tests/unit/test_watching_crash_matrix.py",
)
BEHIND_THIRD: Final = ("tests/unit/test_doctor.py", "tests/unit/test_doctor_moves.py")
"""Files that compute for long, behind streams that would end before the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Tests that run one after the other.

    Attributes:
        name: where its log is, and what it is called.
        arguments: of pytest.
    """

    name: str
    arguments: Sequence[str]

    @property
    def command(self) -> list[str]:
        """What runs it."""
        return [sys.executable, "-m", "pytest", *self.arguments]

    @property
    def log(self) -> Path:
        """What it said."""
        return LOGS / f"tests-{self.name}.log"


def fast_streams() -> list[Stream]:
    """The fast tier: neither local AWS nor what enumerates everything."""
    return [
        Stream(name="unit", arguments=["-m", "not exhaustive", "tests/unit"]),
        Stream(name="constructs", arguments=["-p", "no:cacheprovider", "tests/constructs"]),
    ]


def streams() -> list[Stream]:
    """All streams: the one that is shown, and those beside it."""
    second, third = ([f"{LOCAL}/{name}" for name in names] for names in (SECOND, THIRD))
    # Each file belongs to exactly one stream: what is not named runs in the first.
    apart = _ignored(*second, *third)
    beside = ("-p", "no:cacheprovider")
    return [
        Stream(name="local", arguments=["--durations=30", *apart, LOCAL]),
        Stream(name="local-second", arguments=["--durations=20", *beside, *second, *BEHIND_SECOND]),
        Stream(name="local-third", arguments=["--durations=20", *beside, *third, *BEHIND_THIRD]),
        Stream(
            name="rest", arguments=["--durations=20", *beside, *_ignored(LOCAL, *BEHIND_SECOND, *BEHIND_THIRD), "tests"]
        ),
    ]


def _ignored(*paths: str) -> list[str]:
    return [f"--ignore={path}" for path in paths]


def main() -> int:
    """Runs all streams and returns the exit status: that of the first stream that failed, or 0."""
    parser = argparse.ArgumentParser(description="Runs the tests in streams.")
    parser.add_argument("--fast", action="store_true", help="the fast tier")
    options = parser.parse_args()
    began = time.monotonic()
    LOGS.mkdir(exist_ok=True)
    shown, *others = fast_streams() if options.fast else streams()
    running: list[tuple[Stream, subprocess.Popen[bytes]]] = []
    try:
        for stream in others:
            with stream.log.open("wb") as log:
                process = subprocess.Popen(stream.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            running.append((stream, process))
        beside = ", ".join(str(stream.log.relative_to(ROOT)) for stream in others)
        print(f"== {shown.name}; the others run beside it and are told behind it ({beside})", flush=True)
        statuses = [subprocess.run(shown.command, cwd=ROOT, check=False).returncode]
        print(f"== {shown.name} took {time.monotonic() - began:.0f} s", flush=True)
        for stream, process in running:
            statuses.append(process.wait())
            print(f"== {stream.name}\n{stream.log.read_text('utf-8')}", end="", flush=True)
            print(f"== {stream.name} was over after {time.monotonic() - began:.0f} s", flush=True)
    except BaseException:
        for _, process in running:
            process.terminate()
            process.wait()
        raise
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
