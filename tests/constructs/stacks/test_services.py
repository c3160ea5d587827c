"""Metrics belong to one deployment of one construct, and alarms watch the metrics that its functions emit."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import NestedStack, Stack, Stage
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib import ExecutionWatch, TimeoutReconciler, TransactionApi, WatchedMachine
from constructs_lib.shared.service_names import service_of
from saga_runtime.protocol import METRIC_NAMESPACE, Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import integration, job, own, saga_of


def shop(new_app: AppFactory, stack_name: str | None = None) -> Stack:
    """A stack with everything that has metrics and alarms."""
    stack = Stack(new_app(), "Shop", stack_name=stack_name)
    warehouse = integration(stack)
    saga = saga_of(stack, job(warehouse, compensate=own(stack, "Cancel")))
    nightly = sfn.StateMachine.from_state_machine_name(stack, "Nightly", "nightly")
    machines = [WatchedMachine(machine=nightly, on_timeout=own(stack, "Release"))]
    TimeoutReconciler(stack, "Reconciler", sagas=[saga])
    ExecutionWatch(stack, "Watch", machines=machines)
    TransactionApi(stack, "Api", operations={"orders": saga})
    return stack


def emitted(cloud: Cloud) -> set[str]:
    """Dimensions of what functions emit."""
    functions = cloud.of_type("AWS::Lambda::Function")
    variables = [function.properties.get("Environment", {}).get("Variables", {}) for function in functions]
    return {one[Env.SERVICE] for one in variables if Env.SERVICE in one}


def watched(cloud: Cloud) -> set[str]:
    """Dimensions of what alarms watch."""
    found: set[str] = set()
    for alarm in cloud.of_type("AWS::CloudWatch::Alarm"):
        alone: list[Any] = [alarm.properties]
        alone += [one.get("MetricStat", {}).get("Metric", {}) for one in alarm.properties.get("Metrics", ())]
        for metric in alone:
            if metric.get("Namespace") == METRIC_NAMESPACE:
                found |= {one["Value"] for one in metric["Dimensions"] if one["Name"] == "service"}
    return found


@pytest.fixture(scope="module")
def in_test(new_app: AppFactory) -> Cloud:
    return Cloud(shop(new_app, "shop-test"))


def test_alarms_watch_only_metrics_that_functions_emit(in_test: Cloud) -> None:
    assert watched(in_test)
    assert watched(in_test) <= emitted(in_test)


def test_two_deployments_of_one_app_share_no_metric(new_app: AppFactory, in_test: Cloud) -> None:
    other = Cloud(shop(new_app, "shop-production"))

    assert emitted(other).isdisjoint(emitted(in_test))
    assert watched(other).isdisjoint(watched(in_test))


def test_service_is_the_name_of_the_stack_and_the_path_in_it(new_app: AppFactory) -> None:
    app = new_app()
    stage = Stage(app, "Prod")
    named, usual = Stack(app, "Shop", stack_name="shop-1"), Stack(stage, "Shop")

    assert service_of(own(named, "Move")) == "shop-1-Move"
    assert service_of(own(usual, "Move")) == "Prod-Shop-Move"


def test_service_in_a_nested_stack_begins_with_that_stacks_name(new_app: AppFactory) -> None:
    stack = Stack(new_app(), "Shop")
    nested = NestedStack(stack, "Inner")
    own(nested, "Move")
    (service,) = emitted(Cloud(nested))

    assert service == "${AWS::StackName}-Move"


def test_a_service_that_no_dimension_can_have_is_refused(stack: Stack) -> None:
    """CloudWatch would refuse the alarms, and drop the function's metrics."""
    with pytest.raises(ValueError, match=r"must have only printable ASCII .*, got .*; change the construct ids"):
        own(stack, "Überweisung")
