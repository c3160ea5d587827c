"""OperatorAccess: its configuration, its permissions, and the one right of operators."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Annotations, Match
from cdk_nag import AwsSolutionsChecks

from constructs_lib import (
    ContinueWith,
    OperatorAccess,
    Provider,
    SagaStateMachine,
    SecondPerson,
    Step,
    TimeoutReconciler,
)
from saga_runtime.protocol import WAYS_AT, Env, Side
from saga_runtime.recovery.operators import steps_of
from saga_runtime.recovery.resolution import DeclaredStep, DeployedStep
from saga_runtime.recovery.saga_reconciler import served_of
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import own, saga_of

PATH = "Operators/Function"
ADMIN = "arn:aws:iam::111111111111:role/aws-reserved/sso.amazonaws.com/Admin"
ENVIRONMENT = Environment(account="111111111111", region="eu-west-1")


def saga_in(stack: Stack) -> SagaStateMachine:
    fn = own(stack, "Move")
    provider = Provider(verify=True, verify_undo=True, grace=Duration.seconds(30))
    return saga_of(
        stack,
        Step.external(
            "Charge",
            fn=own(stack, "Charge"),
            compensate=own(stack, "Refund"),
            provider=provider,
            refusals=["SoldOut"],
            on_error={"SoldOut": ContinueWith(output={})},
        ),
        Step.atomic("Move", fn=fn, pivot=True),
    )


def access_in(stack: Stack, **options: Any) -> OperatorAccess:
    """The function of one saga's operators."""
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga_in(stack)])
    access = OperatorAccess(stack, "Operators", reconciler=reconciler, **options)
    access.grant_operate(iam.Role.from_role_arn(stack, "Admin", ADMIN))
    return access


def variables(stack: Stack) -> dict[str, str]:
    found: dict[str, str] = Cloud(stack).one(f"{PATH}/Function").properties["Environment"]["Variables"]
    return found


def test_has_the_configuration_that_the_runtime_reads(stack: Stack) -> None:
    access_in(stack, second_person=SecondPerson.OTHER_SESSION, proposals_expire_after=Duration.hours(2))
    (saga,) = (node for node in stack.node.find_all() if isinstance(node, SagaStateMachine))

    found = variables(stack)

    ((ways, steps),) = steps_of(found[Env.OPERATED], served_of(found[Env.RECONCILED]))
    assert ways == saga.definition_fingerprint[WAYS_AT:]
    assert steps == (
        {
            "Charge": DeployedStep(
                name="Charge",
                in_map=False,
                declared=DeclaredStep(
                    side=Side.BEFORE,
                    external=True,
                    grace_ms=30_000,
                    log_days=400,
                    skipped_by=frozenset({"SoldOut"}),
                ),
            ),
            "Move": DeployedStep(
                name="Move",
                in_map=False,
                declared=DeclaredStep(side=Side.PIVOT, external=False, grace_ms=0, log_days=400),
            ),
        }
    )
    assert (found[Env.SECOND_PERSON], found[Env.PROPOSAL_SECONDS]) == ("OTHER_SESSION", "7200")
    assert (found[Env.HOLD_TABLE], found[Env.RECOVERIES_LIMIT]) == ("${Reconciler/Hold/Table}", "20")


def test_function_knows_its_operators(stack: Stack) -> None:
    access = access_in(stack)
    role = iam.Role(stack, "Operator", assumed_by=iam.AccountRootPrincipal())
    for grantee in (role, role, iam.User(stack, "Ann"), own(stack, "Bot")):
        access.grant_operate(grantee)

    told = variables(stack)[Env.OPERATORS]

    assert told == f"{ADMIN} ${{Operator.Arn}} ${{Ann.Arn}} ${{Bot/Role.Arn}}"


@pytest.mark.parametrize(
    "principal",
    [iam.AccountPrincipal("111111111111"), iam.ServicePrincipal("lambda.amazonaws.com"), iam.AnyPrincipal()],
    ids=["account", "service", "any"],
)
def test_an_operator_must_be_a_role_or_a_user(stack: Stack, principal: iam.IPrincipal) -> None:
    with pytest.raises(ValueError, match=r"grantee must be a role or a user, got .*Principal"):
        access_in(stack).grant_operate(principal)


def test_a_group_is_not_an_operator(stack: Stack) -> None:
    with pytest.raises(ValueError, match="grantee must be a role or a user, got Group"):
        access_in(stack).grant_operate(iam.Group(stack, "Group"))


def test_there_must_be_an_operator(stack: Stack) -> None:
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga_in(stack)])
    OperatorAccess(stack, "Operators", reconciler=reconciler)

    (error,) = Annotations.from_stack(stack).find_error("/Test/Operators", Match.any_value())
    assert "must have an operator, got none" in str(error.entry.data)


