"""Virtual time, the simulator's DynamoDB, and functions that die at their calls.

Everything runs in one process. What is real: the runtime (direct operations, ``saga_runtime.migration``, gates) and
every expression that it sends. What is simulated: DynamoDB, with transactions that hold their items and conflict, the
network, time, and processes.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from greenlet import getcurrent

from constructs_lib.testing.simulator.aws.dynamodb.service import DynamoDB, Later
from constructs_lib.testing.simulator.aws.dynamodb.tables import KeySchema, Table
from constructs_lib.testing.simulator.engine.kernel import MILLISECOND, SECOND, Future, Kernel, Process, Task
from constructs_lib.testing.simulator.errors import ServiceError
from examples.wallet.functions.wallet import operations
from saga_runtime.errors import SagaError
from saga_runtime.http import direct_operation
from saga_runtime.migration.store import forget_layouts
from saga_runtime.protocol import PROTOCOL_VERSION, Env, RefusalPolicy
from saga_runtime.shared import aws, clock, telemetry

WALLET, REQUESTS = "wallet", "requests"
START: Final = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z."""
LIFETIME_MS: Final = 15_000
"""Longest that an invocation runs."""
OPERATOR: Final = "operator"
"""The one process that waits for gates. What it starts dies like everything else."""
JOBS: Final = frozenset({"backfill", "verify", "history"})
_CALLS_OF_A_JOB: Final = 6
"""A page of a job makes some hundred calls: with the faults of an operation's call, hardly any would end."""
_LATENCY: Final = (2 * MILLISECOND, 12 * MILLISECOND)
_TRAVELS: Final = (100 * MILLISECOND, 2 * SECOND)
_DEAF: Final = 0.5
"""Share of lost responses to writes after which the SDK's further tries are lost, too."""
_DAY_SECONDS: Final = 86_400
_WRITES: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"})
_ENVIRONMENT: Final = {
    Env.PROTOCOL: str(PROTOCOL_VERSION),
    Env.OPERATION: "wallet",
    Env.IDENTITY: "iam",
    Env.REQUEST_TABLE: REQUESTS,
    Env.KEY_POLICY: "REQUIRED",
    Env.IN_PROGRESS_RESPONSE: "CONFLICT",
    Env.DUE_SHARDS: "16",
    Env.MAX_BODY_BYTES: "100000",
    Env.REPLAY_SECONDS: str(90 * _DAY_SECONDS),
    Env.REMEMBER_SECONDS: str(400 * _DAY_SECONDS),
    Env.REFUSAL_POLICY: RefusalPolicy.FINAL,
    Env.FAILURE_STATUS: json.dumps({"InsufficientFunds": 400, "CustomerUnknown": 404}),
    Env.SERVICE: "migration-demo",
    operations.TABLE: WALLET,
    operations.CAP: "1000000000",
    Env.MIGRATION_TABLE: WALLET,
    "POWERTOOLS_METRICS_DISABLED": "true",
    "POWERTOOLS_LOG_LEVEL": "CRITICAL",
}


class Fate(StrEnum):
    """Fault of a process at a call."""

    BEFORE = "dies before the call"
    AFTER = "dies after the call"
    TRAVELS = "dies, and the call arrives later"
    LOST = "loses the response"


@dataclass(slots=True)
class Chaos:
    """Faults at calls, drawn; the number of each is kept.

    Attributes:
        share: of calls that meet one.
        struck: how often, by actor, call and fate.
    """

    share: float
    struck: Counter[tuple[str, str, Fate]] = field(default_factory=Counter)

    def draw(self, entropy: random.Random, actor: str, call: str) -> Fate | None:
        """The fate of a call."""
        share = self.share / _CALLS_OF_A_JOB if actor in JOBS else self.share
        if actor == OPERATOR or entropy.random() >= share:
            return None
        fates = [fate for fate in Fate if fate is not Fate.TRAVELS or call in _WRITES]
        fate = entropy.choice(fates)
        self.struck[actor, call, fate] += 1
        return fate


