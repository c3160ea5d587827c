"""Stacks to look for a defect in: what is deployed by a seed, and what is asked of it."""

from __future__ import annotations

import itertools
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
from tests.simulator.drawn.advised import Advised, advised
from tests.simulator.drawn.assembly import drawn_assembly
from tests.simulator.drawn.releases import DrawnRelease, drawn_release, reconditioned, renamed
from tests.simulator.drawn.sagas import (
    MUTATING,
    PROVIDERS,
    SKIP,
    DrawnGroup,
    DrawnSaga,
    DrawnStep,
    drawn_inline,
    drawn_saga,
    needed_jobs,
    needed_waits,
    source_of,
    way_of,
    with_each_step,
)
from tests.simulator.drawn.shrink import ALONE, Setting, asked
from tests.simulator.drawn.workload import Drawn
from tests.simulator.examples import EXAMPLES, assembly
from tests.simulator.machines import Deleted, Replacement
from tests.simulator.test_advice import SKIPPING, Skipped
from tests.simulator.test_expired_keys import comes_back, with_short_replays
from tests.simulator.test_inline import alongside
from tests.simulator.test_releases import Renaming
from tests.simulator.workloads.carts import ReviewedCarts

_DRAWN: Final = 8
_AGAIN: Final = (1, 0, 1)
"""Versions that an operator deploys one after another."""
_OF_THIS_PROCESS: Final = ExitStack()
"""What is patched until the end of a process: it looks for one defect only."""
_CHANGED: Final = 4
"""Sagas of a stack; with a later release, half as many: each is synthesized twice."""

_BETWEEN: Final = DrawnSaga(
    nodes=(
        DrawnStep(name="S1", kind="atomic", pivot=True, when="$request.a"),
        DrawnStep(name="S2", kind="keyed", undo=True, refusable=False),
        DrawnStep(name="S3", kind="atomic", pivot=True, when="$not($request.a)"),
    )
)
"""Between two conditional pivots a step at a provider, which cannot be asked about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of a seed.

    Attributes:
        folders: assemblies of its versions, the first one first.
        workload: makes the requests' source, for the deployed versions.
        drawn: its sagas, if they were drawn.
        releases: what the later version makes of each, if there is one.
        order: numbers of the versions that are deployed while sagas run.
        setting: the same for one of its sagas alone.
    """

    folders: Sequence[Path]
    workload: Callable[[Sequence[Deployment]], Workload]
    drawn: Sequence[DrawnSaga] = ()
    releases: Sequence[DrawnRelease] = ()
    order: Sequence[int] = ()
    setting: Setting = ALONE

    @contextmanager
    def deployed(self) -> Iterator[tuple[Deployment, Workload, list[Deployment]]]:
        """Deploy the first version; with it its requests, and the releases to deploy over it."""
        with ExitStack() as opened:
            versions = [opened.enter_context(Deployment.of_assembly(folder)) for folder in self.folders]
            yield versions[0], self.workload(versions), [versions[number] for number in self.order]


def _deploying_again(change: Callable[[DrawnSaga], DrawnRelease]) -> Setting:
    """The setting of one saga whose operator deploys either release again, in turn."""

    def workload(saga: DrawnSaga, release: DrawnRelease | None, versions: Sequence[Deployment]) -> Drawn:
        return asked(saga, None, versions) if release is None else Renaming([saga], versions, change)

    return Setting(workload=workload, order=_AGAIN)


class _Alongside(Drawn):
    """Requests to inline sagas, with a Standard execution alongside many Express ones."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        return replace(intent, wait=random.choice((0, 5, 10)))

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        (requests,) = world.parts.requests
        alongside(world, requests, random.choice((0, 20, 60, 120, 1_000, 30_000)))


def _drawn(seed: int) -> Stack:
    sagas = [drawn_saga(seed * _DRAWN + number) for number in range(_DRAWN)]
    return Stack(folders=[drawn_assembly(sagas)], workload=lambda _: Drawn(sagas), drawn=sagas)


def _items(seed: int) -> Stack:
    """Sagas whose maps compensate a provider's step behind another one of the same item."""
    return _with(_undoes_items, seed)


