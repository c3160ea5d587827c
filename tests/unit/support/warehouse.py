"""A warehouse that takes jobs on and answers later, the functions that a user writes for it, and its queue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from saga_runtime import (
    Accepted,
    Applied,
    CallbackCall,
    Declined,
    NotApplied,
    Pending,
    Verdict,
    callback_step,
    external_compensation,
)
from saga_runtime.callbacks import Failed, Receipt, Succeeded
from saga_runtime.errors import ManualResolutionRequired, PermanentError, SagaFenced
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode, Env, TaskField, WaitField
from saga_runtime.saga_log.rows import LogRow
from tests.unit.support.gateway import ASKED, GRACE_MS, LIFE_MS, MARGIN_MS, REMAINING_MS, UNDO_IDEMPOTENT
from tests.unit.support.job_saga import DONE, HEARTBEAT_SECONDS, JOB_ID, PARCEL, STEP, JobSaga
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import Killed, Wire
from tests.unit.support.world import Context, World

TIMEOUT_SECONDS = 3_600
MAX_RECEIVES = 5


@dataclass
class Warehouse:
    """A provider with books of its own.

    Attributes:
        idempotent: whether a known job is accepted without being done again.
        refuses: reason for which it refuses jobs; None: it accepts them.
        own_id: its own id for a job; None: it uses the given one.
        begun, cancelled: keys in its books, once for each time that the job was done or cancelled.
        finished: jobs that are done.
        meanwhile: an action during a call of a kind; once.
        afterwards: an action between an effect and the response; once.
        broken: exception of the client after a call of a kind was applied; once.
        says: its response to status queries for every job; None: the contents of its books.
    """

    wire: Wire
    idempotent: bool = False
    refuses: str | None = None
    own_id: str | None = None
    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)
    afterwards: dict[str, Callable[[], object]] = field(default_factory=dict)
    broken: dict[str, BaseException] = field(default_factory=dict)
    says: Verdict | None = None
    seen: list[CallbackCall] = field(default_factory=list)

    def pick(self, key: str) -> Accepted | None:
        """Take a job on, or refuse it."""
        answer: Accepted | None = self._call("pick", lambda: self._pick(key))
        return answer

    def _pick(self, key: str) -> Accepted | None:
        if self.refuses is not None:
            raise Declined(self.refuses, job_id=self.own_id)
        if not (self.idempotent and key in self.begun):
            self.begun.append(key)
        return None if self.own_id is None else Accepted(job_id=self.own_id)

    def find(self, key: str) -> Verdict:
        """Outcome of a job."""
        verdict: Verdict = self._call("find", lambda: self.says or self._find(key))
        return verdict

    def _find(self, key: str) -> Verdict:
        if key not in self.begun:
            return NotApplied()
        return Applied(output=PARCEL) if key in self.finished else Pending()

    def cancel(self, key: str) -> None:
        """Undo a job that was done."""
        self._call("cancel", lambda: None if key in self.cancelled else self.cancelled.append(key))

    def finish(self) -> None:
        """Do every job that was begun."""
        self.finished.update(self.begun)

    def _call(self, kind: str, deliver: Callable[[], Any]) -> Any:
        if meanwhile := self.meanwhile.pop(kind, None):
            meanwhile()
        answer = self.wire.pass_by(f"warehouse:{kind}", deliver)
        if afterwards := self.afterwards.pop(kind, None):
            afterwards()
        if broken := self.broken.pop(kind, None):
            raise broken
        return answer


class Hourglass(Context):
    """A Lambda context whose time runs."""

    def __init__(self, remaining_ms: int, world: World) -> None:
        super().__init__(remaining_ms=remaining_ms)
        self._clock, self._until = world.clock, world.clock.ms + remaining_ms

    def get_remaining_time_in_millis(self) -> int:
        """Time left for this invocation."""
        return max(self._until - self._clock.ms, 0)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message in the queue."""

    token: str
    body: str


