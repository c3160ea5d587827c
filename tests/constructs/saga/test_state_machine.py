"""The state machines of a saga: how they log, and whether their roles fit the calls that they make, to the letter."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from constructs_lib import ContinueWith, IdempotencyTable, Notify, SagaStateMachine, Step
from tests.constructs.support.asl import calls, role_problems
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import plain_function, saga, step_function

MACHINE = "AWS::StepFunctions::StateMachine"
MACHINES = ["Transfer/StateMachine", "Transfer/Recovery"]


def _granted(cloud: Cloud, machine: str) -> set[tuple[str, str]]:
    """The role's permissions, without those for logs, traces and keys."""
    return {
        (action, resource)
        for action, resource in cloud.permissions(f"{machine}/Role")
        if resource != "*" and not action.startswith("kms:")
    }


def test_outputs_are_internal_until_a_result_publishes_them(stack: Stack) -> None:
    body = saga(stack).definition["States"]["Settle completed"]["Arguments"]["ExpressionAttributeValues"][":body"]["S"]

    assert '"result": ({})' in body
    assert "$outputs" not in body


@pytest.mark.parametrize("path", MACHINES)
def test_the_reference_apps_roles_fit_their_definitions(reference: Cloud, path: str) -> None:
    assert not role_problems(reference.definition(path), _granted(reference, path))


def test_the_roles_of_a_saga_with_everything_fit_their_definitions(stack: Stack) -> None:
    queue, other = (sqs.Queue(stack, name, fifo=True) for name in ("Queue", "Other"))
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[
            Step.atomic(
                "Discount",
                fn=plain_function(stack, "Discount"),
                compensate=plain_function(stack, "UndoDiscount"),
                on_error={"Invalid": ContinueWith(output={})},
            ),
            Step.atomic(
                "Debit",
                fn=plain_function(stack, "Debit"),
                compensate=plain_function(stack, "UndoDebit"),
                on_error={"AccountClosed": Notify(queue=other)},
            ),
            Step.atomic("Credit", fn=step_function(stack), pivot=True),
            Step.atomic("Book", fn=plain_function(stack, "Book"), compensate=plain_function(stack, "UndoBook")),
            Step.notify("Receipt", queue=queue),
        ],
        on_failed=Notify(queue=queue),
    )
    cloud = Cloud(stack)
    for path in ("Saga/StateMachine", "Saga/Recovery"):
        assert not role_problems(cloud.definition(path), _granted(cloud, path))


def test_the_roles_of_the_smallest_saga_fit_their_definitions(stack: Stack) -> None:
    saga(stack)
    cloud = Cloud(stack)
    for path in ("Saga/StateMachine", "Saga/Recovery"):
        assert not role_problems(cloud.definition(path), _granted(cloud, path))


def test_the_roles_of_a_saga_with_every_kind_of_step_fit_their_definitions(kinds: Cloud) -> None:
    """The phases' roles, too."""
    machines = [machine.path for machine in kinds.of_type(MACHINE)]
    assert len(machines) == 9
    for path in machines:
        assert not role_problems(kinds.definition(path), _granted(kinds, path)), path


def test_a_role_without_a_phase_or_a_transaction_may_do_less(kinds: Cloud) -> None:
    actions = {action for action, _ in _granted(kinds, "Phase/All")}
    assert actions == {"lambda:InvokeFunction"}
    counters = "${Counters.Arn}"
    (forward, recovery) = (
        {action for action, resource in _granted(kinds, f"Kinds/{name}") if resource == counters}
        for name in ("StateMachine", "Recovery")
    )
    assert forward == {"dynamodb:UpdateItem", "dynamodb:DescribeTable"}
    assert recovery == {"dynamodb:UpdateItem"}


def test_a_permission_that_is_taken_away_is_missed(reference: Cloud) -> None:
    path = MACHINES[0]
    granted = _granted(reference, path)
    for permission in granted:
        (problem,) = role_problems(reference.definition(path), granted - {permission})
        assert problem.startswith(f"missing: {permission[0]} ")


def test_a_permission_beyond_the_definition_is_noticed(reference: Cloud) -> None:
    path = MACHINES[0]
    further = ("dynamodb:DeleteItem", "${Requests/Table.Arn}")
    assert role_problems(reference.definition(path), _granted(reference, path) | {further}) == [
        "superfluous: dynamodb:DeleteItem on ${Requests/Table}"
    ]


def test_a_call_that_is_unknown_to_the_checker_fails_the_test(reference: Cloud) -> None:
    definition: dict[str, Any] = copy.deepcopy(reference.definition(MACHINES[0]))
    definition["States"]["Transfer"]["Resource"] = "arn:aws:states:::glue:startJobRun"
    with pytest.raises(AssertionError, match="state Transfer calls glue:startJobRun, which this checker does not know"):
        calls(definition)


