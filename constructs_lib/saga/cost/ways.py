"""Paths of a saga, and where its state machine has to choose. The rules are those of the generated definition.

A condition is a JSONata text that cannot be evaluated at synth. Conditions are taken to be independent of each other,
unless one is, to the letter, the negation of another: then exactly one of the two holds. (Where what they look for is
missing neither does, and the saga fails.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.description.kind import group_kind, plain_kind

PIVOT: Final = "pivot"
"""The ``side`` of a pivot."""
MAX_CONDITIONS: Final = 10
"""With more conditions than this only one path is counted: where all of them hold."""

Passed = frozenset[str]
"""Names of the steps that a path skips."""


def ways_of(saga: SagaDescription, skip: frozenset[str] = frozenset()) -> list[Passed]:
    """Every way through a saga that its conditions leave open; first the one on which all conditions hold.

    Args:
        saga: the saga.
        skip: names of conditional steps that are skipped on every path.

    Raises:
        ValueError: if ``skip`` names a step that is not there, or that has no condition.
    """
    conditional = {step.name: step.when for step in _all(saga.steps) if step.when is not None}
    for name in sorted(skip):
        if name not in conditional:
            raise ValueError(
                f"saga {saga.name} has no conditional step {name!r}; those with a condition are "
                f"{', '.join(conditional) or '(none)'}"
            )
    atoms = sorted({_atom(when)[0] for name, when in conditional.items() if name not in skip})
    values: Iterator[tuple[bool, ...]] = (
        product((True, False), repeat=len(atoms)) if len(atoms) <= MAX_CONDITIONS else iter([(True,) * len(atoms)])
    )
    found: dict[Passed, None] = {}
    for chosen in values:
        holds = dict(zip(atoms, chosen, strict=True))
        passed = (name for name, when in conditional.items() if name in skip or not _is_true(when, holds))
        found[frozenset(passed)] = None
    return list(found)


def entered(
    steps: Sequence[StepDescription], passed: Passed, *, machine: bool = False
) -> Iterator[StepDescription | None]:
    """Entries of a way at one level, in order: a step, or None for a state that chooses the step that follows.

    Args:
        steps: in order.
        passed: names of the skipped ones.
        machine: whether they begin a state machine: its first state asks for the definition.
    """
    if machine and steps[0].when is None and _asks_first(steps[0]):
        yield None
    index = -1
    while index + 1 < len(steps):
        if _is_open(steps, index):
            yield None
        following = next((n for n in range(index + 1, len(steps)) if steps[n].name not in passed), None)
        if following is None:
            return
        index = following
        yield steps[index]


def leads_around_pivots(saga: SagaDescription, passed: Passed) -> bool:
    """Test whether a path leads around every pivot to later steps: then the record must state that it goes forward."""
    pivots = [index for index, step in enumerate(saga.steps) if _has_pivot(step)]
    taken = [index for index, step in enumerate(saga.steps) if step.name not in passed]
    if not pivots or pivots[-1] in taken or not any(index > pivots[-1] for index in taken):
        return False
    before = [index for index in taken if index < pivots[-1]]
    return not before or before[-1] not in pivots


def exclude(one: str | None, other: str | None) -> bool:
    """Test whether one condition literally negates the other and reads only the request, which cannot change."""
    if one is None or other is None or "$outputs" in one + other:
        return False
    return one == f"$not({other})" or other == f"$not({one})"


def _is_open(steps: Sequence[StepDescription], index: int) -> bool:
    """Test whether the machine has to choose after step ``index``: a condition that is known there costs nothing."""
    when = steps[index + 1].when
    if when is None:
        return False
    return index < 0 or steps[index].when != when or "$outputs" in when


def _asks_first(step: StepDescription) -> bool:
    kind = group_kind(step.kind) if step.branches else plain_kind(step.kind)
    return kind.asks_first


def _all(steps: Sequence[StepDescription]) -> Iterator[StepDescription]:
    for step in steps:
        yield step
        for branch in step.branches:
            yield from _all(branch)


def _atom(when: str) -> tuple[str, bool]:
    """A condition without its negation, and whether it was negated."""
    inner = when.removeprefix("$not(").removesuffix(")")
    return (inner, True) if when == f"$not({inner})" and _is_balanced(inner) else (when, False)


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


def _has_pivot(step: StepDescription) -> bool:
    return any(leaf.side == PIVOT for leaf in step.leaves)


def _is_true(when: str, holds: dict[str, bool]) -> bool:
    atom, negated = _atom(when)
    return holds[atom] is not negated
