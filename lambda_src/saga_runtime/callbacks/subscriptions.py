"""The sagas whose callbacks a function receives, as its environment names them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from saga_runtime.protocol import Env, ServedField, ServedStepField, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStep:
    """One callback step of a saga.

    Attributes:
        side: its position in its saga.
        job: whether the provider works for the saga; otherwise the saga only waits for something to happen.
        undo: whether it has a compensation.
    """

    side: Side
    job: bool
    undo: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStepOf:
    """A callback step, and the saga that it belongs to.

    Attributes:
        log, requests: names of the saga's tables.
        days: how long rows of its log are kept.
        operators: URL of its operators' queue; empty: it has none.
    """

    step: ServedStep
    log: str
    requests: str
    days: int
    operators: str


def served(step: str, *, log: str | None = None) -> Sequence[ServedStepOf]:
    """The sagas that have a callback step of this name, all that may be meant.

    Args:
        step: the step's name.
        log: name of the saga log, if it is known.
    """
    return [
        found
        for name, found in _served(os.environ.get(Env.CALLBACKS, "[]"))
        if name == step and log in (None, found.log)
    ]


@lru_cache(maxsize=4)
def _served(text: str) -> Sequence[tuple[str, ServedStepOf]]:
    f, s = ServedField, ServedStepField
    return [
        (
            name,
            ServedStepOf(
                step=ServedStep(side=Side(step[s.SIDE]), job=bool(step[s.JOB]), undo=bool(step[s.UNDO])),
                log=str(saga[f.LOG]),
                requests=str(saga[f.REQUESTS]),
                days=int(saga[f.DAYS]),
                operators=str(saga.get(f.OPERATORS) or ""),
            ),
        )
        for saga in json.loads(text)
        for name, step in saga[f.STEPS].items()
    ]
