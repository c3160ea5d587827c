"""A failed run made shorter: fewer clients, and fewer kinds of faults, printed for a person."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing.simulator import Climate, Deployment, Workload
from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.report import told
from constructs_lib.testing.simulator.run import RunResult, climate_of, simulate_once

if TYPE_CHECKING:
    from .drawn.releases import DrawnRelease
    from .drawn.sagas import DrawnSaga

STEPS: Final = 100_000
"""Steps of the kernel that may be spent on a smaller failure: half a minute of a processor."""
_LEAST: Final = 24
"""Sagas that are simulated at least before a candidate is abandoned: each seed is another schedule."""
_FEWEST_SEEDS: Final = 8
_PATIENCE: Final = 2
"""So many times as many are simulated as it took to find the failure that is made shorter."""
_DELAYS: Final = ("index_lag", "commit_delay", "secret_lag", "skew", "page")


@dataclass(slots=True)
class Budget:
    """Budget of the search for a smaller failure.

    Attributes:
        steps: steps of the kernel that are left; a run takes as long as it has of them.
    """

    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that found something.

    Attributes:
        seed: of the run.
        clients: how many there were.
        climate: what went wrong.
        behaves: how functions behaved, if it is no longer drawn.
        saga: what was deployed, if it was drawn.
        release: the saga's change that was deployed meanwhile; None: there was no deployment.
        effort: sagas that were simulated until it was found.
        result: what the run found.
    """

    seed: int
    clients: int
    climate: Climate
    behaves: Mapping[str, str] | None = None
    saga: DrawnSaga | None = None
    release: DrawnRelease | None = None
    effort: int = 0
    result: RunResult = field(repr=False)

    @property
    def kinds(self) -> frozenset[str]:
        """Broken invariants."""
        return frozenset(finding.kind for finding in self.result.findings)

    @property
    def size(self) -> tuple[int, int, int]:
        """Steps, clients, and kinds of faults."""
        steps = list(self.saga.steps) if self.saga is not None else []
        return len(steps), self.clients, len(_parts(self))

    def __str__(self) -> str:
        climate = self.climate
        faults = [*climate.troubles, *climate.events, *(f"outage of {outage.what}" for outage in climate.outages)]
        behaves = "as drawn" if self.behaves is None else dict(self.behaves) or "well"
        functions = f"; functions behave {behaves}" if self.saga is not None else ""
        return "\n".join(
            [
                *(["saga:", *(f"  {line}" for line in str(self.saga).splitlines())] if self.saga is not None else []),
                *_told(self.release),
                f"{self.clients} clients; faults: {', '.join(faults) or 'none'}{functions}",
                *told(self.result),
            ]
        )


Run = Callable[[Failure], RunResult]
"""Runs what is deployed with the seed, clients and climate of a failure."""


def runs_of(
    deployment: Deployment, workload: Callable[[Failure], Workload], releases: Sequence[Deployment] = ()
) -> Run:
    """Make what runs a failure again.

    Args:
        deployment: what is deployed.
        workload: makes the requests' source for a failure.
        releases: later versions, deployed over it while sagas run.
    """

    def run(failure: Failure) -> RunResult:
        return simulate_once(
            deployment,
            workload(failure),
            failure.seed,
            sagas=failure.clients,
            coverage=Coverage(),
            climate=failure.climate,
            releases=releases,
        )

    return run


def _told(release: DrawnRelease | None) -> list[str]:
    if release is None:
        return []
    if release.kind != "replaced":
        return [f"release: {release.kind}"]
    return ["release: replaced by", *(f"  {line}" for line in str(release.saga).splitlines())]


def tried(candidate: Failure, kinds: frozenset[str], run: Run, left: Budget) -> Failure | None:
    """Run a candidate once; None: it breaks none of these invariants, or nothing is left.

    Args:
        candidate: what is tried.
        kinds: invariants of which one must be broken; empty: any.
        run: runs it.
        left: pays for it.
    """
    if left.steps <= 0:
        return None
    failed = dataclasses.replace(candidate, result=run(candidate))
    left.steps -= failed.result.steps
    return failed if failed.kinds and (not kinds or failed.kinds & kinds) else None


