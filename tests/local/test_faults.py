"""Every fault has its documented effect on a deployed function or a state machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from constructs_lib.testing.fault_plan import StopStatus
from constructs_lib.testing.faults import (
    Action,
    Attempts,
    Every,
    Fault,
    FaultControl,
    FaultReport,
    FaultsNotFiredError,
    First,
    Moment,
    Nth,
    RecordedCall,
    Share,
    StopAt,
)
from constructs_lib.testing.local_aws import LocalAws
from constructs_lib.testing.names import UnknownNameError

from .faults_stack import template
from .pauses import Pauses
from .resources import arn_of_queue, create_queue, next_message, start
from .support import await_end, create_machine, run_machine

PUT, UPDATE, TRANSACT = "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:TransactWriteItems"
SPEED = 10
PATIENCE_SECONDS = 180.0
TRIES = 5
"""How often something is tried that a busy machine may be too slow for."""


class Stack:
    """The deployed stack, and what the tests do with it."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        cloudformation = aws.client("cloudformation")
        cloudformation.create_stack(
            StackName="Faults", TemplateBody=json.dumps(template()), Capabilities=["CAPABILITY_IAM"]
        )
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName="Faults", WaiterConfig={"Delay": 0, "MaxAttempts": 1000}
        )
        outputs = cloudformation.describe_stacks(StackName="Faults")["Stacks"][0]["Outputs"]
        self.outputs = {output["OutputKey"]: output["OutputValue"] for output in outputs}

    def invoke(self, function: str = "Worker", **event: Any) -> dict[str, Any]:
        """The function's return value, or Lambda's error."""
        answer = self.aws.client("lambda").invoke(FunctionName=self.outputs[function], Payload=json.dumps(event))
        returned: dict[str, Any] = json.loads(answer["Payload"].read())
        return returned

    def exists(self, key: str) -> bool:
        return bool(self.item(key))

    def item(self, key: str) -> dict[str, Any]:
        found = self.aws.client("dynamodb").get_item(
            TableName=self.outputs["Table"], Key={"id": {"S": key}}, ConsistentRead=True
        )
        return {**found.get("Item", {})}

    def execute(self, name: str) -> dict[str, Any]:
        """Run an execution to its end."""
        states = self.aws.client("stepfunctions")
        arn = states.start_execution(
            stateMachineArn=self.outputs["Machine"], name=name, input=json.dumps({"id": name})
        )["executionArn"]
        described = {**states.describe_execution(executionArn=arn)}
        until, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses()
        while described["status"] == "RUNNING" and time.monotonic() < until:
            pauses.pause()
            described = {**states.describe_execution(executionArn=arn)}
        return described

    def errors(self, execution: dict[str, Any]) -> list[str]:
        """The names of the errors that tasks of the execution met."""
        history = self.aws.client("stepfunctions").get_execution_history(executionArn=execution["executionArn"])
        return [
            (event.get("taskFailedEventDetails") or event["taskTimedOutEventDetails"])["error"]
            for event in history["events"]
            if event["type"] in ("TaskFailed", "TaskTimedOut")
        ]

    @property
    def faults(self) -> FaultControl:
        return self.aws.faults

    def report(self) -> FaultReport:
        return self.aws.faults.report()


@pytest.fixture(scope="module")
def deployed() -> Iterator[Stack]:
    with LocalAws(speed=SPEED) as aws:
        yield Stack(aws)


@pytest.fixture
def stack(deployed: Stack) -> Stack:
    deployed.aws.reset()
    return deployed


def eventually(holds: Callable[[], bool]) -> bool:
    until, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses()
    while not holds() and time.monotonic() < until:
        pauses.pause()
    return holds()


# --- What happens to a function's call


@pytest.mark.parametrize(("moment", "took_effect"), [("before", False), ("after", True)])
def test_a_kill_ends_the_process_around_the_call(stack: Stack, moment: Any, took_effect: bool) -> None:
    before = stack.invoke(put="warm")["pid"]
    stack.faults.plan(Fault(function="Worker", call=PUT, moment=moment, action="kill"))

    answer = stack.invoke(put="k")

    assert answer["errorType"] == "Runtime.ExitError"
    assert stack.exists("k") is took_effect
    assert stack.invoke(put="next")["pid"] != before


