"""Executions of a hand-written state machine that takes a lock, and a watch that gives it back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator import Intent, Workload, World
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.protocol import Env

_EXECUTIONS: Final = 12
_SPREAD: Final = 600


class Imports(Workload):
    """Executions of which some time out, and others are stopped; no client asks for anything."""

    def prepare(self, world: World, random: Random) -> None:
        self._left = _EXECUTIONS
        for number in range(_EXECUTIONS):
            seconds = random.choice((1, 20, 100, 100, 400))
            world.kernel.after(int(random.random() * _SPREAD) * SECOND, partial(self._start, world, number, seconds))

    def _start(self, world: World, number: int, seconds: int) -> None:
        given = json.dumps({"supplier": f"s{number}", "seconds": seconds})
        world.machines.start(world.output("MachineArn"), f"run-{number}", given)
        self._left -= 1

    def intent(self, number: int, random: Random) -> Intent:
        raise NotImplementedError

    def has_sent(self, world: World) -> bool:
        return not self._left and not list(_locked(world))

    def audit(self, world: World) -> Iterable[Invariant]:
        yield Invariant(name="locks are given back", checked=_EXECUTIONS, violations=tuple(_locked(world)))


class Unwatched(Imports):
    """The same, and the watch does not know the state machine."""

    def environment(self, function: str) -> Mapping[str, str]:
        return {Env.WATCHED: "[]"} if "WatchFunction" in function else {}


def _locked(world: World) -> Iterator[str]:
    """Locks of executions of which neither the function nor an operator was notified; a failed one is not watched."""
    queues = [queue for name, queue in world.queues.queues.items() if "DeadLetters" in name]
    dead = " ".join(message.body for queue in queues for message in queue.messages)
    failed = {execution.arn for execution in world.machines.executions.values() if execution.status == "FAILED"}
    items: list[Any] = world.table(world.output("LocksTable"))
    for item in items:
        holder = item["holder"]["S"]
        if holder not in failed and holder not in dead:
            yield f"{item['supplier']['S']} is locked by {holder}"
