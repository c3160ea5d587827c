"""A hand-written state machine, the function that is notified of its failures, and a reconciler's watch over both."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from handlers import watch as entry
from saga_runtime.protocol import DUE_INDEX, Env, FailedStatus, Metric, WatchAttribute, WatchedField
from saga_runtime.shared import aws
from saga_runtime.watch.rows import EndRow, ListRow, end_id, list_id
from tests.unit.support.samples import ACCOUNT, NOW_MS
from tests.unit.support.wire import body_of, error_response, response
from tests.unit.support.world import Context, World

MACHINE = f"arn:aws:states:eu-central-1:{ACCOUNT}:stateMachine:Import"
FUNCTION = f"arn:aws:lambda:eu-central-1:{ACCOUNT}:function:OnTimeout"
GRACE_MS = 900_000
LEASE_MS = 90_000
ATTEMPTS = 3


@dataclass(slots=True)
class Run:
    """One execution. Times are epoch milliseconds."""

    name: str
    started: int
    status: str = "RUNNING"
    stopped: int = 0
    redrives: int = 0
    input: str = "{}"

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"{MACHINE.replace(':stateMachine:', ':execution:')}:{self.name}"

    @property
    def id(self) -> str:
        """The id of how it ended last."""
        return end_id(self.arn, self.redrives)

    def said(self) -> dict[str, Any]:
        """Description of the execution, in Step Functions' form."""
        return {
            "executionArn": self.arn,
            "stateMachineArn": MACHINE,
            "name": self.name,
            "status": self.status,
            "startDate": self.started / 1_000,
            **({"stopDate": self.stopped / 1_000} if self.stopped else {}),
            "redriveCount": self.redrives,
        }


@dataclass(slots=True)
class Machine:
    """Step Functions' state of the machine's executions, and its responses."""

    runs: dict[str, Run] = field(default_factory=dict)
    page: int = 1_000
    tokens_expire: bool = False
    begins_empty: bool = False
    """A list has a page with nothing on it first."""
    order: Callable[[Run], int] = lambda run: run.stopped
    """Lists begin with what is most of this."""
    listed: Callable[[], object] | None = None
    """Happens when a page was read."""

    def answer(self, operation: str, request: AWSPreparedRequest) -> AWSResponse:
        """Answer a request."""
        body = body_of(request)
        if operation == "DescribeExecution":
            found = [run for run in self.runs.values() if run.arn == body["executionArn"]]
            if not found:
                return error_response(request, "ExecutionDoesNotExist")
            (run,) = found
            failed = {"error": "E", "cause": "C"} if run.status == "ABORTED" else {}
            return response(request, 200, {**run.said(), "input": run.input, **failed})
        assert body["stateMachineArn"] == MACHINE
        if self.begins_empty and "nextToken" not in body:
            return response(request, 200, {"executions": [], "nextToken": "0"})
        offset = int(body.get("nextToken", "0"))
        if offset and self.tokens_expire:
            return error_response(request, "InvalidToken")
        found = [run for run in self.runs.values() if run.status == body["statusFilter"]]
        found.sort(key=self.order, reverse=True)
        size = min(self.page, body["maxResults"])
        rest = {"nextToken": str(offset + size)} if len(found) > offset + size else {}
        if self.listed is not None:
            self.listed()
        return response(request, 200, {"executions": [run.said() for run in found[offset : offset + size]], **rest})


@dataclass(slots=True)
class Called:
    """One call of the function."""

    at: int
    event: dict[str, Any]


