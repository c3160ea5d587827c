"""Step Functions behaves as on AWS where the bare emulator does not: each test fails without its correction."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import LocalAws

from .resources import Gate, calls_of, create_held_function, next_message
from .support import Deployed, Emulators, await_end, create_machine, eventually, run_machine

LAMBDA = "arn:aws:states:::lambda:invoke"
WAIT_FOR_QUEUE = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"


def worker(target: Deployed, payload: Any, **fields: Any) -> dict[str, Any]:
    """A task that calls the worker function."""
    arguments = {"FunctionName": target.worker_arn(), "Payload": payload}
    return {"Type": "Task", "Resource": LAMBDA, "Arguments": arguments, **fields}


def callback(target: Deployed, **fields: Any) -> dict[str, Any]:
    """A task that waits for its callback."""
    body = {"token": "{% $states.context.Task.Token %}"}
    arguments = {"QueueUrl": target.outputs["QueueUrl"], "MessageBody": body}
    return {"Type": "Task", "Resource": WAIT_FOR_QUEUE, "Arguments": arguments, "End": True, **fields}


def next_token(target: Deployed) -> str:
    """The token of the next message in the queue, which is deleted."""
    return str(next_message(target.aws, target.outputs["QueueUrl"])["token"])


def start(aws: LocalAws, arn: str, **options: Any) -> str:
    """Start an execution and return its ARN."""
    return aws.client("stepfunctions").start_execution(stateMachineArn=arn, **options)["executionArn"]


def events(aws: LocalAws, execution_arn: str) -> list[str]:
    """Types of the events of an execution."""
    pages = aws.client("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=execution_arn)
    return [event["type"] for page in pages for event in page["events"]]


def held(function: str, gate: Gate, **fields: Any) -> dict[str, Any]:
    """A task that lasts until the gate is opened."""
    arguments = {"FunctionName": function, "Payload": gate.event}
    return {"Type": "Task", "Resource": LAMBDA, "Arguments": arguments, **fields}


def test_a_stopped_execution_stays_stopped_and_does_nothing_more(emulators: Emulators, tmp_path: Path) -> None:
    def stop_in_a_call(target: Deployed, name: str) -> str:
        """Stop an execution in the middle of a call, which then ends: the execution's ARN."""
        gate, function = Gate(tmp_path / name), create_held_function(target.aws, name)
        states = {"Held": held(function, gate, Next="Wake"), "Wake": worker(target, {"do": "ok"}, End=True)}
        execution = start(target.aws, create_machine(target.aws, states))
        gate.await_calls()
        target.aws.client("stepfunctions").stop_execution(executionArn=execution)
        gate.open()
        # The log of a call is written when it is over.
        eventually(lambda: calls_of(target.aws, name) or None)
        return execution

    def told(target: Deployed, execution: str) -> tuple[str, bool]:
        described = target.aws.client("stepfunctions").describe_execution(executionArn=execution)
        return described["status"], "TaskSucceeded" in events(target.aws, execution)

    corrected, bare = emulators.corrected, emulators.without("final-status")
    stopped, going_on = stop_in_a_call(corrected, "stays-stopped"), stop_in_a_call(bare, "goes-on")

    # As much time has passed as another execution needs to complete.
    run_machine(corrected.aws, {"Wake": worker(corrected, {"do": "ok"}, End=True)})
    assert told(corrected, stopped) == ("ABORTED", False)
    eventually(lambda: True if told(bare, going_on) != ("ABORTED", False) else None)


def test_the_machines_own_timeout_ends_the_execution(emulators: Emulators) -> None:
    def wait(seconds: int) -> dict[str, Any]:
        return {"Long": {"Type": "Wait", "Seconds": seconds, "End": True}}

    described = run_machine(emulators.corrected.aws, wait(3600), TimeoutSeconds=1)
    uncorrected = run_machine(emulators.without("machine-timeout").aws, wait(2), TimeoutSeconds=1)

    assert (described["status"], uncorrected["status"]) == ("TIMED_OUT", "SUCCEEDED")
    assert "ExecutionTimedOut" in events(emulators.corrected.aws, described["executionArn"])


def test_execution_ends_at_its_25000th_event(emulators: Emulators) -> None:
    """A loop that never ends: with the correction it fails, without it it is still running beyond the limit."""
    loop = {
        "Again": {"Type": "Pass", "Next": "Ever"},
        "Ever": {"Type": "Choice", "Choices": [{"Condition": "{% true %}", "Next": "Again"}]},
    }
    aws = emulators.corrected.aws

    described = run_machine(aws, loop)

    assert (described["status"], described["error"]) == ("FAILED", "States.Runtime")
    assert described["cause"] == "The execution reached the maximum number of history events (25000)."
    history = aws.client("stepfunctions").get_execution_history(
        executionArn=described["executionArn"], reverseOrder=True, maxResults=1
    )
    (last,) = history["events"]
    assert (last["id"], last["type"]) == (25_000, "ExecutionFailed")

    bare = emulators.without("history-limit").aws
    running = start(bare, create_machine(bare, loop))
    states = bare.client("stepfunctions")

    def beyond() -> bool | None:
        page = states.get_execution_history(executionArn=running, reverseOrder=True, maxResults=1)
        return page["events"][0]["id"] > 25_000 or None

    assert eventually(beyond)
    assert states.describe_execution(executionArn=running)["status"] == "RUNNING"
    states.stop_execution(executionArn=running)


