"""Runs all tests in two streams at once: those on local AWS, which mostly wait, and the rest, which mostly compute.

The first is shown as it runs; what the second said comes behind it. Either may fail, and both run to their end.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCAL = "tests/local"
LOG = ROOT / "build" / "tests.log"


def main() -> int:
    """Runs both streams and returns the exit status: that of the first stream that failed, or 0."""
    began = time.monotonic()
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w", encoding="utf-8") as log:
        rest = subprocess.Popen(
            [sys.executable, "-m", "pytest", f"--ignore={LOCAL}", "-p", "no:cacheprovider", "tests"],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            print(
                f"== {LOCAL}; everything else runs beside it and is told behind it ({LOG.relative_to(ROOT)})",
                flush=True,
            )
            local = subprocess.run([sys.executable, "-m", "pytest", "--durations=30", LOCAL], cwd=ROOT, check=False)
            print("== everything else", flush=True)
            rest.wait()
        except BaseException:
            rest.terminate()
            rest.wait()
            raise
    print(LOG.read_text("utf-8"), end="")
    print(f"== all tests took {time.monotonic() - began:.0f} s", flush=True)
    return local.returncode or rest.returncode


if __name__ == "__main__":
    sys.exit(main())
