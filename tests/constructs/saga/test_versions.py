"""Published versions: what is created, how a deployment moves the alias, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack
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
        ({"every": Duration.minutes(1)}, "every must be None for shift=ALL_AT_ONCE, got 60 s"),
        ({"shift": Shift.CANARY, "every": Duration.minutes(1)}, "percent must be 1 to 99 for shift=CANARY, got None"),
        ({"shift": Shift.LINEAR, "percent": 100, "every": Duration.minutes(1)}, "percent must be 1 to 99 .* got 100"),
        ({"shift": Shift.LINEAR, "percent": 10}, "every must be 1 to 2100 whole minutes for shift=LINEAR, got None"),
        ({"shift": Shift.LINEAR, "percent": 10, "every": Duration.seconds(90)}, "every must be 1 to 2100 .* got 90 s"),
        ({"shift": Shift.LINEAR, "percent": 10, "every": Duration.days(2)}, "every must be 1 to 2100 .* got 172800 s"),
        ({"alias": 7}, "alias of Versions must be a str"),
        ({"shift": "SOME"}, "shift of Versions must be"),
    ],
)
def test_wrong_argument_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Versions(**given)


def test_state_machine_of_a_saga_is_one_resource(new_stack: StackFactory) -> None:
    assert isinstance(saga_of(new_stack(), Versions()).state_machine.node.default_child, sfn.CfnStateMachine)