def test_a_deleted_machine_is_there_until_its_executions_have_ended(emulators: Emulators) -> None:
    def deleted(aws: LocalAws) -> tuple[str, str]:
        """Delete a machine while an execution waits: the machine's status then, and the execution."""
        arn = create_machine(aws, {"Wait": {"Type": "Wait", "Seconds": 3_600, "End": True}})
        execution, states = start(aws, arn), aws.client("stepfunctions")
        states.delete_state_machine(stateMachineArn=arn)
        try:
            return states.describe_state_machine(stateMachineArn=arn)["status"], execution
        except ClientError as error:
            return error.response["Error"]["Code"], execution

    aws = emulators.corrected.aws
    status, execution = deleted(aws)
    assert status == "DELETING"
    assert aws.client("stepfunctions").describe_execution(executionArn=execution)["status"] == "RUNNING"
    aws.client("stepfunctions").stop_execution(executionArn=execution)
    assert deleted(emulators.without("deleted-machine").aws)[0] == "StateMachineDoesNotExist"


def test_a_repeated_start_succeeds_while_it_runs_and_is_refused_later(emulators: Emulators) -> None:
    def start_twice(aws: LocalAws, second_input: str = "{}", *, after_end: bool = False) -> str:
        arn = create_machine(aws, {"Wait": {"Type": "Wait", "Seconds": 0 if after_end else 3600, "End": True}})
        first = start(aws, arn, name="same", input="{}")
        if after_end:
            await_end(aws, first)
        try:
            return "same" if start(aws, arn, name="same", input=second_input) == first else "other"
        except ClientError as error:
            return error.response["Error"]["Code"]

    assert start_twice(emulators.corrected.aws) == "same"
    assert start_twice(emulators.corrected.aws, '{"a": 1}') == "ExecutionAlreadyExists"
    assert start_twice(emulators.corrected.aws, after_end=True) == "ExecutionAlreadyExists"
    assert start_twice(emulators.without("start-execution").aws) == "ExecutionAlreadyExists"


def test_each_start_of_express_is_an_execution_of_its_own(emulators: Emulators) -> None:
    def outputs(target: Deployed) -> set[str | None]:
        called = worker(target, {"do": "ok", "name": "{% $states.context.Execution.Name %}"}, End=True)
        arn = create_machine(target.aws, {"Called": called}, express=True)
        try:
            started = {start(target.aws, arn, name="same", input="{}") for _ in range(2)}
        except ClientError as error:
            return {error.response["Error"]["Code"]}
        assert len(started) == 2
        return {await_end(target.aws, execution)["status"] for execution in started}

    assert outputs(emulators.corrected) == {"SUCCEEDED"}
    assert outputs(emulators.without("start-execution")) == {"ExecutionAlreadyExists"}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "a b"}, "InvalidName"),
        ({"name": "a:b"}, "InvalidName"),
        ({"input": "{"}, "InvalidExecutionInput"),
        ({"input": json.dumps("x" * 262_143)}, "ValidationException"),
    ],
)
def test_a_bad_name_or_input_is_refused(target: Deployed, options: dict[str, str], code: str) -> None:
    arn = create_machine(target.aws, {"End": {"Type": "Succeed"}})

    with pytest.raises(ClientError) as caught:
        start(target.aws, arn, **options)

    assert caught.value.response["Error"]["Code"] == code


def test_a_bad_name_is_accepted_by_the_bare_emulator(emulators: Emulators) -> None:
    aws = emulators.without("start-execution").aws

    assert start(aws, create_machine(aws, {"End": {"Type": "Succeed"}}), name="a b")


def test_a_task_timeout_may_be_an_expression(emulators: Emulators) -> None:
    def run(target: Deployed) -> dict[str, Any]:
        task = worker(target, {"do": "sleep", "seconds": 2}, TimeoutSeconds="{% 1 %}", End=True)
        return run_machine(target.aws, {"Slow": task})

    assert run(emulators.corrected)["error"] == "States.Timeout"
    assert run(emulators.without("task-time")).get("error") != "States.Timeout"


def test_a_lost_heartbeat_is_a_timeout_in_the_history_as_on_aws(emulators: Emulators) -> None:
    """The recordings: localstack's AWS-validated stepfunctions/v2/timeouts/test_heartbeats.snapshot.json."""

    def run(target: Deployed) -> list[Any]:
        task = callback(target, HeartbeatSeconds=2, TimeoutSeconds=2_000)
        execution = start(target.aws, create_machine(target.aws, {"Wait": task}))
        assert await_end(target.aws, execution)["error"] == "States.Timeout"
        events = target.aws.client("stepfunctions").get_execution_history(executionArn=execution)["events"]
        assert events[-1]["executionFailedEventDetails"]["error"] == "States.Timeout"
        return [event for event in events if event["type"] == "TaskTimedOut"]

    (lost,) = run(emulators.fast(10))
    assert lost["taskTimedOutEventDetails"] == {
        "error": "States.Timeout",
        "resource": "sendMessage.waitForTaskToken",
        "resourceType": "sqs",
    }
    assert run(emulators.without("timed-out-events", speed=10)) == []