def test_a_kill_ends_the_process_that_made_the_call(stack: Stack, tmp_path: Path) -> None:
    """The others are in the middle of their calls, each in a process of its own, until the last of them is."""
    stack.faults.plan(Fault(function="Worker", call=PUT, moment="after", action="kill", containing="victim"))
    keys = ["a", "b", "victim", "c"]

    with ThreadPoolExecutor(len(keys)) as pool:
        calls = pool.map(lambda key: stack.invoke(put=key, together=[str(tmp_path), 3]), keys)
        answers = dict(zip(keys, calls, strict=True))

    assert answers["victim"]["errorType"] == "Runtime.ExitError"
    assert len({answers[key]["pid"] for key in "abc"}) == 3
    assert all(stack.exists(key) for key in keys)


def test_a_kill_while_the_function_initializes_is_a_failed_invocation_too(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Importer", call="sts:GetCallerIdentity", action="kill"))

    answer = stack.invoke("Importer")

    assert answer["errorType"] == "Runtime.ExitError"
    assert "pid" in stack.invoke("Importer")


def test_a_killed_function_behind_the_api_is_a_502(stack: Stack) -> None:
    stack.invoke(put="warm")  # the gateway does not wait for ever
    stack.faults.plan(Fault(function="Worker", call=PUT, moment="after", action="kill"))
    url = urlsplit(stack.aws.api_url(stack.outputs["Api"], "test"))
    connection = HTTPConnection(url.netloc, timeout=PATIENCE_SECONDS)

    connection.request("POST", f"{url.path}/k", headers={"content-type": "application/json"}, body="{}")
    status = connection.getresponse().status
    connection.close()

    assert status == 502
    assert stack.exists("from-api")


@pytest.mark.parametrize("action", ["drop", "error"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_sdk_repeats_a_call_whose_first_attempt_was_dropped_or_failed(
    stack: Stack, action: Any, moment: Any
) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, moment=moment, action=action))

    assert "pid" in stack.invoke(put="k")

    outcome = stack.report().outcomes[0]
    assert stack.exists("k")
    assert (outcome.matched, outcome.fired, outcome.attempts) == (1, 1, 1)


@pytest.mark.parametrize(("action", "error"), [("drop", "ConnectionClosedError"), ("error", "InternalServerError")])
@pytest.mark.parametrize(("moment", "took_effect"), [("before", False), ("after", True)])
def test_a_call_whose_every_attempt_is_dropped_or_failed_raises_in_the_function(
    stack: Stack, action: Any, error: str, moment: Any, took_effect: bool
) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, moment=moment, action=action, attempts="all"))

    answer = stack.invoke(put="k", attempts=3)

    outcome = stack.report().outcomes[0]
    assert answer["raised"] == error
    assert stack.exists("k") is took_effect
    assert (outcome.matched, outcome.fired, outcome.attempts) == (1, 1, 3)


def test_a_held_back_request_is_applied_when_its_sender_is_dead(stack: Stack) -> None:
    stack.invoke("Hasty", put="warm")
    stack.faults.plan(Fault(function="Hasty", call=PUT, moment="before", action="delay"))

    answer = stack.invoke("Hasty", put="k")

    assert answer["errorType"] == "Sandbox.Timedout"
    assert eventually(lambda: stack.exists("k"))


def test_a_held_response_leaves_the_effect_applied(stack: Stack) -> None:
    stack.invoke("Hasty", put="warm")
    stack.faults.plan(Fault(function="Hasty", call=PUT, moment="after", action="delay", on=Every()))

    def is_seen_before_the_end(key: str) -> bool:
        with ThreadPoolExecutor(1) as pool:
            invoking = pool.submit(stack.invoke, "Hasty", put=key)
            assert eventually(lambda: stack.exists(key))
            runs = not invoking.done()
            assert invoking.result()["errorType"] == "Sandbox.Timedout"
            return runs

    assert any(is_seen_before_the_end(str(number)) for number in range(TRIES))


