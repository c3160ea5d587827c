"""``make parity``: unit tests and drawn requests, with DynamoDB Local in addition to the fake DynamoDB."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from .installed import ROOT, MissingError, running
from .mirror import ENDPOINT

TESTS: Final = ("tests/parity/limits.py", "tests/parity/drawn_requests.py", "tests/unit")


def main() -> int:
    """Run the tests, or those that are named; the exit status is that of pytest, or 2 if something is missing."""
    options = sys.argv[1:] or [*TESTS]
    try:
        with running() as port:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
            return subprocess.run(command, cwd=ROOT, env={**os.environ, ENDPOINT: str(port)}, check=False).returncode
    except MissingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