@dataclass
class Watch:
    """A machine that is watched, and everything around it."""

    world: World
    queue: str
    dead_letters: str
    monkeypatch: pytest.MonkeyPatch
    machine: Machine = field(default_factory=Machine)
    calls: list[Called] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """What the function does in its next calls: the name of an error, a status of Lambda's own, or empty; when they are
    used up, it answers."""
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    """Happens while the function is at it; each once."""

    @property
    def now(self) -> int:
        """The time."""
        return self.world.clock.ms

    settings: dict[str, Any] = field(default_factory=dict)

    def watches(self, **values: Any) -> None:
        """Configure what the runtime watches, in addition to earlier settings."""
        f = WatchedField
        self.settings = {
            f.MACHINE: MACHINE,
            f.FUNCTION: FUNCTION,
            f.ENDS: [FailedStatus.TIMED_OUT, FailedStatus.ABORTED],
            f.GRACE: GRACE_MS // 1_000,
            f.LEASE: LEASE_MS // 1_000,
            f.ATTEMPTS: ATTEMPTS,
            **self.settings,
            **values,
        }
        self.monkeypatch.setenv(Env.WATCHED, json.dumps([self.settings]))

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.world.clock.ms += ms

    def starts(self, name: str = "run", *, ago_ms: int = 0, **values: Any) -> Run:
        """Start an execution."""
        self.machine.runs[name] = Run(name, self.now - ago_ms, **values)
        return self.machine.runs[name]

    def ends(self, name: str = "run", status: str = "TIMED_OUT", *, ago_ms: int = 0) -> Run:
        """Let an execution end; it is started first if it does not exist."""
        run = self.machine.runs.get(name) or self.starts(name, ago_ms=ago_ms + 60_000)
        run.status, run.stopped = status, self.now - ago_ms
        return run

    def redrives(self, name: str = "run") -> Run:
        """Let a person redrive an execution."""
        run = self.machine.runs[name]
        run.status, run.stopped, run.redrives = "RUNNING", 0, run.redrives + 1
        return run

    def sweep(self, context: Context | None = None) -> dict[str, Any]:
        """One sweep over lists and due rows."""
        return entry.handler({}, context or Context(remaining_ms=120_000))

    def event(self, *names: str) -> list[str]:
        """Deliver status events."""
        return self.deliver(*(json.dumps({"detail": {"stateMachineArn": MACHINE, "name": name}}) for name in names))

    def deliver(self, *bodies: str) -> list[str]:
        """Hand a batch to the handler; ids of the messages that have to come again."""
        records = [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]
        answer = entry.handler({"Records": records}, Context(remaining_ms=120_000))
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def work(self) -> int:
        """Handle every message in the queue; one that is not done with stays there. How many there were."""
        messages = self._messages(self.queue)
        for message in messages:
            if not self.deliver(message["Body"]):
                aws.sqs().delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return len(messages)

    def _messages(self, url: str) -> list[Any]:
        found: dict[str, Any] = {}
        while True:
            batch = aws.sqs().receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=3_600)
            if not batch.get("Messages"):
                break
            found |= {message["MessageId"]: message for message in batch["Messages"]}
        for message in found.values():
            handle = message["ReceiptHandle"]
            aws.sqs().change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
        return list(found.values())

    @property
    def letters(self) -> list[dict[str, Any]]:
        """Messages for the operator."""
        return [json.loads(message["Body"]) for message in self._messages(self.dead_letters)]

    def proceed(self, rounds: int = 12) -> None:
        """Let the reconciler do what is left to do."""
        for _ in range(rounds):
            self.sweep()
            self.work()
            self.pass_time(GRACE_MS)

    @property
    def items(self) -> dict[str, dict[str, Any]]:
        """Stored items, by id."""
        return {item[WatchAttribute.ID]["S"]: item for item in self.world.items("watch")}

    @property
    def rows(self) -> dict[str, EndRow]:
        """Ends, by id."""
        return {key: EndRow.from_item(item) for key, item in self.items.items() if not key.startswith("list#")}

    def row(self, name: str = "run") -> EndRow:
        """The last end of an execution."""
        return self.rows[self.machine.runs[name].id]

    def list_of(self, end: FailedStatus = FailedStatus.TIMED_OUT) -> ListRow:
        """Progress of a list."""
        return ListRow.from_item(self.items[list_id(MACHINE, end)])

    def counted(self, metric: Metric) -> int:
        """Sum of a metric."""
        return self.world.telemetry.counts[metric]

    def invoke(self, request: AWSPreparedRequest) -> AWSResponse:
        """Answer for the function."""
        self.calls.append(Called(self.now, body_of(request)))
        if self.meanwhile:
            self.meanwhile.pop(0)()
        wrong = self.answers.pop(0) if self.answers else ""
        if wrong == "TooManyRequestsException":
            refused = response(request, 429, {"message": wrong})
            refused.headers["x-amzn-ErrorType"] = wrong
            return refused
        if wrong.isdigit():
            return response(request, int(wrong), {"message": "of Lambda itself"})
        headers: Any = {"X-Amz-Function-Error": "Unhandled"} if wrong else {}
        body: Any = MockRawResponse(json.dumps({"errorType": wrong, "errorMessage": "secret"} if wrong else None))
        return AWSResponse(request.url, 200, headers, body)


@contextlib.contextmanager
def watch_in(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """A machine without executions, watched."""
    client: Any = aws.dynamodb()
    a = WatchAttribute
    client.create_table(
        TableName="watch",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": a.ID, "AttributeType": "S"},
            {"AttributeName": a.DUE_SHARD, "AttributeType": "S"},
            {"AttributeName": a.DUE_AT, "AttributeType": "N"},
        ],
        KeySchema=[{"AttributeName": a.ID, "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": DUE_INDEX,
                "KeySchema": [
                    {"AttributeName": a.DUE_SHARD, "KeyType": "HASH"},
                    {"AttributeName": a.DUE_AT, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    queue, dead = (str(aws.sqs().create_queue(QueueName=name)["QueueUrl"]) for name in ("ends", "dead"))
    watch = Watch(world, queue, dead, monkeypatch)
    through = BotocoreStubber.__call__

    def send(stubber: Any, event_name: str, request: AWSPreparedRequest, **rest: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        if operation in ("ListExecutions", "DescribeExecution"):
            return world.wire.send(event_name, request, lambda: watch.machine.answer(operation, request))
        if operation == "Invoke":
            return world.wire.send(event_name, request, lambda: watch.invoke(request))
        return through(stubber, event_name, request, **rest)

    monkeypatch.setattr(BotocoreStubber, "__call__", send)
    for name, value in {Env.WATCH_TABLE: "watch", Env.WATCH_QUEUE: queue, Env.DEAD_LETTERS: dead}.items():
        monkeypatch.setenv(name, value)
    watch.watches()
    assert watch.now == NOW_MS
    aws.functions.cache_clear()
    world.wire.forget()
    yield watch
    aws.functions.cache_clear()
