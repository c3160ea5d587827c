"""A failure made small: a saga with fewer steps, fewer clients, fewer kinds of faults, printed for a person."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from constructs_lib.testing.simulator import Climate, Deployment, Intent, Workload, World
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.report import told
from constructs_lib.testing.simulator.run import RunResult, climate_of, simulate_once
from constructs_lib.testing.simulator.workload import Wrapped

from .assembly import drawn_assembly
from .releases import DrawnRelease, change_of
from .sagas import DrawnSaga, smaller
from .workload import Drawn

Prepare = Callable[[World], None]
_Versions = Sequence[Deployment]
"""The first version, and the later release if there is one."""
_NUMBER: Final = re.compile(r"\bDrawn-Saga(\d+)(?:V2)?(?:StateMachine|Recovery|Log)")
_SEEDS: Final = 12
"""Seeds that a smaller saga is tried with: another saga meets the same schedule with another seed only."""


def asked(saga: DrawnSaga, release: DrawnRelease | None, versions: _Versions) -> Drawn:
    """Requests to one saga, whose release is deployed while it runs, if it has one."""
    del versions
    return Drawn([saga], only=[0], releases=[release] if release is not None else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Setting in which a saga failed, alone or with others.

    Attributes:
        workload: makes the requests to one saga, for its release and the deployed versions.
        order: numbers of the versions that are deployed while sagas run, if there is a release.
        prepare: is called with each world before its run; for intentional faults.
    """

    workload: Callable[[DrawnSaga, DrawnRelease | None, _Versions], Drawn] = asked
    order: Sequence[int] = (1,)
    prepare: Prepare | None = None


