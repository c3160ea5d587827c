"""Scheduled functions: what did not run in its minute is dropped, by EventBridge and by Lambda alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn

import constructs_lib
from constructs_lib import ExecutionWatch, TimeoutReconciler, WatchedMachine
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import integration, job, own, saga_of

SCHEDULED = ("Reconciler/Function", "Watch/Function", "Warehouse/Tokens/Sweeper")
"""Every function that the library invokes on a schedule."""


@pytest.fixture(scope="module")
def cloud(new_app: AppFactory) -> Cloud:
    """A stack with everything that has a schedule."""
    stack = Stack(new_app(), "Test")
    warehouse = integration(stack)
    shop = saga_of(stack, job(warehouse, compensate=own(stack, "Cancel")))
    nightly = sfn.StateMachine.from_state_machine_name(stack, "Nightly", "nightly")
    release = own(stack, "Release")
    TimeoutReconciler(stack, "Reconciler", sagas=[shop], check_interval=Duration.minutes(1))
    ExecutionWatch(stack, "Watch", machines=[WatchedMachine(machine=nightly, on_timeout=release)])
    return Cloud(stack)


def test_every_scheduled_function_is_known(cloud: Cloud) -> None:
    rules = [rule for rule in cloud.of_type("AWS::Events::Rule") if "ScheduleExpression" in rule.properties]
    targets = {target["Arn"] for rule in rules for target in rule.properties["Targets"]}

    assert targets == {f"${{{function}/Function.Arn}}" for function in SCHEDULED}


@pytest.mark.parametrize("function", SCHEDULED)
def test_scheduled_function_drops_an_invocation_after_a_minute(cloud: Cloud, function: str) -> None:
    kept = cloud.one(f"{function}/Function/EventInvokeConfig").properties

    assert (kept["MaximumEventAgeInSeconds"], kept["MaximumRetryAttempts"]) == (60, 0)
    assert kept["FunctionName"] == f"${{{function}/Function}}"


def test_every_schedule_is_made_in_one_place() -> None:
    folder = Path(constructs_lib.__file__).parent
    made = [file.name for file in folder.rglob("*.py") if "Schedule.rate(" in file.read_text("utf-8")]

    assert made == ["schedules.py"]
