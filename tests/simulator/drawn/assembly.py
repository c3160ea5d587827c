"""Synthesized drawn sagas: the CDK takes a second for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..kept import kept
from .releases import DrawnRelease
from .sagas import DrawnSaga

_UNLIMITED: Final = {"@aws-cdk/core:stackResourceLimit": 0}  # never deployed


def drawn_assembly(
    sagas: Sequence[DrawnSaga],
    releases: Sequence[DrawnRelease] = (),
    shift: str | None = None,
    *,
    operated: bool = False,
    stacks: int = 1,
    tokens: bool = False,
) -> Path:
    """The synthesized assembly of a stack with these sagas, or of a later release of it.

    Args:
        sagas: what was drawn.
        releases: the change of each, in a later release.
        shift: how deployments move the aliases of sagas whose definitions are published; None: they have none.
        operated: whether it has a function that two operators ask about the first sagas.
        stacks: over how many stacks the sagas are divided, in turn; they share the first one's tables.
        tokens: whether they share a token table, too.

    Raises:
        Exception: whatever the synth raises for sagas that it does not take.
    """
    if stacks > 1:
        return kept(f"{sagas!r} in {stacks} {tokens}", lambda folder: _divided(sagas, stacks, folder, tokens=tokens))
    named = f"{sagas!r} {releases!r} {shift}{' operated' if operated else ''}"
    return kept(named, lambda folder: _synthesize(sagas, releases, shift, folder, operated=operated))


def _divided(sagas: Sequence[DrawnSaga], stacks: int, folder: Path, *, tokens: bool) -> None:
    from aws_cdk import App

    from .stack import DrawnStack

    app = App(outdir=str(folder), analytics_reporting=False, stack_traces=False, context=_UNLIMITED)
    first = None
    for number in range(stacks):
        numbers = range(number, len(sagas), stacks)
        made = DrawnStack(app, [sagas[one] for one in numbers], numbers=numbers, first=first, tokens=tokens)
        first = first or made
    app.synth()


def _synthesize(
    sagas: Sequence[DrawnSaga], releases: Sequence[DrawnRelease], shift: str | None, folder: Path, *, operated: bool
) -> None:
    # Imported here: the CDK takes seconds, and what is kept does not need it.
    from aws_cdk import App

    from .stack import DrawnStack

    app = App(outdir=str(folder), analytics_reporting=False, stack_traces=False, context=_UNLIMITED)
    stack = DrawnStack(app, sagas, releases, shift)
    if operated:
        from tests.simulator.beyond_examples.stacks import add_operators

        add_operators(stack, stack.reconciler)
    app.synth()