@pytest.mark.parametrize(
    ("second", "operators", "found"),
    [
        (SecondPerson.OTHER_ROLE, 1, 1),
        (SecondPerson.OTHER_ROLE, 2, 0),
        (SecondPerson.OTHER_SESSION, 1, 0),
        (None, 1, 0),
    ],
)
def test_second_role_must_have_another_operator(
    stack: Stack, second: SecondPerson | None, operators: int, found: int
) -> None:
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga_in(stack)])
    access = OperatorAccess(stack, "Operators", reconciler=reconciler, second_person=second)
    for number in range(operators):
        role = iam.Role(stack, f"Operator{number}", assumed_by=iam.AccountRootPrincipal())
        access.grant_operate(role)
        access.grant_operate(role)

    errors = Annotations.from_stack(stack).find_error("/Test/Operators", Match.any_value())
    assert len(errors) == found
    assert all("must have two operators for SecondPerson.OTHER_ROLE, got one" in str(one.entry.data) for one in errors)


def test_a_reconciler_has_one_operator_access(stack: Stack) -> None:
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga_in(stack)])
    OperatorAccess(stack, "Operators", reconciler=reconciler)

    with pytest.raises(ValueError, match="reconciler must have one OperatorAccess"):
        OperatorAccess(stack, "Others", reconciler=reconciler)


def test_without_a_second_person_nothing_is_confirmed(stack: Stack) -> None:
    access_in(stack)

    assert Env.SECOND_PERSON not in variables(stack)
    (one,) = json.loads(_manifest(stack))["operators"]
    assert set(one) == {"function"}


def _manifest(stack: Stack) -> str:
    text = Cloud(stack).template["Outputs"]["CdkSagas"]["Value"]
    parts = text["Fn::Join"][1] if isinstance(text, dict) else [text]
    return "".join(part if isinstance(part, str) else "x" for part in parts)


def test_adds_to_the_reconcilers_permissions_what_an_answer_writes(stack: Stack) -> None:
    access_in(stack)

    cloud = Cloud(stack)
    more = cloud.permissions(f"{PATH}/Role") - cloud.permissions("Reconciler/Function/Role")

    log = "${Saga/Log/Table.Arn}"
    assert {action for action, on in more if on == log} == {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:DeleteItem",
    }
    assert {action for action, on in more if on != log and not action.startswith("logs:")} == {
        "dynamodb:BatchGetItem",
        "states:DescribeStateMachine",
    }


def test_an_operator_needs_one_right_and_the_manifest(stack: Stack) -> None:
    role = iam.Role(stack, "Operator", assumed_by=iam.AccountRootPrincipal())

    access_in(stack).grant_operate(role)

    granted = dict(Cloud(stack).permissions("Operator"))
    assert granted.keys() == {"lambda:InvokeFunction", "cloudformation:DescribeStacks"}
    # A request with a name may be authorized for all stacks of that name.
    assert granted["cloudformation:DescribeStacks"].endswith(f":stack/{stack.stack_name}/*")


def test_a_role_of_another_stack_is_named_by_its_arn(new_app: AppFactory) -> None:
    app = new_app()
    stack, other = Stack(app, "Sagas", env=ENVIRONMENT), Stack(app, "People", env=ENVIRONMENT)
    role = iam.Role(other, "Operator", assumed_by=iam.AccountRootPrincipal(), role_name="operator")
    access = access_in(stack)

    with pytest.raises(ValueError, match=r"grantee must be in the stack Sagas of .*, got People/Operator .*: each"):
        access.grant_operate(role)
    arn = "arn:aws:iam::111111111111:role/operator"
    access.grant_operate(iam.Role.from_role_arn(stack, "Operator", arn))
    app.synth()

    assert variables(stack)[Env.OPERATORS] == f"{ADMIN} {arn}"


@pytest.mark.parametrize("environment", [None, ENVIRONMENT])
def test_passes_the_checks_of_cdk_nag(new_app: AppFactory, environment: Environment | None) -> None:
    stack = Stack(new_app(), "Nagged", env=environment)
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga_in(stack)])
    access = OperatorAccess(stack, "Operators", reconciler=reconciler)
    access.grant_operate(iam.Role(stack, "Operator", assumed_by=iam.AccountRootPrincipal()))

    result = AwsSolutionsChecks().validate_scope(stack)

    assert not [violation.rule_name for violation in result.violations]


@pytest.mark.parametrize("seconds", [299, 14 * 86_400 + 1])
def test_time_of_proposals_has_bounds(stack: Stack, seconds: int) -> None:
    with pytest.raises(ValueError, match="proposals_expire_after must be"):
        access_in(stack, proposals_expire_after=Duration.seconds(seconds))


def test_steps_must_have_room_in_the_environment(stack: Stack) -> None:
    fn = own(stack, "Move")
    steps = [Step.atomic(f"{'M' * 37}{number}", fn=fn, pivot=number == 100) for number in range(100, 160)]
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[saga_of(stack, *steps)])

    with pytest.raises(ValueError, match=r"room for, got 1 of \d+ bytes of 3072"):
        OperatorAccess(stack, "Operators", reconciler=reconciler)
