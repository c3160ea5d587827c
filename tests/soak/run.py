"""One soak: load and faults for a while, then none, until all is quiet; and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from .account import Account, End, account
from .chaos import Chaos
from .faults import SHARE, STOP_SHARE, Damage
from .load import Load
from .movers import Movers
from .quiet import Stir, await_quiet
from .tellers import Tellers
from .troubles import LONGEST_OF_PROVIDERS
from .wishes import Example
from .world import SPEED, World, deployed

_ANSWERS_SECONDS: Final = 120.0
"""Clients send status requests rarely when they have waited for long: time in which they must get an outcome."""
_PROGRESS_SECONDS: Final = 10.0
_LONGEST: Final = 10
"""So many times as long as asked for does a soak last that waits for requests."""
_SELDOM: Final = frozenset({"what was undone is what was done"})
"""Of what a short soak may have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Duration, size and seed.

    Attributes:
        seed: determines requests and faults.
        seconds: of load and faults, in real time.
        requests: minimum for each example: a busy machine continues until then, for ten times as long.
        quiet_seconds: time limit for all work to end, in real time.
        clients: concurrent clients, by example.
        concurrency: maximum number of processes of each function.
        speed: of the emulator's time.
        share: share of all AWS calls that are hit.
        stops: share of the states that are reached or left, at which the execution ends.
        tellers: clients of the wallet.
    """

    seed: int
    seconds: float
    requests: int = 0
    quiet_seconds: float = 300.0
    clients: Mapping[Example, int] = field(
        default_factory=lambda: {Example.TRANSFERS: 6, Example.ORDERS: 6, Example.PAYOUTS: 6, Example.CARTS: 12}
    )
    concurrency: int = 2
    speed: float = SPEED
    share: float = SHARE
    stops: float = STOP_SHARE
    tellers: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Result of a soak. Times are epoch seconds, by the emulator's clock.

    Attributes:
        settings: of the soak.
        began: when the first request was sent.
        faults_ended: when faults and load ended.
        quiet: when all work had ended; None: never.
        stir: the last count of unfinished work.
        damage: all faults.
        accounts: outcomes of the sagas.
        decisions: number of reviewers' decisions about carts.
        wallet_requests: number of requests that the wallet answered.
        wallet_problems: violations of the wallet, one sentence each.
        migration_requests: number of points that were added while items moved, and of changes of the phase.
        migration_problems: violations of that, one sentence each.
        real_seconds: total duration.
    """

    settings: Settings
    began: float
    faults_ended: float
    quiet: float | None
    stir: Stir
    damage: Damage
    accounts: Sequence[Account]
    decisions: int
    wallet_requests: int
    wallet_problems: Sequence[str]
    migration_requests: tuple[int, int]
    migration_problems: Sequence[str]
    real_seconds: float

    def real(self, at: float) -> float:
        """Real seconds since the beginning."""
        return (at - self.began) / self.settings.speed

    def problems(self) -> list[str]:
        """Violations, one sentence each; empty if the soak is passed."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.quiet is None:
            yield f"it was not quiet {self.settings.quiet_seconds:.0f} s after the last fault: {self.stir}"
        for one in self.accounts:
            yield from _problems_of(one)
        yield from self.wallet_problems
        yield from self.migration_problems
        yield from _nothing_of(self.damage)
        if not any(saga.recoveries for one in self.accounts for saga in one.sagas):
            yield "no saga was recovered: the soak has no evidence of recoveries"


def _nothing_of(damage: Damage) -> Iterator[str]:
    """Planned kinds of faults that never fired."""
    if not damage.faults or not damage.stops:
        yield "nothing went wrong: the soak shows nothing"
        return
    outside: Counter[str] = Counter()
    for counts in damage.troubles.values():
        outside.update(counts)
    for what, times in (
        ("process was killed", sum(n for kind, n in damage.faults.items() if kind.startswith("kill "))),
        ("callback was lost", outside["silent"]),
        ("callback came twice", outside["double"]),
    ):
        if not times:
            yield f"no {what}: the soak shows nothing of that"


def _problems_of(found: Account) -> Iterator[str]:
    for saga in found.sagas:
        if saga.end is End.IN_FLIGHT:
            yield f"{found.example}: saga {saga.saga_id} is in flight"
        if saga.end is End.PARKED and saga.decidable is not None:
            yield f"{found.example}: saga {saga.saga_id} is parked ({saga.stuck}), although {saga.decidable}"
    if not found.sagas:
        yield f"{found.example}: no saga was started: the soak has no evidence of it"
    for invariant in found.books.invariants:
        if not invariant.checked and invariant.name not in _SELDOM:
            yield f"{found.example}: {invariant.name}: nothing was checked"
        for violation in invariant.violations:
            yield f"{found.example}: {invariant.name}: {violation}"
    for contradiction in found.books.contradictions:
        yield f"{found.example}: a client received {contradiction}"
    if found.books.unanswered:
        yield f"{found.example}: {found.books.unanswered} clients never learned the outcome of their requests"


def soak(
    settings: Settings,
    progress: Callable[[str], None] = lambda _: None,
    watching: Callable[[World], AbstractContextManager[object]] = nullcontext,
) -> Run:
    """Soak once.

    Args:
        settings: of the soak.
        progress: receives progress messages.
        watching: a context around everything that happens.
    """
    began_at = time.monotonic()
    with deployed(speed=settings.speed, concurrency=settings.concurrency) as world, watching(world):
        progress(f"seed {settings.seed}: the examples are deployed after {time.monotonic() - began_at:.0f} s")
        load = Load(world, seed=settings.seed, clients=settings.clients)
        chaos = Chaos(world, seed=settings.seed, share=settings.share, stops=settings.stops)
        tellers = Tellers(world.wallet, seed=settings.seed, clients=settings.tellers)
        tellers.open_cards()
        movers = Movers(world.migrating, seed=settings.seed)
        movers.open()
        chaos.begin()
        began = world.aws.now().timestamp()
        load.start()
        tellers.start()
        movers.start()
        try:
            _let_pass(settings, load, progress)
            load.begin_nothing_more()
            tellers.begin_nothing_more()
            movers.begin_nothing_more()
            damage = chaos.end()
            faults_ended = world.aws.now().timestamp()
            progress(f"{sum(damage.faults.values())} faults, {sum(damage.stops.values())} executions ended; no more")
            stir, quiet = await_quiet(
                world, seconds=settings.quiet_seconds, at_least=LONGEST_OF_PROVIDERS / settings.speed
            )
            progress("it is quiet" if quiet is not None else f"it is not quiet: {stir}")
            _await_answers(load)
            wallet_problems = tuple(tellers.problems(within=_ANSWERS_SECONDS))
            progress(f"the wallet answered {len(tellers.statuses)} requests")
            migration_problems = tuple(movers.problems(within=_ANSWERS_SECONDS))
            progress(f"{movers.points} points were added, and the phase changed {movers.phases} times")
        finally:
            tellers.begin_nothing_more()
            movers.begin_nothing_more()
            load.stop()
        return Run(
            settings=settings,
            began=began,
            faults_ended=faults_ended,
            quiet=quiet,
            stir=stir,
            damage=damage,
            accounts=tuple(account(world, example, load.told[example]) for example in Example),
            decisions=load.decisions,
            wallet_requests=len(tellers.statuses),
            wallet_problems=wallet_problems,
            migration_requests=(movers.points, movers.phases),
            migration_problems=migration_problems,
            real_seconds=time.monotonic() - began_at,
        )


def _let_pass(settings: Settings, load: Load, progress: Callable[[str], None]) -> None:
    began = time.monotonic()
    until, at_last = began + settings.seconds, began + _LONGEST * settings.seconds
    while (now := time.monotonic()) < until or (now < at_last and _fewest(load) < settings.requests):
        time.sleep(min(until - now, _PROGRESS_SECONDS) if now < until else 1.0)
        asked = sum(len(told) for told in load.told.values())
        answered = sum(one.answer is not None for told in load.told.values() for one in told)
        progress(f"{asked} requests, {answered} of them answered")


def _fewest(load: Load) -> int:
    return min(len(load.told[example]) for example in Example)


def _await_answers(load: Load) -> None:
    until = time.monotonic() + _ANSWERS_SECONDS
    while load.waiting and time.monotonic() < until:
        time.sleep(0.2)


def totals(accounts: Sequence[Account]) -> dict[End, int]:
    """Number of sagas by outcome, over all examples."""
    return {end: sum(one.ends()[end] for one in accounts) for end in End}