@pytest.mark.parametrize("name", ["States.HeartbeatTimeout", "States.Timeout"])
def test_a_lost_heartbeat_is_caught_by_either_name(emulators: Emulators, name: str) -> None:
    """A saga has to name both: the one that AWS matches is unknown."""

    def run(target: Deployed) -> str:
        task = callback(target, HeartbeatSeconds=2, TimeoutSeconds=20)
        caught = {"Type": "Pass", "End": True}
        states = {"Wait": {**task, "Catch": [{"ErrorEquals": [name], "Next": "Caught"}]}, "Caught": caught}
        return str(run_machine(target.aws, states)["status"])

    assert run(emulators.fast(10)) == "SUCCEEDED"
    bare = "FAILED" if name == "States.HeartbeatTimeout" else "SUCCEEDED"
    assert run(emulators.without("callback-tasks", speed=10)) == bare
    assert run(emulators.without("error-names")) == bare


def test_a_time_that_is_up_is_not_a_lost_heartbeat(emulators: Emulators) -> None:
    target = emulators.fast(10)
    task = callback(target, TimeoutSeconds=2)
    caught = {"Type": "Pass", "End": True}
    states = {
        "Wait": {**task, "Catch": [{"ErrorEquals": ["States.HeartbeatTimeout"], "Next": "Caught"}]},
        "Caught": caught,
    }

    assert run_machine(target.aws, states)["error"] == "States.Timeout"


def test_a_heartbeat_keeps_the_task_alive(emulators: Emulators) -> None:
    """It continues when a task that began later is lost for want of a heartbeat."""
    target = emulators.corrected
    machine = create_machine(target.aws, {"Wait": callback(target, HeartbeatSeconds=8, TimeoutSeconds=6000)})
    states = target.aws.client("stepfunctions")
    execution = start(target.aws, machine)
    token = next_token(target)
    silent = start(target.aws, machine)
    next_token(target)

    def has_ended_while_the_other_gave_signs() -> bool | None:
        states.send_task_heartbeat(taskToken=token)
        return states.describe_execution(executionArn=silent)["status"] != "RUNNING" or None

    eventually(has_ended_while_the_other_gave_signs)
    states.send_task_success(taskToken=token, output='{"done": true}')

    assert await_end(target.aws, silent)["error"] == "States.Timeout"
    assert await_end(target.aws, execution)["output"] == {"done": True}


def test_each_attempt_of_a_callback_task_has_its_own_token(emulators: Emulators) -> None:
    def tokens(target: Deployed) -> set[str]:
        retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
        task = callback(target, TimeoutSeconds=600, Retry=retry)
        start(target.aws, create_machine(target.aws, {"Wait": task}))
        first = next_token(target)
        target.aws.client("stepfunctions").send_task_failure(taskToken=first, error="Again")
        return {first, next_token(target)}

    assert len(tokens(emulators.fast(10))) == 2
    assert len(tokens(emulators.without("callback-tasks", speed=10))) == 1


def test_a_late_or_duplicate_callback_is_refused(emulators: Emulators) -> None:
    def codes(target: Deployed) -> list[str]:
        execution = start(target.aws, create_machine(target.aws, {"Wait": callback(target, TimeoutSeconds=600)}))
        token = next_token(target)
        states = target.aws.client("stepfunctions")
        states.send_task_success(taskToken=token, output="{}")
        await_end(target.aws, execution)
        found = []
        for late in (token, "never-given-out"):
            try:
                states.send_task_success(taskToken=late, output="{}")
            except ClientError as error:
                found.append(error.response["Error"]["Code"])
        return found

    assert codes(emulators.corrected) == ["TaskTimedOut", "InvalidToken"]
    assert codes(emulators.without("late-callbacks")) == ["TaskDoesNotExist", "TaskDoesNotExist"]


def waits(target: Deployed, **delays: Any) -> list[float]:
    """Delays before each retry of a task that always fails, in emulator time."""
    retry = [{"ErrorEquals": ["States.ALL"], **delays}]
    states = {"Try": worker(target, {"do": "fail"}, Retry=retry, End=True)}
    target.invoke(do="ok")
    execution = run_machine(target.aws, states)["executionArn"]
    history = target.aws.client("stepfunctions").get_execution_history(executionArn=execution)["events"]
    failed = [event["timestamp"] for event in history if event["type"] == "TaskFailed"]
    again = [event["timestamp"] for event in history if event["type"] == "TaskScheduled"][1:]
    return [(after - before).total_seconds() for before, after in zip(failed, again, strict=False)]


def test_a_retry_waits_for_its_interval(emulators: Emulators) -> None:
    """The bare emulator never waits longer than a minute, which at this speed allows a delay of seconds."""
    delays = {"IntervalSeconds": 4000, "MaxAttempts": 1}

    assert waits(emulators.fast(1000), **delays)[0] >= 4000
    assert waits(emulators.without("retry-delays", speed=1000), **delays)[0] < 4000


