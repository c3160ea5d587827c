"""Interfaces that imports and constructs of this app have, to type checkers and at synth."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Environment, NestedStack, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match
from aws_cdk.aws_apigatewayv2_authorizers import HttpUserPoolAuthorizer

from constructs_lib import (
    HttpTransactionApi,
    IdempotencyTable,
    IIdempotencyTable,
    ILedgerTable,
    ISagaStateMachine,
    ITokenTable,
    LedgerTable,
    SagaStateMachine,
    Step,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
)
from constructs_lib.shared.types import require_type
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import integration, job, saga_of
from tests.constructs.support.sagas import saga, step_function

ROLE = "shop-TokensSweeperRole-1A2B3C"
SERVICE = "shop-Tokens-Sweeper"
INVOKE = "execute-api:Invoke"


def _requests(*tables: IIdempotencyTable) -> int:
    return sum(table.remember_seconds for table in tables)


def _ledgers(*tables: ILedgerTable) -> list[str]:
    return [table.table_name for table in tables]


def _tokens(*tables: ITokenTable) -> list[bool]:
    return [table.sweeper is None for table in tables]


def _starts(grantee: iam.IGrantable, *sagas: ISagaStateMachine) -> None:
    for each in sagas:
        each.grant_start(grantee)


def _theirs(stack: Stack, **options: Any) -> ITokenTable:
    return TokenTable.from_table_name(
        stack, "Theirs", table_name="theirs", sweeper_role_name=ROLE, service=SERVICE, **options
    )


def _caller(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def test_a_construct_and_its_import_have_one_interface(stack: Stack) -> None:
    requests, ledger, tokens = IdempotencyTable(stack, "R"), LedgerTable(stack, "L"), TokenTable(stack, "T")
    made = saga(stack)
    TransactionApi(stack, "Api", operations={"moves": made})
    imported = SagaStateMachine.from_operation(stack, "Saga2", operation="moves", api_id="abc123")

    assert _requests(requests, IdempotencyTable.from_table_name(stack, "R2", table_name="r")) == 2 * 400 * 86_400
    assert _ledgers(ledger, LedgerTable.from_table_name(stack, "L2", table_name="l"))[1] == "l"
    assert _tokens(tokens, _theirs(stack)) == [False, True]
    _starts(_caller(stack), made, imported)


@pytest.mark.parametrize(
    ("interface", "members"),
    [
        (IIdempotencyTable, {"replay_seconds", "grant_reserve", "table_name", "node"}),
        (ILedgerTable, {"environment", "grant_post", "table_arn", "node"}),
        (ITokenTable, {"sweeper_role", "grant_receive", "encryption_key", "node"}),
        (ISagaStateMachine, {"grant_start", "node"}),
    ],
)
def test_an_argument_of_another_type_is_refused_by_the_interface(interface: Any, members: set[str]) -> None:
    assert members <= set(dir(interface))
    with pytest.raises(ValueError, match=r"^table of Own must be an? \w+, got 'theirs'; pass an? \w+"):
        require_type("table", "theirs", interface, "Own")


# ---- tokens ---------------------------------------------------------------------------------------------------------


def test_an_integration_lets_the_sweeper_of_an_imported_table_deliver(regional_stack: Stack) -> None:
    stack = regional_stack
    key = kms.Key(stack, "Key")
    via = integration(stack, tokens=_theirs(stack, encryption_key=key))
    made = saga_of(stack, job(via))
    TimeoutReconciler(stack, "Reconciler", sagas=[made])
    cloud = Cloud(stack)

    roles = [one.properties["Roles"] for one in cloud.of_type("AWS::IAM::Policy") if ROLE in one.properties["Roles"]]
    assert len(roles) == 2  # what is served, and entries of unanswered jobs
    sweeper = {
        action
        for one in cloud.of_type("AWS::IAM::Policy")
        if ROLE in one.properties["Roles"]
        for statement in one.properties["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert {"states:SendTaskSuccess", "dynamodb:UpdateItem", "sqs:SendMessage"} <= sweeper
    variables = cloud.one("WarehouseHandOver/Function").properties["Environment"]["Variables"]
    assert variables["CDK_SAGAS_TOKEN_TABLE"] == "theirs"
    assert not [one for one in cloud.resources if "Sweeper" in one]
    with pytest.raises(ValueError, match=r"^tokens of Test/Warehouse must be a table of this app for its"):
        _ = via.sweeper
    alarm = cloud.one("Warehouse/Alarms/CallbackOverdue").properties
    assert alarm["Dimensions"] == [{"Name": "service", "Value": SERVICE}]


def test_two_apps_that_share_a_sweeper_do_not_replace_each_others_policies(new_app: AppFactory) -> None:
    names = []
    for name in ("first", "second"):
        stack = Stack(new_app(), "Shop", stack_name=name)
        saga_of(stack, job(integration(stack, tokens=_theirs(stack))))
        policies = Cloud(stack).of_type("AWS::IAM::Policy")
        names += [one.properties["PolicyName"] for one in policies if ROLE in one.properties["Roles"]]

    assert len(set(names)) == len(names) == 4, "a role keeps one policy of a name"


def test_policies_of_a_nested_stack_have_the_same_names_after_each_synth(new_app: AppFactory) -> None:
    """The name of a nested stack is a token, which has another number then."""
    names = []
    for name in ("first", "first", "second"):
        nested = NestedStack(Stack(new_app(), "Shop", stack_name=name), "Inner")
        saga_of(nested, job(integration(nested, tokens=_theirs(nested))))
        policies = Cloud(nested).of_type("AWS::IAM::Policy")
        names.append({one.properties["PolicyName"] for one in policies if ROLE in one.properties["Roles"]})

    assert names[0] == names[1]
    assert names[0].isdisjoint(names[2]), "a role keeps one policy of a name"


def test_operators_and_metrics_of_an_imported_token_table(stack: Stack) -> None:
    tokens = TokenTable.from_table_name(stack, "T", table_name="theirs", sweeper_role_name=ROLE, service=SERVICE)
    tokens.grant_operate(_caller(stack))

    granted = Cloud(stack).permissions("Caller")
    arn = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/theirs"
    assert ("dynamodb:Query", f"{arn}/index/due") in granted
    assert ("dynamodb:GetItem", arn) in granted


@pytest.mark.parametrize(
    ("argument", "value"),
    [("table_name", ""), ("sweeper_role_name", " "), ("service", "")],
)
def test_a_blank_name_of_an_imported_token_table_is_refused(stack: Stack, argument: str, value: str) -> None:
    names: dict[str, Any] = {"table_name": "theirs", "sweeper_role_name": ROLE, "service": SERVICE, argument: value}
    with pytest.raises(ValueError, match=rf"^{argument} of [\w/]+ must be .*, got '{value}'; pass "):
        TokenTable.from_table_name(stack, "Theirs", **names)


# ---- who may start a saga -------------------------------------------------------------------------------------------


def test_a_caller_may_call_the_operations_of_a_saga_and_not_its_machine(stack: Stack) -> None:
    made, caller = saga(stack), _caller(stack)
    made.grant_start(caller)
    TransactionApi(stack, "Api", operations={"moves": made, "others": saga(stack, "Other")})
    HttpTransactionApi(stack, "Http", api=apigatewayv2.HttpApi(stack, "HttpApi"), operations={"moves": made})

    granted = Cloud(stack).permissions("Caller")
    assert {action for action, _ in granted} == {INVOKE}
    assert {arn.split(":")[-1].split("}", 1)[1] for _, arn in granted} == {
        "/v1/POST/moves",
        "/v1/GET/moves/*",
        "/*/POST/moves",
        "/*/GET/moves/*",
    }


def test_a_step_of_one_saga_may_start_another_one_of_the_same_api(stack: Stack) -> None:
    inner, move = saga(stack, "Inner"), step_function(stack)
    outer = saga_of(stack, Step.atomic("Pay", fn=move), id="Outer")
    inner.grant_start(move)
    TransactionApi(stack, "Api", operations={"inner": inner, "outer": outer})

    policy = json.dumps(Cloud(stack).one("Move/Role/DefaultPolicy").raw["Properties"])
    assert "DeploymentStage" not in policy, "the stage waits for the function, which waits for this policy"


def _by_nobody(_stack: Stack, _made: SagaStateMachine) -> None: ...


def _by_users(stack: Stack, made: SagaStateMachine) -> None:
    api = apigatewayv2.HttpApi(stack, "HttpApi")
    users = HttpUserPoolAuthorizer("Users", cognito.UserPool(stack, "Pool"))
    HttpTransactionApi(stack, "Http", api=api, operations={"moves": made}, authorizer=users, identity="jwt")


@pytest.mark.parametrize("begun", [_by_nobody, _by_users])
def test_a_saga_that_no_caller_with_iam_can_start_grants_no_start(
    stack: Stack, begun: Callable[[Stack, SagaStateMachine], None]
) -> None:
    made = saga(stack)
    begun(stack, made)
    made.grant_start(_caller(stack))

    errors = Annotations.from_stack(stack).find_error("/Test/Saga", Match.string_like_regexp("operation with IAM"))
    (message,) = (str(error.entry.data) for error in errors)
    assert "Test/Saga must have an operation with IAM for grant_start, got none; name the saga in a" in message


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({}, "v1/{method}/moves"),
        ({"resource_path": "/pay/", "stage_name": "live"}, "live/{method}/pay/moves"),
        ({"stage_name": "$default"}, "$default/{method}/moves"),
    ],
)
def test_an_imported_saga_is_started_at_its_operation(new_app: AppFactory, options: dict[str, str], path: str) -> None:
    stack = Stack(new_app(), "Test", env=Environment(account="111111111111", region="eu-west-1"))
    theirs = SagaStateMachine.from_operation(stack, "Theirs", operation="moves", api_id="abc123", **options)
    theirs.grant_start(_caller(stack))

    api = "arn:aws:execute-api:eu-west-1:111111111111:abc123"
    assert Cloud(stack).permissions("Caller") == {
        (INVOKE, f"{api}/{path.format(method='POST')}"),
        (INVOKE, f"{api}/{path.format(method='GET')}/*"),
    }


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("operation", "Moves"),
        ("operation", "moves/*"),
        ("api_id", ""),
        ("api_id", "*"),
        ("stage_name", " "),
        ("resource_path", "a/*"),
    ],
)
def test_a_name_of_an_imported_saga_that_cannot_be_one_is_refused(stack: Stack, argument: str, value: str) -> None:
    names = {"operation": "moves", "api_id": "abc123", argument: value}
    with pytest.raises(ValueError, match=rf"^{argument} must match .*; give the "):
        SagaStateMachine.from_operation(stack, "Theirs", **names)