def _behind_items(seed: int) -> Stack:
    """Sagas that compensate a provider's step behind a map, whose outputs the compensation sees by item key."""
    return _with(_undoes_behind_items, seed)


def _jobs_behind(seed: int) -> Stack:
    """Sagas that cannot continue without jobs behind their pivots."""
    return _with(lambda saga: any(needed_jobs(saga)), seed)


def _waits_behind(seed: int) -> Stack:
    """Sagas that cannot continue without what they wait for behind their pivots, in steps of one name."""
    return _with(lambda saga: f"W{3 + seed % 3}" in needed_waits(saga), seed)


def _divided(seed: int) -> Stack:
    """Such sagas in two stacks, which share tables of requests and of tokens, and whose provider reports to both."""
    wanted = filter(
        lambda saga: f"W{3 + seed % 3}" in needed_waits(saga), map(drawn_saga, itertools.count(1_000 * seed))
    )
    sagas = list(itertools.islice(wanted, _CHANGED))
    return Stack(folders=[drawn_assembly(sagas, stacks=2, tokens=True)], workload=lambda _: Drawn(sagas), drawn=sagas)


def _between_pivots(seed: int) -> Stack:
    """Sagas that cannot continue without a job of a group between two pivots, which has a compensation."""
    return _with(_needs_jobs_between_pivots, seed)


def _with(wanted: Callable[[DrawnSaga], bool], seed: int) -> Stack:
    numbers = itertools.count(1_000 * seed)
    sagas = list(itertools.islice(filter(wanted, map(drawn_saga, numbers)), _CHANGED))
    return Stack(folders=[drawn_assembly(sagas)], workload=lambda _: Drawn(sagas), drawn=sagas)


def _needs_jobs_between_pivots(saga: DrawnSaga) -> bool:
    needed = {*needed_jobs(saga)}
    pivots = [number for number, node in enumerate(saga.nodes) if any(step.pivot for step in node.steps)]
    between = saga.nodes[pivots[0] + 1 : pivots[-1]] if pivots else ()
    groups = [node for node in between if isinstance(node, DrawnGroup)]
    return any(step.undo and step.name in needed for group in groups for step in group.steps)


def _undoes_items(saga: DrawnSaga) -> bool:
    maps = [node for node in saga.nodes if isinstance(node, DrawnGroup) and node.kind == "map"]
    return any(
        later.undo and later.kind in PROVIDERS and earlier.kind in MUTATING
        for group in maps
        for branch in group.branches
        for earlier, later in itertools.pairwise(branch)
    )


def _undoes_behind_items(saga: DrawnSaga) -> bool:
    maps = [number for number, node in enumerate(saga.nodes) if isinstance(node, DrawnGroup) and node.kind == "map"]
    return any(
        isinstance(node, DrawnStep) and node.undo and node.kind in PROVIDERS
        for node in saga.nodes[maps[0] + 1 if maps else len(saga.nodes) :]
    )


def _items_of_outputs(seed: int) -> Stack:
    """Sagas whose maps compensate items of what a provider's step returned, or of what it was skipped with."""
    return _with(_undoes_items_of_outputs, seed)


def _undoes_items_of_outputs(saga: DrawnSaga) -> bool:
    providers = {step.name for step in saga.steps if step.kind in PROVIDERS}
    maps = [node for node in saga.nodes if isinstance(node, DrawnGroup) and source_of(node) in providers]
    return any(step.undo for group in maps for step in group.steps)


def _inline(seed: int) -> Stack:
    sagas = [drawn_inline(seed * _CHANGED + number) for number in range(_CHANGED)]
    number = 1_000 * seed
    while not any(way_of(step) for step in sagas[0].steps):  # one of them goes by routes
        number += 1
        saga = drawn_saga(number)
        sagas[0] = saga if saga.inline else sagas[0]
    alone = Setting(workload=lambda saga, _release, _versions: _Alongside([saga], only=[0]))
    return Stack(folders=[drawn_assembly(sagas)], workload=lambda _: _Alongside(sagas), drawn=sagas, setting=alone)


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


