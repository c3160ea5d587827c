"""Releases of drawn sagas: what a deployment may change while sagas run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from .sagas import (
    DrawnGroup,
    DrawnSaga,
    DrawnStep,
    Node,
    drawn_saga,
    items_of,
    source_of,
    way_by,
    way_of,
    with_each_step,
)

_KINDS: Final = ("same", "added", "replaced", "direct", "stricter")
MOVED: Final = "moved"
BUCKETED: Final = "bucketed"
KINDS: Final = (*_KINDS, MOVED, BUCKETED)
"""Changes under which every saga in flight ends without an operator who deploys again."""
_MOVED: Final = 0.25
"""Share of sagas whose operation moves."""
_BUCKETED: Final = 0.15
"""Share of sagas without a bucket that get one."""
RENAMED: Final = "renamed"
RECONDITIONED: Final = "reconditioned"
"""Changes under which a saga in flight may need an operator who deploys the other release again."""
_OTHER: Final = {
    "$request.a": "$not($request.a)",
    "$request.b": "$not($request.b)",
    "$request.a and $request.b": "$request.a and $not($request.b)",
}
_OPPOSITE: Final = {**_OTHER, **{other: when for when, other in _OTHER.items()}}
"""Conditions, and those that a later release has instead: two pivots exclude each other in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRelease:
    """Change of one saga in a later release.

    Attributes:
        kind: ``same``; ``added``: a step follows; ``replaced``: the operation starts another saga, and the first one
            stays; ``moved``: the operation starts the next saga of the stack that is moved, too; ``direct``: the
            operation becomes direct; ``stricter``: the schema requires ``c``; ``bucketed``: the saga gets a bucket for
            large payloads; ``renamed``: each step has another name; ``reconditioned``: each condition is the opposite
            one.
        saga: of the release, with the first one's construct id; of ``replaced``, the other one.
    """

    kind: str
    saga: DrawnSaga


def drawn_release(saga: DrawnSaga, seed: int) -> DrawnRelease:
    """Draw the release of a seed."""
    if Random(f"{seed}:moved").random() < _MOVED:
        return moved(saga)
    if not saga.bucket and Random(f"{seed}:bucketed").random() < _BUCKETED:
        return bucketed(saga)
    random = Random(f"{seed}:release")
    kind = random.choice(_KINDS)
    if kind == "replaced":
        return replaced(drawn_saga(random.getrandbits(32)))
    if kind == "added" and any(step.pivot for step in saga.steps):
        return added(saga, random.choice(("both", "atomic", "notify")))
    return DrawnRelease(kind="same" if kind == "added" else kind, saga=saga)


def change_of(release: DrawnRelease, saga: DrawnSaga) -> DrawnRelease:
    """Return the same change of another saga."""
    match release.kind:
        case "replaced":
            return release
        case "renamed":
            return renamed(saga)
        case "reconditioned":
            return reconditioned(saga)
        case "bucketed":
            return bucketed(saga)
        case "added":
            return dataclasses.replace(
                release, saga=dataclasses.replace(saga, nodes=(*saga.nodes, release.saga.nodes[-1]))
            )
    return dataclasses.replace(release, saga=saga)


def added(saga: DrawnSaga, kind: str) -> DrawnRelease:
    """The release in which a step follows, which cannot be refused."""
    step = DrawnStep(name="Added", kind=kind, refusable=False)
    return DrawnRelease(kind="added", saga=dataclasses.replace(saga, nodes=(*saga.nodes, step)))


def replaced(other: DrawnSaga) -> DrawnRelease:
    """The release in which another saga takes an operation; requests state how functions behave by names of steps."""
    return DrawnRelease(kind="replaced", saga=renamed(_without_postings(other)).saga)


def _without_postings(saga: DrawnSaga) -> DrawnSaga:
    """The saga without postings: accounts are opened before the first release."""
    return with_each_step(saga, lambda step: dataclasses.replace(step, posts=""))


def bucketed(saga: DrawnSaga) -> DrawnRelease:
    """The release in which the saga gets a bucket, and what is large travels by reference from then on."""
    return DrawnRelease(kind=BUCKETED, saga=dataclasses.replace(saga, bucket=True))


def moved(saga: DrawnSaga) -> DrawnRelease:
    """The release in which the saga's operation starts another saga of the stack, and another one starts it."""
    return DrawnRelease(kind=MOVED, saga=saga)


def moved_to(releases: Mapping[int, DrawnRelease]) -> dict[int, int]:
    """Numbers of the sagas that operations start after they were moved, by their own number."""
    numbers = sorted(number for number, release in releases.items() if release.kind == MOVED)
    return dict(zip(numbers, [*numbers[1:], *numbers[:1]], strict=True))


def renamed(saga: DrawnSaga) -> DrawnRelease:
    """The release in which every step of a saga has another name."""
    found = _changed(saga, _renamed)
    nodes = tuple(_of_renamed(node) if isinstance(node, DrawnGroup) else node for node in found.nodes)
    return DrawnRelease(kind=RENAMED, saga=dataclasses.replace(found, nodes=nodes))


def _of_renamed(group: DrawnGroup) -> DrawnGroup:
    source = source_of(group)
    return group if source is None else dataclasses.replace(group, items=items_of(new_name(source)))


def reconditioned(saga: DrawnSaga) -> DrawnRelease:
    """The release in which conditions over the request are the opposite ones."""

    def opposite(step: DrawnStep) -> DrawnStep:
        return dataclasses.replace(step, when=_opposite(step.when))

    return DrawnRelease(kind=RECONDITIONED, saga=_changed(saga, opposite))


def _opposite(when: str | None) -> str | None:
    return _OPPOSITE.get(when, when) if when is not None else None


def _changed(saga: DrawnSaga, change: Callable[[DrawnStep], DrawnStep]) -> DrawnSaga:
    """The saga with each step changed, and conditions of groups as those of steps."""

    def changed(node: Node) -> Node:
        if isinstance(node, DrawnStep):
            return change(node)
        branches = tuple(tuple(map(change, branch)) for branch in node.branches)
        when = change(DrawnStep(name=node.name, kind="", when=node.when)).when
        return dataclasses.replace(node, branches=branches, when=when)

    return dataclasses.replace(saga, nodes=tuple(map(changed, saga.nodes)))


def _renamed(step: DrawnStep) -> DrawnStep:
    way = way_of(step)
    when = step.when if way is None else way_by(new_name(way[0]), way[1])
    return dataclasses.replace(step, name=new_name(step.name), when=when)


def new_name(name: str) -> str:
    """Name of a step in the release that renames it."""
    return f"{name}New"