@pytest.mark.parametrize("path", MACHINES)
def test_a_machine_is_a_standard_one_that_traces_and_logs_without_data(reference: Cloud, path: str) -> None:
    machine = reference.one(path, MACHINE).properties
    assert machine["StateMachineType"] == "STANDARD"
    assert machine["TracingConfiguration"] == {"Enabled": True}
    logging = machine["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    assert logging["Destinations"] == [{"CloudWatchLogsLogGroup": {"LogGroupArn": "${Transfer/Logs.Arn}"}}]


def test_the_machines_log_group_is_retained_and_expires(reference: Cloud) -> None:
    group = reference.one("Transfer/Logs", "AWS::Logs::LogGroup")
    assert group.properties["RetentionInDays"] == 90
    assert group.raw["DeletionPolicy"] == "Retain"


@pytest.mark.parametrize("path", MACHINES)
def test_a_machine_waits_for_its_policy(reference: Cloud, path: str) -> None:
    policy = reference.one(f"{path}/Role/DefaultPolicy").logical_id
    assert policy in reference.one(path).raw["DependsOn"]


@pytest.mark.parametrize("path", MACHINES)
def test_a_machine_speaks_jsonata_only(reference: Cloud, path: str) -> None:
    text = json.dumps(reference.definition(path))
    assert '"QueryLanguage": "JSONata"' in text
    assert '"ResultPath"' not in text
    assert '.$"' not in text


def test_a_task_waits_longer_than_its_function_runs(stack: Stack) -> None:
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Move", fn=plain_function(stack, "Function", timeout=Duration.seconds(20)))],
    )
    cloud = Cloud(stack)
    assert cloud.one("Function").properties["Timeout"] == 20
    assert cloud.definition("Saga/StateMachine")["States"]["Move"]["TimeoutSeconds"] > 20


def test_every_task_of_the_reference_app_waits_longer_than_its_function_runs(reference: Cloud) -> None:
    for path in MACHINES:
        for name, state in reference.definition(path)["States"].items():
            function = state.get("Arguments", {}).get("FunctionName")
            if function is not None:
                timeout = reference.one(function.removeprefix("${").removesuffix(".Arn}")).properties["Timeout"]
                assert state["TimeoutSeconds"] > timeout, name


def test_grants_for_starting_and_recovering_name_their_machines(stack: Stack) -> None:
    subject = saga(stack)
    starter, recoverer = (
        iam.Role(stack, name, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        for name in ("Starter", "Recoverer")
    )
    subject.grant_begin(starter)
    subject.grant_recover(recoverer)
    cloud = Cloud(stack)
    assert cloud.permissions("Starter") == {("states:StartExecution", "${Saga/StateMachine}")}
    granted = cloud.permissions("Recoverer")
    assert {r for a, r in granted if a == "states:StartExecution"} == {"${Saga/StateMachine}", "${Saga/Recovery}"}
    described = {r for a, r in granted if a == "states:DescribeExecution"}
    assert described
    assert all(r.endswith(("${Saga/StateMachine.Name}:*", "${Saga/Recovery.Name}:*")) for r in described)


def test_the_fingerprint_changes_with_the_steps_and_with_nothing_else(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests")
    one, other = (plain_function(stack, name) for name in ("One", "Other"))

    def fingerprint(id: str, *steps: Step, timeout: Duration | None = None) -> str:
        return SagaStateMachine(stack, id, requests=requests, steps=steps, timeout=timeout).definition_fingerprint

    first = fingerprint("A", Step.atomic("Move", fn=one))
    assert first == fingerprint("B", Step.atomic("Move", fn=other), timeout=Duration.minutes(3))
    assert first != fingerprint("C", Step.atomic("Send", fn=one))
    assert first != fingerprint("D", Step.atomic("Move", fn=one, compensate=other))
    assert first != fingerprint("E", Step.atomic("Hold", fn=one, compensate=other), Step.atomic("Move", fn=one))


def test_an_imported_function_may_run_a_step_when_its_timeout_is_declared(stack: Stack) -> None:
    arn = "arn:aws:lambda:eu-west-1:111111111111:function:theirs"
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[
            Step.atomic(
                "Move",
                fn=lambda_.Function.from_function_arn(stack, "Theirs", arn),
                fn_timeout=Duration.seconds(10),
            )
        ],
    )
    cloud = Cloud(stack)
    assert ("lambda:InvokeFunction", arn) in cloud.permissions("Saga/StateMachine/Role")


def test_saga_may_wait_for_weeks_behind_its_pivot(stack: Stack) -> None:
    """A state that waits never fails: the default timeout has the wait once, and not as often as a call is retried."""
    wait = Step.custom("Pause", state={"Type": "Wait", "Seconds": 1_209_600})
    pay = Step.atomic("Pay", fn=plain_function(stack, "Function"))
    made = SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=[pay, wait])
    assert 1_209_600 < made.description.timeout < 1_209_600 + 86_400