def test_a_retry_waits_no_longer_than_the_maximum(emulators: Emulators) -> None:
    waited = waits(emulators.fast(10), IntervalSeconds=5, BackoffRate=1000, MaxAttempts=2, MaxDelaySeconds=10)

    assert len(waited) == 2
    assert 5 <= waited[0] < 60
    assert 10 <= waited[1] < 60


def test_full_jitter_spreads_the_delays(emulators: Emulators) -> None:
    """Up to 1,000 s each, of which a second is real; in the history they are what they were."""
    delays = {"IntervalSeconds": 1000, "BackoffRate": 1, "MaxAttempts": 8, "JitterStrategy": "FULL"}

    waited = waits(emulators.fast(1000), **delays)

    assert len(waited) == 8
    assert min(waited) < 900
    assert len({round(seconds, -1) for seconds in waited}) > 1


def test_a_wildcard_does_not_catch_errors_that_end_an_execution(emulators: Emulators) -> None:
    def run(aws: LocalAws, error: str) -> str:
        catch = [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]
        states = {
            "Both": {"Type": "Parallel", "Branches": [branch(error)], "Catch": catch, "End": True},
            "Caught": {"Type": "Succeed"},
        }
        return str(run_machine(aws, states)["status"])

    def branch(error: str) -> dict[str, Any]:
        return {"StartAt": "Stop", "States": {"Stop": {"Type": "Fail", "Error": error}}}

    assert run(emulators.corrected.aws, "States.Runtime") == "FAILED"
    assert run(emulators.corrected.aws, "States.DataLimitExceeded") == "FAILED"
    assert run(emulators.corrected.aws, "Anything") == "SUCCEEDED"
    assert run(emulators.without("error-names").aws, "States.Runtime") == "SUCCEEDED"


def test_an_output_above_the_limit_fails(emulators: Emulators) -> None:
    big = {"Big": {"Type": "Pass", "Output": ["{% $states.input %}", "{% $states.input %}"], "End": True}}
    half = "x" * 140_000

    described = run_machine(emulators.corrected.aws, big, half)

    assert (described["status"], described["error"]) == ("FAILED", "States.DataLimitExceeded")
    assert run_machine(emulators.without("payload-limit").aws, big, half)["status"] == "SUCCEEDED"


def test_succeed_and_choice_have_an_output(emulators: Emulators) -> None:
    succeed = {"Done": {"Type": "Succeed", "Output": {"answer": 42}}}
    choice = {
        "Which": {
            "Type": "Choice",
            "Choices": [{"Condition": "{% false %}", "Next": "Done"}],
            "Default": "Done",
            "Output": {"answer": "default"},
        },
        "Done": {"Type": "Succeed"},
    }

    assert run_machine(emulators.corrected.aws, succeed)["output"] == {"answer": 42}
    assert run_machine(emulators.without("succeed-output").aws, succeed)["output"] == {}
    assert run_machine(emulators.corrected.aws, choice)["output"] == {"answer": "default"}
    assert run_machine(emulators.without("choice-default-output").aws, choice)["output"] == {}


@pytest.mark.parametrize("value", ["1", '"yes"', "[true]", "{}"])
def test_a_condition_is_a_boolean(emulators: Emulators, value: str) -> None:
    choice = {
        "Which": {"Type": "Choice", "Choices": [{"Condition": f"{{% {value} %}}", "Next": "Done"}], "Default": "Done"},
        "Done": {"Type": "Succeed"},
    }

    described = run_machine(emulators.corrected.aws, choice)

    assert (described["status"], described["error"]) == ("FAILED", "States.QueryEvaluationError")
    assert run_machine(emulators.without("choice-conditions").aws, choice)["status"] == "SUCCEEDED"


def test_parallel_takes_arguments_output_and_assign(emulators: Emulators) -> None:
    branch = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Output": "{% $states.input.n + 1 %}", "End": True}}}
    states = {
        "Both": {
            "Type": "Parallel",
            "Branches": [branch, branch],
            "Arguments": {"n": 41},
            "Assign": {"sum": "{% $sum($states.result) %}"},
            "Output": "{% $states.result[0] %}",
            "Next": "Done",
        },
        "Done": {"Type": "Pass", "Output": {"first": "{% $states.input %}", "sum": "{% $sum %}"}, "End": True},
    }

    assert run_machine(emulators.corrected.aws, states)["output"] == {"first": 42, "sum": 84}
    assert run_machine(emulators.without("parallel-branches").aws, states)["status"] == "FAILED"


