"""Many sagas on all processors: blocks of runs, each in a worker process, and their reports added up."""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from constructs_lib.testing.simulator import Deployment, SimulationReport, Workload, simulate
from constructs_lib.testing.simulator.run import RunResult
from constructs_lib.testing.simulator.simulation import SAGAS_OF_A_RUN

from .drawn.assembly import drawn_assembly
from .drawn.releases import DrawnRelease, drawn_release
from .drawn.sagas import DrawnSaga, drawn_queued, drawn_saga
from .drawn.workload import Drawn
from .examples import EXAMPLES, assembly
from .machines import Replacement, drawn_replacement
from .shorter import Failure, shortened

SHIFTS: Final = (None, None, None, "ALL_AT_ONCE", "CANARY", "LINEAR")
"""How releases move the aliases of drawn sagas; half of them have none."""
DRAWN: Final = "drawn"
RELEASED: Final = "released"
"""Drawn sagas, and a later release of their stack that is deployed while they run."""
QUEUED: Final = "queued"
"""The same, of which messages of queues begin sagas, too."""
SHARES: Final = {
    "funds_transfer": 0.45,
    "wallet": 0.145,
    "agentic_payout": 0.2,
    "order_processing": 0.1,
    "cart_fulfilment": 0.01,
    DRAWN: 0.08,
    RELEASED: 0.01,
    QUEUED: 0.005,
}
"""Share of all sagas: 20,000 take some 190 seconds of a processor, a fifth of them for what is drawn."""
_DRAWN_SAGAS: Final = {DRAWN: 8, RELEASED: 4, QUEUED: 4}
"""Sagas of a drawn stack: the CDK takes a second for each, and twice for those with a later release."""
_OF_A_STACK: Final = 5_000
"""Requests to a drawn stack, until another one is drawn."""
_BLOCK: Final = 100
"""Sagas of a block: some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Sagas that one worker simulates.

    Attributes:
        name: an example's name, ``drawn``, ``released`` or ``queued``.
        folder: the synthesized assembly.
        sagas: how many.
        seed: of the first run.
        drawn: what the assembly holds, if it was drawn.
        later: the assembly of the later release, if there is one.
        releases: what the later release makes of each saga.
        machines: how the last release replaces all state machines, if it does.
        shift: how releases move aliases, if sagas have them.
    """

    name: str
    folder: Path
    sagas: int
    seed: int
    drawn: tuple[DrawnSaga, ...] = ()
    later: Path | None = None
    releases: tuple[DrawnRelease, ...] = ()
    machines: Replacement | None = None
    shift: str | None = None

    def deployed(self) -> tuple[Deployment, list[Deployment]]:
        """The first version, and its releases."""
        folders = [self.folder, *([self.later] if self.later is not None else [])]
        first, *later = map(_deployment, folders if self.machines is None else self.machines.of(folders))
        return first, later

    def workload(self) -> Workload:
        """Make the requests' source."""
        return Drawn(self.drawn, releases=self.releases) if self.drawn else EXAMPLES[self.name].workload()

    def shortened(self, run: RunResult) -> Failure:
        """Make a failed run shorter, of the stack as it is."""
        first, releases = self.deployed()
        return shortened(run, first, self.workload(), releases=releases)


@dataclass(slots=True, kw_only=True)
class Campaign:
    """Blocks, and what they found.

    Attributes:
        wanted: how many sagas, by name.
        seed: of the first run of each name, and of the first saga that is drawn.
        go_on: whether a finding does not end the campaign.
        reports: by name.
        broken: blocks that found something.
        seconds: of real time.
        tenths: of the sagas that progress was reported of.
    """

    wanted: dict[str, int]
    seed: int
    go_on: bool = False
    reports: dict[str, SimulationReport] = field(default_factory=dict)
    broken: list[tuple[Block, SimulationReport]] = field(default_factory=list)
    seconds: float = 0.0
    tenths: int = 0

    def run(self, workers: int, progress: Callable[[], None]) -> None:
        """Simulate every block.

        Args:
            workers: processes at once.
            progress: called after each block.
        """
        self.reports = {name: SimulationReport(seed=self.seed) for name in self.wanted}
        began = time.monotonic()
        context = multiprocessing.get_context("spawn")  # a forked process would share the CDK's pipes
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            blocks = self._blocks()
            running: dict[Future[SimulationReport], Block] = {}
            while True:
                while len(running) < 2 * workers and (self.go_on or not self.broken):
                    block = next(blocks, None)
                    if block is None:
                        break
                    running[pool.submit(simulated, block)] = block
                if not running:
                    break
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    block, report = running.pop(ended), ended.result()
                    self.reports[block.name].merge(report)
                    if report.violated:
                        self.broken.append((block, report))
                    self.seconds = time.monotonic() - began
                    progress()

    def _blocks(self) -> Iterator[Block]:
        """Blocks of all names in turn: a stack is synthesized while others are simulated."""
        sources = [self._blocks_of(name, sagas) for name, sagas in self.wanted.items() if sagas]
        while sources:
            for source in list(sources):
                block = next(source, None)
                if block is None:
                    sources.remove(source)
                else:
                    yield block

    def _blocks_of(self, name: str, sagas: int) -> Iterator[Block]:
        drawn: tuple[DrawnSaga, ...] = ()
        releases: tuple[DrawnRelease, ...] = ()
        shift: str | None = None
        for done in range(0, sagas, _BLOCK):
            if name in _DRAWN_SAGAS and done % _OF_A_STACK == 0:
                first = self.seed + done // _OF_A_STACK * _DRAWN_SAGAS[name]
                draw = drawn_queued if name == QUEUED else drawn_saga
                drawn = tuple(draw(first + number) for number in range(_DRAWN_SAGAS[name]))
                if name != DRAWN:
                    releases = tuple(drawn_release(saga, first + number) for number, saga in enumerate(drawn))
                    shift = Random(f"{first}:shift").choice(SHIFTS)
            folder = drawn_assembly(drawn, (), shift) if drawn else assembly(name)
            yield Block(
                name=name,
                folder=folder,
                sagas=min(_BLOCK, sagas - done),
                seed=self.seed + done // SAGAS_OF_A_RUN,  # seeds of one name do not overlap
                drawn=drawn,
                later=drawn_assembly(drawn, releases, shift) if releases else None,
                releases=releases,
                machines=drawn_replacement(self.seed + done // SAGAS_OF_A_RUN),
                shift=shift,
            )


def shares(sagas: int, names: Sequence[str]) -> dict[str, int]:
    """Divide sagas among names, at least one each."""
    whole = sum(SHARES[name] for name in names)
    found = {name: max(1, int(sagas * SHARES[name] / whole)) for name in names}
    largest = max(found, key=lambda name: found[name])
    found[largest] += max(0, sagas - sum(found.values()))
    return found


def unproven(reports: Mapping[str, SimulationReport]) -> list[str]:
    """Find what was simulated of which no request settled.

    An operation of a drawn saga gets few requests, which may all be drawn too large: of drawn sagas, one must settle.
    """
    return [
        f"{name}: {sentence}"
        for name, report in reports.items()
        if name not in _DRAWN_SAGAS or not any(one.settled for one in report.requests.values())
        for sentence in report.unproven
    ]


def simulated(block: Block) -> SimulationReport:
    """Simulate a block in this process."""
    first, releases = block.deployed()
    return simulate(first, block.workload(), sagas=block.sagas, seed=block.seed, stop_at_first=False, releases=releases)


@functools.lru_cache(maxsize=16)
def _deployment(folder: Path) -> Deployment:
    return Deployment.of_assembly(folder)
