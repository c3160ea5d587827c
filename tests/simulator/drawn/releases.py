"""Releases of drawn sagas: what a deployment may change while sagas run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from random import Random
from typing import Final

from .sagas import DrawnGroup, DrawnSaga, DrawnStep, Node, drawn_saga, way_by, way_of

KINDS: Final = ("same", "added", "replaced", "direct", "stricter")
"""Changes under which every saga in flight ends without an operator who deploys again."""
RENAMED: Final = "renamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRelease:
    """Change of one saga in a later release.

    Attributes:
        kind: ``same``; ``added``: a step follows; ``replaced``: the operation starts another saga, and the first one
            stays; ``direct``: the operation becomes direct; ``stricter``: the schema requires ``c``; ``renamed``: each
            step has another name.
        saga: of the release, with the first one's construct id; of ``replaced``, the other one.
    """

    kind: str
    saga: DrawnSaga


def drawn_release(saga: DrawnSaga, seed: int) -> DrawnRelease:
    """Draw the release of a seed."""
    random = Random(f"{seed}:release")
    kind = random.choice(KINDS)
    if kind == "replaced":
        return replaced(drawn_saga(random.getrandbits(32)))
    if kind == "added" and any(step.pivot for step in saga.steps):
        added = DrawnStep(name="Added", kind=random.choice(("both", "atomic", "notify")), refusable=False)
        return DrawnRelease(kind=kind, saga=dataclasses.replace(saga, nodes=(*saga.nodes, added)))
    return DrawnRelease(kind="same" if kind == "added" else kind, saga=saga)


def change_of(release: DrawnRelease, saga: DrawnSaga) -> DrawnRelease:
    """Return the same change of another saga."""
    match release.kind:
        case "replaced":
            return release
        case "renamed":
            return renamed(saga)
        case "added":
            return dataclasses.replace(
                release, saga=dataclasses.replace(saga, nodes=(*saga.nodes, release.saga.nodes[-1]))
            )
    return dataclasses.replace(release, saga=saga)


def replaced(other: DrawnSaga) -> DrawnRelease:
    """The release in which another saga takes an operation; requests state how functions behave by names of steps."""
    return DrawnRelease(kind="replaced", saga=renamed(other).saga)


def renamed(saga: DrawnSaga) -> DrawnRelease:
    """The release in which every step of a saga has another name."""
    return DrawnRelease(kind=RENAMED, saga=dataclasses.replace(saga, nodes=tuple(map(_renamed, saga.nodes))))


def _renamed(node: Node) -> Node:
    if isinstance(node, DrawnGroup):
        branches = tuple(tuple(map(_step, branch)) for branch in node.branches)
        return dataclasses.replace(node, branches=branches)
    return _step(node)


def _step(step: DrawnStep) -> DrawnStep:
    way = way_of(step)
    when = step.when if way is None else way_by(new_name(way[0]), way[1])
    return dataclasses.replace(step, name=new_name(step.name), when=when)


def new_name(name: str) -> str:
    """Name of a step in the release that renames it."""
    return f"{name}New"
