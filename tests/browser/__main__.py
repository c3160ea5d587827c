"""``make browser``: the approval page, the reports and the documentation site in Chromium."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from .chromium import MissingError, installed
from .looks import PICTURES, ROOT

TESTS: Final = tuple(f"tests/browser/{name}.py" for name in ("approval_page", "reports", "site"))

_TIMEOUT: Final = "--timeout=3600"
"""Of a test in seconds: a report's run is part of its first one."""


def main() -> int:
    """Run the tests, or those that are named; the exit status is that of pytest, or 2 if Chromium is missing."""
    try:
        installed()
    except MissingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    # The approval page's surroundings are those of the unit tests.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.unit.conftest", _TIMEOUT]
    status = subprocess.run([*command, *(sys.argv[1:] or TESTS)], cwd=ROOT, check=False).returncode
    print(f"pictures: {PICTURES.relative_to(ROOT)}/*.png")
    return status


if __name__ == "__main__":
    sys.exit(main())
