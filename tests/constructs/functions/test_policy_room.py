"""Length of roles' inline policies, which IAM limits, and refusals of sagas for whose policies there is no room."""

from __future__ import annotations

import json

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam

from constructs_lib import CallbackIntegration, IdempotencyTable, Provider, SagaStateMachine, Step, TokenTable
from constructs_lib.functions import policy_room
from constructs_lib.functions.policy_room import MAX_CHARACTERS, characters_of, take_room
from constructs_lib.tables.saga_log import SagaLog
from tests.constructs.support.sagas import step_function

REGION = "eu-central-1"
PROVIDER = Provider(verify=True, compensation_idempotent_for=Duration.hours(24))


@pytest.fixture
def regional() -> Stack:
    return Stack(App(), "Payments", env=Environment(account="111111111111", region=REGION))


def _role(stack: Stack, id: str = "Role") -> iam.Role:
    return iam.Role(stack, id, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def _policy(role: iam.Role, id: str, characters: int) -> iam.Policy:
    """A policy of that length."""
    policy = iam.Policy(role, id, statements=[iam.PolicyStatement(actions=["s3:GetObject"], resources=["r"])])
    more = "r" * (characters - characters_of(policy))
    return iam.Policy(role, f"{id}Long", statements=[iam.PolicyStatement(actions=["s3:GetObject"], resources=[more])])


def test_names_that_cloudformation_makes_are_counted(regional: Stack) -> None:
    table = SagaLog(regional, "Log").table
    policy = iam.Policy(
        regional, "Policy", statements=[iam.PolicyStatement(actions=["a:B"], resources=[table.table_arn])]
    )
    logical_id, _ = regional.resolve(table.table_arn)["Fn::GetAtt"]
    arn = f"arn:aws:dynamodb:{REGION}:111111111111:table/Payments-{logical_id}-ABCDEF123456"
    statement = {"Action": "a:B", "Effect": "Allow", "Resource": arn}
    deployed = json.dumps({"Statement": [statement], "Version": "2012-10-17"}, separators=(",", ":"))

    assert 0 <= len(deployed) - characters_of(policy) <= len("dynamodb") - len("sqs") + len("table/")


def test_known_and_joined_names_are_of_their_own_length(stack: Stack) -> None:
    index = f"{dynamodb.TableV2.from_table_name(stack, 'Table', 'shops').table_arn}/index/due"
    policy = iam.Policy(stack, "Policy", statements=[iam.PolicyStatement(actions=["a:B"], resources=[index])])
    arn = "arn:aws:dynamodb:us-east-1:111111111111:table/shops/index/due"

    assert characters_of(policy) == len(
        json.dumps(
            {"Statement": [{"Action": "a:B", "Effect": "Allow", "Resource": arn}], "Version": "2012-10-17"},
            separators=(",", ":"),
        )
    )


def test_policies_add_up_until_there_is_no_room(stack: Stack) -> None:
    role = _role(stack)
    for number in range(4):
        take_room(role, role, _policy(role, f"P{number}", 2_500), "split it")
    take_room(role, role, _policy(role, "P4", MAX_CHARACTERS - 4 * 2_500 - 1), "split it")
    with pytest.raises(ValueError, match=r"Role must be at most 10,240 characters, got \d.* with .*; split it"):
        take_room(role, role, _policy(role, "P5", 80), "split it")


def test_policy_that_is_counted_again_counts_once(stack: Stack) -> None:
    role = _role(stack)
    policy = _policy(role, "Policy", 6_000)
    for _ in range(3):
        take_room(role, role, policy, "split it")


def test_roles_own_policy_counts_up_to_where_the_cdk_splits_it(stack: Stack) -> None:
    role = _role(stack)
    for number in range(4):
        role.add_to_policy(iam.PolicyStatement(actions=["a:B"], resources=[f"{number}" * 6_000]))
    take_room(role, role, _policy(role, "Small", 200), "split it")
    with pytest.raises(ValueError, match=r"got 10,\d\d\d or more"):
        take_room(role, role, _policy(role, "Other", 200), "split it")


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one stack", "stacks of their own"])
def test_token_table_has_room_for_so_many_sagas(monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool) -> None:
    monkeypatch.setattr(policy_room, "MAX_CHARACTERS", 2_600)
    app = App()
    base = Stack(app, "Base")
    tokens = TokenTable(base, "Tokens")

    def add(number: int) -> None:
        stack = Stack(app, f"Saga{number}") if elsewhere else base
        via = CallbackIntegration(stack, f"Depot{number}", tokens=tokens, fn=step_function(stack, f"HandOver{number}"))
        steps = [
            Step.callback(
                "Pick",
                via=via,
                provider=PROVIDER,
                pivot=True,
                timeout=Duration.hours(1),
                expected_duration=Duration.minutes(1),
            )
        ]
        requests = IdempotencyTable(stack, f"Requests{number}")
        SagaStateMachine(stack, f"Saga{number}", requests=requests, steps=steps)

    add(1)
    add(2)
    with pytest.raises(
        ValueError, match=r"Tokens/Sweeper/Role must be at most .*; give further sagas and integrations"
    ):
        add(3)


def test_function_of_another_stack_has_room_for_so_many_sagas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_room, "MAX_CHARACTERS", 850)
    app = App()
    fn = step_function(Stack(app, "Base"), "Move")

    def add(number: int) -> None:
        stack = Stack(app, f"Saga{number}")
        steps = [Step.atomic("Commit", fn=fn, pivot=True)]
        SagaStateMachine(stack, "Saga", requests=IdempotencyTable(stack, "Requests"), steps=steps)

    add(1)
    add(2)
    with pytest.raises(ValueError, match=r"Move/Role must be at most .*; give further sagas a function of their own"):
        add(3)