def test_a_failed_branch_stops_its_siblings_at_once(emulators: Emulators, tmp_path: Path) -> None:
    def fail_one_of_two(target: Deployed, name: str) -> tuple[str, Gate]:
        """Fail a branch while its sibling's function runs: the execution, and what holds the function."""
        gate, function = Gate(tmp_path / name), create_held_function(target.aws, name)
        put = {"TableName": target.outputs["TableName"], "Item": {"id": {"S": "sibling"}}}
        write = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:putItem", "Arguments": put, "End": True}
        states = {
            "Both": {
                "Type": "Parallel",
                "Branches": [
                    {"StartAt": "Held", "States": {"Held": held(function, gate, Next="Write"), "Write": write}},
                    {"StartAt": "Ask", "States": {"Ask": callback(target)}},
                ],
                "Catch": [{"ErrorEquals": ["Broken"], "Next": "Caught"}],
                "End": True,
            },
            "Caught": {"Type": "Succeed"},
        }
        execution = start(target.aws, create_machine(target.aws, states))
        gate.await_calls()
        target.aws.client("stepfunctions").send_task_failure(taskToken=next_token(target), error="Broken")
        return execution, gate

    def is_written(target: Deployed) -> bool:
        return target.aws.client("dynamodb").scan(TableName=target.outputs["TableName"])["Count"] == 1

    corrected, bare = emulators.corrected, emulators.without("parallel-branches")
    execution, gate = fail_one_of_two(corrected, "stopped-sibling")
    assert await_end(corrected.aws, execution)["status"] == "SUCCEEDED"
    gate.open()
    eventually(lambda: calls_of(corrected.aws, "stopped-sibling") or None)
    # As much time has passed as another execution needs to complete.
    run_machine(corrected.aws, {"Wake": worker(corrected, {"do": "ok"}, End=True)})
    assert not is_written(corrected)

    execution, gate = fail_one_of_two(bare, "sibling-goes-on")
    eventually(lambda: True if "TaskFailed" in events(bare.aws, execution) else None)
    gate.open()
    assert await_end(bare.aws, execution)["status"] == "SUCCEEDED"
    assert is_written(bare)


def test_a_task_of_a_stopped_branch_takes_no_answer(emulators: Emulators) -> None:
    waits, fails = callback(emulators.corrected), callback(emulators.corrected)
    fails["Arguments"]["MessageBody"]["fails"] = True
    branches = [{"StartAt": "Wait", "States": {"Wait": waits}}, {"StartAt": "Ask", "States": {"Ask": fails}}]
    states = {
        "Both": {
            "Type": "Parallel",
            "Branches": branches,
            "Catch": [{"ErrorEquals": ["Broken"], "Next": "Caught"}],
            "End": True,
        },
        "Caught": {"Type": "Succeed"},
    }
    target = emulators.corrected
    execution = start(target.aws, create_machine(target.aws, states))
    asked = [next_message(target.aws, target.outputs["QueueUrl"]) for _ in range(2)]
    tokens = {message.get("fails", False): message["token"] for message in asked}

    target.aws.client("stepfunctions").send_task_failure(taskToken=tokens[True], error="Broken")

    assert await_end(target.aws, execution)["status"] == "SUCCEEDED"
    with pytest.raises(ClientError, match="TaskTimedOut"):
        target.aws.client("stepfunctions").send_task_success(taskToken=tokens[False], output="{}")


def test_the_context_object_is_that_of_aws(emulators: Emulators) -> None:
    states = {"Show": {"Type": "Pass", "Output": "{% $states.context %}", "End": True}}

    described = run_machine(emulators.corrected.aws, states, {"a": 1})
    shown = described["output"]

    assert shown.keys() == {"Execution", "State", "StateMachine"}
    assert shown["Execution"].keys() == {"Id", "Input", "Name", "RoleArn", "StartTime", "RedriveCount"}
    assert shown["Execution"]["Input"] == {"a": 1}
    assert shown["Execution"]["Name"] == described["name"]
    assert "variables" in run_machine(emulators.without("context-object").aws, states)["output"]


def test_times_of_an_execution_are_emulator_times(emulators: Emulators) -> None:
    """An hour's wait takes 3.6 s at speed 1,000, and is an hour in every time that can be seen."""
    states = {
        "Before": {"Type": "Pass", "Assign": {"before": "{% $millis() %}"}, "Next": "Hour"},
        "Hour": {"Type": "Wait", "Seconds": 3600, "Next": "After"},
        "After": {
            "Type": "Pass",
            "Output": {
                "waited": "{% $millis() - $before %}",
                "now": "{% $now() %}",
                "entered": "{% $states.context.State.EnteredTime %}",
                "started": "{% $states.context.Execution.StartTime %}",
            },
            "End": True,
        },
    }

    described = run_machine(emulators.fast(1000).aws, states)
    output = described["output"]
    took = (described["stopDate"] - described["startDate"]).total_seconds()
    entered = datetime.fromisoformat(output["entered"]) - datetime.fromisoformat(output["started"])

    assert 3600 <= took < 36_000
    assert 3_600_000 <= output["waited"] < 36_000_000
    assert 3600 <= entered.total_seconds() < 36_000
    assert datetime.fromisoformat(output["now"]) > datetime.now(UTC)