class World:
    """Everything around the functions.

    Attributes:
        kernel: virtual time.
        dynamodb: the tables.
        chaos: faults.
        entropy: where randomness comes from.
        written: called after each write with the keys that it touched.
        calls: number of calls to DynamoDB.
        bugs: errors that ended a process; there must be none.
    """

    def __init__(self, *, seed: int, faults: float) -> None:
        self.entropy = random.Random(seed)
        self.kernel = Kernel(start=START, entropy=self.entropy, most_steps=50_000_000)
        self.dynamodb = DynamoDB(clock=lambda: self.kernel.now, timing=self)
        for name, keys in ((WALLET, ("uuid", "type")), (REQUESTS, ("id",))):
            schema = KeySchema(names=keys, kinds=("S",) * len(keys))
            self.dynamodb.tables[name] = Table(
                name=name, arn=f"arn:aws:dynamodb:::table/{name}", schema=schema, indexes={}
            )
        self.chaos = Chaos(faults)
        self.written: Callable[[list[tuple[str, str]]], None] = lambda _: None
        self.calls = 0
        self.bugs: list[Exception] = []

    # What DynamoDB leaves open.

    def index_lag(self) -> int:
        """No read here is eventually consistent."""
        return 0

    def commit_delay(self) -> int:
        """A transaction holds its items for some milliseconds: others conflict."""
        return self.entropy.randrange(1, 5) * MILLISECOND

    def unprocessed(self) -> float:
        """No batch is answered in part."""
        return 0.0

    def page(self) -> int:
        """A page has as many items as fit."""
        return 0

    def moment_between(self, sent: int, now: int) -> int:
        """A read of several items reads each at a moment of its own; often the first or the last one."""
        return self.entropy.choice((sent, now, self.entropy.randint(sent, now)))

    @property
    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self.kernel.now // MILLISECOND

    def sleep(self, seconds: float) -> None:
        """Let the present task wait; outside of a task, nothing."""
        if isinstance(getcurrent(), Task):
            self.kernel.sleep(int(seconds * SECOND))

    def start(self, actor: str, work: Callable[[], Any]) -> Future[Any]:
        """Start a process; None is its result if it died."""
        process, ended = Process(actor), Future[Any](self.kernel)
        process.on_death = lambda: ended.set(None)

        def run() -> Any:
            try:
                return work()
            except Exception as error:
                self.report(error)
                raise

        task = self.kernel.spawn(process, run)
        task.ended.then(lambda: _hand_on(task, ended))
        return ended

    def report(self, error: Exception) -> None:
        """Keep an error that ended a process, unless it is one that the next run repeats."""
        if not isinstance(error, ClientError | BotoCoreError | SagaError):
            self.bugs.append(error)

    def keep(self, actor: str, work: Callable[[], Any], every: float) -> None:
        """Run something again and again, each time in a process of its own."""

        def forever() -> None:
            while True:
                with suppress(ClientError, BotoCoreError, SagaError):
                    self.start(actor, work).wait()
                self.sleep(every * self.entropy.uniform(0.5, 1.5))

        self.kernel.spawn(Process(f"schedule of {actor}"), forever)

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """One call of the present process."""
        task = getcurrent()
        if not isinstance(task, Task):
            return self._apply(operation, arguments).value()
        # The SDK sends a call again if it got no response, two times.
        for tries_left in (2, 1, 0):
            self.calls += 1
            fate = self.chaos.draw(self.entropy, task.process.name, operation)
            answer = self._send(task.process, operation, arguments, fate)
            if fate is not Fate.LOST:
                return answer
            if operation in _WRITES and self.entropy.random() < _DEAF:
                break
            if not tries_left:
                break
        raise ReadTimeoutError(endpoint_url="dynamodb")

    def _send(
        self, process: Process, operation: str, arguments: Mapping[str, Any], fate: Fate | None
    ) -> dict[str, Any]:
        sent = self.kernel.now
        self.kernel.sleep(self.entropy.randrange(*_LATENCY))
        if fate is Fate.BEFORE:
            process.kill()
        if fate is Fate.TRAVELS:
            self.kernel.after(self.entropy.randrange(*_TRAVELS), lambda: _quietly(self._apply, operation, arguments))
            process.kill()
        try:
            return self._apply(operation, arguments, sent).wait()
        finally:
            if fate is Fate.AFTER:
                process.kill()
            self.kernel.sleep(self.entropy.randrange(*_LATENCY))

    def _apply(self, operation: str, arguments: Mapping[str, Any], sent: int | None = None) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future(self.kernel)

        def done(result: dict[str, Any]) -> None:
            if operation in _WRITES:
                self.written(_touched(operation, arguments))
            answer.set(result)

        try:
            result = self.dynamodb.call(operation, arguments, sent)
        except ServiceError as error:
            answer.fail(_client_error(error, operation))
            return answer
        if isinstance(result, Later):
            later = result
            self.kernel.after(later.delay, lambda: done(later.finish()))
        else:
            done(result)
        return answer

    @contextmanager
    def running(self, more: Mapping[str, str]) -> Iterator[None]:
        """Let the runtime run in this world: its client, its clock, its sleep, its environment and more variables."""
        before = dict(os.environ)
        os.environ.update({str(name): value for name, value in {**_ENVIRONMENT, **more}.items()})
        direct_operation.settings.cache_clear()
        forget_layouts()
        random.seed(self.entropy.random())
        session: Any = _Session(self)
        try:
            with (
                aws.clients_of(session),
                patch.object(clock, "now_ms", lambda: self.now_ms),
                patch.object(time, "sleep", self.sleep),
                patch.object(uuid, "uuid4", lambda: uuid.UUID(int=self.entropy.getrandbits(128), version=4)),
                patch.multiple(
                    telemetry, event=_nothing, count=_nothing, gauge=_nothing, seconds=_nothing, flush=_nothing
                ),
            ):
                yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            direct_operation.settings.cache_clear()


