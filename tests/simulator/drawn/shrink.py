"""A failure made small: a saga with fewer steps, fewer clients, fewer kinds of faults, printed for a person."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from constructs_lib.testing.simulator import Climate, Deployment, Intent, World
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.report import told
from constructs_lib.testing.simulator.run import RunResult, climate_of, simulate_once

from .assembly import drawn_assembly
from .sagas import DrawnSaga, smaller
from .workload import Drawn

Prepare = Callable[[World], None]
_NUMBER: Final = re.compile(r"\bDrawn-Saga(\d+)(?:StateMachine|Recovery|Log)")
_SEEDS: Final = 12
"""Seeds that a smaller saga is tried with: another saga meets the same schedule with another seed only."""


class Alike(Drawn):
    """Requests to one saga, which determine the behaviour of functions: as drawn, or as given."""

    def __init__(
        self, saga: DrawnSaga, *, behaves: Mapping[str, str] | None = None, prepare: Prepare | None = None
    ) -> None:
        super().__init__([saga], only=[0])
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
        result: what the run found.
    """

    saga: DrawnSaga
    seed: int
    clients: int
    climate: Climate
    behaves: Mapping[str, str] | None = None
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
                f"{self.clients} clients; faults: {', '.join(faults) or 'none'}; functions behave {behaves}",
                *told(self.result),
            ]
        )


@dataclass(slots=True)
class _Left:
    """Number of runs that are left."""

    runs: int


def suspects(run: RunResult, sagas: Sequence[DrawnSaga]) -> list[DrawnSaga]:
    """Sagas that a run's findings are about, the likeliest first."""
    named = Counter(int(number) for line in run.about() for number in _NUMBER.findall(line))
    return [sagas[number] for number, _ in named.most_common()]


def shrunk(
    saga: DrawnSaga,
    seed: int,
    clients: int,
    *,
    runs: int = 1_000,
    prepare: Prepare | None = None,
) -> Failure | None:
    """Make a failure of one saga small.

    Args:
        saga: the saga that failed.
        seed: of a run that failed, with this saga alone or with others.
        clients: of that run.
        runs: maximum number of runs to find a smaller one.
        prepare: is called with each world before its run; for intentional faults.

    Returns:
        The smallest failure that was found; None if the saga alone does not fail.
    """
    left = _Left(runs)
    found = _first(saga, range(seed, seed + 5 * _SEEDS), clients, frozenset(), left, prepare)
    if found is None:
        return None
    found = _with_a_smaller_saga(found, left, prepare)
    return _with_a_shorter_schedule(found, left, prepare)


def _with_a_smaller_saga(found: Failure, left: _Left, prepare: Prepare | None) -> Failure:
    again = True
    while again:
        again = False
        for candidate in smaller(found.saga):
            if left.runs <= 0:
                return found
            try:
                less = _first(
                    candidate, range(found.seed, found.seed + _SEEDS), found.clients, found.kinds, left, prepare
                )
            except (ValueError, RuntimeError):
                continue  # the synth does not take it
            if less is not None:
                found, again = less, True
                break
    return found


def _with_a_shorter_schedule(found: Failure, left: _Left, prepare: Prepare | None) -> Failure:
    again = True
    with Deployment.of_assembly(drawn_assembly([found.saga])) as deployment:
        while again:
            again = False
            for candidate in _shorter(found):
                if left.runs <= 0:
                    return found
                less = _tried_often(deployment, candidate, found.kinds, left, prepare)
                if less is not None:
                    found, again = less, True
                    break
    return found


def _tried_often(
    deployment: Deployment, candidate: Failure, kinds: frozenset[str], left: _Left, prepare: Prepare | None
) -> Failure | None:
    """The same with some seeds: with fewer clients, or faults, each seed is another schedule."""
    for seed in range(candidate.seed, candidate.seed + 4 * _SEEDS):
        found = _tried(deployment, dataclasses.replace(candidate, seed=seed), kinds, left, prepare)
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
    for name in ("index_lag", "commit_delay", "skew"):
        if getattr(climate, name):
            yield replace(found, climate=replace(climate, **{name: 0}))
    if found.behaves is None:
        yield replace(found, behaves={})


def _first(
    saga: DrawnSaga, seeds: range, clients: int, kinds: frozenset[str], left: _Left, prepare: Prepare | None
) -> Failure | None:
    """The first of some seeds with which a saga fails alike."""
    with Deployment.of_assembly(drawn_assembly([saga])) as deployment:
        for seed in seeds:
            climate = climate_of(deployment, seed)
            candidate = Failure(
                saga=saga, seed=seed, clients=clients, climate=climate, result=RunResult(seed=seed, sagas=clients)
            )
            found = _tried(deployment, candidate, kinds, left, prepare)
            if found is not None:
                return found
    return None


def _tried(
    deployment: Deployment, candidate: Failure, kinds: frozenset[str], left: _Left, prepare: Prepare | None
) -> Failure | None:
    if left.runs <= 0:
        return None
    left.runs -= 1
    result = simulate_once(
        deployment,
        Alike(candidate.saga, behaves=candidate.behaves, prepare=prepare),
        candidate.seed,
        sagas=candidate.clients,
        coverage=Coverage(),
        climate=candidate.climate,
    )
    failed = dataclasses.replace(candidate, result=result)
    return failed if failed.kinds and (not kinds or failed.kinds & kinds) else None