@pytest.mark.parametrize("name", ["execution-time", "jsonata-time"])
def test_without_its_correction_a_time_is_a_real_one(emulators: Emulators, name: str) -> None:
    states = {
        "Wait": {"Type": "Wait", "Seconds": 100, "Next": "Show"},
        "Show": {
            "Type": "Pass",
            "Output": {"now": "{% $now() %}", "entered": "{% $states.context.State.EnteredTime %}"},
            "End": True,
        },
    }
    aws = emulators.without(name, speed=1000).aws
    arn = create_machine(aws, states)
    execution = start(aws, arn)
    if name == "execution-time":  # then it really waits
        time.sleep(1)
        assert aws.client("stepfunctions").describe_execution(executionArn=execution)["status"] == "RUNNING"
        return
    output = await_end(aws, execution)["output"]

    assert datetime.fromisoformat(output["entered"]) > datetime.fromisoformat(output["now"])


def test_assignments_of_one_state_do_not_see_each_other(emulators: Emulators) -> None:
    states = {
        "First": {"Type": "Pass", "Assign": {"a": 1, "b": 1}, "Next": "Both"},
        "Both": {"Type": "Pass", "Assign": {"a": 2, "b": "{% $a %}"}, "Next": "Show"},
        "Show": {"Type": "Pass", "Output": "{% $b %}", "End": True},
    }

    assert run_machine(emulators.corrected.aws, states)["output"] == 1
    assert run_machine(emulators.without("assign-together").aws, states)["output"] == 2


def test_numbers_are_doubles_and_a_text_of_one_has_15_digits(emulators: Emulators) -> None:
    text = """$parse('{"amount": 123456789012345678}')"""
    output = {"text": f"{{% $string({text}) %}}", "number": f"{{% {text}.amount %}}"}
    states = {"Show": {"Type": "Pass", "Output": output, "End": True}}

    corrected = run_machine(emulators.corrected.aws, states)["output"]
    assert corrected == {"text": '{"amount":123456789012346000}', "number": 123456789012345680}
    bare = run_machine(emulators.without("jsonata-numbers").aws, states)["output"]
    assert bare == {"text": '{"amount":123456789012345678}', "number": 123456789012345678}


def test_a_slow_machine_fails_no_expression(emulators: Emulators) -> None:
    """An expression that takes some seconds here; AWS has a faster interpreter."""
    expression = "{% $sum([1..150000].($ * 2)) > 0 %}"
    states = {"Sum": {"Type": "Pass", "Output": expression, "End": True}}

    assert run_machine(emulators.corrected.aws, states)["status"] == "SUCCEEDED"
    assert run_machine(emulators.without("expression-patience").aws, states)["error"] == "States.QueryEvaluationError"


def test_an_expression_nests_at_most_100_levels(emulators: Emulators) -> None:
    def ends(terms: int, on: LocalAws) -> dict[str, Any]:
        state = {"Type": "Pass", "Output": f"{{% {'+'.join(['1'] * terms)} %}}", "End": True}
        return run_machine(on, {"Sum": state})

    corrected, bare = emulators.corrected.aws, emulators.without("expression-levels").aws
    assert ends(100, corrected)["output"] == 100
    assert ends(101, corrected)["error"] == "States.QueryEvaluationError"
    assert ends(101, bare)["output"] == 101


def test_an_expression_that_fails_in_a_branch_is_caught_outside(emulators: Emulators) -> None:
    branch = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Output": "{% $lowercase(7) %}", "End": True}}}
    caught = {"ErrorEquals": ["States.QueryEvaluationError"], "Next": "Caught"}
    states = {
        "Test": {"Type": "Parallel", "Branches": [branch], "Catch": [caught], "Next": "Passed"},
        "Passed": {"Type": "Pass", "Output": "passed", "End": True},
        "Caught": {"Type": "Pass", "Output": "caught", "End": True},
    }

    assert run_machine(emulators.corrected.aws, states)["output"] == "caught"


def test_a_wait_until_a_time_ends_at_that_time(emulators: Emulators) -> None:
    states = {
        "Until": {"Type": "Wait", "Timestamp": "{% $fromMillis($millis() + 600000) %}", "Next": "Show"},
        "Show": {"Type": "Pass", "Output": "{% $now() %}", "End": True},
    }

    described = run_machine(emulators.fast(1000).aws, states)

    waited = datetime.fromisoformat(described["output"]) - described["startDate"]
    assert 600 <= waited.total_seconds() < 36_000


def test_two_updates_by_state_machines_and_clients_lose_none(emulators: Emulators) -> None:
    """Optimized DynamoDB integrations take turns with everybody else."""
    target = emulators.corrected
    table, key = target.outputs["TableName"], {"id": {"S": "counter"}}
    add: dict[str, Any] = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    once = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:updateItem", "Arguments": add, "End": True}
    arn = create_machine(target.aws, {"Add": once})
    executions = [start(target.aws, arn) for _ in range(20)]
    threads = [
        threading.Thread(target=target.aws.client("dynamodb").update_item, kwargs=add) for _ in range(20)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for execution in executions:
        assert await_end(target.aws, execution)["status"] == "SUCCEEDED"

    item = target.aws.client("dynamodb").get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    assert item["n"] == {"N": "40"}


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ("arn:aws:states:::dynamodb:updateItem", "DynamoDB.ConditionalCheckFailedException"),
        ("arn:aws:states:::aws-sdk:dynamodb:updateItem", "DynamoDb.ConditionalCheckFailedException"),
    ],
)
def test_a_failed_condition_has_the_name_of_its_integration(target: Deployed, resource: str, error: str) -> None:
    update = {
        "TableName": target.outputs["TableName"],
        "Key": {"id": {"S": "absent"}},
        "UpdateExpression": "SET a = :a",
        "ConditionExpression": "attribute_exists(id)",
        "ExpressionAttributeValues": {":a": {"S": "a"}},
    }
    catch = [
        {
            "ErrorEquals": [error],
            "Assign": {"seen": "{% $states.errorOutput.Error %}"},
            "Output": {"cause": "{% $states.errorOutput.Cause %}"},
            "Next": "Show",
        }
    ]
    states = {
        "Update": {"Type": "Task", "Resource": resource, "Arguments": update, "Catch": catch, "End": True},
        "Show": {"Type": "Pass", "Output": {"seen": "{% $seen %}", "input": "{% $states.input %}"}, "End": True},
    }

    output = run_machine(target.aws, states)["output"]

    assert output["seen"] == error
    assert "conditional request failed" in output["input"]["cause"]


