"""A failure of a drawn saga made small: fewer steps, fewer clients, fewer kinds of faults."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from constructs_lib.testing.simulator import Deployment, Intent, Workload, World
from constructs_lib.testing.simulator.run import RunResult, climate_of
from constructs_lib.testing.simulator.workload import Wrapped
from tests.simulator.machines import Replacement
from tests.simulator.shorter import STEPS, Budget, Failure, Run, runs_of, shorter, shortest, tried, tried_often

from .assembly import drawn_assembly
from .releases import DrawnRelease, change_of
from .sagas import DrawnSaga, only, smaller
from .workload import Drawn

Prepare = Callable[[World], None]
_Versions = Sequence[Deployment]
"""The first version, and the later release if there is one."""
_NUMBER: Final = re.compile(r"\bDrawn-Saga(\d+)(?:V2)?(?:StateMachine|Recovery|Log)")
_STEP: Final = re.compile(r"\b[A-Z][a-z]*\d*\b")
_SEEDS: Final = 40
"""Seeds with which the saga is tried alone: it meets the same schedule with another seed only."""
_SYNTH: Final = 2_000
"""A synth takes as long as so many steps of the kernel."""


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
        machines: how a last release replaces its state machines, if one does.
        shift: how releases move aliases, if sagas have them.
    """

    workload: Callable[[DrawnSaga, DrawnRelease | None, _Versions], Drawn] = asked
    order: Sequence[int] = (1,)
    prepare: Prepare | None = None
    machines: Replacement | None = None
    shift: str | None = None

    def releases(self, versions: _Versions, release: DrawnRelease | None) -> list[Deployment]:
        """Releases of the versions, in order."""
        order = self.order if release is not None else ()
        return [*(versions[number] for number in order), *(versions[-1:] if self.machines is not None else ())]


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


ALONE: Final = Setting()


def suspects(run: RunResult) -> list[int]:
    """Numbers of sagas that a run's findings are about, the likeliest first."""
    named = Counter(int(number) for line in run.about() for number in _NUMBER.findall(line))
    return [number for number, _ in named.most_common()]


@contextmanager
def _deployed(saga: DrawnSaga, release: DrawnRelease | None, left: Budget, setting: Setting) -> Iterator[_Versions]:
    """Deploy a saga, and prepare its later releases."""
    with ExitStack() as opened:
        left.steps -= _SYNTH
        folders = [drawn_assembly([saga], shift=setting.shift)]
        if release is not None:
            left.steps -= _SYNTH
            folders.append(drawn_assembly([saga], [release], setting.shift))
        if setting.machines is not None:
            folders = setting.machines.of(folders)
        yield [opened.enter_context(Deployment.of_assembly(folder)) for folder in folders]


def _runs(saga: DrawnSaga, release: DrawnRelease | None, versions: _Versions, setting: Setting) -> Run:
    """Runs one saga, and the release that is deployed meanwhile."""

    def workload(failure: Failure) -> Workload:
        return _Alike(setting.workload(saga, release, versions), failure.behaves, setting.prepare)

    return runs_of(versions[0], workload, setting.releases(versions, release))


def shrunk(
    saga: DrawnSaga,
    seed: int,
    clients: int,
    *,
    steps: int = STEPS,
    setting: Setting = ALONE,
    release: DrawnRelease | None = None,
) -> Failure | None:
    """Make a failure of one saga small.

    Its schedule becomes shorter first: what is tried afterwards with fewer steps needs a synth each, and its runs, of
    one client, take a tenth of the time.

    Args:
        saga: the saga that failed.
        seed: of a run that failed, with this saga alone or with others.
        clients: of that run.
        steps: steps of the kernel that may be spent on it; a synth costs 2,000.
        setting: how it is deployed and asked.
        release: the saga's change that was deployed meanwhile; the smallest failure may do without it.

    Returns:
        The smallest failure that was found; None if the saga alone does not fail.
    """
    left = Budget(steps)
    with _deployed(saga, release, left, setting) as versions:
        run = _runs(saga, release, versions, setting)
        found = None
        for number in range(seed, seed + _SEEDS):
            alone = Failure(
                seed=number,
                clients=clients,
                climate=climate_of(versions[0], number),
                saga=saga,
                release=release,
                effort=(number - seed + 1) * clients,
                result=RunResult(seed=number, sagas=clients),
            )
            found = found or tried(alone, frozenset(), run, left)
        if found is None:
            return None
        found = shorter(found, run, left)
    found, smallest = _with_a_smaller_saga(found, saga, left, setting)
    with _deployed(smallest, found.release, left, setting) as versions:
        run = _runs(smallest, found.release, versions, setting)
        found = found if (smallest, found.release) == (saga, release) else shorter(found, run, left)
        return shortest(found, run, left)


def _with_a_smaller_saga(found: Failure, saga: DrawnSaga, left: Budget, setting: Setting) -> tuple[Failure, DrawnSaga]:
    done: set[tuple[DrawnSaga, DrawnRelease | None]] = {(saga, found.release)}
    again = True
    while again:
        again = False
        for candidate, release in _candidates(found, saga):
            if left.steps <= 0:
                return found, saga
            if (candidate, release) in done:
                continue
            done.add((candidate, release))
            try:
                with _deployed(candidate, release, left, setting) as versions:
                    run = _runs(candidate, release, versions, setting)
                    other = dataclasses.replace(found, saga=candidate, release=release)
                    less = tried_often(other, found.kinds, run, left)
            except (ValueError, RuntimeError):
                continue  # the synth does not take it
            if less is not None:
                found, saga, again = less, candidate, True
                break
    return found, saga


def _candidates(found: Failure, saga: DrawnSaga) -> Iterator[tuple[DrawnSaga, DrawnRelease | None]]:
    """Smaller sagas with the same release, or none: first with the steps alone that the findings name."""
    named = {name for finding in found.result.findings for name in _STEP.findall(finding.text)}
    if found.release is not None:
        yield saga, None
    for candidate in (*only(saga, named), *smaller(saga)):
        yield candidate, None if found.release is None else change_of(found.release, candidate)
