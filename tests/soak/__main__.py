"""``python -m tests.soak``: ten minutes, a report in ``build``; exit status 1 if anything is not as it must be."""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import sys
import time
from typing import Final

from .report import lines, write
from .run import Settings, soak
from .wishes import Example

_SECONDS: Final = 600.0


def main() -> int:
    """Soak, report, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Sagas of all examples at once, while everything fails a little."
    )
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="of load and faults, in real time; 600 by default"
    )
    parser.add_argument("--seed", type=int, help="repeats requests and faults; drawn by default, and printed")
    parser.add_argument("--clients", type=int, help="of each example at any time; twice as many of carts, which wait")
    options = parser.parse_args()
    settings = Settings(
        seed=options.seed if options.seed is not None else secrets.randbelow(1_000_000), seconds=options.seconds
    )
    if options.clients is not None:
        clients = {example: options.clients * (2 if example is Example.CARTS else 1) for example in Example}
        settings = dataclasses.replace(settings, clients=clients)
    again = f"make soak SEED={settings.seed}{'' if settings.seconds == _SECONDS else f' SECONDS={settings.seconds:g}'}"
    print(f"seed {settings.seed}; again with: {again}", flush=True)
    began = time.monotonic()
    run = soak(settings, lambda told: print(f"{time.monotonic() - began:5.0f} s  {told}", flush=True))
    page, numbers = write(run)
    for name, told in lines(run).items():
        print(f"{name}: {told}")
    print(f"report: {page} and {numbers}")
    problems = run.problems()
    for problem in problems[:40]:
        print(f"error: {problem}", file=sys.stderr)
    print("failed" if problems else "passed: quiet, nothing in flight, all books equal")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
