"""State machines of sagas outlive their replacement: an execution of a deleted one would be gone, and its saga open."""

from __future__ import annotations

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack

from constructs_lib import IdempotencyTable, SagaStateMachine, Step
from tests.constructs.support.cloud import Cloud, Resource
from tests.constructs.support.integrations import own

MACHINES = ("Saga/StateMachine", "Saga/Recovery", "Saga/Payment")


def deployed(stack: Stack, removal_policy: RemovalPolicy = RemovalPolicy.RETAIN) -> Cloud:
    """A saga with a phase of its own."""
    move = own(stack, "Move")
    debit, credit = Step.atomic("Debit", fn=move, compensate=move), Step.atomic("Credit", fn=move)
    phase = Step.child("Payment", steps=[debit, credit], timeout=Duration.hours(1))
    requests = IdempotencyTable(stack, "Requests")
    SagaStateMachine(stack, "Saga", requests=requests, steps=[phase], removal_policy=removal_policy)
    return Cloud(stack)


def parts(cloud: Cloud, machine: str) -> list[Resource]:
    """A state machine, its role, and what its role may do."""
    found = [cloud.one(machine, "AWS::StepFunctions::StateMachine"), cloud.one(f"{machine}/Role", "AWS::IAM::Role")]
    return [*found, cloud.one(f"{machine}/Role/DefaultPolicy", "AWS::IAM::Policy")]


@pytest.mark.parametrize("machine", MACHINES)
def test_machine_and_its_rights_outlive_replacement_and_stack(stack: Stack, machine: str) -> None:
    for part in parts(deployed(stack), machine):
        assert part.raw["DeletionPolicy"] == "RetainExceptOnCreate", part.path
        assert part.raw["UpdateReplacePolicy"] == "Retain", part.path


@pytest.mark.parametrize("machine", MACHINES)
def test_machine_of_a_test_account_is_deleted_with_its_stack(stack: Stack, machine: str) -> None:
    for part in parts(deployed(stack, removal_policy=RemovalPolicy.DESTROY), machine):
        assert part.raw.get("DeletionPolicy", "Delete") == "Delete", part.path
