"""Callbacks behave as on AWS where the bare emulator does not: each test fails without its correction."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import LocalAws

from .resources import create_queue, next_message, start, waiting_task
from .support import Emulators, await_end, create_machine, eventually, run_machine

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module")
def fast() -> Iterator[LocalAws]:
    """Corrected local AWS, ten times faster than real time."""
    with LocalAws(speed=10) as aws:
        yield aws


@pytest.fixture
def aws(fast: LocalAws) -> LocalAws:
    """The same, emptied."""
    fast.reset()
    return fast


def answer(aws: LocalAws, token: str, kind: str = "success", client: Any = None, **fields: str) -> str:
    """Call back, and return "ok" or the code of the refusal."""
    states = client or aws.client("stepfunctions")
    if kind == "success":
        fields.setdefault("output", "{}")
    try:
        getattr(states, f"send_task_{kind}")(taskToken=token, **fields)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "ok"


def test_a_message_contains_its_attempt(aws: LocalAws) -> None:
    queue = create_queue(aws)
    retry = [{"ErrorEquals": ["Again"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    machine = create_machine(aws, {"Ask": waiting_task(queue, Retry=retry, Output="{% $states.result %}", End=True)})
    execution = start(aws, machine)

    first = next_message(aws, queue)
    answer(aws, first["token"], "failure", error="Again")
    second = next_message(aws, queue)
    answer(aws, second["token"], output='{"output": {"parcel": "é"}}')

    assert await_end(aws, execution)["output"] == {"output": {"parcel": "é"}}
    assert (first["retried"], second["retried"], first["redriven"]) == (0, 1, 0)
    assert first["token"] != second["token"]
    assert first["entered"] == second["entered"]
    assert ISO.fullmatch(first["entered"])
    assert ISO.fullmatch(first["started"])


def test_tokens_have_the_length_and_alphabet_of_those_of_aws(aws: LocalAws, emulators: Emulators) -> None:
    """A token needs escaping in a URL, a key or an attribute."""
    queue = create_queue(aws)
    start(aws, create_machine(aws, {"Ask": waiting_task(queue, End=True)}))
    token = next_message(aws, queue)["token"]
    bare = emulators.without("callback-tasks", speed=10).aws
    queue = create_queue(bare)
    start(bare, create_machine(bare, {"Ask": waiting_task(queue, End=True)}))
    short = next_message(bare, queue)["token"]

    assert 700 < len(token) <= 2048
    assert {"+", "/", "="} <= set(token)
    assert len(short) < 40


def test_a_failure_reaches_the_catch_with_its_cause_as_given(aws: LocalAws) -> None:
    queue = create_queue(aws)
    catch = [{"ErrorEquals": ["OutOfStock"], "Output": "{% $states.errorOutput %}", "Next": "Caught"}]
    states = {"Ask": waiting_task(queue, Catch=catch, End=True), "Caught": {"Type": "Succeed"}}
    execution = start(aws, create_machine(aws, states))

    cause = '{"errorMessage": "none left: é"}'
    answer(aws, next_message(aws, queue)["token"], "failure", error="OutOfStock", cause=cause)

    assert await_end(aws, execution)["output"] == {"Error": "OutOfStock", "Cause": cause}


def test_tasks_side_by_side_and_in_a_child_wait_for_their_own_callbacks(aws: LocalAws) -> None:
    queue = create_queue(aws)
    child = create_machine(aws, {"Ask": waiting_task(queue, End=True)})
    nested = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Arguments": {"StateMachineArn": child, "Input": {}},
        "Output": "{% $states.result.Output %}",
        "End": True,
    }
    each = {"StartAt": "Item", "States": {"Item": waiting_task(queue, End=True)}}
    items = {"Type": "Map", "Items": [1, 2], "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **each}}
    branches = [
        {"StartAt": "Child", "States": {"Child": nested}},
        {"StartAt": "Items", "States": {"Items": {**items, "End": True}}},
    ]
    execution = start(aws, create_machine(aws, {"Both": {"Type": "Parallel", "Branches": branches, "End": True}}))

    messages = [next_message(aws, queue) for _ in range(3)]
    for message in messages:
        assert ISO.fullmatch(message["entered"])
        assert answer(aws, message["token"], output='{"done": true}') == "ok"

    assert len({message["token"] for message in messages}) == 3
    assert await_end(aws, execution)["output"] == [{"done": True}, [{"done": True}, {"done": True}]]


def test_a_parent_continues_after_a_child_that_it_waited_for(aws: LocalAws) -> None:
    """The child runs in the parent's thread, whose end is not that of the parent."""
    child = create_machine(aws, {"Done": {"Type": "Succeed", "Output": {"from": "child"}}})
    nested = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Arguments": {"StateMachineArn": child, "Input": {}},
        "Output": "{% $states.result.Output %}",
        "End": True,
    }

    assert run_machine(aws, {"Child": nested})["output"] == {"from": "child"}


