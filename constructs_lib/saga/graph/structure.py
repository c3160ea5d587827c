"""Groups in a picture: steps under one condition, two routes of which a request takes one, the pivot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from constructs_lib.saga.description.description import SagaDescription, StepDescription
from saga_runtime.protocol import Side

_OUTPUT: Final = re.compile(r"\$outputs\.`?(\w+)")
_NEGATED: Final = re.compile(r"\$not\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """Steps that are skipped together when a condition is false."""

    when: str
    steps: tuple[StepDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Two routes that exclude each other: a request takes the one or the other."""

    when: str
    steps: tuple[StepDescription, ...]

    @property
    def yes(self) -> tuple[StepDescription, ...]:
        """The route on which the condition holds."""
        return tuple(step for step in self.steps if step.when == self.when)

    @property
    def no(self) -> tuple[StepDescription, ...]:
        """The other route."""
        return tuple(step for step in self.steps if step.when != self.when)


Part = StepDescription | Guarded | Routes
"""What follows each other on the way forward."""


def parts_of(steps: Sequence[StepDescription]) -> tuple[Part, ...]:
    """The way forward, with conditions drawn together where they cannot differ."""
    return tuple(_parts(steps))


def flat(parts: Sequence[Part]) -> Iterator[StepDescription]:
    """Steps and groups of some parts, as they were declared."""
    for part in parts:
        if isinstance(part, StepDescription):
            yield part
        else:
            yield from part.steps


def last_pivot(saga: SagaDescription) -> StepDescription | None:
    """The step after which a saga only goes forward, on whichever way."""
    pivots = [step for step in saga.leaves if step.side == Side.PIVOT]
    return pivots[-1] if pivots else None


def goes_back(saga: SagaDescription) -> Iterator[StepDescription]:
    """Steps with a compensation, in the order in which they are compensated."""
    return (step for step in reversed(list(saga.leaves)) if step.compensated and step.side != Side.AFTER)


def _parts(steps: Sequence[StepDescription]) -> Iterator[Part]:
    index = 0
    while index < len(steps):
        step = steps[index]
        if step.when is None:
            yield step
            index += 1
            continue
        run = _run(steps[index:], _positive)
        routes = _routes(run)
        if routes is not None:
            yield routes
            index += len(run)
            continue
        same = _run(steps[index:], str)
        if "$outputs" in step.when:
            same = same[:1]
        yield Guarded(when=step.when, steps=tuple(same))
        index += len(same)


def _run(steps: Sequence[StepDescription], form: Callable[[str], str]) -> Sequence[StepDescription]:
    """The steps, up to the first whose condition has another form than the first one's."""
    first = form(steps[0].when or "")
    for index, step in enumerate(steps):
        if step.when is None or form(step.when) != first:
            return steps[:index]
    return steps


def _routes(run: Sequence[StepDescription]) -> Routes | None:
    """Two routes, if both are there, and nothing that happens on them can change the condition."""
    when = _positive(run[0].when or "")
    routes = Routes(when=when, steps=tuple(run))
    inside = {leaf.name for step in run for leaf in step.leaves} | {step.name for step in run}
    looked_at = set(_OUTPUT.findall(when))
    open_ended = "$outputs" in _OUTPUT.sub("", when)
    if not routes.yes or not routes.no or open_ended or looked_at & inside:
        return None
    return routes


def _positive(when: str) -> str:
    """The condition without a ``$not(…)`` around all of it."""
    found = _NEGATED.fullmatch(when.strip())
    return found[1].strip() if found and _balanced(found[1]) else when


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0
