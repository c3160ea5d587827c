"""Many sagas that wait at once, and concurrent callbacks: from many threads, some duplicated, some early."""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.testing import ApiUser, LocalAws
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, RecordAttribute, RecordStatus, TokenAttribute, TokenStatus

if TYPE_CHECKING:
    from aws_cdk import App

CLIENTS: Final = 32
"""Threads that answer. The emulator runs four processes per function, so the rest of them always wait in front."""
BEGINNERS: Final = 16
PATIENCE_SECONDS: Final = 300.0
STACK: Final = "ManyCallbacks"
GO, PICK = "Go", "Pick"


class Kind(StrEnum):
    """When, and how often, a saga is answered."""

    PLAIN = "once"
    SAME_EVENT = "twice at once, one event"
    OTHER_EVENT = "twice at once, two events"
    EARLY = "before its task"
    OWN_ID = "before its task, under the provider's id"
    RACING = "while its task registers"
    AT_ONCE = "as soon as the saga is known"

    @property
    def doubled(self) -> bool:
        """True if two threads report the same outcome at the same time."""
        return self in (Kind.SAME_EVENT, Kind.OTHER_EVENT)

    @property
    def held_back(self) -> bool:
        """True if the saga waits at the previous step until it is released."""
        return self in (Kind.EARLY, Kind.OWN_ID, Kind.RACING)


_DOUBLED: Final = (Kind.SAME_EVENT, Kind.OTHER_EVENT)
_EARLY: Final = (Kind.EARLY, Kind.RACING, Kind.OWN_ID, Kind.AT_ONCE)