def _hand_on(task: Task, ended: Future[Any]) -> None:
    try:
        ended.set(task.ended.value())
    except Exception as error:  # noqa: BLE001 - given to the starter
        ended.fail(error)


def _nothing(*_: object, **__: object) -> None:
    """Do nothing, in place of telemetry."""


def _quietly(apply: Callable[[str, Mapping[str, Any]], object], operation: str, arguments: Mapping[str, Any]) -> None:
    apply(operation, arguments)


def _client_error(error: ServiceError, operation: str) -> ClientError:
    response: Any = {
        "Error": {"Code": error.code, "Message": error.message},
        "ResponseMetadata": {"HTTPStatusCode": error.status, "RetryAttempts": 0},
        **error.members,
    }
    return ClientError(response, operation)


def _touched(operation: str, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Keys of the wallet's items that a write touched."""
    entries = (
        [next(iter(entry.values())) for entry in arguments["TransactItems"]]
        if operation == "TransactWriteItems"
        else [arguments]
    )
    keys = [entry.get("Key") or entry["Item"] for entry in entries if entry["TableName"] == WALLET]
    return [(key["uuid"]["S"], key["type"]["S"]) for key in keys]


class _Session:
    """A session whose one client is the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def client(self, service: str, **_: Any) -> _Client:
        """The DynamoDB client."""
        if service != "dynamodb":
            raise LookupError(f"the demo has no {service}")
        return _Client(self._world)


class _Client:
    meta: Any = SimpleNamespace(events=SimpleNamespace(register=lambda *_, **__: None))

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        operation = "".join(part.capitalize() for part in method.split("_"))
        return lambda **arguments: self._world.call(operation, arguments)


class Context:
    """A Lambda context."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends_ms = world.now_ms + LIFETIME_MS

    def get_remaining_time_in_millis(self) -> int:
        """Time left for this invocation."""
        return max(0, self._ends_ms - self._world.now_ms)
