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
from urllib.parse import parse_qs, unquote

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse
from moto.core.models import DEFAULT_ACCOUNT_ID

from constructs_lib.cli.main import main
from saga_runtime.protocol import (
    DUE_INDEX,
    Env,
    HoldAttribute,
    LogAttribute,
    ReconciledField,
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
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import ACCOUNT, DAY_MS, MACHINE_ARN, NOW_MS, RECOVERY_MACHINE_ARN, REQUEST_ID, SAGA_ID
from tests.unit.support.wire import body_of, error_response, response
from tests.unit.support.world import World

COMMAND = import_module("constructs_lib.cli.doctor.command")
SCAN = import_module("constructs_lib.cli.doctor.scan")
TOKEN_ROWS = import_module("constructs_lib.cli.callbacks.rows")
TOKEN_WRITES = import_module("saga_runtime.callbacks.writes")
NESTED = f"arn:aws:cloudformation:eu-central-1:{ACCOUNT}:stack/Shop-Inner/1"
MAPPING = "5f0e2c1a-0000-4000-8000-000000000001"
"""Id of what hands status events to the reconciler."""
LIMIT = 3
SWITCH = "hold"
"""The table whose item may hold the reconciler."""
DAYS = 400
TIMEOUT_SECONDS = 14_400
REMEMBER_SECONDS = settling.REMEMBER_SECONDS
SHARDS, SHARD = 2, "01"
"""Of the index of records: every query takes its time here."""
READS = frozenset(
    {
        "BatchGetItem",
        "DescribeExecution",
        "DescribeRule",
        "DescribeStateMachine",
        "DescribeTable",
        "GetEventSourceMapping",
        "GetFunctionConcurrency",
        "GetFunctionConfiguration",
        "GetFunctionEventInvokeConfig",
        "GetItem",
        "GetQueueAttributes",
        "ListExecutions",
        "ListStackResources",
        "ListTargetsByRule",
        "Query",
        "Scan",
    }
)
"""Operations that change nothing."""
_ARN = f"arn:aws:{{}}:eu-central-1:{ACCOUNT}:{{}}"
_XML = "http://cloudformation.amazonaws.com/doc/2010-05-15/"


def function_arn(name: str) -> str:
    """ARN of a function."""
    return _ARN.format("lambda", f"function:{name}")


def queue_arn(name: str) -> str:
    """ARN of a queue, in the account in which moto makes them."""
    return f"arn:aws:sqs:eu-central-1:{DEFAULT_ACCOUNT_ID}:{name}"


def definition(recovery: bool = False) -> dict[str, Any]:
    """A saga's definition, as far as the doctor reads it."""
    settle = settling.settle(request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.COMPLETED, now_ms=0)
    settle["ExpressionAttributeValues"][":expiration"] = {
        "N": f"{{% $string($floor($millis() / 1000) + {REMEMBER_SECONDS}) %}}"
    }
    told = {"step": "Pick", "log_table": "log", "log_days": DAYS, "side": "before", "token": "t"}
    told |= {"provider": {"grace": 0}}
    return {
        "Comment": f"cdk-sagas protocol 1, definition 0123456789abcdef{', recovery' if recovery else ''}",
        "TimeoutSeconds": TIMEOUT_SECONDS,
        "StartAt": "Pick",
        "States": {
            "Pick": {"Type": "Task", "Arguments": {"MessageBody": told}, "Next": "Settle completed"},
            "Settle completed": {"Type": "Task", "Arguments": settle},
            "Notify operators": {"Type": "Task", "Arguments": {"QueueUrl": "{operators}", "MessageBody": "x"}},
        },
    }


@dataclass
class CheckedStack:
    """A stack, and the command that checks it.

    Attributes:
        functions: environments by name.
        at_zero: functions with a reserved concurrency of 0.
        failures: dead-letter queues, by the functions' names.
        rules: by name: state, schedule, and targets.
        sources: state, queue and function, by id.
        machines: definitions by ARN.
        denied: operations that are refused.
        secret: functions whose environment is encrypted with a key that may not be used.
        unseen: functions that may not be read.
        nested: whether all resources are in a nested stack.
        elsewhere: names of the resources in a stack of their own.
        queues: URLs by name.
    """

    operated: OperatedSaga
    job_saga: JobSaga
    functions: dict[str, dict[str, str]] = field(default_factory=dict)
    at_zero: set[str] = field(default_factory=set)
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, dict[str, str]] = field(default_factory=dict)
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    secret: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    nested: bool = False
    elsewhere: set[str] = field(default_factory=set)
    queues: dict[str, str] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The runtime's surroundings."""
        return self.operated.world

    def run(self, *words: str, system: tuple[str, ...] = ("--stack", "Shop")) -> tuple[int, str, str]:
        """Run the command: its exit status, its output and its errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(["doctor", *system, *words])
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
                a.ATTEMPT: {"S": "attempt"},
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
            if operation == "ListStackResources":
                return _xml(request, 403, _error("AccessDenied", "you may not"))
            return error_response(request, "AccessDeniedException")
        if operation.startswith("GetFunction"):
            return self._function(operation, request)
        path = unquote(request.url.partition("?")[0]).split("/")
        match operation:
            case "ListStackResources":
                return self._resources(request)
            case "GetEventSourceMapping":
                return response(request, 200, {"UUID": path[-1], **self.sources[path[-1]]})
            case "DescribeRule":
                asked = body_of(request)
                rule = self.rules[asked["Name"]]
                if rule.get("EventBusName") != asked.get("EventBusName"):
                    return error_response(request, "ResourceNotFoundException")
                return response(request, 200, {name: rule[name] for name in rule if name != "Targets"})
            case "ListTargetsByRule":
                targets = self.rules[body_of(request)["Rule"]]["Targets"]
                entries = [{"Id": str(place), **target} for place, target in enumerate(targets)]
                return response(request, 200, {"Targets": entries})
            case "ListExecutions":
                return response(request, 200, {"executions": list(self._listed(body_of(request)))})
            case "DescribeStateMachine":
                arn = body_of(request)["stateMachineArn"]
                if arn in self.operated.deleted:
                    return error_response(request, "StateMachineDoesNotExist")
                text = json.dumps(self.machines[arn]).replace("{operators}", self.queues["operators"])
                status = "DELETING" if arn in self.operated.deleting else "ACTIVE"
                said = {"name": arn.rpartition(":")[2], "definition": text, "status": status}
                return response(request, 200, said)
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

    def _function(self, operation: str, request: AWSPreparedRequest) -> AWSResponse:
        name = unquote(request.url.partition("?")[0]).split("/")[-2]
        if name in self.unseen:
            return error_response(request, "AccessDeniedException")
        match operation:
            case "GetFunctionConfiguration":
                environment: dict[str, Any] = {"Variables": self.functions[name]}
                if name in self.secret:
                    environment = {"Error": {"ErrorCode": "AccessDeniedException", "Message": "not this key"}}
                told = {"FunctionName": name, "FunctionArn": function_arn(name), "Environment": environment}
                return response(request, 200, told)
            case "GetFunctionConcurrency":
                zero = {"ReservedConcurrentExecutions": 0} if name in self.at_zero else {}
                return response(request, 200, zero)
            case _ if name in self.failures:
                kept = {"OnFailure": {"Destination": queue_arn(self.failures[name])}}
                return response(request, 200, {"DestinationConfig": kept})
            case _:
                return error_response(request, "ResourceNotFoundException")

    def _resources(self, request: AWSPreparedRequest) -> AWSResponse:
        asked = parse_qs(request.body.decode() if isinstance(request.body, bytes) else str(request.body))
        name = asked["StackName"][0]
        if name not in ("Shop", "Care", NESTED):
            return _xml(request, 400, _error("ValidationError", "Stack with id Bar does not exist"))
        ids = [("AWS::Lambda::Function", name) for name in self.functions]
        ids += [("AWS::Events::Rule", name) for name in self.rules]
        ids += [("AWS::Lambda::EventSourceMapping", name) for name in self.sources]
        ids += [("AWS::StepFunctions::StateMachine", arn) for arn in self.machines]
        ids += [("AWS::SQS::Queue", url) for url in self.queues.values()]
        ids += [("AWS::Lambda::EventInvokeConfig", f"{name}|$LATEST") for name in self.failures]
        ids += [("AWS::IAM::Role", "Role"), ("AWS::Events::EventBus", "bus-1"), ("AWS::Events::EventBus", "bus-2")]
        ids = [one for one in ids if (one[1] in self.elsewhere) == (name == "Care")]
        if self.nested and name == "Shop":
            ids = [("AWS::CloudFormation::Stack", NESTED)]
        members = "".join(
            f"<member><LogicalResourceId>L{place}</LogicalResourceId><PhysicalResourceId>{name}</PhysicalResourceId>"
            f"<ResourceType>{kind}</ResourceType><ResourceStatus>CREATE_COMPLETE</ResourceStatus></member>"
            for place, (kind, name) in enumerate(ids)
        )
        result = f"<StackResourceSummaries>{members}</StackResourceSummaries>"
        text = f"<ListStackResourcesResult>{result}</ListStackResourcesResult>"
        return _xml(request, 200, f'<ListStackResourcesResponse xmlns="{_XML}">{text}</ListStackResourcesResponse>')


def _error(code: str, message: str) -> str:
    said = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
    return f"<ErrorResponse><Error>{said}</Error></ErrorResponse>"


def _xml(request: AWSPreparedRequest, status: int, text: str) -> AWSResponse:
    body: Any = MockRawResponse(text)
    headers: Any = {"Content-Type": "text/xml"}
    return AWSResponse(request.url, status, headers, body)


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
        made: dict[tuple[str, int], Any] = {}

        def client(service: Any, config: Any) -> Any:
            """One per configuration: to make one takes longer than to use it."""
            if (service, id(config)) not in made:
                made[service, id(config)] = session.client(service, config=config)
            return made[service, id(config)]

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
    f = ReconciledField
    told: dict[str, Any] = {
        f.MACHINE: "Transfers",
        f.REQUESTS: "requests",
        f.SHARDS: SHARDS,
        f.LOG: "log",
        f.DAYS: DAYS,
        f.OPERATORS: stack.queues["operators"],
        f.TOKENS: {"tokens": ["Pick"]},
    }
    gatekeeper: dict[str, str] = {
        Env.STATE_MACHINE_ARN: MACHINE_ARN,
        Env.REQUEST_TABLE: "requests",
        Env.LOG_TABLE: "log",
        Env.DUE_SHARDS: str(SHARDS),
    }
    stack.functions |= {
        "Reconciler": {
            Env.RECONCILED: json.dumps([told]),
            Env.RECOVERIES_LIMIT: str(LIMIT),
            Env.HOLD_TABLE: SWITCH,
        },
        "Gatekeeper": gatekeeper,
        "Sweeper": {Env.TOKEN_TABLE: "tokens"},
        "Dispatcher": {
            Env.TOKEN_TABLE: "tokens",
            Env.INTEGRATION: "Shop/Warehouse",
            Env.DEAD_LETTERS: stack.queues["jobs-dead"],
        },
    }
    stack.rules |= {
        "Schedule": _rule(function_arn("Reconciler"), ScheduleExpression="rate(1 minute)"),
        "Ended": _rule(queue_arn("events"), EventPattern="{}"),
        "Sweeps": _rule(function_arn("Sweeper"), ScheduleExpression="rate(1 minute)"),
        "Measure": _rule(function_arn("Reconciler"), ScheduleExpression="rate(5 minutes)"),
        "Elsewhere": _rule(function_arn("Others"), ScheduleExpression="rate(1 day)") | {"State": "DISABLED"},
    }
    stack.rules["Measure"]["Targets"][0]["Input"] = '{"look":"in-flight"}'
    stack.sources[MAPPING] = {
        "State": "Enabled",
        "EventSourceArn": queue_arn("events"),
        "FunctionArn": function_arn("Reconciler"),
    }
    stack.machines |= {MACHINE_ARN: definition(), RECOVERY_MACHINE_ARN: definition(recovery=True)}


def _rule(target: str, **what: str) -> dict[str, Any]:
    return {"State": "ENABLED", **what, "Targets": [{"Arn": target}]}


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
