"""A migration under the soak: clients of its table, its worker, and an operator who changes the phase."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from constructs_lib.cli.main import main
from saga_runtime.protocol import Env, MigrationAttribute
from tests.local.migrating.layout import LAYOUT
from tests.local.migrating_system import CUSTOMERS, SEGMENTS, STACK, WRITER, MigratingSystem

FIRST: Final = 2
"""The phase in which the soak begins: no legacy code was ever deployed, so there is nothing to wait for."""
LAST: Final = LAYOUT.last - 1
_CALM_SECONDS: Final = 120.0


class Movers:
    """Clients that add points, and an operator who goes forward and back as often as the gates allow.

    Args:
        system: the deployed stack; its customers are opened here.
        seed: decides the operations.
        clients: how many there are.
    """

    def __init__(self, system: MigratingSystem, *, seed: int, clients: int = 2) -> None:
        self._system = system
        self._seed = seed
        self._numbers = itertools.count()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._write, daemon=True) for _ in range(clients)]
        self._threads.append(threading.Thread(target=self._operate, daemon=True))
        self._added: Counter[str] = Counter()
        self._wrong: list[str] = []
        self.phases = 0

    def open(self) -> None:
        """Put the customers, and the phase in which the first ones move."""
        self._system.open()
        a = MigrationAttribute
        numbers = {a.PHASE: FIRST, a.CHANGED_AT: int(self._system.aws.now().timestamp() * 1_000), a.CHANGES: FIRST}
        phase: dict[str, dict[str, str]] = {
            "pk": {"S": LAYOUT.own_partition},
            "sk": {"S": a.PHASE},
            a.LAYOUT: {"S": LAYOUT.fingerprint},
            **{name: {"N": str(value)} for name, value in numbers.items()},
        }
        self._system.aws.client("dynamodb").put_item(TableName=self._system.table, Item=phase)

    def start(self) -> None:
        """Write, work, and change the phase from now on."""
        for thread in self._threads:
            thread.start()

    def begin_nothing_more(self) -> None:
        """Finish what was begun."""
        self._over.set()

    @property
    def points(self) -> int:
        """Number of points that were added, as clients were answered."""
        return self._added.total()

    def problems(self, *, within: float) -> Iterator[str]:
        """Wait for the last answers, and for a pass that leaves nothing; then what must not be."""
        for thread in self._threads:
            thread.join(within)
        if any(thread.is_alive() for thread in self._threads):
            yield "migration: a client has no answer yet"
        if not self.points or not self.phases:
            yield f"migration: {self.points} points, {self.phases} changes of the phase: no evidence of it"
        for segment in SEGMENTS:
            until = time.monotonic() + _CALM_SECONDS
            while not self._system.passed("backfill", segment):
                if time.monotonic() > until:
                    yield f"migration: segment {segment} has something left, without any fault"
                    break
        for problem in (*self._wrong, *self._system.problems(self._added)):
            yield f"migration: {problem}"

    # -- clients ---------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while not self._over.is_set():
            number = next(self._numbers)
            wish = random.Random(f"{self._seed}/migration/{number}")
            customer, points = wish.choice(CUSTOMERS), wish.randint(1, 9)
            event = {"do": "add", "customer": customer, "op": f"op-{number}", "points": points}
            until = time.monotonic() + _CALM_SECONDS
            while (answer := self._system.invoke(WRITER, event)) is None:
                if time.monotonic() > until:
                    self._wrong.append(f"operation {number} got no answer")
                    return
            with self._lock:
                self._added[customer] += points
            if answer not in {"Committed", "FirstRefused"}:
                self._wrong.append(f"operation {number} got {answer}")

    # -- the operator ----------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        """Let the worker run, next to an operator's process, until the phase has changed, for so long at most."""
        aws = self._system.aws
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": aws.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": aws.region,
            Env.CLOCK: aws.clock,
        }
        operator = subprocess.Popen(
            [sys.executable, "-m", __name__], env=environment, stdout=subprocess.PIPE, text=True
        )
        reader = threading.Thread(target=self._read, args=(operator,), daemon=True)
        reader.start()
        until: float | None = None
        while until is None or (not self.phases and time.monotonic() < until):
            for segment in SEGMENTS:
                self._system.passed("backfill", segment)
            if until is None and self._over.is_set():
                until = time.monotonic() + _CALM_SECONDS
        operator.terminate()
        operator.wait()
        reader.join()

    def _read(self, operator: subprocess.Popen[str]) -> None:
        assert operator.stdout is not None
        for line in operator.stdout:
            self.phases += line.startswith("phase ")


def operate() -> None:
    """Go forward and back, one phase at a time, whenever a gate is open; print each change."""
    for action in itertools.cycle(["advance"] * (LAST - FIRST) + ["back"] * (LAST - FIRST)):
        while main(["migrate", action, "--stack", STACK, "--reason", "the soak"]):
            main(["migrate", "verify", "--stack", STACK])
        sys.stdout.flush()


if __name__ == "__main__":
    operate()