def test_a_delay_of_given_length_passes_in_the_emulators_time(stack: Stack) -> None:
    """A tenth of it is real, and once at least not the whole: a machine may have other things to do."""
    stack.invoke(put="warm")
    stack.faults.plan(Fault(function="Worker", call=PUT, action="delay", seconds=5, on=Every()))

    def seconds() -> float:
        began = time.monotonic()
        assert "pid" in stack.invoke(put="k")
        return time.monotonic() - began

    took = [seconds()]
    while took[-1] >= 5 and len(took) < TRIES:
        took.append(seconds())
    assert min(took) >= 5 / SPEED
    assert min(took) < 5


def test_a_held_back_request_is_dropped_when_the_plan_is_cleared(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, action="delay", seconds=600))

    with ThreadPoolExecutor(1) as pool:
        invoking = pool.submit(stack.invoke, put="k", attempts=1)
        assert eventually(lambda: stack.report().fired == 1)
        stack.faults.clear()
        assert invoking.result()["raised"] == "ConnectionClosedError"

    assert not stack.exists("k")


@pytest.mark.parametrize(
    ("service", "operation", "call", "code"),
    [
        ("dynamodb", "list_tables", "dynamodb:ListTables", "ProvisionedThroughputExceededException"),
        ("stepfunctions", "list_state_machines", "states:ListStateMachines", "ThrottlingException"),
        ("lambda", "list_functions", "lambda:ListFunctions", "TooManyRequestsException"),
        ("sqs", "list_queues", "sqs:ListQueues", "RequestThrottled"),
        ("s3", "list_buckets", "s3:ListBuckets", "SlowDown"),
        ("sts", "get_caller_identity", "sts:GetCallerIdentity", "Throttling"),
        ("events", "list_event_buses", "events:ListEventBuses", "ThrottlingException"),
    ],
)
def test_a_throttled_call_meets_the_throttling_error_of_its_service(
    stack: Stack, service: str, operation: str, call: str, code: str
) -> None:
    stack.faults.plan(Fault(function="Worker", call=call, action="throttle", attempts="all"))

    answer = stack.invoke(service=service, operation=operation, attempts=2)

    assert answer["code"] == code
    assert stack.report().outcomes[0].attempts == 2


def test_the_sdk_gets_past_a_single_throttle(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, action="throttle"))

    assert "pid" in stack.invoke(put="k")
    assert stack.report().fired == 1


def test_a_conflict_refuses_a_single_write(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, action="conflict"))

    assert stack.invoke(put="k")["code"] == "TransactionConflictException"
    assert not stack.exists("k")


@pytest.mark.parametrize(
    ("items", "reasons"),
    [(None, ["TransactionConflict", "TransactionConflict"]), ((1,), ["None", "TransactionConflict"])],
)
def test_a_conflict_cancels_a_transaction_with_a_reason_per_item(
    stack: Stack, items: tuple[int, ...] | None, reasons: list[str]
) -> None:
    stack.faults.plan(Fault(function="Worker", call=TRANSACT, action="conflict", items=items))

    answer = stack.invoke(transact=["a", "b"], attempts=1)

    assert answer["code"] == "TransactionCanceledException"
    assert answer["reasons"] == reasons
    assert not stack.exists("a")


# --- Which calls are hit, and what is reported about them


def test_only_the_nth_call_is_hit(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, action="conflict", on=Nth(2)))

    assert ["code" in stack.invoke(put=key) for key in "abc"] == [False, True, False]


def test_a_seeded_share_hits_the_same_calls_again(stack: Stack) -> None:
    runs = []
    for _ in range(2):
        stack.aws.reset()
        stack.faults.plan(Fault(function="Worker", call=PUT, action="conflict", on=Share(0.5, seed=5)))
        runs.append(["code" in stack.invoke(put=str(number)) for number in range(12)])

    assert runs[0] == runs[1]
    assert 0 < sum(runs[0]) < 12


def test_exactly_as_many_concurrent_calls_are_hit_as_planned(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, action="conflict", on=First(7)))

    with ThreadPoolExecutor(8) as pool:
        refused = sum(pool.map(lambda number: "code" in stack.invoke(put=str(number)), range(24)))

    assert refused == 7
    assert stack.report().outcomes[0].matched == 24


