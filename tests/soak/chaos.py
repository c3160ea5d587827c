"""Lets things go wrong, and ends it: faults in AWS, trouble with providers, status events that are lost."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from . import troubles
from .faults import SHARE, STOP_SHARE, Damage, calls_of, faults_of, hits_of, planned, stops_of
from .world import World

SUPPRESSED_LETTERS: Final = 10
"""Of the 32 that a saga's id may begin with: status events of these sagas are lost."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


class Chaos:
    """Lets things go wrong in a world, from `begin` to `end`.

    Args:
        world: where.
        seed: decides everything.
        share: of all AWS calls that are hit.
        stops: of the states that are reached or left, those where the execution ends.
    """

    def __init__(self, world: World, *, seed: int, share: float = SHARE, stops: float = STOP_SHARE) -> None:
        self._world = world
        self._seed = seed
        self._share = share
        self._stops = stops
        self._rules: dict[str, tuple[str, list[Any]]] = {}

    def begin(self) -> None:
        """From now on, things go wrong."""
        troubles.plan(self._world, self._seed)
        self._lose_events()
        self._world.aws.faults.plan(*planned(self._world.machines, self._seed, self._share, self._stops))

    def end(self) -> Damage:
        """End all faults. Held calls are dropped, and their senders continue."""
        world = self._world
        report = world.aws.faults.report()
        world.aws.faults.clear()
        outside = troubles.happened(world)
        world.clear_troubles()
        self._restore_events()
        return Damage(
            calls=calls_of(report),
            faults=faults_of(report),
            stops=stops_of(report),
            hits=tuple(hits_of(report)),
            troubles=outside,
            suppressed=self.suppressed,
        )

    @property
    def suppressed(self) -> str:
        """First letters of the sagas whose status events are lost."""
        return "".join(sorted(random.Random(f"{self._seed}/events").sample(_ALPHABET, SUPPRESSED_LETTERS)))

    # --- Status events

    def _lose_events(self) -> None:
        """Some are lost, the others come twice."""
        events = self._world.aws.client("events")
        heard = [{"prefix": letter} for letter in _ALPHABET if letter not in self.suppressed]
        for system in self._world.systems.values():
            name = system.outputs["ReconcilerEndedRule"]
            pattern = events.describe_rule(Name=name)["EventPattern"]
            targets = events.list_targets_by_rule(Rule=name)["Targets"]
            self._rules[name] = (pattern, targets)
            narrowed = json.loads(pattern)
            narrowed["detail"]["name"] = heard
            events.put_rule(Name=name, EventPattern=json.dumps(narrowed))
            again = [{**target, "Id": f"{target['Id']}Again"} for target in targets]
            assert not events.put_targets(Rule=name, Targets=again)["FailedEntryCount"]

    def _restore_events(self) -> None:
        events = self._world.aws.client("events")
        for name, (pattern, targets) in self._rules.items():
            events.put_rule(Name=name, EventPattern=pattern)
            events.remove_targets(Rule=name, Ids=[f"{target['Id']}Again" for target in targets])
