"""Sagas with every kind of step, synthesized: machines, roles, transitions, where parked sagas go."""

from __future__ import annotations

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_sqs as sqs

from constructs_lib import ContinueWith, IdempotencyTable, Provider, Retry, SagaStateMachine, Step
from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.validation.budget import outlived_with_phases
from tests.constructs.support.asl import happy_path
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.sagas import plain_function
from tests.local.kinds.stack import KindsStack

MACHINE = "AWS::StepFunctions::StateMachine"
EXPRESS = {"Kinds/Prepare", "Phase/All"}


def test_the_same_sagas_declared_twice_give_the_same_bytes(kinds: Cloud, new_app: AppFactory) -> None:
    assert Cloud(KindsStack(new_app(), "Kinds")).template == kinds.template


def test_a_phase_has_a_machine_of_its_own_kind(kinds: Cloud) -> None:
    types = {machine.path: machine.properties["StateMachineType"] for machine in kinds.of_type(MACHINE)}
    assert {path for path, kind in types.items() if kind == "EXPRESS"} == EXPRESS
    assert types["Kinds/Fulfil"] == "STANDARD"


def test_every_machine_traces_and_logs_without_data(kinds: Cloud) -> None:
    for machine in kinds.of_type(MACHINE):
        logging = machine.properties["LoggingConfiguration"]
        assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False), machine.path
        assert machine.properties["TracingConfiguration"] == {"Enabled": True}


def test_five_local_steps_in_one_express_phase_take_three_transitions(kinds: Cloud) -> None:
    assert happy_path(kinds.definition("Phase/StateMachine")) == ["All", "All - result", "Settle completed"]


def test_plain_steps_take_one_transition_each_and_one_to_settle(stack: Stack) -> None:
    fn = plain_function(stack, "Function")
    steps = [Step.atomic(f"Step{n}", fn=fn, compensate=fn) for n in range(10)]
    made = SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps)
    assert len(happy_path(made.definition)) == 11


def test_a_phase_is_started_with_the_arn_of_its_machine(kinds: Cloud) -> None:
    states = kinds.definition("Kinds/StateMachine")["States"]
    assert states["Prepare"]["Arguments"]["StateMachineArn"] == "${Kinds/Prepare}"
    assert states["Fulfil"]["Arguments"]["StateMachineArn"] == "${Kinds/Fulfil}"


def test_a_phases_task_waits_longer_than_its_machine_runs(kinds: Cloud) -> None:
    states = kinds.definition("Kinds/StateMachine")["States"]
    for name in ("Prepare", "Fulfil"):
        assert states[name]["TimeoutSeconds"] > kinds.definition(f"Kinds/{name}")["TimeoutSeconds"]


def _on_log(cloud: Cloud, function: str, saga: str) -> set[str]:
    table = f"${{{saga}/Log/Table.Arn}}"
    return {
        action.removeprefix("dynamodb:")
        for action, resource in cloud.permissions(f"{function}/Role")
        if resource == table
    }


@pytest.mark.parametrize(
    ("function", "actions"),
    [
        ("Step", {"PutItem", "GetItem"}),
        ("Quote", {"PutItem", "GetItem"}),
        ("Undo", {"PutItem", "GetItem", "UpdateItem"}),
        # The saga has a map: what its items answered is found by a query.
        ("Charge", {"PutItem", "GetItem", "UpdateItem", "Query"}),
        ("Refund", {"PutItem", "GetItem", "UpdateItem", "Query"}),
        ("Kinds/Notifier", {"PutItem", "GetItem"}),
    ],
)
def test_a_functions_log_permissions_are_those_of_its_kind(kinds: Cloud, function: str, actions: set[str]) -> None:
    assert _on_log(kinds, function, "Kinds") == actions


def test_only_statements_without_a_possible_resource_have_a_wildcard(kinds: Cloud) -> None:
    for statement in kinds.statements():
        assert not [action for action in statement.actions if "*" in action]
        wild = [resource for resource in statement.resources if "*" in resource and resource != "*"]
        if statement.role.startswith("Api/"):
            continue
        assert [r.rpartition("execution:")[2] for r in wild] in ([], ["${Kinds/Fulfil.Name}:*"]), statement


def test_a_token_of_the_users_own_is_escaped_like_the_text_around_it(stack: Stack) -> None:
    text = stack.to_json_string({"a": 1})
    queue = sqs.Queue(stack, "Queue", fifo=True)
    SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[
            Step.atomic("Move", fn=plain_function(stack, "Function")),
            Step.notify("Tell", queue=queue, message=f"'{text}'"),
        ],
    )
    states = Cloud(stack).definition("Saga/StateMachine")["States"]
    assert """($m := ('{"a":1}');""" in states["Tell"]["Arguments"]["Payload"]["message"]


@pytest.mark.parametrize("text", ['"ünï \'quoted\' \\"twice\\" \\\\ \u2028"', "{% $outputs.Move.a %}"])
def test_a_definition_is_the_same_in_every_form(stack: Stack, text: str) -> None:
    made = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Move", fn=plain_function(stack, "Function"))],
        result=text,
    )
    found = Cloud(stack).definition("Saga/StateMachine")
    assert found.keys() == made.definition.keys()
    body = found["States"]["Settle completed"]["Arguments"]["ExpressionAttributeValues"][":body"]
    assert body == made.definition["States"]["Settle completed"]["Arguments"]["ExpressionAttributeValues"][":body"]