def tried_often(candidate: Failure, kinds: frozenset[str], run: Run, left: Budget) -> Failure | None:
    """Run a candidate with its seed and the next ones, and return the first failure."""
    return next(_failures(candidate, kinds, run, left), None)


def _failures(candidate: Failure, kinds: frozenset[str], run: Run, left: Budget) -> Iterator[Failure]:
    sagas = max(_LEAST, _PATIENCE * candidate.effort)
    for number in range(max(_FEWEST_SEEDS, sagas // candidate.clients)):
        effort = (number + 1) * candidate.clients
        found = tried(dataclasses.replace(candidate, seed=candidate.seed + number, effort=effort), kinds, run, left)
        if found is not None:
            yield found


def shorter(found: Failure, run: Run, left: Budget) -> Failure:
    """Make a failure shorter.

    Clients are left out first: each further run takes a part of the time. Then all faults are left out, half of them,
    and so on.

    Args:
        found: the failure.
        run: runs another one.
        left: pays for it.
    """
    for clients in sorted({1, 2, 3, found.clients // 2} & set(range(1, found.clients))):
        less = tried_often(dataclasses.replace(found, clients=clients), found.kinds, run, left)
        if less is not None:
            found = less
            break
    if found.saga is not None and found.behaves != {}:
        found = tried_often(dataclasses.replace(found, behaves={}), found.kinds, run, left) or found
    parts = _parts(found)
    size = len(parts)
    while size:
        for first in range(0, len(parts), size):
            there = _parts(found)
            gone = [part for part in parts[first : first + size] if part in there]
            if gone:
                candidate = dataclasses.replace(found, climate=_without(found.climate, gone))
                found = tried_often(candidate, found.kinds, run, left) or found
        size //= 2
    return found


def shortest(found: Failure, run: Run, left: Budget) -> Failure:
    """The failure of the next seeds whose trace has the fewest lines."""
    return min((found, *_failures(found, found.kinds, run, left)), key=lambda failure: len(failure.result.about()))


def shortened(
    failed: RunResult,
    deployment: Deployment,
    workload: Workload,
    *,
    releases: Sequence[Deployment] = (),
    steps: int = STEPS,
) -> Failure:
    """Make the failure of a stack shorter that stays as it is.

    Args:
        failed: the run that found something.
        deployment: of that run.
        workload: of that run.
        releases: of that run.
        steps: steps of the kernel that may be spent on it.
    """
    left, run = Budget(steps), runs_of(deployment, lambda _: workload, releases)
    climate = climate_of(deployment, failed.seed)
    found = Failure(seed=failed.seed, clients=failed.sagas, climate=climate, effort=failed.sagas, result=failed)
    return shortest(shorter(found, run, left), run, left)


_Part = tuple[str, Any]
"""A member of a climate, and what is left out of it."""


def _parts(found: Failure) -> list[_Part]:
    """Everything that can be left out of a climate: what hit nothing comes first."""
    climate = found.climate
    parts: list[_Part] = [
        *(("outages", outage) for outage in climate.outages),
        *(("events", event) for event in climate.events),
        *(("troubles", trouble) for trouble in climate.troubles),
        *((name, None) for name in _DELAYS if getattr(climate, name)),
    ]
    return sorted(parts, key=lambda part: any(line.startswith(f"{part[1]}: ") for line in found.result.hit))


def _without(climate: Climate, gone: list[_Part]) -> Climate:
    left: dict[str, Any] = {name: 0 for name in _DELAYS if (name, None) in gone}
    for name in ("events", "troubles"):
        left[name] = {kind: share for kind, share in getattr(climate, name).items() if (name, kind) not in gone}
    left["outages"] = tuple(outage for outage in climate.outages if ("outages", outage) not in gone)
    return dataclasses.replace(climate, **left)