def test_the_report_states_when_and_whom_a_fault_hit(stack: Stack) -> None:
    (id_,) = stack.faults.plan(Fault(function="Worker", call=PUT, action="drop"))
    request_id = stack.invoke(put="k")["request_id"]

    outcome = stack.report().outcomes[0]
    (firing,) = outcome.firings

    assert outcome.id == id_
    assert (firing.caller, firing.call, firing.request_id) == (stack.outputs["Worker"], PUT, request_id)
    assert firing.at.utcoffset() is not None


def test_a_fault_that_did_not_fire_fails_the_test_that_asks(stack: Stack) -> None:
    stack.faults.plan(
        Fault(function="Worker", call=PUT, action="drop"), Fault(function="Hasty", call=PUT, action="kill")
    )
    stack.invoke(put="k")

    report = stack.report()

    assert (report.planned, report.fired, report.firings) == (2, 1, 1)
    with pytest.raises(
        FaultsNotFiredError, match=r"1 of 2 planned faults did not fire:\n.*function='Hasty'.*: 0 calls"
    ):
        report.require_all_fired()


def test_a_reset_clears_the_plan(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, action="kill", on=Every()))
    stack.aws.reset()

    assert "pid" in stack.invoke(put="k")
    assert stack.report().planned == 0


def test_an_unknown_name_is_refused(stack: Stack) -> None:
    with pytest.raises(UnknownNameError, match="Wroker"):
        stack.faults.plan(Fault(function="Wroker", call=PUT, action="kill"))


@pytest.mark.parametrize("headers", [{"host": "evil.example:1"}, {"origin": "http://evil.example"}])
def test_a_web_page_cannot_plan_faults(stack: Stack, headers: dict[str, str]) -> None:
    connection = HTTPConnection(urlsplit(stack.aws.endpoint_url).netloc, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/_cdk_sagas/faults", headers=headers)
    status = connection.getresponse().status
    connection.close()

    assert status == 403


# --- What is recorded


def summary(call: RecordedCall) -> tuple[str, int, int, int | None]:
    return call.call, call.occurrence, call.attempt, call.status


def test_a_recording_lists_the_calls_of_functions_in_order_with_their_retries(stack: Stack) -> None:
    (id_,) = stack.faults.plan(Fault(function="Worker", call=PUT, action="throttle", on=Nth(2)))

    with stack.aws.calls.record() as calls:
        first = stack.invoke(put="a")["request_id"]
        assert len(calls) == 1
        stack.invoke(put="b")
        stack.invoke(service="sts", operation="get_caller_identity")
    stack.invoke(put="c")

    assert [summary(call) for call in calls] == [
        (PUT, 1, 1, 200),
        (PUT, 2, 1, 400),
        (PUT, 2, 2, 200),
        ("sts:GetCallerIdentity", 1, 1, 200),
    ]
    assert [call.sequence for call in calls] == [1, 2, 3, 4]
    assert {call.caller for call in calls} == {stack.outputs["Worker"]}
    assert calls[0].request_id == first
    assert [call.fault for call in calls] == [None, id_, None, None]


def test_a_recording_may_list_only_the_calls_that_contain_a_text(stack: Stack) -> None:
    with stack.aws.calls.record(containing='"wanted"') as calls:
        stack.invoke(put="other")
        stack.invoke(put="wanted")

    assert [summary(call) for call in calls] == [(PUT, 1, 1, 200)]
    with pytest.raises(ValueError, match="containing must be some text, got ''"):
        stack.aws.calls.record(containing="")


def test_a_dropped_call_is_recorded_without_status(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, moment="after", action="kill"))

    with stack.aws.calls.record() as calls:
        stack.invoke(put="k")

    assert [call.status for call in calls] == [None]


def test_a_recording_of_an_execution_has_its_own_calls_and_those_of_its_functions(stack: Stack) -> None:
    with stack.aws.calls.record() as calls:
        stack.execute("e")

    machine, worker = "states:" + stack.outputs["Machine"].rpartition(":")[2], stack.outputs["Worker"]
    assert [(call.caller, call.call, call.state, call.execution) for call in calls] == [
        (machine, "lambda:Invoke", "Step", "e"),
        (worker, PUT, None, "e"),
        (machine, UPDATE, "Settle", "e"),
        (machine, UPDATE, "SettleBySdk", "e"),
    ]


