"""Faults of the moment: decided at each call and occasion, by the seed, and counted."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from itertools import accumulate
from random import Random
from typing import Final

from constructs_lib.testing.simulator.engine.actors import Actor, ActorKind
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Kernel
from constructs_lib.testing.simulator.faults.climate import HOUR, MINUTE, Climate, Event, Trouble

_OF_PROCESSES: Final = frozenset({Trouble.KILL_BEFORE, Trouble.KILL_AFTER, Trouble.HOLD})
_OF_DYNAMODB: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "TransactGetItems"})
_OVERTAKES: Final = 0.3
"""Share of the writes that an index does not know yet of which it knows a later one."""
_SLOW_SHARE: Final = 0.04
"""Of calls that take much longer than usual."""


class Weather:
    """Draws faults, delays and clocks for one run.

    Args:
        climate: what goes wrong.
        kernel: keeps the time.
        seed: what everything is drawn from.

    Attributes:
        climate: as given.
        hit: how often each kind of fault hit which call, or which occasion.
        met: number of calls and states of each actor, if faults are planned.
    """

    def __init__(self, climate: Climate, kernel: Kernel, seed: str) -> None:
        self.climate = climate
        self.hit: Counter[tuple[str, str]] = Counter()
        self.met: Counter[tuple[str, str]] = Counter()
        self._kernel = kernel
        self._random = Random(f"{seed}:weather")
        self._latencies = Random(f"{seed}:latency")
        self._reads = Random(f"{seed}:reads")
        self._tables: dict[ActorKind, tuple[list[float], list[Trouble]]] = {}
        for kind in ActorKind:
            of_kind = [trouble for trouble in climate.troubles if _can_hit(kind, trouble)]
            self._tables[kind] = (list(accumulate(climate.troubles[trouble] for trouble in of_kind)), of_kind)

    @property
    def is_over(self) -> bool:
        """True if nothing goes wrong any more."""
        return self._kernel.now >= self.climate.ends

    def was_over(self, moment: int) -> bool:
        """Test whether nothing went wrong from a moment on. Planned faults have no end."""
        ends = (self.climate.ends, *(outage.ends for outage in self.climate.outages))
        return not self.climate.planned and moment >= max(ends)

    def trouble(self, actor: Actor, service: str, operation: str) -> Trouble | None:
        """Decide about the fault of a call; None: it has none."""
        climate = self.climate
        if climate.planned is not None:
            planned = self._planned(actor.of, f"{service}:{operation}")
            if isinstance(planned, Trouble):
                return planned
        if self._kernel.now >= climate.ends and not climate.outages:
            return None
        found = self._outage(actor, service)
        if found is None and self._kernel.now < climate.ends:
            shares, troubles = self._tables[actor.kind]
            if shares:
                number = bisect(shares, self._random.random())
                found = troubles[number] if number < len(troubles) else None
        if found is Trouble.CONFLICT and (service != "dynamodb" or operation not in _OF_DYNAMODB):
            return None
        if found is not None:
            self.hit[f"{actor.of} {service}:{operation}", found] += 1
        return found

    def interruption(self, machine: str, state: str) -> Event | None:
        """The planned end of an execution before a state; None: it continues."""
        if self.climate.planned is None:
            return None
        planned = self._planned(machine, state)
        return planned if isinstance(planned, Event) else None

    def _planned(self, of: str, what: str) -> Trouble | Event | None:
        """Count a call or a state, and find the fault that is planned for it."""
        self.met[of, what] += 1
        number = self.met[of, what]
        for planned in self.climate.planned or ():
            if (planned.of, planned.what) == (of, what) and 0 <= number - planned.nth < planned.times:
                self.hit[f"{of} {what}", planned.how] += 1
                return planned.how
        return None

    def happens(self, event: Event, where: str) -> bool:
        """Test whether something happens at an occasion for it."""
        share = self.climate.events.get(event)
        if share is None or self.is_over or self._random.random() >= share:
            return False
        self.hit[where, event] += 1
        return True

    def latency(self) -> int:
        """Microseconds that a call takes."""
        random = self._latencies.random
        usual = self.climate.latency
        if self._kernel.now < self.climate.ends and random() < _SLOW_SHARE:
            return int(usual * 10 ** (3 * random()))
        return int(usual * (0.5 + random()))

    def index_lag(self) -> int:
        """Microseconds by which an index is behind."""
        most = self.climate.index_lag
        return int(self._latencies.random() ** 2 * most) if most and not self.is_over else 0

    def overtakes(self) -> bool:
        """True if an index knows a write before earlier ones of other items."""
        return not self.is_over and self._reads.random() < _OVERTAKES

    def commit_delay(self) -> int:
        """Microseconds for which a transaction holds its items before it is written."""
        most = self.climate.commit_delay
        if not most or self.is_over:
            return 0
        return int(self._latencies.random() ** 2 * most)

    def secret_lag(self) -> int:
        """Microseconds for which a stage of a secret is read as it was."""
        most = self.climate.secret_lag
        return int(self._latencies.random() * most) if most and not self.is_over else 0

    def unprocessed(self) -> float:
        """Share of the keys of a batch that are left unprocessed: some are as often as calls are throttled."""
        often = self.climate.troubles.get(Trouble.THROTTLE, 0.0)
        return self._random.random() if often and not self.is_over and self._random.random() < often else 0.0

    def is_busy(self) -> bool:
        """True if a service refuses a part of a request, or what it otherwise takes, for now: as often as calls."""
        return self.unprocessed() > 0

    def page(self) -> int:
        """Items after which a page ends; 0: as many as fit."""
        return 0 if self.is_over else self.climate.page

    def moment_between(self, sent: int, now: int) -> int:
        """Moment at which a read of several items reads one of them; often the first or the last one."""
        drawn = self._reads.random()
        return sent if drawn < 0.25 else now if drawn > 0.75 else sent + int(2 * (drawn - 0.25) * (now - sent))

    def skew(self) -> int:
        """Microseconds by which a clock is ahead."""
        most = self.climate.skew
        return int((self._latencies.random() - 0.5) * most) if most else 0

    def deletes_expired(self, interval: int) -> bool:
        """True if DynamoDB deletes an expired item within this interval; the lag is memoryless."""
        return self._latencies.random() < interval / (interval + self.climate.expiry_lag)

    def share(self) -> float:
        """A number in [0, 1), for whatever else is open."""
        return self._random.random()

    def long(self) -> int:
        """Microseconds that are long for a call: from a second to an hour."""
        return int(SECOND * 10 ** (self._random.random() * 3.5))

    def travel(self) -> int:
        """Microseconds for which a request may travel after its sender's timeout."""
        return int(MILLISECOND * 10 ** (self._random.random() * 5))

    def moment(self) -> int:
        """A moment until the faults are over, or a minute from now."""
        left = max(MINUTE, self.climate.ends - self._kernel.now)
        return self._kernel.now + int(self._random.random() * min(left, HOUR))

    def _outage(self, actor: Actor, service: str) -> Trouble | None:
        now = self._kernel.now
        for outage in self.climate.outages:
            if outage.begins <= now < outage.ends and outage.what in (service, actor.of):
                return outage.how
        return None


def _can_hit(kind: ActorKind, trouble: Trouble) -> bool:
    if trouble in _OF_PROCESSES:
        return kind is ActorKind.FUNCTION
    # A state machine's integrations are AWS's own calls: they fail, and are never heard of twice.
    return not (kind is ActorKind.MACHINE and trouble is Trouble.LATE_REQUEST)
