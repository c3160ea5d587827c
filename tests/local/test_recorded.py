"""Behaviour of Step Functions that was recorded on AWS, on local AWS. Sources: docs/reference/local-aws.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import LocalAws

from .resources import create_queue, next_message, waiting_task
from .support import await_end, create_machine, run_machine

ALL = ["States.ALL"]
PASS = {"Type": "Pass", "End": True}


@pytest.fixture(scope="module")
def fast() -> Iterator[LocalAws]:
    """Corrected local AWS, ten times faster than real time."""
    with LocalAws(speed=10) as aws:
        yield aws


@pytest.fixture(scope="module")
def bare() -> Iterator[LocalAws]:
    """Local AWS without the corrections of this page."""
    names = ("nested-failures", "failed-entries", "express-waits", "machine-requests", "error-output")
    with LocalAws(speed=10, without=names) as aws:
        yield aws


@pytest.fixture
def aws(fast: LocalAws) -> LocalAws:
    """The same, emptied."""
    fast.reset()
    return fast


def _task(resource: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": arguments, "End": True, **more}


def _fail(error: str, cause: str = "why") -> dict[str, Any]:
    return {"Type": "Fail", "Error": error, "Cause": cause}


def _parallel(*branches: dict[str, Any], **more: Any) -> dict[str, Any]:
    flows = [{"StartAt": next(iter(branch)), "States": branch} for branch in branches]
    return {"Type": "Parallel", "Branches": flows, "End": True, **more}


def _map(processor: dict[str, Any], **more: Any) -> dict[str, Any]:
    flow = {"StartAt": next(iter(processor)), "States": processor}
    return {"Type": "Map", "Items": [1, 2, 3], "ItemProcessor": flow, "End": True, **more}


def _types(aws: LocalAws, described: dict[str, Any]) -> list[str]:
    client = aws.client("stepfunctions")
    history = client.get_execution_history(executionArn=described["executionArn"], maxResults=1_000)
    return [event["type"] for event in history["events"]]


def _code(call: Any, **arguments: Any) -> str:
    try:
        call(**arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "accepted"


# --- Names of errors


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ("dynamodb:putItem", "DynamoDB.ResourceNotFoundException"),
        ("aws-sdk:dynamodb:putItem", "DynamoDb.ResourceNotFoundException"),
    ],
)
def test_missing_table_has_the_name_of_its_integration(resource: str, error: str, aws: LocalAws) -> None:
    arguments = {"TableName": "missing", "Item": {"id": {"S": "1"}}}
    assert run_machine(aws, {"Put": _task(resource, arguments)})["error"] == error


def test_start_of_a_missing_state_machine_is_named_so(aws: LocalAws) -> None:
    arn = f"arn:aws:states:us-east-1:{aws.account}:stateMachine:missing"
    described = run_machine(aws, {"Start": _task("states:startExecution", {"StateMachineArn": arn})})
    assert described["error"] == "StepFunctions.StateMachineDoesNotExistException"


def test_missing_function_is_named_so_and_caught(aws: LocalAws) -> None:
    name = f"arn:aws:lambda:us-east-1:{aws.account}:function:missing"
    catch = [{"ErrorEquals": ["Lambda.ResourceNotFoundException"], "Next": "Caught"}]
    described = run_machine(
        aws, {"Call": _task("lambda:invoke", {"FunctionName": name}, Catch=catch), "Caught": {"Type": "Succeed"}}
    )
    assert described["status"] == "SUCCEEDED"


def test_event_with_a_malformed_detail_is_a_failed_entry(aws: LocalAws) -> None:
    entry = {"Source": "here", "DetailType": "x", "Detail": "no object"}
    assert run_machine(aws, {"Put": _task("events:putEvents", {"Entries": [entry]})})["error"] == (
        "EventBridge.FailedEntry"
    )


def test_child_whose_task_failed_is_a_failed_task_with_its_error_in_the_cause(aws: LocalAws) -> None:
    child = create_machine(aws, {"Stop": _fail("Declined")})
    described = run_machine(aws, {"Run": _task("states:startExecution.sync:2", {"StateMachineArn": child})})
    assert described["error"] == "States.TaskFailed"
    cause = json.loads(described["cause"])
    assert (cause["Error"], cause["Status"]) == ("Declined", "FAILED")


def test_failure_of_express_is_an_answer_with_its_error(aws: LocalAws) -> None:
    express = create_machine(aws, {"Stop": _fail("SomeFailure")}, express=True)
    client = aws.client("stepfunctions")
    answer = client.start_sync_execution(stateMachineArn=express)
    assert (answer["status"], answer["error"], answer["cause"]) == ("FAILED", "SomeFailure", "why")


# --- Retry and Catch


@pytest.mark.parametrize(("attempts", "tries"), [(0, 1), (1, 2), (3, 4)])
def test_retries_are_attempts_after_the_first(attempts: int, tries: int, aws: LocalAws) -> None:
    retry = [{"ErrorEquals": ALL, "IntervalSeconds": 1, "MaxAttempts": attempts, "BackoffRate": 1}]
    arguments = {"TableName": "missing", "Item": {"id": {"S": "1"}}}
    described = run_machine(aws, {"Put": _task("dynamodb:putItem", arguments, Retry=retry)})
    assert (described["status"], _types(aws, described).count("TaskScheduled")) == ("FAILED", tries)


def test_empty_retry_retries_nothing(aws: LocalAws) -> None:
    arguments = {"TableName": "missing", "Item": {"id": {"S": "1"}}}
    described = run_machine(aws, {"Put": _task("dynamodb:putItem", arguments, Retry=[])})
    assert _types(aws, described).count("TaskScheduled") == 1


def _counted(aws: LocalAws, error: str, wrap: Any) -> tuple[dict[str, Any], int]:
    """Run what a step that sends a message and fails is wrapped in: the end, and how many messages were sent."""
    queue = create_queue(aws)
    send = {"QueueUrl": queue, "MessageBody": {"sent": True}}
    steps = {"Send": {**_task("sqs:sendMessage", send), "Next": "Stop"}, "Stop": _fail(error)}
    del steps["Send"]["End"]
    described = run_machine(aws, {"All": wrap(steps)})
    answer = aws.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    return described, len(answer.get("Messages", ()))


def test_retry_of_a_parallel_runs_all_its_branches_again(aws: LocalAws) -> None:
    retry = [{"ErrorEquals": ["FailureType"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    described, sent = _counted(aws, "FailureType", lambda steps: _parallel(steps, Retry=retry))
    assert (described["status"], described["error"], sent) == ("FAILED", "FailureType", 2)


def test_retry_of_a_map_runs_its_items_again(aws: LocalAws) -> None:
    retry = [{"ErrorEquals": ["HandleItemFailError"], "IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1}]
    described, sent = _counted(aws, "HandleItemFailError", lambda steps: _map(steps, Items=[1], Retry=retry))
    assert (described["status"], described["error"], sent) == ("FAILED", "HandleItemFailError", 3)


def test_each_rule_of_a_retry_counts_its_own_attempts(aws: LocalAws) -> None:
    retry = [
        {"ErrorEquals": ["Other"], "IntervalSeconds": 1, "MaxAttempts": 5},
        {"ErrorEquals": ["HandleItemFailError"], "IntervalSeconds": 1, "MaxAttempts": 1},
    ]
    _, sent = _counted(aws, "HandleItemFailError", lambda steps: _map(steps, Items=[1], Retry=retry))
    assert sent == 2


def test_catch_of_a_parallel_receives_its_branchs_error(aws: LocalAws) -> None:
    catch = [{"ErrorEquals": ALL, "Next": "Caught", "Output": "{% $states.errorOutput %}"}]
    states = {"Both": _parallel({"Stop": _fail("FailureType", "Cause")}, Catch=catch), "Caught": PASS}
    assert run_machine(aws, states)["output"] == {"Error": "FailureType", "Cause": "Cause"}


def test_catch_of_a_map_receives_its_items_error(aws: LocalAws) -> None:
    catch = [{"ErrorEquals": ALL, "Next": "Caught", "Output": "{% $states.errorOutput.Error %}"}]
    states = {"Each": _map({"Stop": _fail("SomeFailure")}, Catch=catch), "Caught": PASS}
    assert run_machine(aws, states)["output"] == "SomeFailure"


def test_error_output_exists_in_a_catch_only(aws: LocalAws) -> None:
    """The state after it has none: an expression that reads it fails."""
    catch = [{"ErrorEquals": ALL, "Next": "Fallback"}]
    states = {
        "Both": _parallel({"Stop": _fail("Exception")}, Catch=catch),
        "Fallback": {**PASS, "Output": "{% $states.errorOutput %}"},
    }
    assert run_machine(aws, states)["error"] == "States.QueryEvaluationError"


def test_runtime_error_is_not_caught_by_a_wildcard(aws: LocalAws) -> None:
    catch = [{"ErrorEquals": ALL, "Next": "Caught"}]
    states = {"Both": _parallel({"Stop": _fail("States.Runtime")}, Catch=catch), "Caught": PASS}
    assert run_machine(aws, states)["error"] == "States.Runtime"


# --- Branches and items


def test_results_of_branches_are_in_the_order_of_the_branches(aws: LocalAws) -> None:
    slow = {"Wait": {"Type": "Wait", "Seconds": 2, "Next": "One"}, "One": {**PASS, "Output": 1}}
    assert run_machine(aws, {"Both": _parallel(slow, {"Two": {**PASS, "Output": 2}})})["output"] == [1, 2]


def test_variables_of_a_branch_are_not_those_of_its_parallel(aws: LocalAws) -> None:
    branch = {"Inner": {**PASS, "Assign": {"inner": 2}, "Output": "{% $outer %}"}}
    states = {
        "Begin": {"Type": "Pass", "Assign": {"outer": 1}, "Next": "Both"},
        "Both": {**_parallel(branch), "Output": {"read": "{% $states.result %}", "left": "{% $exists($inner) %}"}},
    }
    assert run_machine(aws, states)["output"] == {"read": [1], "left": False}


def test_items_of_a_map_have_variables_of_their_own(aws: LocalAws) -> None:
    item = {
        "Keep": {"Type": "Pass", "Assign": {"mine": "{% $states.input %}"}, "Next": "Read"},
        "Read": {**PASS, "Output": "{% $mine %}"},
    }
    assert run_machine(aws, {"Each": _map(item)})["output"] == [1, 2, 3]


# --- Assign, Output, Choice


@pytest.mark.parametrize(("value", "assigned"), [(True, "rule"), (False, "default")])
def test_choice_assigns_what_its_rule_or_its_default_assigns(value: bool, assigned: str, aws: LocalAws) -> None:
    choice = {
        "Type": "Choice",
        "Choices": [{"Condition": f"{{% {str(value).lower()} %}}", "Assign": {"by": "rule"}, "Next": "End"}],
        "Assign": {"by": "default"},
        "Default": "End",
    }
    assert run_machine(aws, {"Which": choice, "End": {**PASS, "Output": "{% $by %}"}})["output"] == assigned


@pytest.mark.parametrize("value", [None, 0, 1.5, True, "text", [], [1, "a", [2]]], ids=repr)
def test_output_may_be_any_json(value: Any, aws: LocalAws) -> None:
    assert run_machine(aws, {"Only": {**PASS, "Output": value}}).get("output") == value


def test_variable_that_was_never_assigned_is_undefined_only_when_it_is_read(aws: LocalAws) -> None:
    states = {"Read": {**PASS, "Output": "{% $exists($never) %}"}}
    assert run_machine(aws, states)["output"] is False
    assert run_machine(aws, {"Read": {**PASS, "Output": "{% $never %}"}})["error"] == "States.QueryEvaluationError"


# --- Tasks that wait


def test_failure_without_an_error_is_caught_by_a_wildcard(aws: LocalAws) -> None:
    queue = create_queue(aws)
    catch = [{"ErrorEquals": ALL, "Next": "Caught"}]
    machine = create_machine(aws, {"Ask": waiting_task(queue, Catch=catch, End=True), "Caught": {"Type": "Succeed"}})
    client = aws.client("stepfunctions")
    execution = client.start_execution(stateMachineArn=machine, input="{}")["executionArn"]
    client.send_task_failure(taskToken=next_message(aws, queue)["token"])
    assert await_end(aws, execution)["status"] == "SUCCEEDED"


def test_timeout_of_a_task_that_waits_is_its_executions_error(aws: LocalAws) -> None:
    task = {**waiting_task(create_queue(aws), End=True), "TimeoutSeconds": 5}
    described = run_machine(aws, {"Ask": task})
    assert (described["status"], described["error"]) == ("FAILED", "States.Timeout")
    assert "TaskTimedOut" in _types(aws, described)


def test_unknown_token_is_invalid(aws: LocalAws) -> None:
    client = aws.client("stepfunctions")
    assert _code(client.send_task_success, taskToken="no-token", output="{}") == "InvalidToken"
    assert _code(client.send_task_heartbeat, taskToken="no-token") == "InvalidToken"


# --- The API


def test_machine_with_the_same_name_and_definition_is_the_same(aws: LocalAws) -> None:
    client = aws.client("stepfunctions")
    definition = json.dumps({"StartAt": "End", "States": {"End": {"Type": "Succeed"}}})
    role = client.describe_state_machine(stateMachineArn=create_machine(aws, {"End": PASS}))["roleArn"]
    given: Any = {"name": "same", "definition": definition, "roleArn": role}
    first = client.create_state_machine(**given)["stateMachineArn"]
    assert client.create_state_machine(**given)["stateMachineArn"] == first
    other: Any = {**given, "definition": definition.replace("Succeed", "Fail")}
    assert _code(client.create_state_machine, **other) == "StateMachineAlreadyExists"


def test_requests_about_what_is_not_there_have_their_codes(aws: LocalAws) -> None:
    client, arn = aws.client("stepfunctions"), create_machine(aws, {"End": PASS})
    missing = f"{arn}-missing"
    execution = f"{arn.replace(':stateMachine:', ':execution:')}:missing"
    assert _code(client.start_execution, stateMachineArn=missing) == "StateMachineDoesNotExist"
    assert _code(client.describe_state_machine, stateMachineArn=missing) == "StateMachineDoesNotExist"
    assert _code(client.list_executions, stateMachineArn=missing) == "StateMachineDoesNotExist"
    assert _code(client.describe_execution, executionArn=execution) == "ExecutionDoesNotExist"
    assert _code(client.get_execution_history, executionArn=execution) == "ExecutionDoesNotExist"
    assert _code(client.delete_state_machine, stateMachineArn=missing) == "accepted"


def test_input_that_is_not_json_is_refused(aws: LocalAws) -> None:
    client, arn = aws.client("stepfunctions"), create_machine(aws, {"End": PASS})
    assert _code(client.start_execution, stateMachineArn=arn, input="not json") == "InvalidExecutionInput"


def test_standard_machine_cannot_be_started_synchronously(aws: LocalAws) -> None:
    arn = create_machine(aws, {"End": PASS})
    client = aws.client("stepfunctions")
    assert _code(client.start_sync_execution, stateMachineArn=arn) == "StateMachineTypeNotSupported"


@pytest.mark.parametrize("resource", ["sqs:sendMessage.waitForTaskToken", "states:startExecution.sync:2"])
def test_express_machine_cannot_wait(resource: str, aws: LocalAws) -> None:
    body = {"token": "{% $states.context.Task.Token %}"}
    with pytest.raises(ClientError, match="InvalidDefinition"):
        create_machine(aws, {"Wait": _task(resource, {"QueueUrl": "q", "MessageBody": body})}, express=True)


def test_history_can_be_read_backwards(aws: LocalAws) -> None:
    described = run_machine(aws, {"One": {"Type": "Pass", "Next": "Two"}, "Two": PASS})
    client = aws.client("stepfunctions")
    history = client.get_execution_history(executionArn=described["executionArn"], reverseOrder=True)
    assert [event["id"] for event in history["events"]] == [6, 5, 4, 3, 2, 1]
    assert history["events"][-1]["type"] == "ExecutionStarted"


def test_stopped_execution_ends_its_history_with_execution_aborted(aws: LocalAws) -> None:
    arn = create_machine(aws, {"Wait": {"Type": "Wait", "Seconds": 3_000, "End": True}})
    client = aws.client("stepfunctions")
    execution = client.start_execution(stateMachineArn=arn)["executionArn"]
    client.stop_execution(executionArn=execution)
    described = await_end(aws, execution)
    assert (described["status"], _types(aws, described)[-1]) == ("ABORTED", "ExecutionAborted")


def test_update_without_a_change_of_anything_is_refused(aws: LocalAws) -> None:
    client, arn = aws.client("stepfunctions"), create_machine(aws, {"End": PASS})
    assert _code(client.update_state_machine, stateMachineArn=arn) == "MissingRequiredParameter"


def test_emulator_does_otherwise_without_its_corrections(bare: LocalAws) -> None:
    client = bare.client("stepfunctions")
    child = create_machine(bare, {"Stop": _fail("Declined")})
    assert run_machine(bare, {"Run": _task("states:startExecution.sync:2", {"StateMachineArn": child})})["error"] == (
        "Declined"
    )
    entry = {"Source": "here", "DetailType": "x", "Detail": "no object"}
    assert run_machine(bare, {"Put": _task("events:putEvents", {"Entries": [entry]})})["status"] == "SUCCEEDED"
    create_machine(bare, {"Wait": _task("states:startExecution.sync:2", {"StateMachineArn": child})}, express=True)
    assert _code(client.start_sync_execution, stateMachineArn=child) == "accepted"
    assert run_machine(bare, {"Read": {**PASS, "Output": "{% $states.errorOutput %}"}})["status"] == "SUCCEEDED"