# --- State machines


@pytest.mark.parametrize(("nth", "prefix"), [(1, "DynamoDB"), (2, "DynamoDb")])
@pytest.mark.parametrize(
    ("action", "moment", "error"),
    [
        (Action.DROP, Moment.BEFORE, "SdkClientException"),
        (Action.DROP, Moment.AFTER, "SdkClientException"),
        (Action.ERROR, Moment.BEFORE, "InternalServerErrorException"),
        (Action.ERROR, Moment.AFTER, "InternalServerErrorException"),
        (Action.THROTTLE, Moment.BEFORE, "ProvisionedThroughputExceededException"),
        (Action.CONFLICT, Moment.BEFORE, "TransactionConflictException"),
    ],
)
def test_a_failed_call_of_the_state_machine_has_its_name_and_is_retried(
    stack: Stack, nth: int, prefix: str, action: Action, moment: Moment, error: str
) -> None:
    stack.faults.plan(Fault(function="states:Machine", call=UPDATE, moment=moment, action=action, on=Nth(nth)))

    execution = stack.execute("e")

    assert execution["status"] == "SUCCEEDED"
    assert stack.errors(execution) == [f"{prefix}.{error}"]
    # Counted by ADD, so an effect that an error hid is seen twice.
    hidden = moment is Moment.AFTER
    assert stack.item("e")["settled"] == {"N": "2" if hidden and nth == 1 else "1"}
    assert stack.item("e")["settled_by_sdk"] == {"N": "2" if hidden and nth == 2 else "1"}


@pytest.mark.parametrize(
    ("action", "moment", "error"),
    [
        (Action.DROP, Moment.BEFORE, "Lambda.SdkClientException"),
        (Action.DROP, Moment.AFTER, "Lambda.SdkClientException"),
        (Action.ERROR, Moment.BEFORE, "Lambda.ServiceException"),
        (Action.ERROR, Moment.AFTER, "Lambda.ServiceException"),
        (Action.THROTTLE, Moment.BEFORE, "Lambda.TooManyRequestsException"),
    ],
)
def test_an_invocation_by_the_state_machine_fails_before_or_after_the_function_ran(
    stack: Stack, action: Action, moment: Moment, error: str
) -> None:
    stack.faults.plan(Fault(function="states:Machine", call="lambda:Invoke", moment=moment, action=action))

    with stack.aws.calls.record() as calls:
        execution = stack.execute("e")

    assert execution["status"] == "SUCCEEDED"
    assert stack.errors(execution) == [error]
    assert sum(call.call == PUT for call in calls) == (2 if moment is Moment.AFTER else 1)


def test_a_killed_step_function_is_an_exit_error_to_the_state_machine(stack: Stack) -> None:
    stack.faults.plan(Fault(function="Worker", call=PUT, moment="after", action="kill"))

    execution = stack.execute("e")

    assert execution["status"] == "SUCCEEDED"
    assert stack.errors(execution) == ["Runtime.ExitError"]
    assert stack.report().outcomes[0].firings[0].execution == "e"


@pytest.mark.parametrize(("moment", "runs"), [(Moment.BEFORE, 1), (Moment.AFTER, 2)])
def test_a_held_execution_continues_when_the_plan_is_cleared(stack: Stack, moment: Moment, runs: int) -> None:
    stack.faults.plan(
        Fault(function="states:Machine", call="lambda:Invoke", action="delay", moment=moment, seconds=600)
    )

    with ThreadPoolExecutor(1) as pool, stack.aws.calls.record() as calls:
        running = pool.submit(stack.execute, "e")
        assert eventually(lambda: stack.report().fired == 1)
        assert eventually(lambda: moment is Moment.BEFORE or any(call.call == PUT for call in calls))
        stack.faults.clear()
        execution = running.result()

    assert execution["status"] == "SUCCEEDED"
    assert stack.errors(execution) == ["Lambda.SdkClientException"]
    assert sum(call.call == PUT for call in calls) == runs


