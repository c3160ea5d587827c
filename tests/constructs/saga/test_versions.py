"""Published versions: what is created, how a deployment moves the alias, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, RemovalPolicy, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib import (
    EventIntake,
    IdempotencyTable,
    Operation,
    Run,
    SagaStateMachine,
    Shift,
    Step,
    StepFunction,
    StepGroup,
    TransactionApi,
    Versions,
)
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import StackFactory
from tests.constructs.support.sagas import FUNCTIONS, plain_function

VERSION = "AWS::StepFunctions::StateMachineVersion"
ALIAS = "AWS::StepFunctions::StateMachineAlias"


def saga_of(stack: Stack, versions: Versions | None, **options: Any) -> SagaStateMachine:
    fn = plain_function(stack, "Function")
    steps: list[Step | StepGroup] = [
        Step.atomic("Pay", fn=fn, pivot=True),
        Step.express("Phase", steps=[Step.atomic("Fee", fn=fn)]),
    ]
    requests = IdempotencyTable(stack, "Requests")
    return SagaStateMachine(stack, "Saga", requests=requests, steps=steps, versions=versions, **options)


def properties_of(stack: Stack, type_: str) -> dict[str, Any]:
    """Properties as in the template, by path."""
    return {path: one.raw["Properties"] for path, one in Cloud(stack).resources.items() if one.type == type_}


def test_without_versions_nothing_is_published(stack: Stack) -> None:
    saga = saga_of(stack, None)
    assert saga.alias is None
    assert not properties_of(stack, VERSION)
    assert not properties_of(stack, ALIAS)


def test_each_deployment_publishes_the_definition_and_moves_the_alias_to_it(stack: Stack) -> None:
    saga = saga_of(stack, Versions())
    cloud = Cloud(stack)
    machine = cloud.one("Saga/StateMachine").logical_id
    version = next(one for path, one in cloud.resources.items() if path == "Saga/StateMachine/Version")
    assert version.raw["Properties"] == {
        "StateMachineArn": {"Ref": machine},
        "StateMachineRevisionId": {"Fn::GetAtt": [machine, "StateMachineRevisionId"]},
    }
    assert properties_of(stack, ALIAS)["Saga/StateMachine/Alias"] == {
        "Name": "live",
        "DeploymentPreference": {"StateMachineVersionArn": {"Ref": version.logical_id}, "Type": "ALL_AT_ONCE"},
    }
    assert saga.alias == "live"


@pytest.mark.parametrize("removal", [RemovalPolicy.RETAIN, RemovalPolicy.DESTROY])
def test_versions_stay_when_replaced_and_when_rolled_back(stack: Stack, removal: RemovalPolicy) -> None:
    saga_of(stack, Versions(), removal_policy=removal)
    versions = [one.raw for one in Cloud(stack).resources.values() if one.type == VERSION]
    assert len(versions) == 2
    assert {one["UpdateReplacePolicy"] for one in versions} == {"Retain"}
    assert {one["DeletionPolicy"] for one in versions} == {"Retain"}


def test_definitions_call_their_phases_by_version(stack: Stack) -> None:
    saga = saga_of(stack, Versions())
    cloud = Cloud(stack)
    phase = cloud.resources["Saga/Phase/Version"].logical_id
    for machine in ("StateMachine", "Recovery"):
        raw = json.dumps(cloud.one(f"Saga/{machine}").raw["Properties"]["DefinitionString"])
        assert (f'"Ref": "{phase}"' in raw) == (machine == "StateMachine")
    assert list(saga.phases) == ["Phase"]
    may = [one.resources for one in cloud.statements() if "states:StartSyncExecution" in one.actions]
    assert may
    assert not any("Version" in resource for resources in may for resource in resources)


@pytest.mark.parametrize("shift", [Shift.CANARY, Shift.LINEAR])
def test_alias_moves_step_by_step_until_an_alarm_goes_off(stack: Stack, shift: Shift) -> None:
    saga = saga_of(stack, Versions(alias="PROD", shift=shift, percent=10, every=Duration.minutes(30)))
    saga.roll_back_on([saga.parked_alarm])
    saga.roll_back_on([saga.metric_executions_started().create_alarm(stack, "Many", threshold=1, evaluation_periods=1)])
    alias = properties_of(stack, ALIAS)["Saga/StateMachine/Alias"]
    preference = alias["DeploymentPreference"]
    cloud = Cloud(stack)
    alarms = [{"Ref": cloud.resources[path].logical_id} for path in ("Saga/ParkedAlarm", "Many")]
    assert (alias["Name"], preference["Type"]) == ("PROD", shift.value)
    assert (preference["Percentage"], preference["Interval"], preference["Alarms"]) == (10, 30, alarms)


def gradual(**changed: Any) -> Versions:
    given: dict[str, Any] = {"shift": Shift.CANARY, "percent": 10, "every": Duration.minutes(30)}
    return Versions(**(given | changed))


def test_definition_differs_from_the_one_that_is_not_published(new_stack: StackFactory) -> None:
    """CloudFormation refuses to publish a revision that an earlier version holds, which stays for good."""
    texts = []
    for versions in (None, Versions(), gradual()):
        stack = new_stack()
        saga_of(stack, versions)
        texts.append(
            [json.dumps(Cloud(stack).one(path).raw["Properties"]) for path in ("Saga/StateMachine", "Saga/Phase")]
        )
    without, with_, gradually = texts
    assert all(", published" in text for text in with_)
    assert not any(", published" in text for text in without)
    assert with_ == gradually


def test_alarm_is_named_once_however_often_it_is_given(stack: Stack) -> None:
    saga = saga_of(stack, gradual())
    saga.roll_back_on([saga.parked_alarm, saga.parked_alarm])
    saga.roll_back_on([saga.parked_alarm])
    alias = properties_of(stack, ALIAS)["Saga/StateMachine/Alias"]
    assert len(alias["DeploymentPreference"]["Alarms"]) == 1


def test_alarms_that_cloudformation_would_not_check_are_refused(new_stack: StackFactory) -> None:
    at_once = saga_of(new_stack(), Versions())
    with pytest.raises(ValueError, match="shift must be CANARY or LINEAR for roll_back_on, got ALL_AT_ONCE; Cloud"):
        at_once.roll_back_on([at_once.parked_alarm])
    stack = Stack(App(), "There", env=Environment(account="111111111111", region="eu-west-1"))
    saga = saga_of(stack, gradual())
    for account, region, what in (
        ("222222222222", "eu-west-1", "account 111111111111, got 222222222222"),
        ("111111111111", "eu-west-2", "region eu-west-1, got eu-west-2"),
    ):
        arn = f"arn:aws:cloudwatch:{region}:{account}:alarm:Failing"
        elsewhere = cloudwatch.Alarm.from_alarm_arn(stack, f"In{account}{region}", arn)
        with pytest.raises(ValueError, match=rf"alarms\[1\] must be in {what}; CloudFormation takes an alarm"):
            saga.roll_back_on([saga.parked_alarm, elsewhere])
    with pytest.raises(ValueError, match="alarms must be at least one, got none"):
        saga.roll_back_on([])
    many = [cloudwatch.Alarm.from_alarm_name(stack, f"A{number}", f"a-{number}") for number in range(101)]
    with pytest.raises(ValueError, match="alarms must be at most 100 in all, got 101; combine some"):
        saga.roll_back_on(many)
    (alias,) = properties_of(stack, ALIAS).values()
    assert "Alarms" not in alias["DeploymentPreference"]


def test_functions_that_begin_sagas_know_the_alias(stack: Stack) -> None:
    saga = saga_of(stack, Versions(alias="PROD"))
    TransactionApi(stack, "Api", operations={"pay": Operation(saga=saga)})
    reader = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake_saga.handler", timeout=Duration.seconds(28))
    EventIntake(stack, "Orders", operation="orders", fn=reader, saga=saga)
    found = [
        one.properties["Environment"]["Variables"]
        for one in Cloud(stack).resources.values()
        if one.type == "AWS::Lambda::Function" and "Environment" in one.properties
    ]
    begin = [variables for variables in found if Env.STATE_MACHINE_ARN in variables]
    assert len(begin) >= 2
    assert {variables[Env.ALIAS] for variables in begin} == {"PROD"}


@pytest.mark.parametrize("run", [Run.PREPARED, Run.INLINE])
def test_versions_of_an_inline_saga_are_refused(stack: Stack, run: Run, tmp_path: Path) -> None:
    told = rf"versions must be None for run={run.value}, got Versions\(alias='live'.*leave versions out"
    steps = [Step.atomic("Pay", fn=plain_function(stack, "Function"))]
    with pytest.raises(ValueError, match=told):
        SagaStateMachine(
            stack,
            "Saga",
            requests=IdempotencyTable(stack, "Requests"),
            steps=steps,
            versions=Versions(),
            run=run,
            definition_file=tmp_path / "saga.json",
        )


def test_alarms_without_versions_are_refused(stack: Stack) -> None:
    saga = saga_of(stack, None)
    with pytest.raises(ValueError, match="versions must be set for roll_back_on, got None for Test/Saga"):
        saga.roll_back_on([saga.parked_alarm])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"alias": ""}, "alias must be 1 to 80 letters, digits, _ and -, and not digits only, got ''"),
        ({"alias": "  "}, "alias must be 1 to 80"),
        ({"alias": "12"}, "alias must be 1 to 80"),
        ({"alias": "a" * 81}, "alias must be 1 to 80"),
        ({"percent": 10}, "percent must be None for shift=ALL_AT_ONCE, got 10; leave it out"),
        ({"every": Duration.minutes(1)}, "every must be None for shift=ALL_AT_ONCE, got 1 minute"),
        ({"shift": Shift.CANARY, "every": Duration.minutes(1)}, "percent must be 1 to 99 for shift=CANARY, got None"),
        ({"shift": Shift.LINEAR, "percent": 100, "every": Duration.minutes(1)}, "percent must be 1 to 99 .* got 100"),
        ({"shift": Shift.LINEAR, "percent": 10}, "every must be 1 to 2100 whole minutes for shift=LINEAR, got None"),
        ({"shift": Shift.LINEAR, "percent": 10, "every": Duration.seconds(90)}, "every must be whole minutes .* 90 s"),
        ({"shift": Shift.LINEAR, "percent": 10, "every": Duration.millis(60_500)}, "every must be a whole number of s"),
        ({"shift": Shift.LINEAR, "percent": 10, "every": Duration.days(2)}, "every must be 60 s to 126000 s, got 172"),
        (
            {"shift": Shift.LINEAR, "percent": 1, "every": Duration.minutes(22)},
            "every must be at most 2100 minutes for 100 steps of 1 % together, got 22 minutes; choose a shorter time",
        ),
        (
            {"shift": Shift.LINEAR, "percent": 99, "every": Duration.minutes(1_051)},
            "every must be at most 2100 minutes for 2 steps of 99 % together",
        ),
        (
            {"shift": Shift.CANARY, "percent": 1, "every": Duration.seconds(Token.as_number({"Ref": "Every"}))},
            "every must be known at synth, got a token",
        ),
        ({"percent": float("nan")}, "percent of Versions must be an int"),
        ({"percent": float("inf")}, "percent of Versions must be an int"),
        ({"alias": 7}, "alias of Versions must be a str"),
        ({"shift": "SOME"}, "shift of Versions must be"),
    ],
)
def test_wrong_argument_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Versions(**given)


def test_state_machine_of_a_saga_is_one_resource(new_stack: StackFactory) -> None:
    assert isinstance(saga_of(new_stack(), Versions()).state_machine.node.default_child, sfn.CfnStateMachine)
