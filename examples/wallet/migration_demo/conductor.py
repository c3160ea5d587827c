"""The operator of the demo: deploys releases, runs workers, and changes the phase behind the real gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing.simulator.engine.kernel import SECOND, Process
from examples.wallet.functions.wallet.split.layout import LAYOUT, store
from handlers import migration
from saga_runtime.errors import SagaError
from saga_runtime.migration.gates import Facts, ahead, back
from saga_runtime.migration.layout import LEGACY, READY, Place
from saga_runtime.migration.progress import Job, Phase
from saga_runtime.migration.terms import Terms
from saga_runtime.migration.worker import read_progress
from saga_runtime.shared.decisions import Audit

from .checks import Checks
from .load import Load
from .world import LIFETIME_MS, OPERATOR, WALLET, Context, World

_AUDIT: Final = Audit(who="arn:aws:iam::123456789012:user/operator", why="its gate is open")

TERMS: Final = Terms(
    layout=LAYOUT,
    most_phase=LAYOUT.last,
    segments=1,
    # An invocation, and what it sent travels for two seconds.
    ended_after_seconds=LIFETIME_MS // 1_000 + 3,
    clean_for_seconds=6,
    kept_for_seconds=6,
    writers=("wallet",),
)
"""As deployed, but in seconds instead of days."""
_LEAST_SECONDS: Final = 5.0
_ROLLING_SECONDS: Final = 5.0
_HESITATES: Final = 0.25
"""Share of phases after which the operator takes one step back, and forward again."""


@dataclass(slots=True)
class Sample:
    """One second of the timeline."""

    second: int
    phase: int
    done: int
    slowest_ms: int
    struck: int
    violated: int
    places: dict[str, Counter[str]]


@dataclass(slots=True)
class Visit:
    """One phase, from its begin to its end."""

    phase: int
    began: int
    seconds: float = 0.0
    requests: int = 0
    waited_for: str = ""


@dataclass(slots=True)
class Timeline:
    """Samples, and phases in order."""

    samples: list[Sample] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)


class Conductor:
    """Goes forward to the last phase but one, back to 0, and forward to the end.

    Attributes:
        timeline: what happened when.
        done: whether the last phase is complete.
    """

    def __init__(
        self,
        world: World,
        load: Load,
        checks: Checks,
        *,
        least_seconds: float = _LEAST_SECONDS,
        way: tuple[int, ...] = (),
        watch: Callable[[Conductor], None] | None = None,
    ) -> None:
        self.timeline = Timeline()
        self.done = False
        self._world, self._load, self._checks = world, load, checks
        self._least = least_seconds
        self._goals = way or (LAYOUT.last - 1, LEGACY, LAYOUT.last)
        self._watch = watch
        self._deployed_ms = 0
        self._strikes = 0

    def start(self) -> None:
        """Start two backfills, a comparison, readers, samples and the operator."""
        world = self._world
        for _ in range(2):
            world.keep("backfill", lambda: self._run(Job.BACKFILL), 0.8)
        world.keep("verify", lambda: self._run(Job.VERIFY), 2.0)
        for _ in range(3):
            world.keep("reader", self._load.read, 0.15)
        world.kernel.spawn(Process("samples"), self._sample)
        world.kernel.spawn(Process(OPERATOR), self._conduct)

    # -- jobs ------------------------------------------------------------------------------------------------------

    def _run(self, job: Job) -> None:
        migration.handler({"job": job, "segment": "0"}, Context(self._world))

    # -- the operator ----------------------------------------------------------------------------------------------

    def _conduct(self) -> None:
        for to in self._way():
            self._reach(to)
        while self._goals[-1] == LAYOUT.last and self._left():
            self._world.sleep(0.5)
        self._end_visit("")
        self.done = True

    def _way(self) -> Iterator[int]:
        entropy, last = self._world.entropy, LAYOUT.last
        for goal in self._goals:
            while (at := self._phase().number) != goal:
                step = 1 if goal > at else -1
                yield at + step
                if step > 0 and READY < at + step < last - 1 and entropy.random() < _HESITATES:
                    yield at
                    yield at + 1

    def _reach(self, to: int) -> None:
        """Change the phase by one as soon as its gate is open."""
        began = self._world.kernel.now
        read = self._phase()
        if not self.timeline.visits:
            self.timeline.visits.append(Visit(read.number, began))
        if (read.number, to) == (LEGACY, READY):
            self._world.sleep(self._least)
            self._deploy(1.0)
        waited: list[str] = []
        while True:
            read = self._phase()
            reasons = (ahead if to > read.number else back)(TERMS, self._facts(read))
            passed = (self._world.kernel.now - self.timeline.visits[-1].began) / SECOND
            if not reasons and passed >= self._least:
                break
            waited = reasons or waited
            self._world.sleep(0.25)
        # The command may die, too, or lose its response.
        with suppress(SagaError, BotoCoreError, ClientError):
            self._world.start("command", lambda: store().change_phase(read, to, self._world.now_ms, _AUDIT)).wait()
        if self._phase().number != to:
            self._reach(to)
            return
        self._end_visit(waited[-1] if waited else "")
        self.timeline.visits.append(Visit(to, self._world.kernel.now))
        if self._watch is not None:
            self._watch(self)
        if to == LEGACY:
            self._deploy(0.0)

    def _end_visit(self, waited: str) -> None:
        visit = self.timeline.visits[-1]
        visit.seconds = (self._world.kernel.now - visit.began) / SECOND
        visit.waited_for = waited
        first, last = visit.began // SECOND, self._world.kernel.now // SECOND
        visit.requests = sum(self._load.outcomes.by_second[second] for second in range(first, last))

    def _deploy(self, share: float) -> None:
        """Replace all functions, one after the other: both releases serve meanwhile."""
        before, steps = self._load.share_new, 10
        for step in range(1, steps + 1):
            self._load.share_new = before + (share - before) * step / steps
            self._world.sleep(_ROLLING_SECONDS / steps)
        self._deployed_ms = self._world.now_ms

    @staticmethod
    def _phase() -> Phase:
        return store().phase()

    def _facts(self, phase: Phase) -> Facts:
        def last(job: Job) -> Any:
            return [read_progress(store(), job, 0, 1).last]

        return Facts(
            phase=phase,
            now_ms=self._world.now_ms,
            moved=last(Job.BACKFILL),
            compared=last(Job.VERIFY),
            deployed={"wallet": self._deployed_ms},
        )

    def _left(self) -> bool:
        items = self._world.dynamodb.items(WALLET)
        return any(item["type"] == {"S": LAYOUT.old_item} for item in items)

    # -- samples ---------------------------------------------------------------------------------------------------

    def _sample(self) -> None:
        while True:
            self._world.sleep(1.0)
            second = self._world.kernel.now // SECOND
            places: dict[str, Counter[str]] = {}
            for index, group in enumerate(LAYOUT.groups):
                found: Counter[str] = Counter()
                for customer in self._checks.customers:
                    for concern in group:
                        old, _ = self._checks.pair(customer, concern)
                        place = self._checks.place(customer, concern)
                        empty = old is None or not any(name in old for name in concern.attributes.values())
                        found["CONTRACTED" if place is Place.NEW and empty else str(place)] += 1
                places[str(index)] = found
            struck = sum(self._world.chaos.struck.values())
            self.timeline.samples.append(
                Sample(
                    second=second,
                    phase=self.timeline.visits[-1].phase if self.timeline.visits else LEGACY,
                    done=self._load.outcomes.by_second[second - 1],
                    slowest_ms=self._load.outcomes.slowest_ms.get(second - 1, 0),
                    struck=struck - self._strikes,
                    violated=sum(one.violated for one in self._checks.invariants.values()),
                    places=places,
                )
            )
            self._strikes = struck


def _calmly(work: Any) -> Any:
    """Do something that the next run repeats if it failed."""
    try:
        return work()
    except (SagaError, BotoCoreError, ClientError):
        return None