def test_a_delayed_call_of_the_state_machine_runs_into_the_timeout_of_its_state(stack: Stack) -> None:
    stack.faults.plan(Fault(function="states:Machine", call=UPDATE, action="delay", seconds=600))

    execution = stack.execute("e")

    assert execution["status"] == "SUCCEEDED"
    assert stack.errors(execution) == ["States.Timeout"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("state", "effects"),
    [
        ("Step", (False, True)),
        ("Left", (True, True)),
        ("Right", (True, True)),
        ("Settle", (True, True)),
        ("Done", (True, True)),
    ],
)
@pytest.mark.parametrize("status", list(StopStatus))
def test_an_execution_ends_at_the_named_state(
    stack: Stack, state: str, effects: tuple[bool, bool], moment: Any, status: StopStatus
) -> None:
    stack.faults.plan(StopAt(machine="Machine", state=state, moment=moment, status=status))

    execution = stack.execute("e")

    assert execution["status"] == status
    assert stack.exists("step-e") is effects[moment == "after"]
    settled = (state, moment) in {("Settle", "after"), ("Done", "before"), ("Done", "after")}
    assert stack.exists("e") is settled
    stack.report().require_all_fired()
    assert stack.execute("another")["status"] == "SUCCEEDED"


ENDS = {StopStatus.ABORTED: "ExecutionAborted", StopStatus.TIMED_OUT: "ExecutionTimedOut"}


@pytest.mark.parametrize("status", list(StopStatus))
def test_an_ended_execution_is_caught_by_no_state_and_emits_a_status_event(stack: Stack, status: StopStatus) -> None:
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]
    states = {
        "Step": {"Type": "Parallel", "Branches": [branch("Inner")], "Catch": catch, "End": True},
        "Caught": {"Type": "Succeed"},
    }
    machine = create_machine(stack.aws, states)
    queue = create_queue(stack.aws, "ends")
    events = stack.aws.client("events")
    pattern = {"source": ["aws.states"], "detail": {"status": [status], "stateMachineArn": [machine]}}
    events.put_rule(Name="ends", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="ends", Targets=[{"Id": "queue", "Arn": arn_of_queue(stack.aws, queue)}])
    stack.faults.plan(StopAt(machine="*", state="Inner", status=status))

    arn = start(stack.aws, machine)

    ended = await_end(stack.aws, arn)
    history = stack.aws.client("stepfunctions").get_execution_history(executionArn=arn)["events"]
    assert (ended["status"], ended.get("error"), ended.get("output")) == (status, None, None)
    entered = [event["stateEnteredEventDetails"]["name"] for event in history if "stateEnteredEventDetails" in event]
    assert (entered, history[-1]["type"]) == (["Step"], ENDS[status])
    told = next_message(stack.aws, queue)["detail"]
    assert (told["executionArn"], told["status"], told["error"]) == (arn, status, None)


@pytest.mark.parametrize("status", StopStatus)
def test_a_wait_for_an_execution_reports_its_failure(stack: Stack, status: StopStatus) -> None:
    child = create_machine(stack.aws, {"Inner": {"Type": "Pass", "End": True}})
    states = {
        "Child": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Arguments": {"StateMachineArn": child, "Input": {}},
            "Catch": [{"ErrorEquals": ["States.TaskFailed"], "Next": "Caught"}],
            "End": True,
        },
        "Caught": {"Type": "Succeed"},
    }
    stack.faults.plan(StopAt(machine="*", state="Inner", status=status))

    parent = run_machine(stack.aws, states)

    assert (parent["status"], stack.errors(parent)) == ("SUCCEEDED", ["States.TaskFailed"])


def branch(state: str) -> dict[str, Any]:
    """A branch of one state."""
    return {"StartAt": state, "States": {state: {"Type": "Pass", "End": True}}}


def test_attempts_and_moments_are_accepted_by_name_or_as_members() -> None:
    by_name = Fault(function="f", call=PUT, action="drop", moment="after", attempts="all")

    assert by_name == Fault(function="f", call=PUT, action=Action.DROP, moment=Moment.AFTER, attempts=Attempts.ALL)
