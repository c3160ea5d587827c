"""A stack that comes near CloudFormation's limit of 500 resources is warned of while there is room to move."""

from __future__ import annotations

import pytest
from aws_cdk import Acknowledgment, CfnResource, NestedStack, Stack, Validations
from aws_cdk.assertions import Annotations, Match
from constructs import Construct

from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.sagas import saga


def _fill(scope: Construct, count: int) -> None:
    for number in range(count):
        CfnResource(scope, f"Filling{number}", type="AWS::SNS::Topic")


def _warnings(stack: Stack) -> list[str]:
    found = Annotations.from_stack(stack).find_warning("/Test", Match.string_like_regexp("resources of stack"))
    return [str(message.entry.data) for message in found]


@pytest.fixture(scope="module")
def of_a_saga(new_stack_once: Stack) -> int:
    """Number of resources of a saga alone."""
    saga(new_stack_once)
    return len(Cloud(new_stack_once).resources)


@pytest.fixture(scope="module")
def new_stack_once(new_app: AppFactory) -> Stack:
    return Stack(new_app(), "Test")


def test_a_stack_of_450_resources_is_not_warned_of(stack: Stack, of_a_saga: int) -> None:
    saga(stack)
    _fill(stack, 450 - of_a_saga)
    assert _warnings(stack) == []


def test_a_stack_of_more_is_warned_of_once_with_its_number_and_a_remedy(stack: Stack, of_a_saga: int) -> None:
    saga(stack)
    saga(stack, "Another")
    _fill(stack, 451 - 2 * of_a_saga)

    (warning,) = _warnings(stack)
    assert "resources of stack Test should be at most 450, got 451: CloudFormation takes 500" in warning
    assert "move tables, ledgers or sagas to a stack of their own" in warning


def test_resources_of_stacks_inside_are_not_its_own(stack: Stack, of_a_saga: int) -> None:
    saga(stack)
    nested = NestedStack(stack, "Nested")
    _fill(nested, 20)
    _fill(NestedStack(nested, "Deeper"), 20)
    _fill(Stack(stack, "Beside"), 20)
    _fill(stack, 449 - of_a_saga)  # one more is the nested stack

    assert _warnings(stack) == []


def test_the_warning_can_be_acknowledged(stack: Stack) -> None:
    saga(stack)
    _fill(stack, 450)
    Validations.of(stack).acknowledge(Acknowledgment(id="cdk-sagas-resources", reason="it will not grow"))

    assert _warnings(stack) == []
