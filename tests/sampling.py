"""Samples that are drawn in each run of the tests; ``make samples`` runs everything.

The head of pytest's output contains the draw. ``CDK_SAGAS_SAMPLE=n`` repeats it, and ``all`` leaves nothing out.

``CDK_SAGAS_CASES=n:draw`` runs a part: of the cases of a test, of all that is marked ``exhaustive``, of the models and
of the files on local AWS, one in ``n``, and at least one.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

_LOCAL: Final = "tests/local/"
_MODELS: Final = "tests/specification/"
_ASKED: Final = os.environ.get("CDK_SAGAS_SAMPLE", "")
WHOLE: Final = _ASKED == "all"
"""Whether everything is run."""
DRAW: Final = int(_ASKED) if _ASKED and not WHOLE else secrets.randbelow(1_000_000)
"""What samples are drawn by."""
CASES: Final = "" if WHOLE else os.environ.get("CDK_SAGAS_CASES", "")
"""Which part of the tests is run; empty: all of them."""


def head() -> str:
    """Line on the sample of this run."""
    if WHOLE:
        return "sample: everything"
    return f"sample: CDK_SAGAS_SAMPLE={DRAW}{f' CDK_SAGAS_CASES={CASES}' if CASES else ''} repeats it"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test, or a case of one.

    Attributes:
        id: of pytest.
        exhaustive: whether it is marked so.
    """

    id: str
    exhaustive: bool = False

    @property
    def part_of(self) -> tuple[str, str]:
        """The group of which it is one, and what is drawn of that: cases, or files."""
        if self.id.startswith(_LOCAL):
            return _LOCAL, self.id.partition("::")[0]
        enumerates = self.exhaustive or self.id.startswith(_MODELS)
        return "exhaustive" if enumerates else self.id.partition("[")[0], self.id


def drawn_cases(cases: Iterable[Case], part: str) -> set[str]:
    """Ids of the tests to run.

    Args:
        cases: everything that was collected.
        part: ``n:draw``.
    """
    one_in, _, draw = part.partition(":")
    wholes: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
    for case in cases:
        whole, drawn = case.part_of
        wholes[whole].setdefault(drawn, []).append(case.id)
    return {
        one
        for whole, parts in wholes.items()
        for drawn in Random(f"{draw}:{whole}").sample(list(parts), -(-len(parts) // int(one_in)))
        for one in parts[drawn]
    }
