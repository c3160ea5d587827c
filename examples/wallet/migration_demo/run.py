"""One run of the demo: a wallet of old records, its load, its operator, and the verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.protocol import Env

from .checks import Checks
from .conductor import TERMS, Conductor, Timeline
from .load import CUSTOMERS, SHOPS, Load, Outcomes
from .world import START, WALLET, Chaos, World

MOST_SECONDS: Final = 3_600
"""Virtual seconds after which a run is stuck."""
_CALM: Final = 60
OPENING: Final = {"ecopay": 1_000_000, "point": 100_000, "jcredit": 2_500, "co2_saved": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run.

    Attributes:
        ended: whether the last phase was completed.
        virtual_seconds: how long it took in its own time.
        seconds: and in ours.
        calls: to DynamoDB.
        rows: of the history, each once.
    """

    ended: bool
    virtual_seconds: float
    seconds: float
    calls: int
    rows: int
    outcomes: Outcomes
    checks: Checks
    timeline: Timeline
    chaos: Chaos
    bugs: list[Exception]

    @property
    def holds(self) -> bool:
        """True if every invariant holds, and every request was served."""
        broken = any(one.violated for one in self.checks.invariants.values())
        return self.ended and not (broken or self.outcomes.refused or self.outcomes.lost or self.bugs)


def run(
    *,
    seed: int,
    rate: float = 8.0,
    faults: float = 0.02,
    least_seconds: float = 5.0,
    way: tuple[int, ...] = (),
    watch: Callable[[Conductor], None] | None = None,
) -> Result:
    """Migrate a wallet under load.

    Args:
        seed: repeats the run.
        rate: requests per virtual second.
        faults: share of calls at which a process dies, or loses the response.
        least_seconds: how long each phase lasts at least.
        way: goals of the operator; forward, back to 0 and forward to the end by default.
        watch: called after each phase.
    """
    began = time.monotonic()
    world = World(seed=seed, faults=faults)
    checks = Checks(world)
    for customer in CUSTOMERS + SHOPS:
        numbers = {name: {"N": str(value)} for name, value in OPENING.items()}
        texts = {"uuid": customer, "type": "customer", "name": customer, "email": f"{customer}@example.com"}
        item = {**{name: {"S": value} for name, value in texts.items()}, **numbers, "since": {"N": "1"}}
        world.dynamodb.put(WALLET, item)
        checks.opened(customer)
    load = Load(world, checks, rate=rate)
    conductor = Conductor(world, load, checks, least_seconds=least_seconds, way=way, watch=watch)
    with world.running({Env.MIGRATION: json.dumps(TERMS.to_json())}):
        load.start()
        conductor.start()
        ended = world.kernel.run(until=START + MOST_SECONDS * SECOND, ended=lambda: conductor.done)
        load.stop()
        world.chaos.share = 0.0
        world.kernel.run(until=world.kernel.now + _CALM * SECOND, ended=lambda: load.quiet)
    load.outcomes.lost += load.under_way
    checks.finish(load.outcomes.expected)
    return Result(
        ended=ended,
        virtual_seconds=(world.kernel.now - START) / SECOND,
        seconds=time.monotonic() - began,
        calls=world.calls,
        rows=checks.rows(),
        outcomes=load.outcomes,
        checks=checks,
        timeline=conductor.timeline,
        chaos=world.chaos,
        bugs=world.bugs,
    )
