"""Samples that are drawn in each run of the tests; ``make samples`` runs everything.

The head of pytest's output contains the draw. ``CDK_SAGAS_SAMPLE=n`` repeats it, and ``all`` leaves nothing out.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

_ASKED: Final = os.environ.get("CDK_SAGAS_SAMPLE", "")
WHOLE: Final = _ASKED == "all"
"""Whether everything is run."""
DRAW: Final = int(_ASKED) if _ASKED and not WHOLE else secrets.randbelow(1_000_000)
"""What samples are drawn by."""


def head() -> str:
    """Line on the sample of this run."""
    if WHOLE:
        return "sample: everything"
    return f"sample: CDK_SAGAS_SAMPLE={DRAW} repeats it"


def seed_of(run: int) -> int:
    """Seed of something that each run of the tests draws alike, unless a draw is asked for."""
    return DRAW if _ASKED else run


def a_third() -> tuple[int, int]:
    """Number of a part, and of parts: one of three, or the only one."""
    return (0, 1) if WHOLE else (DRAW % 3, 3)


def a_sixth() -> tuple[int, int]:
    """The same of six parts."""
    return (0, 1) if WHOLE else (DRAW % 6, 6)


def so_many(number: int) -> int | None:
    """Number of cases that are drawn; None: all are run."""
    return None if WHOLE else number