def kind_of(index: int) -> Kind:
    """Every tenth saga is answered twice, every tenth early, in every way that there is."""
    turn, place = divmod(index, 10)
    if place == 3:
        return _DOUBLED[turn % len(_DOUBLED)]
    return _EARLY[turn % len(_EARLY)] if place == 7 else Kind.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A saga that waits, or will."""

    order: str
    kind: Kind
    saga_id: str

    def job(self, step: str = PICK) -> str:
        """Job id of a step."""
        return f"{self.saga_id}#{step}"

    @property
    def own_id(self) -> str:
        """By which id the warehouse speaks of the job, where it has one of its own."""
        return f"W-{self.order}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One callback, and how it was received.

    Attributes:
        at_ms: time of the request.
        answered_ms: time of the response.
        failures: number of failed attempts before it was received.
    """

    waiter: Waiter
    step: str
    event: str
    at_ms: float
    answered_ms: float
    receipt: str
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Result of many concurrent callbacks.

    Attributes:
        said: every callback.
        seconds: from the first callback until the last saga was settled.
        latencies_ms: for sagas that were waiting: from the first callback until the record is settled; ascending.
    """

    said: Sequence[Said]
    seconds: float
    latencies_ms: Sequence[float]


@dataclass(frozen=True)
class Crowd:
    """The deployed system, its waiting sagas, and every callback.

    Attributes:
        stacks: outputs of every stack.
        progress: receives progress messages.
    """

    aws: LocalAws
    stacks: Mapping[str, Mapping[str, str]]
    user: ApiUser
    progress: Callable[[str], None]
    waiters: list[Waiter] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)

    @property
    def outputs(self) -> Mapping[str, str]:
        return self.stacks[STACK]

    def begin(self, prefix: str, number: int, *, kind: Kind | None = None) -> list[Waiter]:
        """Begin sagas, and wait until all of them wait; those that are answered at once are settled then.

        Args:
            prefix: of their orders: none may have been used before.
            number: how many.
            kind: of all of them; every kind in turn by default.
        """

        def one(index: int) -> Waiter:
            waiter = self._begin(f"{prefix}-{index}", kind or kind_of(index))
            if waiter.kind is Kind.AT_ONCE:
                self.say(waiter)
            return waiter

        with ThreadPoolExecutor(BEGINNERS) as pool:
            begun = list(pool.map(one, range(number)))
        self.waiters.extend(begun)
        held = {waiter.job(GO) for waiter in begun if waiter.kind.held_back}
        self._until(lambda: held <= self._waiting("PeopleTokens"), f"{len(held)} sagas to wait for a go")
        at_once = [waiter for waiter in begun if waiter.kind is Kind.AT_ONCE]
        asked = {waiter.job() for waiter in begun if not waiter.kind.held_back} - {waiter.job() for waiter in at_once}
        self._until(lambda: asked <= self._waiting("WarehouseTokens"), f"{len(asked)} sagas to wait for a pick")
        self.await_settled(at_once)
        self.progress(f"{number} sagas began; {len(held) + len(asked)} of them wait")
        return begun

    def answer(self, waiters: Sequence[Waiter], *, clients: int = CLIENTS) -> Wave:
        """Answer everybody who waits, from many threads, and wait until all are settled."""
        tasks = [task for group in self._groups(waiters) for task in group]
        with ThreadPoolExecutor(clients) as pool:
            begun = time.time()
            # In this order: two callbacks that are meant to meet run in consecutive threads.
            said = [answered for future in [pool.submit(task) for task in tasks] for answered in future.result()]
        self.progress(f"{len(said)} callbacks answered after {time.time() - begun:.1f} s")
        asked = [waiter for waiter in waiters if waiter.kind is not Kind.AT_ONCE]
        self.await_settled(asked)
        ended = self.settled_ms()
        waited = [s for s in said if s.waiter.kind is Kind.PLAIN or s.waiter.kind.doubled]
        first: dict[str, float] = {}
        for one in waited:
            first[one.waiter.saga_id] = min(one.at_ms, first.get(one.waiter.saga_id, one.at_ms))
        return Wave(
            said=said,
            seconds=max(ended[waiter.saga_id] for waiter in asked) / 1_000 - begun,
            latencies_ms=sorted(ended[saga] - at for saga, at in first.items()),
        )

    def say(self, waiter: Waiter, *, step: str = PICK, event: str = "e", own_id: bool = False) -> Said:
        """Report a step's completion, and retry until the receiver accepts it, as providers do."""
        name = self.outputs["FromWarehouse" if step == PICK else "FromPeople"]
        content = {
            "job_id": waiter.own_id if own_id else waiter.job(step),
            "event_id": f"{waiter.order}-{step}-{event}",
            "outcome": {"ok": True, "output": output_of(waiter, step, event)},
        }
        payload, failures, at_ms = json.dumps(content), 0, time.time() * 1_000
        while True:
            answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=payload)
            told = json.loads(answer["Payload"].read())
            if not answer.get("FunctionError"):
                break
            failures += 1
            if failures == 10:
                raise AssertionError(f"{content['event_id']} was never received: {told}")
        said = Said(
            waiter=waiter,
            step=step,
            event=event,
            at_ms=at_ms,
            answered_ms=time.time() * 1_000,
            receipt=told["receipt"],
            failures=failures,
        )
        self.said.append(said)
        return said

    def warm_up(self, number: int = 40) -> None:
        """Start every process that will be needed: as many answer at once as the emulator has processes for."""
        self.answer(self.begin("warm-up", number), clients=16)

    def await_settled(self, waiters: Sequence[Waiter]) -> None:
        """Wait until sagas are settled."""
        wanted = {waiter.saga_id for waiter in waiters}
        self._until(lambda: wanted <= self.settled_ms().keys(), f"{len(wanted)} sagas to be settled")

    def settled_ms(self) -> dict[str, float]:
        """When each saga that is settled was, by the emulator's clock."""
        a = RecordAttribute
        return {
            item[a.SAGA_ID]["S"]: float(item[a.UPDATED_AT]["N"])
            for item in self._scan("RequestTableName", f"{a.SAGA_ID}, {a.STATUS}, {a.UPDATED_AT}")
            if item[a.STATUS]["S"] != RecordStatus.IN_PROGRESS
        }

    def _begin(self, order: str, kind: Kind) -> Waiter:
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/picks"
        waiter = Waiter(order=order, kind=kind, saga_id="")
        body: dict[str, Any] = {"go": kind.held_back}
        if kind is Kind.OWN_ID:
            body["own_id"] = waiter.own_id
        answer = self.user.request("POST", url, headers={IDEMPOTENCY_KEY_HEADER: order}, body=body)
        if answer.status != 202:
            raise AssertionError(f"{order} was answered {answer.status}: {answer.text}")
        return Waiter(order=order, kind=kind, saga_id=json.loads(answer.text)["saga_id"])

    def _groups(self, waiters: Sequence[Waiter]) -> Iterator[list[Callable[[], list[Said]]]]:
        """Callbacks in any order; those that are meant to meet are in one group."""
        mixed = [waiter for waiter in waiters if waiter.kind is not Kind.AT_ONCE]
        random.Random(len(mixed)).shuffle(mixed)
        for waiter in mixed:
            yield self._tasks_of(waiter)

    def _tasks_of(self, waiter: Waiter) -> list[Callable[[], list[Said]]]:
        match waiter.kind:
            case Kind.SAME_EVENT:
                return _together(lambda: self.say(waiter), lambda: self.say(waiter))
            case Kind.OTHER_EVENT:
                return _together(lambda: self.say(waiter), lambda: self.say(waiter, event="f"))
            case Kind.RACING:
                return _together(lambda: self.say(waiter, step=GO), lambda: self.say(waiter))
            case Kind.EARLY | Kind.OWN_ID:
                own = waiter.kind is Kind.OWN_ID
                return [lambda: [self.say(waiter, own_id=own), self.say(waiter, step=GO)]]
            case _:
                return [lambda: [self.say(waiter)]]

    def _waiting(self, table: str) -> set[str]:
        a = TokenAttribute
        found = self._scan(table, f"{a.ID}, {a.STATUS}")
        return {item[a.ID]["S"] for item in found if item.get(a.STATUS, {}).get("S") == TokenStatus.WAITING}

    def _scan(self, table: str, attributes: str) -> list[dict[str, Any]]:
        names = {f"#{n}": name for n, name in enumerate(attributes.split(", "))}
        pages = (
            self.aws.client("dynamodb")
            .get_paginator("scan")
            .paginate(
                TableName=self.outputs[table],
                ConsistentRead=True,
                ProjectionExpression=", ".join(names),
                ExpressionAttributeNames=names,
            )
        )
        return [dict(item) for page in pages for item in page["Items"]]

    def _until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_SECONDS:.0f} s for {what}; {self.stand()}")
            time.sleep(0.25)

    def stand(self) -> str:
        """Number of token rows by state: shows where a stuck saga is stuck."""
        rows = {
            table: dict(Counter(item.get("status", {}).get("S", "") for item in self._scan(table, "status")))
            for table in ("RequestTableName", "LogTableName", "WarehouseTokens", "PeopleTokens")
        }
        return f"statuses by table: {rows}"


