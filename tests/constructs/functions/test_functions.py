"""Functions: one set of settings for all of ours."""

from __future__ import annotations

import pytest
from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from constructs_lib import LedgerTable, StepFunction
from constructs_lib.saga.description.description import UNKNOWN, FunctionDescription
from constructs_lib.saga.description.function_facts import facts_of
from saga_runtime.protocol import PROTOCOL_VERSION, Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS, plain_function, step_function

FUNCTION = "AWS::Lambda::Function"
OURS = [
    "Api/Gatekeeper/transfers",
    "CreditFunction",
    "DebitFunction",
    "Reconciler/Function",
    "RefundFunction",
    "Transfer/Notifier",
    "TransferFunction",
]


def test_the_reference_app_has_these_functions_and_no_other(reference: Cloud) -> None:
    assert sorted(f.path.removesuffix("/Function") for f in reference.of_type(FUNCTION)) == OURS


@pytest.mark.parametrize("path", OURS)
def test_a_function_runs_the_newest_python_on_arm64(reference: Cloud, path: str) -> None:
    function = reference.one(f"{path}/Function", FUNCTION).properties
    assert function["Runtime"] == "python3.14"
    assert function["Architectures"] == ["arm64"]


@pytest.mark.parametrize("path", OURS)
def test_a_function_logs_json_into_a_group_of_its_own_that_expires(reference: Cloud, path: str) -> None:
    function = reference.one(f"{path}/Function").properties
    assert function["LoggingConfig"] == {"LogFormat": "JSON", "LogGroup": f"${{{path}/Logs}}"}
    group = reference.one(f"{path}/Logs", "AWS::Logs::LogGroup")
    assert group.properties["RetentionInDays"] == 90
    assert group.raw["DeletionPolicy"] == "Retain"


@pytest.mark.parametrize("path", OURS)
def test_a_function_is_traced(reference: Cloud, path: str) -> None:
    assert reference.one(f"{path}/Function").properties["TracingConfig"] == {"Mode": "Active"}


@pytest.mark.parametrize("path", OURS)
def test_a_function_has_its_protocol_and_its_name_in_its_environment(reference: Cloud, path: str) -> None:
    variables = reference.one(f"{path}/Function").properties["Environment"]["Variables"]
    assert variables[Env.PROTOCOL] == str(PROTOCOL_VERSION)
    assert variables[Env.SERVICE] == f"FundsTransfer/{path}".replace("/", "-")


@pytest.mark.parametrize("path", OURS)
def test_a_function_waits_for_its_policy_before_it_can_be_called(reference: Cloud, path: str) -> None:
    depends = reference.one(f"{path}/Function").raw["DependsOn"]
    policy = reference.one(f"{path}/Role/DefaultPolicy").logical_id
    assert policy in depends


def test_the_reference_app_has_no_implicit_function(reference: Cloud) -> None:
    kinds = {resource.type for resource in reference.resources.values()}
    assert not [kind for kind in kinds if kind.startswith("Custom::") or "CustomResource" in kind]


def test_a_step_function_takes_the_ledgers_environment(stack: Stack) -> None:
    ledger = LedgerTable(stack, "Ledger")
    StepFunction(stack, "Move", code=FUNCTIONS, handler="plain.handler", environment=ledger.environment)
    variables = Cloud(stack).one("Move/Function").properties["Environment"]["Variables"]
    assert variables["CDK_SAGAS_LEDGER_TABLE"] == "${Ledger/Table}"


def test_settings_of_a_step_function_reach_the_template(stack: Stack) -> None:
    StepFunction(
        stack,
        "Move",
        code=FUNCTIONS,
        handler="plain.handler",
        timeout=Duration.seconds(33),
        memory_mib=1024,
        architecture=lambda_.Architecture.X86_64,
        reserved_concurrency=7,
        log_retention=logs.RetentionDays.ONE_WEEK,
        removal_policy=RemovalPolicy.DESTROY,
    )
    cloud = Cloud(stack)
    function = cloud.one("Move/Function").properties
    assert (function["Timeout"], function["MemorySize"]) == (33, 1024)
    assert function["Architectures"] == ["x86_64"]
    assert function["ReservedConcurrentExecutions"] == 7
    assert cloud.one("Move/Logs").properties["RetentionInDays"] == 7
    assert cloud.one("Move/Logs").raw["DeletionPolicy"] == "Delete"


def test_a_step_function_can_be_granted_to(stack: Stack) -> None:
    move = step_function(stack)
    iam.Grant.add_to_principal(
        grantee=move, actions=["sqs:SendMessage"], resource_arns=["arn:aws:sqs:eu-west-1:111111111111:queue"]
    )
    assert ("sqs:SendMessage", "arn:aws:sqs:eu-west-1:111111111111:queue") in Cloud(stack).permissions("Move/Role")


def test_equal_code_has_an_equal_asset(stack: Stack) -> None:
    step_function(stack, "One")
    step_function(stack, "Other")
    cloud = Cloud(stack)
    assert cloud.one("One/Function").properties["Code"] == cloud.one("Other/Function").properties["Code"]


def test_a_saga_recognizes_our_functions_by_their_environment(stack: Stack) -> None:
    assert facts_of(step_function(stack)) == FunctionDescription(timeout=15, memory_mib=512, architecture="arm64")


def test_a_saga_reads_the_settings_of_a_custom_function(stack: Stack) -> None:
    plain = plain_function(stack, "Plain", timeout=Duration.seconds(20))
    made = lambda_.Function(
        stack,
        "Made",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): ..."),
        memory_size=256,
        architecture=lambda_.Architecture.ARM_64,
    )
    assert facts_of(plain) == FunctionDescription(timeout=20, memory_mib=128, architecture="x86_64")
    assert facts_of(made) == FunctionDescription(timeout=0, memory_mib=256, architecture="arm64")


def test_its_settings_are_read_once(stack: Stack) -> None:
    plain = plain_function(stack, "Plain")
    assert facts_of(plain) is facts_of(plain)


def test_of_an_imported_function_or_an_alias_nothing_is_known(stack: Stack) -> None:
    theirs = lambda_.Function.from_function_name(stack, "Theirs", "theirs")
    assert facts_of(theirs) is UNKNOWN
    assert facts_of(plain_function(stack, "Plain").add_alias("live")) is UNKNOWN


def test_a_function_that_is_not_cloudformations_own_is_not_known(stack: Stack) -> None:
    odd = plain_function(stack, "Odd")
    odd.node.default_child = odd.role
    assert facts_of(odd) is UNKNOWN
