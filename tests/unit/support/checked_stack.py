"""A deployed stack with one saga in it, and a doctor: ``cdk-sagas doctor``."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.models import DEFAULT_ACCOUNT_ID

from constructs_lib.cli.main import main
from saga_runtime.protocol import (
    DUE_INDEX,
    HoldAttribute,
    LogAttribute,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
    WatchAttribute,
)
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support import settling
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.job_saga import JobSaga
from tests.unit.support.manifests import DAYS, described, manifest, refused, saga_entry
from tests.unit.support.operated_saga import WHY, OperatedSaga, operated_saga_in
from tests.unit.support.samples import DAY_MS, NOW_MS, RECOVERY_MACHINE_ARN, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import body_of, error_response, response
from tests.unit.support.world import World

COMMAND = import_module("constructs_lib.cli.doctor.command")
SCAN = import_module("constructs_lib.cli.shared.reads")
TOKEN_ROWS = import_module("constructs_lib.cli.callbacks.rows")
TOKEN_WRITES = import_module("saga_runtime.callbacks.writes")
MAPPING = "5f0e2c1a-0000-4000-8000-000000000001"
"""Id of what hands status events to the reconciler."""
LIMIT = 3
SWITCH = "hold"
"""The table whose item may hold the reconciler."""
SHARDS, SHARD = 2, "01"
"""Of the index of records: every query takes its time here."""
READS = frozenset(
    {
        "BatchGetItem",
        "DescribeExecution",
        "DescribeRule",
        "DescribeStacks",
        "DescribeStateMachine",
        "DescribeStateMachineForExecution",
        "GetExecutionHistory",
        "DescribeTable",
        "GetEventSourceMapping",
        "GetFunctionConcurrency",
        "GetItem",
        "GetQueueAttributes",
        "ListExecutions",
        "Query",
        "Scan",
    }
)
"""Operations that change nothing."""


def queue_arn(name: str) -> str:
    """ARN of a queue, in the account in which moto makes them."""
    return f"arn:aws:sqs:eu-central-1:{DEFAULT_ACCOUNT_ID}:{name}"


@dataclass
class CheckedStack:
    """A stack, and the command that checks it.

    Attributes:
        manifests: those of the stacks, by their names.
        at_zero: functions with a reserved concurrency of 0.
        rules: state, and bus, by name.
        sources: state by id.
        denied: operations that are refused.
        queues: URLs by name.
    """

    operated: OperatedSaga
    job_saga: JobSaga
    manifests: dict[str, Any] = field(default_factory=dict)
    at_zero: set[str] = field(default_factory=set)
    rules: dict[str, dict[str, str]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    queues: dict[str, str] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The runtime's surroundings."""
        return self.operated.world

    def part(self, name: str) -> list[dict[str, Any]]:
        """A list of the stack's manifest."""
        found: list[dict[str, Any]] = self.manifests["Shop"][name]
        return found

    def run(self, *words: str, system: tuple[str, ...] = ("--stack", "Shop")) -> tuple[int, str, str]:
        """Run the command: its exit status, its output and its errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                reason = ["--reason", WHY] if "--repair" in words and "--reason" not in words else []
                status = main(["doctor", *system, *words, *reason])
            except SystemExit as ended:
                status = int(str(ended.code))
        return status, out.getvalue(), err.getvalue()

    def finds(self, *words: str, system: tuple[str, ...] = ("--stack", "Shop")) -> list[dict[str, Any]]:
        """Run it for its document, which must agree with its exit status."""
        status, out, err = self.run("--json", *words, system=system)
        assert out, err
        found: list[dict[str, Any]] = json.loads(out)["findings"]
        assert status == (1 if any(one["open"] for one in found) else 0), found
        return found

    def kinds(self, *words: str, system: tuple[str, ...] = ("--stack", "Shop")) -> list[tuple[str, str]]:
        """Kinds and severities."""
        return [(one["kind"], one["severity"]) for one in self.finds(*words, system=system)]

    # What happens to the saga.

    def pass_time(self, ms: int = 60_000) -> None:
        """Let time pass."""
        self.world.clock.ms += ms

    def dies(self, name: str = SAGA_ID, status: ExecutionStatus = ExecutionStatus.FAILED) -> None:
        """Let an execution end."""
        self.world.executions.end(name, status)

    def settle(self, status: RecordStatus = RecordStatus.FAILED) -> None:
        """Let the owner settle."""
        update: Any = settling.settle(
            request_id=REQUEST_ID, execution=self.operated.record.owner, status=status, now_ms=self.world.clock.ms
        )
        aws.dynamodb().update_item(**update)

    def update(self, **values: dict[str, str]) -> None:
        """Change attributes of the record."""
        aws.dynamodb().update_item(
            TableName="requests",
            Key={RecordAttribute.ID: {"S": REQUEST_ID}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )

    def remove(self, *names: str) -> None:
        """Take attributes out of the record."""
        aws.dynamodb().update_item(
            TableName="requests",
            Key={RecordAttribute.ID: {"S": REQUEST_ID}},
            UpdateExpression="REMOVE " + ", ".join(f"#{name}" for name in names),
            ExpressionAttributeNames={f"#{name}": name for name in names},
        )

    def forget(self) -> None:
        """Delete the record."""
        aws.dynamodb().delete_item(TableName="requests", Key={RecordAttribute.ID: {"S": REQUEST_ID}})

    def put_row(self, step: str, status: StepStatus, *, expires_in_ms: int = DAYS * DAY_MS) -> None:
        """Write a row of the log."""
        a, now_ms = LogAttribute, self.world.clock.ms
        aws.dynamodb().put_item(
            TableName="log",
            Item={
                **log_key(SAGA_ID, step),
                a.STATUS: {"S": status},
                a.SIDE: {"S": Side.BEFORE},
                a.ATTEMPT_ID: {"S": "attempt"},
                a.DEADLINE: {"N": str(now_ms)},
                a.FIRST_ATTEMPT_AT: {"N": str(now_ms)},
                a.CREATED_AT: {"N": str(now_ms)},
                a.UPDATED_AT: {"N": str(now_ms)},
                a.EXPIRATION: {"N": str((now_ms + expires_in_ms) // 1_000)},
            },
        )

    @property
    def item(self) -> dict[str, str]:
        """The record without types; empty without one."""
        return {
            name: str(next(iter(value.values())))
            for item in self.world.items("requests")
            for name, value in item.items()
        }

    @property
    def stored(self) -> tuple[Any, ...]:
        """Everything that is stored, and every execution."""
        tables = [sorted(map(str, self.world.items(table))) for table in ("requests", "log", "tokens")]
        return (*tables, sorted(self.world.executions.by_name), self.sent)

    @property
    def sent(self) -> int:
        """Messages for the operators."""
        asked: Any = {"QueueUrl": self.queues["operators"], "AttributeNames": ["ApproximateNumberOfMessages"]}
        return int(aws.sqs().get_queue_attributes(**asked)["Attributes"]["ApproximateNumberOfMessages"])

    # The stack's resources.

    def answer(self, operation: str, request: AWSPreparedRequest) -> AWSResponse | None:
        """Respond for the services that describe resources; None: another service is called."""
        if operation in self.denied:
            if operation == "DescribeStacks":
                return refused(request, 403, "AccessDenied", "you may not")
            return error_response(request, "AccessDeniedException")
        path = unquote(request.url.partition("?")[0]).split("/")
        match operation:
            case "DescribeStacks":
                return described(request, self.manifests)
            case "GetFunctionConcurrency":
                zero = {"ReservedConcurrentExecutions": 0} if path[-2] in self.at_zero else {}
                return response(request, 200, zero)
            case "GetEventSourceMapping":
                return response(request, 200, {"UUID": path[-1], "State": self.sources[path[-1]]})
            case "DescribeRule":
                asked = body_of(request)
                rule = self.rules[asked["Name"]]
                if rule.get("EventBusName") != asked.get("EventBusName"):
                    return error_response(request, "ResourceNotFoundException")
                return response(request, 200, rule)
            case "ListExecutions":
                return response(request, 200, {"executions": list(self._listed(body_of(request)))})
            case "DescribeStateMachine":
                arn = body_of(request)["stateMachineArn"]
                if arn in self.operated.deleted:
                    return error_response(request, "StateMachineDoesNotExist")
                status = "DELETING" if arn in self.operated.deleting else "ACTIVE"
                return response(request, 200, {"name": arn.rpartition(":")[2], "definition": "{}", "status": status})
            case _:
                return None

    def _listed(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Executions of one state machine and status, the most recent first."""
        recoveries = asked["stateMachineArn"] == RECOVERY_MACHINE_ARN
        for one in reversed(list(self.world.executions.by_name.values())):
            if one.status == asked["statusFilter"] and recoveries == (re.search(r"-[rl]\d+$", one.name) is not None):
                stopped = (one.stopped_ms or NOW_MS + 2_000) / 1_000
                arn = f"{asked['stateMachineArn'].replace(':stateMachine:', ':execution:')}:{one.name}"
                yield {"executionArn": arn, "name": one.name, "status": one.status, "stopDate": stopped}