@pytest.mark.parametrize("kind", ["success", "failure", "heartbeat"])
def test_a_token_of_a_stopped_execution_is_refused(aws: LocalAws, kind: str) -> None:
    queue = create_queue(aws)
    execution = start(aws, create_machine(aws, {"Ask": waiting_task(queue, End=True)}))
    token = next_message(aws, queue)["token"]

    aws.client("stepfunctions").stop_execution(executionArn=execution)

    assert answer(aws, token, kind) == "TaskTimedOut"


@pytest.mark.parametrize("kind", ["success", "failure", "heartbeat"])
def test_a_token_of_a_timed_out_task_is_refused(aws: LocalAws, kind: str) -> None:
    queue = create_queue(aws)
    execution = start(aws, create_machine(aws, {"Ask": waiting_task(queue, TimeoutSeconds=2, End=True)}))
    token = next_message(aws, queue)["token"]

    assert await_end(aws, execution)["error"] == "States.Timeout"
    assert answer(aws, token, kind) == "TaskTimedOut"


def test_one_of_several_concurrent_outcomes_is_accepted(aws: LocalAws) -> None:
    queue = create_queue(aws)
    execution = start(aws, create_machine(aws, {"Ask": waiting_task(queue, End=True)}))
    token = next_message(aws, queue)["token"]
    together, said = threading.Barrier(8), {}

    def call_back(number: int) -> None:
        together.wait()
        said[number] = answer(aws, token, output=json.dumps(number))

    threads = [threading.Thread(target=call_back, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(said.values()) == ["TaskTimedOut"] * 7 + ["ok"]
    assert said[await_end(aws, execution)["output"]] == "ok"


def test_an_accepted_outcome_is_never_a_timeout(aws: LocalAws) -> None:
    """Answers that come just as the time is up: each is either accepted and counts, or refused."""
    queue = create_queue(aws)
    machine = create_machine(aws, {"Ask": waiting_task(queue, TimeoutSeconds=1, End=True)})
    for number in range(10):
        execution = start(aws, machine)
        token = next_message(aws, queue)["token"]
        time.sleep(0.082 + number * 0.002)
        accepted = answer(aws, token) == "ok"

        assert (await_end(aws, execution)["status"] == "SUCCEEDED") == accepted


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        ("success", {"output": "{"}, "InvalidOutput"),
        ("success", {"output": json.dumps("x" * 262_143)}, "ValidationException"),
        ("failure", {"error": "e" * 257}, "ValidationException"),
        ("failure", {"cause": "c" * 32_769}, "ValidationException"),
    ],
)
def test_an_outcome_that_aws_refuses_leaves_the_task_waiting(
    aws: LocalAws, kind: str, fields: dict[str, str], code: str
) -> None:
    queue = create_queue(aws)
    start(aws, create_machine(aws, {"Ask": waiting_task(queue, End=True)}))
    token = next_message(aws, queue)["token"]

    assert answer(aws, token, kind, **fields) == code
    assert answer(aws, token) == "ok"


def client_of(aws: LocalAws, name: str, machine: str) -> Any:
    """A client that may answer the tasks of one state machine."""
    iam = aws.client("iam")
    iam.create_user(UserName=name)
    statement = {"Effect": "Allow", "Action": "states:SendTask*", "Resource": machine}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=name, PolicyName="answers", PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=aws.region)
    # AWS has a host of its own for synchronous executions; here there is one for all.
    return session.client("stepfunctions", endpoint_url=aws.endpoint_url)


