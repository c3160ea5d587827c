"""Actions of a person in a run without faults of its own: invoke a function and wait, let time pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from constructs_lib.testing.simulator import World
from constructs_lib.testing.simulator.engine.kernel import SECOND


@dataclass(frozen=True, slots=True)
class Hands:
    """Actions of a person in a run.

    Attributes:
        world: everything that exists.
    """

    world: World

    def named(self, name: str) -> str:
        """Name of a function, by its construct's."""
        names = self.world.deployment.blueprint.functions
        (found,) = [one for one in names if one.partition("-")[2][:-8] == name]
        return found

    def invoke(self, name: str, event: Mapping[str, Any]) -> Any:
        """Invoke a function, by its construct's name, and wait for what it returns."""
        outcome = self.world.functions.invoke(self.named(name), json.dumps(event))
        self.wait(3_600, until=lambda: outcome.done)
        return json.loads(outcome.value().payload)

    def wait(self, seconds: int, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, until something is so, or for so long."""
        self.world.kernel.run(until=self.world.kernel.now + seconds * SECOND, ended=until)

    @property
    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self.world.kernel.now // 1_000