@contextlib.contextmanager
def checked_stack_in(world: World, monkeypatch: pytest.MonkeyPatch, session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack with a running saga whose record is due in a minute, and its reconciler and sweeper."""
    with operated_saga_in(world, monkeypatch, session, window=86_400) as operated:
        stack = CheckedStack(operated, JobSaga.open(world, monkeypatch, record=False))
        through = BotocoreStubber.__call__

        def send(stubber: Any, event_name: str, request: AWSPreparedRequest, **rest: Any) -> AWSResponse | None:
            operation = event_name.rpartition(".")[2]
            answers = [stack.answer(operation, request)] if not operation.startswith("Send") else [None]
            if answers[0] is not None:
                return world.wire.send(event_name, request, lambda: answers[0])
            return through(stubber, event_name, request, **rest)

        monkeypatch.setattr(BotocoreStubber, "__call__", send)
        made: dict[tuple[str, int], tuple[Any, Any]] = {}

        def client(service: Any, config: Any = None) -> Any:
            """One per configuration, which is kept, with its identity: to make one takes longer than to use it."""
            if (service, id(config)) not in made:
                made[service, id(config)] = session.client(service, config=config), config
            return made[service, id(config)][0]

        monkeypatch.setattr(COMMAND, "session_of", lambda _: SimpleNamespace(client=client))
        for module in (TOKEN_ROWS, TOKEN_WRITES):
            monkeypatch.setattr(module, "TOKEN_DUE_SHARDS", SHARDS)
        monkeypatch.setattr(SCAN, "SEGMENTS", 1)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.delenv("NO_COLOR", raising=False)
        _deploy(stack)
        stack.update(due_shard={"S": SHARD})
        world.wire.forget()
        yield stack


def _deploy(stack: CheckedStack) -> None:
    sqs = aws.sqs()

    def queue(name: str, dead: str = "") -> None:
        policy = json.dumps({"deadLetterTargetArn": queue_arn(dead), "maxReceiveCount": 5})
        arguments: Any = {"Attributes": {"RedrivePolicy": policy}} if dead else {}
        stack.queues[name] = str(sqs.create_queue(QueueName=name, **arguments)["QueueUrl"])

    for name, dead in (
        ("operators", ""),
        ("events-dead", ""),
        ("events", "events-dead"),
        ("jobs-dead", ""),
        ("jobs", "jobs-dead"),
    ):
        queue(name, dead)
    create_hold_table()
    served: dict[str, Any] = {
        "machine": "Transfers",
        "requests": "requests",
        "shards": SHARDS,
        "log": "log",
        "days": DAYS,
        "operators": stack.queues["operators"],
        "tokens": {"tokens": ["Pick"]},
    }
    pick = {"name": "Pick", "side": "before", "external": True, "grace": 0, "jobs": True}
    jobs = {"queue": stack.queues["jobs"], "dead": stack.queues["jobs-dead"]}
    stack.manifests["Shop"] = manifest(
        sagas=[saga_entry(shards=SHARDS, operators=stack.queues["operators"], steps=[pick], always=["Pick"])],
        reconcilers=[{"function": "Reconciler", "hold": SWITCH, "limit": LIMIT, "serves": [served]}],
        tokens=[{"table": "tokens", "function": "Sweeper"}],
        integrations=[{"path": "Shop/Warehouse", "table": "tokens", **jobs}],
        functions=[
            {"name": "Reconciler", "role": "the reconciler"},
            {"name": "Gatekeeper", "role": "the gatekeeper"},
            {"name": "Sweeper", "role": "the sweeper of tokens"},
            {"name": "Dispatcher", "role": "the dispatcher of callbacks"},
        ],
        rules=[
            {"name": "Schedule", "scheduled": True, "function": "Reconciler"},
            {"name": "Measure", "scheduled": True, "measures": True, "function": "Reconciler"},
            {"name": "Ended", "queue": "events"},
            {"name": "Sweeps", "scheduled": True, "function": "Sweeper"},
        ],
        sources=[{"uuid": MAPPING, "queue": "events", "function": "Reconciler"}],
        queues=[
            {"url": stack.queues["events-dead"], "role": "events"},
            {"url": stack.queues["jobs-dead"], "role": "jobs"},
        ],
    )
    stack.rules |= {name: {"State": "ENABLED"} for name in ("Schedule", "Measure", "Ended", "Sweeps")}
    stack.sources[MAPPING] = "Enabled"


def create_hold_table() -> None:
    """The table of the reconciler's switch, keyed as the construct keys it."""
    client: Any = aws.dynamodb()
    client.create_table(
        TableName=SWITCH,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": HoldAttribute.ID, "AttributeType": "S"}],
        KeySchema=[{"AttributeName": HoldAttribute.ID, "KeyType": "HASH"}],
    )


def create_watch_table() -> None:
    """The table of what is kept of hand-written state machines, keyed as the construct keys it."""
    client: Any = aws.dynamodb()
    keys = [(WatchAttribute.ID, "S"), (WatchAttribute.DUE_SHARD, "S"), (WatchAttribute.DUE_AT, "N")]
    index = [
        {"AttributeName": name, "KeyType": role} for (name, _), role in zip(keys[1:], ("HASH", "RANGE"), strict=True)
    ]
    client.create_table(
        TableName="watch",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in keys],
        KeySchema=[{"AttributeName": keys[0][0], "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {"IndexName": DUE_INDEX, "KeySchema": index, "Projection": {"ProjectionType": "KEYS_ONLY"}}
        ],
    )