# ---- parked ---------------------------------------------------------------------------------------------------------


def test_parked_sagas_are_sent_to_the_constructs_queue_with_an_alarm(kinds: Cloud) -> None:
    queue = kinds.one("Kinds/Operators", "AWS::SQS::Queue").properties
    assert queue["SqsManagedSseEnabled"] is True
    assert queue["MessageRetentionPeriod"] == 14 * 86_400
    alarm = kinds.one("Kinds/ParkedAlarm", "AWS::CloudWatch::Alarm").properties
    total, *parts = alarm["Metrics"]
    assert total["Expression"] == "visible + hidden"
    for part in parts:
        stat = part["MetricStat"]
        assert stat["Metric"]["Dimensions"] == [{"Name": "QueueName", "Value": "${Kinds/Operators.QueueName}"}]
        assert (stat["Stat"], stat["Period"]) == ("Maximum", 60)
    assert {part["MetricStat"]["Metric"]["MetricName"] for part in parts} == {
        "ApproximateNumberOfMessagesVisible",
        "ApproximateNumberOfMessagesNotVisible",
    }
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    assert alarm["TreatMissingData"] == "notBreaching"
    assert kinds.definition("Kinds/StateMachine")["States"]["Notify operators"]["Arguments"]["QueueUrl"] == (
        "${Kinds/Operators}"
    )


def test_a_queue_of_your_own_takes_parked_sagas(stack: Stack) -> None:
    mine = sqs.Queue(stack, "Mine")
    made = SagaStateMachine(
        stack,
        "Saga",
        requests=IdempotencyTable(stack, "Requests"),
        steps=[Step.atomic("Move", fn=plain_function(stack, "Function"))],
        operators=mine,
    )
    assert made.operators.queue_arn == mine.queue_arn
    cloud = Cloud(stack)
    assert "Saga/Operators" not in cloud.resources
    for machine in ("StateMachine", "Recovery"):
        assert ("sqs:SendMessage", "${Mine.Arn}") in cloud.permissions(f"Saga/{machine}/Role")


# ---- timeout and description ----------------------------------------------------------------------------------------


ASKED = Provider(verify=True, verify_undo=True)


def _saga(stack: Stack, *steps: Step, timeout: Duration | None = None) -> SagaStateMachine:
    return SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps, timeout=timeout)


def test_without_a_timeout_it_is_the_worst_case_in_full_hours_and_at_least_two(stack: Stack) -> None:
    assert _saga(stack, Step.atomic("Move", fn=plain_function(stack, "F"))).definition["TimeoutSeconds"] == 7_200


def test_the_default_timeout_covers_long_retries(stack: Stack) -> None:
    fn = plain_function(stack, "F")
    made = _saga(stack, Step.atomic("Move", fn=fn, pivot=True), Step.atomic("Book", fn=fn), Step.atomic("Tell", fn=fn))
    assert made.definition["TimeoutSeconds"] == made.description.timeout == 6 * 3_600
    assert made.recovery_definition["TimeoutSeconds"] == 6 * 3_600 + outlived_with_phases(made.description)


def test_a_timeout_of_your_own_is_taken(stack: Stack) -> None:
    made = _saga(stack, Step.atomic("Move", fn=plain_function(stack, "F")), timeout=Duration.hours(9))
    assert made.definition["TimeoutSeconds"] == 9 * 3_600


def test_the_description_survives_being_written(kinds_stack: KindsStack) -> None:
    for name in ("Kinds", "Items", "Phase"):
        found = kinds_stack.node.find_child(name)
        assert isinstance(found, SagaStateMachine)
        assert SagaDescription.from_json(found.description.to_json()) == found.description


def test_a_providers_function_receives_its_steps_declared_refusals(stack: Stack) -> None:
    fn = plain_function(stack, "F")
    made = _saga(
        stack,
        Step.external("Charge", fn=fn, compensate=fn, provider=ASKED, refusals=["CardDeclined", "Rejected"]),
        Step.external("Ship", fn=fn, provider=ASKED),
    )

    states = made.definition["States"]
    assert states["Charge"]["Arguments"]["Payload"]["provider"]["refusals"] == ["CardDeclined", "Rejected"]
    assert states["Compensate Charge"]["Arguments"]["Payload"]["provider"]["refusals"] == ["CardDeclined", "Rejected"]
    assert "refusals" not in states["Ship"]["Arguments"]["Payload"]["provider"]


def test_the_description_contains_what_the_budget_needs(stack: Stack) -> None:
    fn = plain_function(stack, "F")
    made = _saga(
        stack,
        Step.external(
            "Charge",
            fn=fn,
            compensate=fn,
            provider=Provider(
                verify=True, idempotent_for=Duration.days(1), verify_undo=True, grace=Duration.seconds(7)
            ),
            retry=Retry.commerce(),
            on_error={"Invalid": ContinueWith(output={"a": "b"})},
        ),
        Step.atomic("Move", fn=fn),
    )
    charge = made.description.steps[0]
    provider = charge.provider
    assert provider is not None
    assert (provider.window, provider.verify, provider.grace, provider.clock_skew) == (86_400, True, 7, 5)
    assert charge.instead == len('{"a": "b"}')
    assert list(charge.retry.in_doubt.delays) == [5, 10, 20]
    assert list(charge.retry.transient.delays) == [2, 4, 8, 16, 32, 60]
    assert (made.description.replayed, made.description.remembered) == (7 * 86_400, 400 * 86_400)