class Picking:
    """A user's functions for the warehouse, the saga's calls of them, and the queue between.

    Attributes:
        provider: the saga's declaration; by default a provider with status queries and idempotent compensation.
        sent: messages so far; the last one's attempt is the one that waits.
        job_saga: the tables, and the effects of callbacks on them.
    """

    def __init__(
        self, world: World, monkeypatch: pytest.MonkeyPatch, *, job: bool = True, verified: bool = True, **provider: Any
    ) -> None:
        self.world, self.job, self._environment = world, job, monkeypatch
        monkeypatch.setenv(Env.MAX_RECEIVES, str(MAX_RECEIVES))
        self.job_saga = JobSaga.open(world, monkeypatch, job=job)
        settings: dict[str, Any] = {
            "grace": GRACE_MS // 1_000,
            "clock_skew": MARGIN_MS // 1_000,
        }
        self.provider: dict[str, Any] = {**settings, **ASKED, **UNDO_IDEMPOTENT, **provider}
        self.warehouse = warehouse = Warehouse(world.wire, idempotent=bool(self.provider["window"]))
        self.sent: list[Sent] = []
        self.entered_ms = world.clock.ms

        def find(call: CallbackCall) -> Verdict:
            warehouse.seen.append(call)
            return warehouse.find(call.provider_key)

        @callback_step(verify=find if verified else None)
        def pick(call: CallbackCall) -> Accepted | None:
            warehouse.seen.append(call)
            return warehouse.pick(call.provider_key)

        @external_compensation(of=pick)
        def cancel(call: CallbackCall, output: Any) -> None:
            warehouse.seen.append(call)
            assert output == PARCEL
            warehouse.cancel(call.provider_key)

        self.pick, self.cancel = pick, cancel

    def event(self, **more: Any) -> dict[str, Any]:
        """Event of the state machine for a function."""
        provider: dict[str, Any] = {CallField.PROVIDER: self.provider} if self.job else {}
        return {**step_event(step=STEP), **provider, **more}

    def send(self, **more: Any) -> Sent:
        """Let the state machine put a message into the queue, and wait."""
        number = len(self.sent) + 1
        token = self.world.tasks.wait(f"secret-token-{number}")
        task = {
            TaskField.STARTED: _iso(self.entered_ms - 1_000),
            TaskField.REDRIVEN: 0,
            TaskField.ENTERED: _iso(self.entered_ms),
            TaskField.RETRIED: number - 1,
        }
        body = {
            **self.event(),
            CallField.TOKEN: token,
            CallField.TASK: task,
            CallField.WAIT: {WaitField.HEARTBEAT: HEARTBEAT_SECONDS, WaitField.TIMEOUT: TIMEOUT_SECONDS},
            CallField.REQUEST_TABLE: "requests",
            **more,
        }
        self.sent.append(Sent(token, json.dumps(body)))
        return self.sent[-1]

    def send_again(self) -> Sent:
        """Let the waiting task time out, and send the job to the queue again."""
        for sent in self.sent:
            self.world.tasks.time_out(sent.token)
        return self.send()

    def deliver(self, *messages: Sent | str, receives: int = 1, context: Context | None = None) -> list[int]:
        """Invoke the dispatcher with a batch; which of the messages have to come again."""
        records = [
            {
                "messageId": f"message-{index}",
                "body": message if isinstance(message, str) else message.body,
                "attributes": {"ApproximateReceiveCount": str(receives)},
            }
            for index, message in enumerate(messages)
        ]
        answer = self.pick({"Records": records}, context or Context(remaining_ms=REMAINING_MS))
        failures = answer["batchItemFailures"]
        return [int(failure["itemIdentifier"].removeprefix("message-")) for failure in failures]

    def dispatch(self, message: Sent | None = None, *, receives: int = 1) -> bool:
        """Deliver one message, by default a new one; whether that is the end of it."""
        return self.deliver(message or self.send(), receives=receives) == []

    def to_the_end(self, message: Sent) -> None:
        """Deliver a message until the queue may forget it, as a queue does, later and later."""
        for _ in range(20):
            try:
                if self.dispatch(message):
                    return
            except Killed:
                pass
            self.pass_every_deadline()
        raise AssertionError("the message never came to an end")

    def calls_back(
        self, event_id: str = "event-1", outcome: Succeeded | Failed = DONE, job_id: str = JOB_ID
    ) -> Receipt:
        """Report the job's outcome as the warehouse."""
        if isinstance(outcome, Succeeded):
            self.warehouse.finish()
        return self.job_saga.reports(event_id, outcome, job_id)

    def unserved(self, meanwhile: Callable[[], object]) -> None:
        """Let something happen before the functions know of the saga."""
        known = os.environ[Env.CALLBACKS]
        self._environment.setenv(Env.CALLBACKS, "[]")
        meanwhile()
        self._environment.setenv(Env.CALLBACKS, known)

    def ask(self) -> Any:
        """Invoke the dispatcher, only to determine the job's outcome."""
        event = self.event(**{CallField.MODE: CallMode.VERIFY})
        return self.pick(event, Context(remaining_ms=REMAINING_MS))[OUTPUT_FIELD]

    def undo(self, *, late: bool = False) -> None:
        """Invoke the compensation once."""
        more = {CallField.MODE: CallMode.LATE} if late else {}
        self.cancel(self.event(**more), Context(remaining_ms=REMAINING_MS))

    def decided(self, invoke: Callable[[], Any]) -> Any:
        """Invoke until there is an outcome, as a state machine does, later and later."""
        for _ in range(20):
            try:
                return invoke()
            except (PermanentError, SagaFenced, ManualResolutionRequired) as outcome:
                return outcome
            except (Exception, Killed):  # noqa: BLE001  # whatever it is, a state machine invokes again
                self.pass_every_deadline()
        raise AssertionError("the step never came to an outcome")

    def passes(self, ms: int) -> None:
        """Let time pass."""
        self.world.clock.ms += ms

    def pass_every_deadline(self) -> None:
        """Let so much time pass that no attempt is alive and no request in transit."""
        self.passes(LIFE_MS + GRACE_MS)

    @property
    def row(self) -> LogRow | None:
        """The job's row in the saga log."""
        return self.job_saga.log

    @property
    def status(self) -> str | None:
        """The row's status."""
        return self.row.status if self.row is not None else None

    def outcome(self, number: int = 1) -> Any:
        """Outcome that the n-th attempt received: its output, or an error's name; None: nothing."""
        told = self.world.tasks.woken.get(self.sent[number - 1].token)
        if told is None:
            return None
        return json.loads(told["output"])[OUTPUT_FIELD] if "output" in told else told["error"]

    def check(self) -> None:
        """Check that the books agree with the saga log, nothing happened twice, and no token was revealed.

        Raises:
            AssertionError: if one of these does not hold.
        """
        books = (len(self.warehouse.begun), len(self.warehouse.cancelled))
        wanted = {
            None: [(0, 0)],
            "INTENT": [(0, 0), (1, 0)],
            "DONE": [(1, 0)],
            "APPLIED_LATE": [(1, 0)],
            "COMPENSATING": [(1, 0), (1, 1)],
            "COMPENSATED": [(1, 1)],
            "TOMBSTONE": [(0, 0)],
            "REFUSED": [(0, 0)],
        }
        assert books in wanted[self.status], f"{self.status}, and the warehouse's books contain {books}"
        shown = [repr(self.world.telemetry.events), *map(repr, self.warehouse.seen), repr(self.row)]
        shown += [str(self.job_saga.token.get("dispatch_error"))]
        assert "secret-token" not in "".join(shown), "a token was shown"
        assert SAGA_ID not in "".join(self.warehouse.begun), "a provider is given the short form of a key"


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