def test_transactions_queries_starts_and_messages_work_from_a_definition(target: Deployed) -> None:
    table = target.outputs["TableName"]
    child = create_machine(target.aws, {"End": {"Type": "Succeed"}})
    put = {"Put": {"TableName": table, "Item": {"id": {"S": "x"}, "status": {"S": "new"}}}}
    query = {
        "TableName": table,
        "KeyConditionExpression": "id = :id",
        "ExpressionAttributeValues": {":id": {"S": "x"}},
    }

    def task(resource: str, arguments: Any, **fields: Any) -> dict[str, Any]:
        return {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": arguments, **fields}

    states = {
        "Write": task("aws-sdk:dynamodb:transactWriteItems", {"TransactItems": [put]}, Next="Query"),
        "Query": task(
            "aws-sdk:dynamodb:query", query, Assign={"status": "{% $states.result.Items[0].status.S %}"}, Next="Start"
        ),
        "Start": task(
            "aws-sdk:sfn:startExecution",
            {"StateMachineArn": child, "Name": "child-1", "Input": "{% $string({'a': 1}) %}"},
            Next="Tell",
        ),
        "Tell": task(
            "sqs:sendMessage",
            {"QueueUrl": target.outputs["QueueUrl"], "MessageBody": {"status": "{% $status %}"}},
            Output={"status": "{% $status %}"},
            End=True,
        ),
    }

    described = run_machine(target.aws, states)

    assert described["status"] == "SUCCEEDED", described.get("cause")
    assert described["output"] == {"status": "new"}
    message = target.aws.client("sqs").receive_message(QueueUrl=target.outputs["QueueUrl"])["Messages"][0]
    assert json.loads(message["Body"]) == {"status": "new"}


BROKEN_DEFINITIONS: dict[str, dict[str, Any]] = {
    "missing target": {"A": {"Type": "Pass", "Next": "Nowhere"}},
    "missing target of a catch": {
        "A": {
            "Type": "Parallel",
            "Branches": [{"StartAt": "B", "States": {"B": {"Type": "Succeed"}}}],
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Nowhere"}],
            "End": True,
        }
    },
    "missing target in a branch": {
        "A": {
            "Type": "Parallel",
            "Branches": [{"StartAt": "B", "States": {"B": {"Type": "Pass", "Next": "A"}}}],
            "End": True,
        }
    },
    "unreachable": {"A": {"Type": "Succeed"}, "B": {"Type": "Succeed"}},
    "other query language": {"A": {"Type": "Pass", "Parameters": {}, "End": True}},
    "no transition": {"A": {"Type": "Pass"}},
    "two transitions": {"A": {"Type": "Pass", "Next": "B", "End": True}, "B": {"Type": "Succeed"}},
    "no resource": {"A": {"Type": "Task", "End": True}},
    "no such type": {"A": {"Type": "Pas", "End": True}},
    "wildcard not last": {
        "A": {
            "Type": "Task",
            "Resource": LAMBDA,
            "Retry": [{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["X"]}],
            "End": True,
        }
    },
    "heartbeat not below timeout": {
        "A": {"Type": "Task", "Resource": LAMBDA, "TimeoutSeconds": 5, "HeartbeatSeconds": 5, "End": True}
    },
    "bad expression": {"A": {"Type": "Pass", "Output": "{% ( %}", "End": True}},
}


@pytest.mark.parametrize("name", BROKEN_DEFINITIONS)
def test_a_broken_definition_is_refused(target: Deployed, name: str) -> None:
    with pytest.raises(ClientError) as caught:
        create_machine(target.aws, BROKEN_DEFINITIONS[name])

    assert caught.value.response["Error"]["Code"] == "InvalidDefinition"


def test_a_broken_definition_is_accepted_by_the_bare_emulator(emulators: Emulators) -> None:
    assert create_machine(emulators.without("definition-check").aws, BROKEN_DEFINITIONS["missing target"])


def test_an_execution_is_redriven_where_it_ended_with_the_variables_that_it_had(emulators: Emulators) -> None:
    target = emulators.corrected
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    states = {
        "First": {"Type": "Pass", "Assign": {"kept": "{% $states.context.Execution.RedriveCount %}"}, "Next": "Ask"},
        "Ask": callback(target) | {"Retry": retry, "End": False, "Next": "Last"},
        "Last": {"Type": "Pass", "Output": "{% [$kept, $states.context.Execution.RedriveCount] %}", "End": True},
    }
    del states["Ask"]["End"]
    machine, client = create_machine(target.aws, states), target.aws.client("stepfunctions")
    execution = start(target.aws, machine)
    first = next_token(target)
    client.stop_execution(executionArn=execution)
    client.update_state_machine(stateMachineArn=machine, definition=json.dumps(ONE_PASS))

    client.redrive_execution(executionArn=execution)
    running = client.describe_execution(executionArn=execution)
    with pytest.raises(ClientError, match="ExecutionNotRedrivable"):
        client.redrive_execution(executionArn=execution)
    with pytest.raises(ClientError, match="TaskTimedOut"):
        client.send_task_success(taskToken=first, output="1")
    client.send_task_failure(taskToken=next_token(target), error="Once")
    client.send_task_success(taskToken=next_token(target), output="1")
    ended = await_end(target.aws, execution)

    assert (running["status"], running["redriveCount"], running["redriveStatus"]) == ("RUNNING", 1, "NOT_REDRIVABLE")
    assert (ended["status"], ended["output"], ended["redriveCount"]) == ("SUCCEEDED", [0, 1], 1)
    kinds = events(target.aws, execution)
    assert kinds.count("ExecutionRedriven") == 1
    assert kinds.count("TaskStateEntered") == 1
    with pytest.raises(ClientError, match="ExecutionNotRedrivable"):
        client.redrive_execution(executionArn=execution)
    bare = emulators.without("redrive-execution").aws
    with pytest.raises(ClientError, match="InvalidAction"):
        bare.client("stepfunctions").redrive_execution(executionArn=execution)


ONE_PASS = {"QueryLanguage": "JSONata", "StartAt": "Only", "States": {"Only": {"Type": "Pass", "End": True}}}


@pytest.mark.parametrize(
    ("states", "top", "status"),
    [
        ({"Failed": {"Type": "Fail", "Error": "No"}}, {}, "FAILED"),
        ({"Long": {"Type": "Wait", "Seconds": 3600, "End": True}}, {"TimeoutSeconds": 1}, "TIMED_OUT"),
    ],
)
def test_a_redriven_execution_fails_again_without_a_change(
    target: Deployed, states: dict[str, Any], top: dict[str, Any], status: str
) -> None:
    first = run_machine(target.aws, states, **top)
    target.aws.client("stepfunctions").redrive_execution(executionArn=first["executionArn"])
    second = await_end(target.aws, first["executionArn"])

    told = [(each["status"], each["redriveCount"], each["redriveStatus"]) for each in (first, second)]
    assert told == [(status, 0, "REDRIVABLE"), (status, 1, "REDRIVABLE")]
    assert second["stopDate"] > first["stopDate"]


def test_a_redriven_execution_ignores_its_former_run(target: Deployed, tmp_path: Path) -> None:
    """The former run's call and timeout end while this one runs."""
    function = create_held_function(target.aws, "redriven")
    # What is redriven has a timeout of its own, which on a slow machine may come first: then again, with a longer one.
    for seconds in (3, 6, 12, 24, 48):
        if _outlives_its_former_run(target, function, tmp_path / str(seconds), seconds):
            return
    raise AssertionError("no run ended before its own timeout")


def _outlives_its_former_run(target: Deployed, function: str, folder: Path, seconds: int) -> bool:
    """True if a redriven execution succeeded; otherwise its own timeout expired."""
    folder.mkdir()
    client, gates = target.aws.client("stepfunctions"), [Gate(folder / str(run)) for run in range(2)]
    gate = f"{{% '{folder}/' & $string($states.context.Execution.RedriveCount) %}}"
    arguments = {"FunctionName": function, "Payload": {"gate": gate}}
    states = {"Held": {"Type": "Task", "Resource": LAMBDA, "Arguments": arguments, "End": True}}
    machine = create_machine(target.aws, states, TimeoutSeconds=seconds)
    execution, witness = start(target.aws, machine), start(target.aws, machine)
    gates[0].await_calls(2)
    with suppress(client.exceptions.ValidationException):  # on a slow machine it has timed out already
        client.stop_execution(executionArn=execution)
    time.sleep(seconds / 2)  # so much later is this run's timeout than the former's

    redriven = client.redrive_execution(executionArn=execution)["redriveDate"]
    # The former's timeout is over when that of an execution is that began after it.
    assert await_end(target.aws, witness)["status"] == "TIMED_OUT"
    gates[0].open()
    eventually(lambda: True if len(calls_of(target.aws, "redriven")) >= 2 else None)
    gates[1].open()
    described, succeeded = await_end(target.aws, execution), events(target.aws, execution).count("TaskSucceeded")
    target.aws.reset()

    if described["status"] == "TIMED_OUT":
        assert (described["stopDate"] - redriven).total_seconds() >= seconds
        return False
    assert (described["status"], succeeded) == ("SUCCEEDED", 1)
    return True
