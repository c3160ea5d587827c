"""Output to a reader who may have stopped reading."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