class _Alike(Wrapped):
    """Requests of a workload, and functions that behave as given.

    Args:
        workload: whose requests they are.
        behaves: how functions behave; None: as drawn.
        prepare: is called with the world.
    """

    def __init__(self, workload: Workload, behaves: Mapping[str, str] | None, prepare: Prepare | None) -> None:
        super().__init__(workload)
        self._behaves = behaves
        self._prepare = prepare

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        if self._prepare is not None:
            self._prepare(world)

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        if self._behaves is None:
            return intent
        body = {**intent.body, "behave": dict(self._behaves)}
        return dataclasses.replace(intent, body=body, other_body={**body, "other": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that found something.

    Attributes:
        saga: what was deployed.
        seed: of the run.
        clients: how many there were.
        climate: what went wrong.
        behaves: how functions behaved, if it is no longer drawn.
        release: the saga's change that was deployed meanwhile; None: there was no deployment.
        result: what the run found.
    """

    saga: DrawnSaga
    seed: int
    clients: int
    climate: Climate
    behaves: Mapping[str, str] | None = None
    release: DrawnRelease | None = None
    result: RunResult = field(repr=False)

    @property
    def kinds(self) -> frozenset[str]:
        """Broken invariants."""
        return frozenset(finding.kind for finding in self.result.findings)

    @property
    def size(self) -> tuple[int, int, int]:
        """Steps, clients, and kinds of faults."""
        climate = self.climate
        faults = len(climate.troubles) + len(climate.events) + len(climate.outages)
        return len(list(self.saga.steps)), self.clients, faults

    def __str__(self) -> str:
        climate = self.climate
        faults = [*climate.troubles, *climate.events, *(f"outage of {outage.what}" for outage in climate.outages)]
        behaves = "as drawn" if self.behaves is None else dict(self.behaves) or "well"
        return "\n".join(
            [
                "saga:",
                *(f"  {line}" for line in str(self.saga).splitlines()),
                *_told(self.release),
                f"{self.clients} clients; faults: {', '.join(faults) or 'none'}; functions behave {behaves}",
                *told(self.result),
            ]
        )


ALONE: Final = Setting()


@dataclass(slots=True)
class _Left:
    """Number of runs that are left."""

    runs: int


def _told(release: DrawnRelease | None) -> list[str]:
    if release is None:
        return []
    if release.kind != "replaced":
        return [f"release: {release.kind}"]
    return ["release: replaced by", *(f"  {line}" for line in str(release.saga).splitlines())]


def suspects(run: RunResult) -> list[int]:
    """Numbers of sagas that a run's findings are about, the likeliest first."""
    named = Counter(int(number) for line in run.about() for number in _NUMBER.findall(line))
    return [number for number, _ in named.most_common()]


@contextmanager
def _deployed(saga: DrawnSaga, release: DrawnRelease | None) -> Iterator[_Versions]:
    """Deploy a saga, and prepare its later release."""
    with ExitStack() as opened:
        folders = [drawn_assembly([saga])]
        if release is not None:
            folders.append(drawn_assembly([saga], [release]))
        yield [opened.enter_context(Deployment.of_assembly(folder)) for folder in folders]


def shrunk(
    saga: DrawnSaga,
    seed: int,
    clients: int,
    *,
    runs: int = 1_000,
    setting: Setting = ALONE,
    release: DrawnRelease | None = None,
) -> Failure | None:
    """Make a failure of one saga small.

    Args:
        saga: the saga that failed.
        seed: of a run that failed, with this saga alone or with others.
        clients: of that run.
        runs: maximum number of runs to find a smaller one.
        setting: how it is deployed and asked.
        release: the saga's change that was deployed meanwhile; the smallest failure may do without it.

    Returns:
        The smallest failure that was found; None if the saga alone does not fail.
    """
    left = _Left(runs)
    found = None
    seeds = range(seed, seed + 5 * _SEEDS)
    for change in dict.fromkeys((None, release)):
        found = found or _first((saga, change), seeds, clients, frozenset(), left, setting)
    if found is None:
        return None
    found = _with_a_smaller_saga(found, left, setting)
    return _with_a_shorter_schedule(found, left, setting)


def _with_a_smaller_saga(found: Failure, left: _Left, setting: Setting) -> Failure:
    again = True
    while again:
        again = False
        for candidate in smaller(found.saga):
            if left.runs <= 0:
                return found
            try:
                change = None if found.release is None else change_of(found.release, candidate)
                seeds = range(found.seed, found.seed + _SEEDS)
                less = _first((candidate, change), seeds, found.clients, found.kinds, left, setting)
            except (ValueError, RuntimeError):
                continue  # the synth does not take it
            if less is not None:
                found, again = less, True
                break
    return found


def _with_a_shorter_schedule(found: Failure, left: _Left, setting: Setting) -> Failure:
    again = True
    with _deployed(found.saga, found.release) as deployment:
        while again:
            again = False
            for candidate in _shorter(found):
                if left.runs <= 0:
                    return found
                less = _tried_often(deployment, candidate, found.kinds, left, setting)
                if less is not None:
                    found, again = less, True
                    break
    return found


def _tried_often(
    deployment: _Versions, candidate: Failure, kinds: frozenset[str], left: _Left, setting: Setting
) -> Failure | None:
    """The same with some seeds: with fewer clients, or faults, each seed is another schedule."""
    for seed in range(candidate.seed, candidate.seed + 4 * _SEEDS):
        found = _tried(deployment, dataclasses.replace(candidate, seed=seed), kinds, left, setting)
        if found is not None:
            return found
    return None


def _shorter(found: Failure) -> Iterator[Failure]:
    replace = dataclasses.replace
    climate = found.climate
    for clients in (1, 2, found.clients // 2, found.clients - 1):
        if 0 < clients < found.clients:
            yield replace(found, clients=clients)
    for index in range(len(climate.outages)):
        outages = climate.outages[:index] + climate.outages[index + 1 :]
        yield replace(found, climate=replace(climate, outages=outages))
    for name in ("events", "troubles"):
        kinds = getattr(climate, name)
        for kind in kinds:
            left = {other: share for other, share in kinds.items() if other is not kind}
            yield replace(found, climate=replace(climate, **{name: left}))
    for name in ("index_lag", "commit_delay", "skew", "page"):
        if getattr(climate, name):
            yield replace(found, climate=replace(climate, **{name: 0}))
    if found.behaves is None:
        yield replace(found, behaves={})


def _first(
    changed: tuple[DrawnSaga, DrawnRelease | None],
    seeds: range,
    clients: int,
    kinds: frozenset[str],
    left: _Left,
    setting: Setting,
) -> Failure | None:
    """The first of some seeds with which a saga and its release fail alike."""
    saga, release = changed
    with _deployed(saga, release) as deployment:
        for seed in seeds:
            candidate = Failure(
                saga=saga,
                seed=seed,
                clients=clients,
                climate=climate_of(deployment[0], seed),
                release=release,
                result=RunResult(seed=seed, sagas=clients),
            )
            found = _tried(deployment, candidate, kinds, left, setting)
            if found is not None:
                return found
    return None


def _tried(
    deployment: _Versions, candidate: Failure, kinds: frozenset[str], left: _Left, setting: Setting
) -> Failure | None:
    if left.runs <= 0:
        return None
    left.runs -= 1
    result = simulate_once(
        deployment[0],
        _Alike(setting.workload(candidate.saga, candidate.release, deployment), candidate.behaves, setting.prepare),
        candidate.seed,
        sagas=candidate.clients,
        coverage=Coverage(),
        climate=candidate.climate,
        releases=[deployment[number] for number in setting.order] if candidate.release is not None else [],
    )
    failed = dataclasses.replace(candidate, result=result)
    return failed if failed.kinds and (not kinds or failed.kinds & kinds) else None