def test_the_permission_for_one_machine_covers_its_tasks_only(emulators: Emulators) -> None:
    def codes(aws: LocalAws) -> list[str]:
        queue = create_queue(aws)
        mine, other = (create_machine(aws, {"Ask": waiting_task(queue, End=True)}) for _ in range(2))
        client, stranger = client_of(aws, "of-mine", mine), client_of(aws, "of-other", other)
        start(aws, mine)
        token = next_message(aws, queue)["token"]
        tokens = ((stranger, token), (client, token), (client, token), (client, "never-given-out"))
        return [answer(aws, one, client=who) for who, one in tokens]

    assert codes(emulators.corrected.aws) == ["AccessDeniedException", "ok", "TaskTimedOut", "InvalidToken"]
    assert codes(emulators.without("callback-permission").aws) == ["AccessDeniedException"] * 4


def kinds_of_events(aws: LocalAws, execution: str) -> list[str]:
    """Types of an execution's history events."""
    events = aws.client("stepfunctions").get_execution_history(executionArn=execution)["events"]
    return [str(event["type"]) for event in events]


def test_a_failed_item_of_a_map_stops_the_others(emulators: Emulators) -> None:
    """The other waits for its answer until the execution has ended; to the bare emulator, that never happens."""

    def fail_one_of_two(aws: LocalAws) -> tuple[str, str]:
        """Let an item fail: the execution, and the token of the other one, which still waits."""
        queue = create_queue(aws)
        each = {"StartAt": "Item", "States": {"Item": waiting_task(queue, TimeoutSeconds=36_000, End=True)}}
        items = {"Type": "Map", "Items": [1, 2], "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **each}}
        execution = start(aws, create_machine(aws, {"Items": {**items, "End": True}}))
        first, second = (next_message(aws, queue)["token"] for _ in range(2))
        answer(aws, first, "failure", error="Declined")
        return execution, second

    corrected, bare = emulators.fast(10).aws, emulators.without("map-items", speed=10).aws
    execution, other = fail_one_of_two(corrected)
    assert await_end(corrected, execution)["error"] == "Declined"
    assert answer(corrected, other) == "TaskTimedOut"

    execution, other = fail_one_of_two(bare)
    eventually(lambda: True if "TaskFailed" in kinds_of_events(bare, execution) else None)
    assert answer(bare, other) == "ok"
    assert await_end(bare, execution)["error"] == "Declined"


def test_a_map_limits_its_concurrency_and_keeps_the_order_of_items(aws: LocalAws) -> None:
    queue = create_queue(aws)
    each = {"StartAt": "Item", "States": {"Item": waiting_task(queue, End=True)}}
    items = {
        "Type": "Map",
        "Items": "{% [1..3] %}",
        "MaxConcurrency": "{% 1 + 1 %}",
        "ItemSelector": {"n": "{% $states.context.Map.Item.Value %}"},
        "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **each},
        "Output": "{% $states.result.n %}",
        "End": True,
    }
    items["ItemProcessor"]["States"]["Item"]["Output"] = "{% $merge([$states.input, $states.result]) %}"  # type: ignore[index]
    execution = start(aws, create_machine(aws, {"Items": items}))

    running = [next_message(aws, queue)["token"] for _ in range(2)]
    time.sleep(0.1)
    assert "Messages" not in aws.client("sqs").receive_message(QueueUrl=queue)
    for token in (*reversed(running), None):
        answer(aws, token or next_message(aws, queue)["token"])

    assert await_end(aws, execution)["output"] == [1, 2, 3]


def test_the_time_of_local_aws_is_that_of_its_executions(aws: LocalAws) -> None:
    before = aws.now()
    described = run_machine(aws, {"Wait": {"Type": "Wait", "Seconds": 3, "End": True}})

    assert before <= described["startDate"] + timedelta(milliseconds=1)
    assert described["startDate"] + timedelta(seconds=3) <= described["stopDate"] <= aws.now()
    assert before.tzinfo is UTC
    assert LocalAws.attach(aws.endpoint_url).now() - aws.now() < timedelta(seconds=1)
    assert aws.now() - datetime.now(UTC) > timedelta(seconds=2)
