"""Saying something to whoever reads, who may have read enough."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def say(text: str) -> None:
    """Write to the standard output; that nobody reads it any more, as behind ``| head``, is no error.

    What a command found or did is so, read or not: its exit status stays what it is.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain then.
        with Path(os.devnull).open("w", encoding="utf-8") as nobody:
            os.dup2(nobody.fileno(), sys.stdout.fileno())
