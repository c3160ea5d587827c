"""Stacks to look for a defect in: what is deployed by a seed, and what is asked of it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final
from unittest import mock

from constructs_lib.testing.simulator import Deployment, Intent, Workload, World
from constructs_lib.testing.simulator.outside.clients import Client
from tests.simulator.drawn.assembly import drawn_assembly
from tests.simulator.drawn.names import DIRECT
from tests.simulator.drawn.releases import DrawnRelease, drawn_release, reconditioned, renamed
from tests.simulator.drawn.sagas import SKIP, DrawnSaga, drawn_inline, drawn_saga, way_of
from tests.simulator.drawn.workload import Drawn
from tests.simulator.examples import EXAMPLES, assembly
from tests.simulator.test_expired_keys import comes_back, with_short_replays
from tests.simulator.test_inline import alongside
from tests.simulator.test_releases import Renaming

_DRAWN: Final = 8
_SKIPPED: Final = 0.5
"""Share of requests to inline sagas, of which each step that has routes takes one."""
_CHANGED: Final = 4
"""Sagas of a stack; with a later release, half as many: each is synthesized twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of a seed.

    Attributes:
        folders: assemblies of its versions, the first one first.
        workload: makes the requests' source, for the deployed versions.
        drawn: its sagas, if they were drawn.
        releases: what the later version makes of each, if there is one.
        order: numbers of the versions that are deployed while sagas run.
    """

    folders: Sequence[Path]
    workload: Callable[[Sequence[Deployment]], Workload]
    drawn: Sequence[DrawnSaga] = ()
    releases: Sequence[DrawnRelease] = ()
    order: Sequence[int] = ()

    @contextmanager
    def deployed(self) -> Iterator[tuple[Deployment, Workload, list[Deployment]]]:
        """Deploy the first version; with it its requests, and the releases to deploy over it."""
        with ExitStack() as opened:
            versions = [opened.enter_context(Deployment.of_assembly(folder)) for folder in self.folders]
            yield versions[0], self.workload(versions), [versions[number] for number in self.order]


class _Alongside(Drawn):
    """Requests to inline sagas, with a Standard execution alongside many Express ones."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        behave = dict(intent.body["behave"])
        if intent.operation != DIRECT and random.random() < _SKIPPED:
            saga = self._sagas[int(intent.operation.removeprefix("saga"))]
            behave |= {step.name: "route" for step in saga.steps if step.route == SKIP}
        body = {**intent.body, "behave": behave}
        return replace(intent, body=body, other_body={**body, "other": True}, wait=random.choice((0, 5, 10)))

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        (requests,) = world.parts.requests
        alongside(world, requests, random.choice((0, 20, 60, 120, 1_000, 30_000)))


def _drawn(seed: int) -> Stack:
    sagas = [drawn_saga(seed * _DRAWN + number) for number in range(_DRAWN)]
    return Stack(folders=[drawn_assembly(sagas)], workload=lambda _: Drawn(sagas), drawn=sagas)


def _inline(seed: int) -> Stack:
    sagas = [drawn_inline(seed * _CHANGED + number) for number in range(_CHANGED)]
    number = 1_000 * seed
    while not any(way_of(step) for step in sagas[0].steps):  # one of them goes by routes
        number += 1
        saga = drawn_saga(number)
        sagas[0] = saga if saga.inline else sagas[0]
    return Stack(folders=[drawn_assembly(sagas)], workload=lambda _: _Alongside(sagas), drawn=sagas)


def _released(seed: int) -> Stack:
    sagas = [drawn_saga(seed * _CHANGED + number) for number in range(_CHANGED)]
    releases = [drawn_release(saga, seed * _CHANGED + number) for number, saga in enumerate(sagas)]
    return Stack(
        folders=[drawn_assembly(sagas), drawn_assembly(sagas, releases)],
        workload=lambda _: Drawn(sagas, releases=releases),
        drawn=sagas,
        releases=releases,
        order=[1],
    )


def _renamed(seed: int) -> Stack:
    sagas = [drawn_saga(seed * _CHANGED + number) for number in range(_CHANGED)]
    return Stack(
        folders=[drawn_assembly(sagas), drawn_assembly(sagas, [renamed(saga) for saga in sagas])],
        workload=lambda versions: Renaming(sagas, versions),
        order=[1, 0, 1],
    )


def _reconditioned(seed: int) -> Stack:
    sagas = [drawn_saga(seed * _CHANGED + number) for number in range(_CHANGED)]
    return Stack(
        folders=[drawn_assembly(sagas), drawn_assembly(sagas, [reconditioned(saga) for saga in sagas])],
        workload=lambda versions: Renaming(sagas, versions, reconditioned),
        order=[1, 0, 1],
    )


def _inline_renamed(seed: int) -> Stack:
    sagas = [drawn_inline(seed * _CHANGED + number) for number in range(_CHANGED)]
    return Stack(
        folders=[drawn_assembly(sagas), drawn_assembly(sagas, [renamed(saga) for saga in sagas])],
        workload=lambda versions: Renaming(sagas, versions),
        order=[1, 0, 1],
    )


def _expired(seed: int) -> Stack:
    del seed
    # Of this process, which looks for one defect only.
    mock.patch.object(Client, "_insist", comes_back(Counter())).start()
    folder = with_short_replays(Path(tempfile.mkdtemp(prefix="cdk-sagas-expired-")))
    return Stack(folders=[folder], workload=lambda _: EXAMPLES["funds_transfer"].workload())


def _example(name: str) -> Callable[[int], Stack]:
    return lambda _: Stack(folders=[assembly(name)], workload=lambda _: EXAMPLES[name].workload())


STACKS: Final[dict[str, Callable[[int], Stack]]] = {
    "drawn": _drawn,
    "inline": _inline,
    "released": _released,
    "renamed": _renamed,
    "reconditioned": _reconditioned,
    "inline-renamed": _inline_renamed,
    "expired": _expired,
    **{name: _example(name) for name in EXAMPLES},
}
"""By name, what makes the stack of a seed."""
