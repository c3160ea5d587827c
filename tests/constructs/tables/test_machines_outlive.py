"""State machines of sagas outlive their replacement: an execution of a deleted one would be gone, and its saga open."""

from __future__ import annotations

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam

from constructs_lib import IdempotencyTable, SagaStateMachine, Step
from constructs_lib.functions.policy_room import characters_of
from tests.constructs.support.cloud import Cloud, Resource
from tests.constructs.support.integrations import own
from tests.constructs.support.sagas import plain_function

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


@pytest.mark.parametrize("removal_policy", [RemovalPolicy.RETAIN, RemovalPolicy.DESTROY])
def test_rights_of_a_machine_with_many_functions_fit_into_policies_and_stay_with_it(
    stack: Stack, removal_policy: RemovalPolicy
) -> None:
    """The CDK moves statements into managed policies, which have 6,144 characters, and splits no statement."""
    functions = [plain_function(stack, f"ForTheStepNumber{number}OfTheSaga") for number in range(90)]
    steps = [Step.atomic(f"Step{number}", fn=fn, compensate=fn) for number, fn in enumerate(functions[:-1])]
    steps.append(Step.atomic("Last", fn=functions[-1]))
    requests = IdempotencyTable(stack, "Requests")
    saga = SagaStateMachine(stack, "Saga", requests=requests, steps=steps, removal_policy=removal_policy)
    cloud = Cloud(stack)

    policies = [one for one in cloud.of_type("AWS::IAM::ManagedPolicy") if one.path.startswith("Saga/StateMachine/")]
    assert policies
    for policy in policies:
        made = saga.state_machine.role.node.find_child(policy.path.rpartition("/")[2])
        assert isinstance(made, iam.ManagedPolicy)
        assert characters_of(made) <= 6_144
        role = cloud.one("Saga/StateMachine/Role").raw
        for kept in ("DeletionPolicy", "UpdateReplacePolicy"):
            assert policy.raw.get(kept) == role.get(kept), policy.path
    invoked = {
        arn
        for one in (*policies, cloud.one("Saga/StateMachine/Role/DefaultPolicy"))
        for statement in one.properties["PolicyDocument"]["Statement"]
        if statement["Action"] == "lambda:InvokeFunction"
        for arn in statement["Resource"]
    }
    assert len(invoked) == 90
