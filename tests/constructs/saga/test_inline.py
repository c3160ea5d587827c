"""Sagas that run inline: what is created, what the synth refuses, and how the run of a deployed saga changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb

from constructs_lib import (
    Effect,
    IdempotencyTable,
    Operation,
    Retry,
    Run,
    SagaStateMachine,
    Step,
    StepGroup,
    TransactionApi,
)
from constructs_lib.saga.asl.ending import LOOK_AT_RECORD
from constructs_lib.saga.validation.budget import Severity
from constructs_lib.saga.validation.definition_file import WRITE_VARIABLE, compare_with_file
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import plain_function

Steps = list[Step | StepGroup]


@pytest.fixture
def stack(new_app: Callable[[], Any]) -> Stack:
    return Stack(new_app(), "Test")


def _saga(stack: Stack, steps: Steps, tmp_path: Path, run: Run = Run.INLINE) -> SagaStateMachine:
    requests = IdempotencyTable(stack, "Requests")
    return SagaStateMachine(
        stack, "Saga", requests=requests, steps=steps, run=run, definition_file=tmp_path / "saga.json"
    )


def test_inline_saga_has_an_express_machine_and_an_alarm(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    saga = _saga(stack, [Step.atomic("Debit", fn=fn, compensate=fn), Step.atomic("Credit", fn=fn)], tmp_path)

    assert saga.express_machine is not None
    assert saga.delegated_alarm is not None
    assert saga.express_definition is not None
    assert saga.express_definition["TimeoutSeconds"] == 60
    properties = Cloud(stack).one("Saga/Express").properties
    assert properties["TracingConfiguration"] == {"Enabled": True}
    assert "Execution.Name" not in json.dumps(saga.express_definition)
    assert "Park saga" not in saga.express_definition["States"]
    retries = [retry for state in saga.express_definition["States"].values() for retry in state.get("Retry", ())]
    assert max(retry["MaxAttempts"] for retry in retries) == 2


def test_alarm_counts_sagas_of_which_no_express_execution_was_started(stack: Stack, tmp_path: Path) -> None:
    _saga(stack, [Step.atomic("Credit", fn=plain_function(stack, "Function"))], tmp_path)

    metrics = Cloud(stack).one("Saga/DelegatedAlarm").properties["Metrics"]
    counted = {
        metric["Id"]: (metric["MetricStat"]["Metric"]["MetricName"], str(metric["MetricStat"]["Metric"]["Dimensions"]))
        for metric in metrics
        if "MetricStat" in metric
    }
    assert {name: found[0] for name, found in counted.items()} == {
        "started": "ExecutionsStarted",
        "settled": "ExecutionsSucceeded",
    }
    assert "Saga/StateMachine" in counted["started"][1]
    assert "Saga/Express" in counted["settled"][1]


def test_each_call_of_express_that_fails_is_delegated(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    saga = _saga(stack, [Step.atomic("Debit", fn=fn, compensate=fn), Step.atomic("Credit", fn=fn)], tmp_path)

    assert saga.express_definition is not None
    tasks = {name: state for name, state in saga.express_definition["States"].items() if state["Type"] == "Task"}
    open_ended = {
        name
        for name, state in tasks.items()
        if not any("States.ALL" in caught["ErrorEquals"] for caught in state.get("Catch", ()))
    }

    assert open_ended == {"Start Standard"}
    assert {"Settle completed", "Settle failed", "Set direction to compensate", "Query saga log"} < set(tasks)


def test_prepared_saga_has_no_express_machine(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    steps: Steps = [Step.atomic("Debit", fn=fn, compensate=fn), Step.atomic("Credit", fn=fn)]

    prepared = _saga(stack, steps, tmp_path, Run.PREPARED)

    assert prepared.express_machine is None
    assert "Wait for Express to end" in prepared.definition["States"]


def test_standard_saga_keeps_its_definition(stack: Stack) -> None:
    fn = plain_function(stack, "Function")
    requests = IdempotencyTable(stack, "Requests")

    saga = SagaStateMachine(stack, "Saga", requests=requests, steps=[Step.atomic("Credit", fn=fn)])

    assert saga.run is Run.STANDARD
    assert "Wait for Express to end" not in saga.definition["States"]


_HOUR = Duration.hours(1)


def _pivot(fn: Any) -> Step:
    return Step.atomic("Credit", fn=fn, pivot=True)


def _each(fn: Any, *, items: str = "$request.items") -> StepGroup:
    return Step.map("Each", items=items, key="$item.id", steps=[Step.atomic("Reserve", fn=fn, compensate=fn)])


def _update(amount: str) -> dict[str, Any]:
    return {
        "Update": {
            "Key": {"id": {"S": "one"}},
            "UpdateExpression": "ADD #n :n",
            "ExpressionAttributeNames": {"#n": "n"},
            "ExpressionAttributeValues": {":n": {"N": f"{{% $string({amount}) %}}"}},
        }
    }


REFUSED: dict[str, tuple[Callable[[Any], Steps], str]] = {
    "an Express phase": (
        lambda fn: [Step.express("Phase", steps=[Step.atomic("A", fn=fn, compensate=fn)]), _pivot(fn)],
        "step Phase, which is a group of kind express",
    ),
    "a child": (
        lambda fn: [Step.child("Phase", steps=[Step.atomic("A", fn=fn, compensate=fn)], timeout=_HOUR), _pivot(fn)],
        "step Phase, which is a group of kind child",
    ),
    "items of an output": (
        lambda fn: [
            Step.read_only("List", fn=fn),
            _each(fn, items="$outputs.List.items"),
            _pivot(fn),
        ],
        r"step Each, which has items or keys with \$outputs.List",
    ),
    "a condition of a group over an unrecorded output": (
        lambda fn: [
            _pivot(fn),
            Step.custom("Ask", state={"Type": "Pass"}),
            Step.parallel("Both", branches=[[Step.atomic(n, fn=fn)] for n in "AB"], when="$outputs.Ask.ok"),
        ],
        "step Both, which has a condition over the output of Ask",
    ),
    "time in a condition within a branch": (
        lambda fn: [
            Step.parallel(
                "Both",
                branches=[
                    [Step.atomic("A", fn=fn, compensate=fn, when="$millis() > 5")],
                    [Step.atomic("B", fn=fn, compensate=fn)],
                ],
            ),
            _pivot(fn),
        ],
        r"step A, which has a condition with \$millis",
    ),
    "a wait within a branch": (
        lambda fn: [
            _pivot(fn),
            Step.parallel(
                "Both",
                branches=[[Step.custom("Rest", state={"Type": "Wait", "Seconds": 5})], [Step.atomic("B", fn=fn)]],
            ),
        ],
        "step Rest, which is a state of type Wait",
    ),
    "a compensation by an output": (
        lambda fn: [
            Step.read_only("Rate", fn=fn),
            Step.dynamodb(
                "Book",
                table=dynamodb.TableV2.from_table_name(Stack.of(fn), "Items", "items"),
                writes=[_update("$outputs.Rate.amount")],
                compensate=[_update("-$outputs.Rate.amount")],
            ),
            _pivot(fn),
        ],
        "step Book, which compensates by the output of Rate",
    ),
    "an unrecorded read": (
        lambda fn: [Step.read_only("Ask", fn=fn, record=False), Step.atomic("Credit", fn=fn)],
        "step Ask, which reads without recording its output",
    ),
    "time in a condition": (
        lambda fn: [Step.atomic("Credit", fn=fn, pivot=True), Step.atomic("Book", fn=fn, when="$millis() > 5")],
        r"step Book, which has a condition with \$millis",
    ),
    "a condition over an unrecorded output": (
        lambda fn: [
            Step.atomic("Credit", fn=fn, pivot=True),
            Step.custom("Ask", state={"Type": "Pass"}),
            Step.atomic("Book", fn=fn, when="$outputs.Ask.ok"),
        ],
        "step Book, which has a condition over the output of Ask",
    ),
    "an output that no row keeps": (
        lambda fn: [
            Step.atomic("Credit", fn=fn, pivot=True),
            Step.custom("Ask", state={"Type": "Pass"}, output='{"rate": $random()}'),
            Step.atomic("Book", fn=fn),
        ],
        "step Ask, which has an output that no row keeps",
    ),
    "an output of a service that no row keeps": (
        lambda fn: [
            Step.service(
                "Ask",
                service="ssm",
                action="getParameter",
                parameters={"Name": "rate"},
                effect=Effect.READ,
                policies=[],
                output='{"rate": $states.result.Parameter.Value}',
            ),
            Step.atomic("Credit", fn=fn, pivot=True),
        ],
        "step Ask, which has an output that no row keeps",
    ),
    "a state that waits": (
        lambda fn: [
            Step.atomic("Credit", fn=fn, pivot=True),
            Step.custom("Rest", state={"Type": "Wait", "Seconds": 5}),
        ],
        "step Rest, which is a state of type Wait",
    ),
    "an activity": (
        lambda fn: [
            Step.atomic("Credit", fn=fn, pivot=True),
            Step.custom(
                "Sign",
                state={
                    "Type": "Task",
                    "Resource": "arn:aws:states:eu-central-1:111111111111:activity:sign",
                    "TimeoutSeconds": 20,
                },
            ),
        ],
        "step Sign, which waits for an activity's worker",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_step_that_cannot_run_inline_is_refused(stack: Stack, tmp_path: Path, name: str) -> None:
    make, message = REFUSED[name]

    with pytest.raises(ValueError, match=message):
        _saga(stack, make(plain_function(stack, "Function")), tmp_path)


def _groups(fn: Any) -> Steps:
    branches = [[Step.atomic(name, fn=fn, compensate=fn) for name in names] for names in (("A", "B"), ("C",))]
    return [Step.parallel("Both", branches=branches), _each(fn), _pivot(fn)]


@pytest.mark.parametrize("group", ["Both", "Each"])
def test_group_that_is_fenced_or_in_doubt_ends_nothing(stack: Stack, tmp_path: Path, group: str) -> None:
    saga = _saga(stack, _groups(plain_function(stack, "Function")), tmp_path)

    assert saga.express_definition is not None
    express, standard = saga.express_definition["States"], saga.definition["States"]
    for states in (express, standard):
        (fenced,) = (rule for rule in states[f"{group} - result"]["Choices"] if "$phase.fenced" in rule["Condition"])
        assert fenced["Next"] == LOOK_AT_RECORD
        assert fenced["Assign"]["again"] == group
    assert standard[f"{group} - result"]["Default"] == "Fence Credit"
    assert express[f"{group} - result"]["Default"] == "Start Standard"
    assert express[group]["Catch"][-1]["Next"] == "Start Standard"
    refused = express[f"{group} - result"]["Choices"][-1]
    assert (refused["Condition"], refused["Next"]) == ('{% $phase.failure.kind = "saga-refused" %}', "Fence Credit")


def test_branches_of_express_retry_quickly_and_have_the_sagas_name(stack: Stack, tmp_path: Path) -> None:
    saga = _saga(stack, _groups(plain_function(stack, "Function")), tmp_path)

    assert saga.express_definition is not None
    states = saga.express_definition["States"]
    items = [states[name]["ItemProcessor"] for name in ("Each", "Compensate Each")]
    branches = [*states["Both"]["Branches"], *items]
    retries = [retry for branch in branches for state in branch["States"].values() for retry in state.get("Retry", ())]
    assert retries
    assert max(retry["MaxAttempts"] for retry in retries) == 2
    assert "Execution.Name" not in json.dumps(saga.express_definition)
    assert "Wait" not in {state["Type"] for state in states.values()}


def test_group_behind_the_pivot_is_delegated(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    last = Step.parallel("Both", branches=[[Step.atomic(name, fn=fn)] for name in "AB"])
    saga = _saga(stack, [_pivot(fn), last], tmp_path)

    assert saga.express_definition is not None
    over = saga.express_definition["States"]["Both - result"]
    assert {over["Default"], *(rule["Next"] for rule in over["Choices"][2:])} == {"Start Standard"}
    assert saga.definition["States"]["Both - result"]["Default"] == "Retries left for Both?"


def test_compensation_by_the_steps_own_output_is_taken(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    table = dynamodb.TableV2.from_table_name(stack, "Items", "items")
    step = Step.dynamodb(
        "Book",
        table=table,
        writes=[_update("$request.amount")],
        compensate=[_update("-$output.amount")],
        output='{"amount": $request.amount}',
    )

    assert _saga(stack, [step, _pivot(fn)], tmp_path).express_definition is not None


def test_step_that_takes_too_long_is_refused(stack: Stack, tmp_path: Path) -> None:
    slow = plain_function(stack, "Slow", timeout=Duration.seconds(51))

    with pytest.raises(ValueError, match="step Credit, which may take 51 s, more than 50 s"):
        _saga(stack, [Step.atomic("Credit", fn=slow, retry=Retry(in_doubt_attempts=8))], tmp_path)


def test_inline_saga_without_a_definition_file_is_refused(stack: Stack) -> None:
    fn = plain_function(stack, "Function")
    requests = IdempotencyTable(stack, "Requests")

    with pytest.raises(ValueError, match="definition_file must be set for run=INLINE, got None"):
        SagaStateMachine(stack, "Saga", requests=requests, steps=[Step.atomic("Credit", fn=fn)], run=Run.INLINE)


@pytest.mark.parametrize(
    ("before", "now", "refused"),
    [
        (Run.STANDARD, Run.INLINE, True),
        (Run.INLINE, Run.STANDARD, True),
        (Run.STANDARD, Run.PREPARED, False),
        (Run.PREPARED, Run.INLINE, False),
        (Run.INLINE, Run.PREPARED, False),
        (Run.PREPARED, Run.STANDARD, False),
    ],
)
@pytest.mark.parametrize("writes", [False, True])
def test_run_changes_by_way_of_prepared_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Run, now: Run, *, refused: bool, writes: bool
) -> None:
    path = tmp_path / "saga.json"
    monkeypatch.setenv(WRITE_VARIABLE, "1")
    compare_with_file(path, [], {}, before)
    if not writes:
        monkeypatch.delenv(WRITE_VARIABLE)

    found = [finding.id for finding in compare_with_file(path, [], {}, now)]

    assert ("cdk-sagas-definition-run" in found) is refused


def test_last_step_may_have_an_output_that_no_row_keeps(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function")
    last = Step.custom("Ask", state={"Type": "Pass"}, output='{"rate": 1}')

    assert _saga(stack, [Step.atomic("Credit", fn=fn, pivot=True), last], tmp_path).express_definition is not None


@pytest.mark.parametrize(("declared", "quick"), [({}, 2), ({"MaxAttempts": 1}, 1), ({"MaxAttempts": 9}, 2)])
def test_retry_of_a_users_own_state_is_never_raised(
    stack: Stack, tmp_path: Path, declared: dict[str, int], quick: int
) -> None:
    state = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:ssm:getParameter",
        "Arguments": {"Name": "rate"},
        "TimeoutSeconds": 5,
        "Retry": [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 7, **declared}],
    }
    fn = plain_function(stack, "Function")
    saga = _saga(stack, [Step.atomic("Credit", fn=fn, pivot=True), Step.custom("Ask", state=state)], tmp_path)

    assert saga.express_definition is not None
    assert [retry["MaxAttempts"] for retry in saga.express_definition["States"]["Ask"]["Retry"]] == [quick]


@pytest.mark.parametrize("run", ['"FAST"', '["INLINE"]', "null", "1"])
def test_file_with_another_run_is_not_one_that_a_synth_wrote(tmp_path: Path, run: str) -> None:
    path = tmp_path / "saga.json"
    path.write_text(f'{{"steps": [], "ways": {{}}, "run": {run}}}')

    (found,) = compare_with_file(path, [], {}, Run.INLINE)

    assert "is not one that a synth wrote" in found.message
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("file", ["", " ", "."])
def test_definition_file_that_names_nothing_to_write_is_refused(stack: Stack, file: str) -> None:
    fn = plain_function(stack, "Function")
    requests = IdempotencyTable(stack, "Requests")

    with pytest.raises(ValueError, match=f"definition_file must name a file, got '{re.escape(file)}'"):
        SagaStateMachine(stack, "Saga", requests=requests, steps=[Step.atomic("Credit", fn=fn)], definition_file=file)


def test_standard_outlives_what_a_gatekeeper_may_still_start(stack: Stack, tmp_path: Path) -> None:
    fn = plain_function(stack, "Function", timeout=Duration.seconds(50))
    retry = Retry(in_doubt_attempts=8)
    saga = _saga(stack, [Step.atomic("Credit", fn=fn, retry=retry)], tmp_path)
    TransactionApi(stack, "Api", operations={"credits": Operation(saga=saga, max_wait=Duration.seconds(20))})

    cloud = Cloud(stack)
    functions = [cloud.one(path).properties["Timeout"] for path in ("Api/Gatekeeper/credits/Function", "Function")]
    assert saga.express_definition is not None
    longest = sum(functions) + saga.express_definition["TimeoutSeconds"]
    assert saga.definition["States"]["Wait for Express to end"]["Seconds"] > longest
