"""Claims about AWS that money depends on, each with the probe that checks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore.exceptions import ClientError

from saga_runtime.recovery.callers import caller_of, prove
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.shared.aws import clients_of

from .resources import Account

_PATIENCE: Final = 120
"""Seconds for which an execution may run."""
_PAYLOAD: Final = 262_144
_TWICE: Final = "{% [$states.input.text, $states.input.text] %}"
_METRICS: Final = 10
"""Minutes for which a metric may be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Behaviour of AWS at one claim.

    Attributes:
        claim: what this project relies on, or, with ``open``, does not know.
        observed: what happened.
        holds: whether the claim holds; None: nothing was claimed.
    """

    claim: str
    observed: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """One word."""
        return "open" if self.holds is None else "proven" if self.holds else "contradicted"


Probe = Callable[[Account], Iterator[Found]]


def heartbeats(account: Account) -> Iterator[Found]:
    """A heartbeat that is lost, and lost again where a retry follows."""
    retry = [{"ErrorEquals": ["States.HeartbeatTimeout"], "IntervalSeconds": 1, "MaxAttempts": 1, "BackoffRate": 1}]
    waiting = {**_waiting(account), "HeartbeatSeconds": 5, "Retry": retry, "End": True}
    arn = account.machine("heartbeat", {"Wait": waiting})
    states = account.client("stepfunctions")
    execution = states.start_execution(stateMachineArn=arn, input="{}")["executionArn"]
    error, lost = _ended(account, execution).get("error"), "States.Timeout"
    yield _found("an execution that lost a heartbeat ends with error States.Timeout", error, lost)
    events = states.get_execution_history(executionArn=execution, maxResults=1_000)["events"]
    timed_out = [event["taskTimedOutEventDetails"]["error"] for event in events if event["type"] == "TaskTimedOut"]
    yield _found("its history has TaskTimedOut with error States.Timeout", sorted({*timed_out}), [lost])
    attempts = sum(event["type"] == "TaskScheduled" for event in events)
    yield Found(claim="whether a Retry on States.HeartbeatTimeout matches", observed=f"{attempts} attempts", holds=None)
    messages = _messages(account, attempts)
    yield _found("each attempt has a token of its own", len({one["token"] for one in messages}), attempts)
    counts = sorted(message["retries"] for message in messages)
    yield _found("RetryCount is 0 for the first attempt and grows", counts, list(range(attempts)))
    refusal = _refusal(account.client("stepfunctions"), messages[0]["token"])
    yield _found("an answer after the time-out is refused as TaskTimedOut", refusal, "TaskTimedOut")


def tokens(account: Account) -> Iterator[Found]:
    """Answers to tasks."""
    yield _found(
        "a token that was never given out is refused as InvalidToken",
        _refusal(account.client("stepfunctions"), "none"),
        "InvalidToken",
    )
    arn = account.machine("token", {"Wait": {**_waiting(account), "TimeoutSeconds": 60, "End": True}})
    states = account.client("stepfunctions")
    execution = states.start_execution(stateMachineArn=arn, input="{}")["executionArn"]
    (message,) = _messages(account, 1)
    states.send_task_success(taskToken=message["token"], output="{}")
    yield _found("a task that is answered ends its execution", _ended(account, execution)["status"], "SUCCEEDED")
    yield _found(
        "a second answer is refused as TaskTimedOut",
        _refusal(account.client("stepfunctions"), message["token"]),
        "TaskTimedOut",
    )


def names(account: Account) -> Iterator[Found]:
    """Names of executions."""
    arn = account.machine("name", {"Wait": {"Type": "Wait", "Seconds": 30, "Next": "End"}, "End": {"Type": "Succeed"}})
    states = account.client("stepfunctions")

    def start(text: str) -> str:
        try:
            return str(states.start_execution(stateMachineArn=arn, name="one", input=text)["executionArn"])
        except ClientError as error:
            return str(error.response["Error"]["Code"])

    first = start("{}")
    yield _found("the same name and input start nothing new while it runs", start("{}"), first)
    taken = "ExecutionAlreadyExists"
    yield _found("another input under a name that runs is refused", start('{"a":1}'), taken)
    states.stop_execution(executionArn=first, error="Stopped", cause="by the probe")
    described = _ended(account, first)
    yield _found("an execution that was stopped is ABORTED", described["status"], "ABORTED")
    yield _found("a name that was used is refused after the end", start("{}"), taken)


def aliases(account: Account) -> Iterator[Found]:
    """Executions that an alias starts."""
    states, machine = account.client("stepfunctions"), account.machine("alias", _writes("earlier"))
    ends = {"stateMachineArn": [machine], "status": ["SUCCEEDED"]}
    account.event_rule("ended", {"source": ["aws.states"], "detail": ends})
    version = states.publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]
    route = [{"stateMachineVersionArn": version, "weight": 100}]
    alias = states.create_state_machine_alias(name="live", routingConfiguration=route)["stateMachineAliasArn"]
    account.update_machine(machine, _writes("later"))
    execution = states.start_execution(stateMachineArn=alias, name="one", input="{}")["executionArn"]
    under_machine = f"{machine.replace(':stateMachine:', ':execution:')}:one"
    yield _found("an execution that an alias starts has the ARN of its state machine's", execution, under_machine)
    described = _ended(account, execution)
    yield _found("it runs the version of its alias", described.get("output"), '"earlier"')
    names = ["stateMachineArn", "stateMachineVersionArn", "stateMachineAliasArn"]
    named = [described.get(name) for name in names]
    yield _found("it is described with state machine, version and alias", named, [machine, version, alias])
    try:
        again = states.start_execution(stateMachineArn=machine, name="one", input="{}")["executionArn"]
    except ClientError as error:
        again = error.response["Error"]["Code"]
    yield _found("its name is taken for its state machine", again, "ExecutionAlreadyExists")
    listed = [one["executionArn"] for one in states.list_executions(stateMachineArn=machine)["executions"]]
    yield _found("it is in the list of its state machine's executions", listed, [execution])
    ended = [one["detail"]["executionArn"] for one in _messages(account, 1)]
    yield _found("its status event names the state machine without its alias", ended, [execution])
    states.delete_state_machine_alias(stateMachineAliasArn=alias)
    try:
        states.start_execution(stateMachineArn=alias, input="{}")
        refused = "accepted"
    except ClientError as error:
        refused = error.response["Error"]["Code"]
    gone = refused in ("StateMachineDoesNotExist", "ResourceNotFound")
    yield Found(claim="a start by an alias that was deleted is refused as such", observed=refused, holds=gone)
    yield counted(account, machine)


def counted(account: Account, machine: str) -> Found:
    """Metrics of a state machine whose only execution an alias started; where none arrives, nothing is known."""
    cloudwatch, under_machine = account.client("cloudwatch"), [{"Name": "StateMachineArn", "Value": machine}]
    found: list[Any] = []
    for _ in range(_METRICS * 6):
        pages = cloudwatch.get_paginator("list_metrics").paginate(
            Namespace="AWS/States", MetricName="ExecutionsStarted"
        )
        metrics = [one["Dimensions"] for page in pages for one in page["Metrics"]]
        found = [dimensions for dimensions in metrics if machine in str(dimensions)]
        if under_machine in found:
            break
        account.sleep(10)
    return Found(
        claim="it counts in the metrics of its state machine",
        observed=str(found) if found else f"no metric within {_METRICS} minutes",
        holds=under_machine in found if found else None,
    )


def sizes(account: Account) -> Iterator[Found]:
    """Payloads at their limit."""
    arn = account.machine(
        "size",
        {
            "Grow": {
                "Type": "Pass",
                "Output": _TWICE,
                "End": True,
            }
        },
    )
    states = account.client("stepfunctions")
    fits = json.dumps({"text": "x" * (_PAYLOAD - 20)})
    execution = states.start_execution(stateMachineArn=arn, input=fits)["executionArn"]
    described = _ended(account, execution)
    yield _found(
        "an output above 262,144 bytes ends with States.DataLimitExceeded",
        described.get("error"),
        "States.DataLimitExceeded",
    )
    caught = {"ErrorEquals": ["States.ALL"], "Next": "Write"}
    branch = {"StartAt": "Grow", "States": {"Grow": {"Type": "Pass", "Output": _TWICE, "End": True}}}
    grows = {"Grows": {"Type": "Parallel", "Branches": [branch], "Catch": [caught], "End": True}, **_writes("caught")}
    grown = _ended(account, _started(account, account.machine("size-caught", grows), fits))
    observed = grown.get("output") or grown.get("error")
    yield Found(claim="whether States.ALL catches States.DataLimitExceeded", observed=str(observed), holds=None)
    try:
        states.start_execution(stateMachineArn=arn, input=json.dumps({"text": "x" * _PAYLOAD}))
        refused = "accepted"
    except ClientError as error:
        refused = error.response["Error"]["Code"]
    yield _found(
        "an input above 262,144 bytes is refused", refused in ("InvalidExecutionInput", "ValidationException"), True
    )


def expressions(account: Account) -> Iterator[Found]:
    """Expressions that fail, and how deep one nests."""
    for terms in (100, 101):
        arn = account.machine(f"levels-{terms}", _writes(f"{{% {'+'.join(['1'] * terms)} %}}"))
        described = _ended(account, _started(account, arn))
        if terms == 100:
            yield _found("an expression of 100 levels is evaluated", described.get("output"), "100")
        else:
            error = described.get("error")
            yield _found("one of 101 ends with States.QueryEvaluationError", error, "States.QueryEvaluationError")
    fails = "{% $lowercase(7) %}"
    for name in ("Arguments", "Assign", "Output"):
        arguments = {"TableName": account.table, "Item": {"id": {"S": fails if name == "Arguments" else "one"}}}
        put = {
            "Type": "Task",
            "Resource": "arn:aws:states:::dynamodb:putItem",
            "Arguments": arguments,
            **({} if name == "Arguments" else {name: {"value": fails}}),
            "Catch": [{"ErrorEquals": ["States.QueryEvaluationError"], "Next": "Write"}],
            "End": True,
        }
        arn = account.machine(f"fails-{name.lower()}", {"Put": put, **_writes("caught")})
        output = _ended(account, _started(account, arn)).get("output")
        yield _found(f"an expression that fails in {name} of a task is caught by that name", output, '"caught"')
    rule = {"Condition": "{% 0/0 > 5 or 0/0 <= 5 %}", "Next": "Write"}
    states = {"Divide": {"Type": "Choice", "Choices": [rule], "Default": "Other"}, **_writes("true")}
    arn = account.machine("divides", {**states, "Other": {"Type": "Pass", "Output": "false", "End": True}})
    described = _ended(account, _started(account, arn))
    observed = described.get("output") or described.get("error")
    yield Found(claim="what a condition on 0/0 is", observed=str(observed), holds=None)


def error_names(account: Account) -> Iterator[Found]:
    """Names of a failed condition, by integration."""
    for integration, name in (
        ("arn:aws:states:::dynamodb:putItem", "DynamoDB.ConditionalCheckFailedException"),
        ("arn:aws:states:::aws-sdk:dynamodb:putItem", "DynamoDb.ConditionalCheckFailedException"),
    ):
        arguments = {
            "TableName": account.table,
            "Item": {"id": {"S": "one"}},
            "ConditionExpression": "attribute_exists(id)",
        }
        put = {"Type": "Task", "Resource": integration, "Arguments": arguments, "End": True}
        arn = account.machine("sdk" if "aws-sdk" in integration else "optimized", {"Put": put})
        execution = account.client("stepfunctions").start_execution(stateMachineArn=arn, input="{}")["executionArn"]
        yield _found(f"a failed condition of {integration} is {name}", _ended(account, execution).get("error"), name)


def narrow_roles(account: Account) -> Iterator[Found]:
    """A role that may answer the tasks of one state machine."""
    states = {"Wait": {**_waiting(account), "TimeoutSeconds": 60, "End": True}}
    machines = [account.machine(name, states) for name in ("answered", "not-answered")]
    caller = account.session.client("sts").get_caller_identity()["Account"]
    role = account.role("answers", {"AWS": caller}, {"states:SendTaskSuccess": machines[0]})
    assumed = account.session.client("sts").assume_role(RoleArn=role, RoleSessionName="verify")["Credentials"]
    client = boto3.Session(
        assumed["AccessKeyId"],
        assumed["SecretAccessKey"],
        assumed["SessionToken"],
        region_name=account.session.region_name,
    ).client("stepfunctions")
    for arn, claim, wanted in zip(
        machines,
        ("a role that may answer a state machine's tasks answers them", "it does not answer another machine's"),
        ("accepted", "AccessDeniedException"),
        strict=True,
    ):
        account.client("stepfunctions").start_execution(stateMachineArn=arn, input="{}")
        (message,) = _messages(account, 1)
        yield _found(claim, _refusal(client, message["token"]), wanted)


def outputs(account: Account) -> Iterator[Found]:
    """An output of a stack as large as the manifest of a large app."""
    handle = {"Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}
    for size in (12_000, 48_000):
        value = "x" * size
        name = account.stack(f"output-{size}", {"Resources": handle, "Outputs": {"Large": {"Value": value}}})
        described = account.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]["Outputs"]
        kept = [len(one["OutputValue"]) for one in described]
        yield _found(f"an output of {size:,} characters is kept and described whole", kept, [size])


def identities(account: Account) -> Iterator[Found]:
    """Proofs of who asks a function: signed by a caller, sent to STS by the function."""
    function = f"{account.role_arn}/no-function"
    proof = prove(account.client("sts"), account.session.get_credentials(), function, "one request")
    with clients_of(account.session):
        caller = caller_of(proof, function, "one request")
        own = account.session.client("sts").get_caller_identity()
        yield _found("STS answers who signed a request that another sends", caller.arn, own["Arn"])
        yield _found("its user id is the caller's", caller.user_id, own["UserId"])
        try:
            observed = caller_of(proof, function, "another request").arn
        except CannotResolve as refusal:
            observed = str(refusal)
        claim = "STS refuses a signature of another request, as SignatureDoesNotMatch"
        yield Found(claim=claim, observed=observed, holds="SignatureDoesNotMatch" in observed)


def _found(claim: str, observed: Any, wanted: Any) -> Found:
    return Found(claim=claim, observed=str(observed), holds=bool(observed == wanted))


def _waiting(account: Account) -> dict[str, Any]:
    body = {"token": "{% $states.context.Task.Token %}", "retries": "{% $states.context.State.RetryCount %}"}
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {"QueueUrl": account.queue_url, "MessageBody": body},
        "TimeoutSeconds": 60,
    }


def _writes(output: str) -> dict[str, Any]:
    return {"Write": {"Type": "Pass", "Output": output, "End": True}}


def _started(account: Account, arn: str, text: str = "{}") -> str:
    return str(account.client("stepfunctions").start_execution(stateMachineArn=arn, input=text)["executionArn"])


def _messages(account: Account, count: int) -> list[dict[str, Any]]:
    """Take messages from the queue."""
    sqs = account.client("sqs")
    found: list[dict[str, Any]] = []
    for _ in range(_PATIENCE // 10):
        answer = sqs.receive_message(QueueUrl=account.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=10)
        for message in answer.get("Messages", ()):
            sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=message["ReceiptHandle"])
            found.append(json.loads(message["Body"]))
        if len(found) >= count:
            break
    return found


def _refusal(states: Any, token: str) -> str:
    try:
        states.send_task_success(taskToken=token, output="{}")
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "accepted"


def _ended(account: Account, execution: str) -> dict[str, Any]:
    """Describe an execution after its end."""
    states = account.client("stepfunctions")
    described: dict[str, Any] = states.describe_execution(executionArn=execution)
    for _ in range(_PATIENCE):
        if described["status"] != "RUNNING":
            break
        account.sleep(1)
        described = states.describe_execution(executionArn=execution)
    return described


PROBES: Final[dict[str, Probe]] = {
    "heartbeats": heartbeats,
    "task tokens": tokens,
    "error names": error_names,
    "stopped executions and names": names,
    "payload sizes": sizes,
    "expressions": expressions,
    "identities of operators": identities,
    "roles for one state machine": narrow_roles,
    "large outputs": outputs,
    "aliases of state machines": aliases,
}
"""In the order of what depends on them."""
BY_HAND: Final = (
    "a first deployment into a fresh region, `cdk diff` and drift after it, a second stack, and one that is deleted",
    "the reconciler's `GetItem` with `dynamodb:Attributes`: allowed with the projection, denied without",
    "the demo against the deployed API: conflicts, latencies, cold starts; audits of an export",
    "each row of the HTTP reference by a real request: signature, token, size, rate, throttled and slow function",
    "errors of Lambda by name: killed, timed out, out of memory, throttled",
    "an update while executions run; a start within seconds of it",
    "time to live, restore, keys, traces, metrics, alarms",
    "an event source batch with an unknown `itemIdentifier`; dead-letter queues and their redrive",
    "an event source of a queue whose function has a concurrency of 0",
    "a function at log level WARN: which of its lines, and of its metrics, are left",
    "a table that is restored to a moment of many transactions: which of them it has in part",
    "`cdk-sagas doctor`, `inspect`, `callbacks`, `recover` with operators' credentials, and `RedriveExecution`",
)
"""Claims that need a deployed stack: not automated."""