def output_of(waiter: Waiter, step: str, event: str) -> dict[str, str]:
    """Output of one callback: unique, so that a test can see which one was delivered."""
    return {"step": step, "of": waiter.order, "said_by": event}


def _together(one: Callable[[], Said], other: Callable[[], Said]) -> list[Callable[[], list[Said]]]:
    """Both at the same moment, each from a thread of its own."""
    met = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def meet(say: Callable[[], Said]) -> list[Said]:
        met.wait()
        return [say()]

    return [lambda: meet(one), lambda: meet(other)]


@contextmanager
def deployed(
    progress: Callable[[str], None] = lambda _: None, *, beside: Callable[[App], object] = lambda _: None
) -> Iterator[Crowd]:
    """The system, deployed, with its processes started: no response waits for an interpreter.

    Args:
        progress: receives progress messages.
        beside: adds stacks.
    """
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App

    from .stack import ManyCallbacksStack

    with tempfile.TemporaryDirectory() as folder, LocalAws() as aws:
        app = App(outdir=folder)
        ManyCallbacksStack(app, STACK)
        beside(app)
        app.synth()
        stacks = aws.deploy(folder)
        user = aws.create_api_user("alice", api_id=stacks[STACK]["ApiId"])
        crowd = Crowd(aws, stacks, user, progress)
        crowd.warm_up()
        yield crowd