def _remade(seed: int) -> Stack:
    """Sagas whose state machines a release replaces; the former ones, or some of them, are deleted."""
    sagas = [drawn_saga(seed * _DRAWN + number) for number in range(_DRAWN)]
    machines = Replacement(deleted=(Deleted.RECOVERIES, Deleted.ALL)[seed % 2], roles=bool(seed // 2 % 2))
    return Stack(
        folders=machines.of([drawn_assembly(sagas)]),
        workload=lambda _: Drawn(sagas),
        drawn=sagas,
        order=[1],
        setting=Setting(machines=machines),
    )


def _deployed_again(
    drawn: Callable[[int], DrawnSaga], change: Callable[[DrawnSaga], DrawnRelease]
) -> Callable[[int], Stack]:
    def made(seed: int) -> Stack:
        sagas = [drawn(seed * _CHANGED + number) for number in range(_CHANGED)]
        releases = [change(saga) for saga in sagas]
        return Stack(
            folders=[drawn_assembly(sagas), drawn_assembly(sagas, releases)],
            workload=lambda versions: Renaming(sagas, versions, change),
            drawn=sagas,
            releases=releases,
            order=_AGAIN,
            setting=_deploying_again(change),
        )

    return made


def _advised(wanted: Callable[[DrawnSaga], bool]) -> Callable[[int], Stack]:
    """A saga about which operators do what ``inspect`` advises. It does not post, which they cannot do by hand."""

    def made(seed: int) -> Stack:
        found = next(filter(wanted, map(drawn_saga, itertools.count(1_000 * seed))))
        return _followed(with_each_step(found, lambda step: replace(step, posts="")), Advised)

    return made


def _followed(saga: DrawnSaga, workload: Callable[..., Advised]) -> Stack:
    _OF_THIS_PROCESS.enter_context(advised())
    alone = Setting(workload=lambda smaller, _release, _versions: workload([smaller], only=[0]))
    return Stack(
        folders=[drawn_assembly([saga])], workload=lambda _: workload([saga], only=[0]), drawn=[saga], setting=alone
    )


def _skips_jobs(saga: DrawnSaga) -> bool:
    """True if a job that can be compensated is skipped by a refusal."""
    return any(step.kind == "job" and step.undo and step.route == SKIP for step in saga.steps)


def _expired(seed: int) -> Stack:
    del seed
    _OF_THIS_PROCESS.enter_context(mock.patch.object(Client, "_insist", comes_back(Counter())))
    folder = with_short_replays(Path(tempfile.mkdtemp(prefix="cdk-sagas-expired-")))
    return Stack(folders=[folder], workload=lambda _: EXAMPLES["funds_transfer"].workload())


def _reviewed(_: int) -> Stack:
    """Reviewed carts only."""
    return Stack(folders=[assembly("cart_fulfilment")], workload=lambda _: ReviewedCarts())


def _example(name: str) -> Callable[[int], Stack]:
    return lambda _: Stack(folders=[assembly(name)], workload=lambda _: EXAMPLES[name].workload())


STACKS: Final[dict[str, Callable[[int], Stack]]] = {
    "drawn": _drawn,
    "items": _items,
    "items-of-outputs": _items_of_outputs,
    "behind-items": _behind_items,
    "jobs-behind": _jobs_behind,
    "waits-behind": _waits_behind,
    "divided": _divided,
    "between-pivots": _between_pivots,
    "advised": _advised(lambda saga: any(needed_jobs(saga))),
    "advised-job-skipped": _advised(_skips_jobs),
    "advised-skipped": lambda _: _followed(SKIPPING, Skipped),
    "advised-between": lambda _: _followed(_BETWEEN, Advised),
    "inline": _inline,
    "released": _released,
    "remade": _remade,
    "renamed": _deployed_again(drawn_saga, renamed),
    "reconditioned": _deployed_again(drawn_saga, reconditioned),
    "inline-renamed": _deployed_again(drawn_inline, renamed),
    "expired": _expired,
    "reviewed": _reviewed,
    **{name: _example(name) for name in EXAMPLES},
}
"""By name, what makes the stack of a seed."""
