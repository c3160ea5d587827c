"""Options that every function and log group of the library below a scope takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from cdk_nag import AwsSolutionsChecks

from constructs_lib import (
    CallbackIntegration,
    DirectFunction,
    EventIntake,
    FunctionOptions,
    LedgerTable,
    Outbox,
    StandardWebhooks,
    StepFunction,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
)
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.sagas import FUNCTIONS, saga, step_function
from tests.constructs.support.shipped import EXAMPLES, SHIPPED
from tests.local.kinds.stack import KindsStack

OF_THE_APP: Final = {"AwsSolutions-L1", "AwsSolutions-APIG3", "AwsSolutions-SQS3", "AwsSolutions-SQS4"}
"""The runtime that the app has chosen, a web ACL that it has not, and its own queues."""
FUNCTION: Final = "AWS::Lambda::Function"
GROUP: Final = "AWS::Logs::LogGroup"
STACKS: Final = {name: SHIPPED[name] for name in EXAMPLES} | {"kinds": lambda app: KindsStack(app, "Shop")}


def _functions(cloud: Cloud) -> dict[str, Mapping[str, Any]]:
    return {found.path: found.properties for found in cloud.of_type(FUNCTION)}


def _groups(cloud: Cloud) -> dict[str, Mapping[str, Any]]:
    return {found.path: found.properties for found in cloud.of_type(GROUP)}


def _function(stack: Stack, path: str = "Move") -> Mapping[str, Any]:
    return Cloud(stack).one(f"{path}/Function", FUNCTION).properties


@pytest.fixture
def network(new_app: AppFactory) -> Stack:
    """A network, and everything else that options name, in a stack of their own."""
    return Stack(new_app(), "Network")


@pytest.mark.parametrize("name", STACKS)
def test_every_function_and_log_group_of_a_shipped_stack_has_the_options(network: Stack, name: str) -> None:
    app = network.node.root
    assert isinstance(app, App)
    FunctionOptions(
        vpc=ec2.Vpc(network, "Vpc"),
        memory_mib=768,
        environment={"TEAM": "payments"},
        runtime=lambda_.Runtime.PYTHON_3_12,
        architecture=lambda_.Architecture.X86_64,
        layers=[
            lambda_.LayerVersion.from_layer_version_arn(
                network, "Layer", "arn:aws:lambda:eu-west-1:111111111111:layer:telemetry:3"
            )
        ],
        log_retention=logs.RetentionDays.SIX_YEARS,
        log_key=kms.Key(network, "LogKey", enable_key_rotation=True),
    ).apply_to(app)

    stack = STACKS[name](app)

    cloud = Cloud(stack)
    functions, groups = _functions(cloud), _groups(cloud)
    assert functions
    assert groups
    for path, function in functions.items():
        seen = (
            "VpcConfig" in function,
            function["Environment"]["Variables"]["TEAM"],
            function["Runtime"],
            function["Architectures"],
            len(function["Layers"]),
        )
        assert seen == (True, "payments", "python3.12", ["x86_64"], 1), path
        assert function["MemorySize"] == 768 or path.startswith(("Send", "Mailer")), path
    for path, group in groups.items():
        assert (group["RetentionInDays"], "KmsKeyId" in group) == (2192, True), path
    found = {violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations}
    assert found - OF_THE_APP == set()


def test_a_function_in_a_vpc_may_attach_itself_and_its_code_may_not(network: Stack) -> None:
    FunctionOptions(vpc=ec2.Vpc(network, "Vpc")).apply_to(network)
    step_function(network)

    allowed, denied = Cloud(network).one("Move/Role/DefaultPolicy"), Cloud(network).one("Move/NoNetworkInterfaces")

    actions = {a for s in allowed.properties["PolicyDocument"]["Statement"] for a in s["Action"] if "ec2:" in a}
    (refused,) = denied.properties["PolicyDocument"]["Statement"]
    assert actions == set(refused["Action"])
    assert refused["Effect"] == "Deny"
    assert refused["Condition"] == {"ArnEquals": {"lambda:SourceFunctionArn": "${Move/Function.Arn}"}}


def test_the_key_of_logs_lets_cloudwatch_logs_use_it(network: Stack) -> None:
    FunctionOptions(log_key=kms.Key(network, "LogKey")).apply_to(network)
    step_function(network)
    saga(network)

    statements = Cloud(network).one("LogKey", "AWS::KMS::Key").properties["KeyPolicy"]["Statement"]

    assert [s["Principal"] for s in statements if "logs" in str(s["Principal"])] == [
        {"Service": "logs.${AWS::Region}.${AWS::URLSuffix}"}
    ]


def test_without_options_there_is_no_network_and_no_policy_of_one(stack: Stack) -> None:
    step_function(stack)

    cloud = Cloud(stack)
    assert "VpcConfig" not in _function(stack)
    assert not [policy.path for policy in cloud.of_type("AWS::IAM::Policy") if "Network" in policy.path]


def test_the_nearest_scope_counts_and_an_argument_before_all(new_app: AppFactory) -> None:
    app = new_app()
    FunctionOptions(memory_mib=256, timeout=Duration.seconds(9), environment={"AA": "app", "BB": "app"}).apply_to(app)
    stack = Stack(app, "Test")
    FunctionOptions(memory_mib=320, environment={"BB": "stack", "CC": "stack"}).apply_to(stack)

    step_function(stack, "Inherits")
    own = FunctionOptions(memory_mib=384, environment={"CC": "own"})
    StepFunction(stack, "Own", code=FUNCTIONS, handler="plain.handler", function_options=own)
    StepFunction(stack, "Given", code=FUNCTIONS, handler="plain.handler", memory_mib=448, environment={"AA": "given"})

    seen = {
        path: (_function(stack, path)["MemorySize"], _function(stack, path)["Timeout"], _letters(stack, path))
        for path in ("Inherits", "Own", "Given")
    }
    assert seen == {
        "Inherits": (320, 9, "app stack stack"),
        "Own": (384, 9, "app stack own"),
        "Given": (448, 9, "given stack stack"),
    }


def _letters(stack: Stack, path: str) -> str:
    variables = _function(stack, path)["Environment"]["Variables"]
    return " ".join(variables[name] for name in ("AA", "BB", "CC"))


def test_a_scope_with_another_vpc_does_not_take_subnets_of_the_outer_one(network: Stack) -> None:
    outer, inner = ec2.Vpc(network, "Outer"), ec2.Vpc(network, "Inner")
    group = ec2.SecurityGroup(network, "Group", vpc=outer)
    FunctionOptions(vpc=outer, security_groups=[group]).apply_to(network)

    StepFunction(network, "Move", code=FUNCTIONS, handler="plain.handler", function_options=FunctionOptions(vpc=inner))

    assert _function(network)["VpcConfig"]["SecurityGroupIds"] == ["${Move/Function/SecurityGroup.GroupId}"]


def test_options_of_one_construct_reach_its_functions_and_log_groups_only(stack: Stack) -> None:
    TransactionApi(
        stack,
        "Api",
        operations={"moves": saga(stack)},
        function_options=FunctionOptions(memory_mib=1_024, log_retention=logs.RetentionDays.ONE_DAY),
    )

    cloud = Cloud(stack)
    assert {path: f["MemorySize"] for path, f in _functions(cloud).items() if f.get("MemorySize", 128) > 512} == {
        "Api/Gatekeeper/moves/Function": 1_024
    }
    assert {path for path, group in _groups(cloud).items() if group["RetentionInDays"] == 1} == {
        "Api/AccessLog",
        "Api/ErrorLog",
        "Api/Gatekeeper/moves/Logs",
    }


MAKERS: Final[dict[str, Callable[[Stack, FunctionOptions], object]]] = {
    "TransactionApi": lambda s, o: TransactionApi(s, "A", operations={"moves": saga(s)}, function_options=o),
    "TokenTable": lambda s, o: TokenTable(s, "A", function_options=o),
    "LedgerTable": lambda s, o: LedgerTable(s, "A", holds=True, function_options=o),
    "Outbox": lambda s, o: Outbox(s, "A", bus=events.EventBus(s, "B"), source="shop", function_options=o),
    "TimeoutReconciler": lambda s, o: TimeoutReconciler(s, "A", sagas=[saga(s)], function_options=o),
    "CallbackIntegration": lambda s, o: CallbackIntegration(s, "A", function_options=o),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_timeout_that_the_protocol_does_not_allow_is_refused(stack: Stack, name: str) -> None:
    with pytest.raises(
        ValueError, match=r"^timeout of FunctionOptions for Test/A.* must be \d+ s( to \d+ s)?, got 19 s; apply the "
    ):
        MAKERS[name](stack, FunctionOptions(timeout=Duration.seconds(19)))


def test_a_gatekeeper_takes_a_timeout_up_to_that_of_the_gateway(stack: Stack) -> None:
    MAKERS["TransactionApi"](stack, FunctionOptions(timeout=Duration.seconds(28)))

    assert _function(stack, "A/Gatekeeper/moves")["Timeout"] == 28


def test_a_direct_function_takes_the_options_and_keeps_its_bound(stack: Stack) -> None:
    FunctionOptions(timeout=Duration.seconds(29)).apply_to(stack)

    with pytest.raises(ValueError, match=r"^timeout must be 1 s to 28 s, got 29 s; "):
        DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    chosen = FunctionOptions(timeout=Duration.seconds(5))
    DirectFunction(stack, "Other", code=FUNCTIONS, handler="direct.handler", function_options=chosen)

    assert _function(stack, "Other")["Timeout"] == 5


def test_log_groups_of_webhooks_of_an_event_intake_take_its_options(stack: Stack) -> None:
    from aws_cdk import aws_secretsmanager as secretsmanager

    from constructs_lib import IdempotencyTable

    intake = EventIntake(
        stack,
        "Intake",
        operation="stripe",
        fn=StepFunction(stack, "Fn", code=FUNCTIONS, handler="intake.handler"),
        requests=IdempotencyTable(stack, "Requests"),
        function_options=FunctionOptions(log_retention=logs.RetentionDays.ONE_DAY),
    )
    intake.add_webhook("In", scheme=StandardWebhooks(secrets=[secretsmanager.Secret(stack, "Secret")]))

    groups = {path: group["RetentionInDays"] for path, group in _groups(Cloud(stack)).items()}
    assert groups == {"Fn/Logs": 90, "Intake/In/AccessLog": 1, "Intake/In/ErrorLog": 1}


def test_options_that_come_after_a_function_are_refused(stack: Stack) -> None:
    step_function(stack)

    with pytest.raises(ValueError, match=r"^FunctionOptions of Test must be .* got them after Test/Move; apply"):
        FunctionOptions(memory_mib=256).apply_to(stack)


def test_options_are_applied_to_a_scope_once(stack: Stack) -> None:
    FunctionOptions(memory_mib=256).apply_to(stack)

    with pytest.raises(ValueError, match=r"^FunctionOptions of Test must be applied once, got a second time; "):
        FunctionOptions(memory_mib=512).apply_to(stack)


def test_subnets_without_a_vpc_are_refused(stack: Stack) -> None:
    FunctionOptions(subnets=ec2.SubnetSelection(subnet_group_name="private")).apply_to(stack)

    with pytest.raises(ValueError, match=r"^vpc of FunctionOptions for Test/Move must be set with subnets or sec"):
        step_function(stack)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"environment": {"CDK_SAGAS_CLOCK": "1"}},
            "environment must not set CDK_SAGAS_CLOCK, which this libr",
        ),
        ({"environment": {"POWERTOOLS_SERVICE_NAME": "x"}}, "must not set POWERTOOLS_SERVICE_NAME, which this library"),
        ({"environment": {"AWS_REGION": "x"}}, "environment must not set AWS_REGION, which Lambda sets; use another"),
        (
            {"environment": {"PYTHONPATH": "/opt"}},
            "environment must not set PYTHONPATH, which makes other code run than",
        ),
        (
            {"environment": {"AWS_LAMBDA_EXEC_WRAPPER": "wrapper"}},
            "environment must not set AWS_LAMBDA_EXEC_WRAPPER, which makes other code",
        ),
        (
            {"architecture": lambda_.Architecture.custom("riscv")},
            "architecture must be one of arm64, x86_64, got riscv; choose",
        ),
        ({"runtime": lambda_.Runtime.PYTHON_3_10}, "runtime must be one of python3.11, .*, got python3.10; choose"),
        ({"runtime": lambda_.Runtime.NODEJS_22_X}, "runtime must be one of python3.11, .*, got nodejs22.x; choose"),
        ({"environment": {"a-b": "x"}}, r"a name in environment must match .*, got 'a-b'; use letters"),
        ({"memory_mib": 64}, "memory_mib must be 128 to 10240, got 64; choose"),
        ({"memory_mib": 0}, "memory_mib must be 128 to 10240, got 0; choose"),
        ({"timeout": Duration.seconds(901)}, "timeout must be 1 s to 900 s, got 901 s; choose"),
        ({"timeout": 10}, r"timeout of FunctionOptions must be a Duration.*, got 10; write Duration.seconds\(10\)"),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FunctionOptions(**given)


def test_options_are_applied_to_a_construct() -> None:
    wrong: Any = "Test"

    with pytest.raises(ValueError, match=r"^scope of FunctionOptions.apply_to must be a Construct, got 'Test'; pass"):
        FunctionOptions(memory_mib=256).apply_to(wrong)


def test_a_sixth_layer_is_refused(stack: Stack) -> None:
    arn = "arn:aws:lambda:eu-west-1:111111111111:layer:telemetry"
    layers = [lambda_.LayerVersion.from_layer_version_arn(stack, f"L{n}", f"{arn}:{n}") for n in range(1, 7)]

    with pytest.raises(ValueError, match=r"^layers must be at most 5, got 6; leave some out"):
        FunctionOptions(layers=layers)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"environment": {"PYTHONPATH": "/opt"}}, "environment must not set PYTHONPATH, which makes other code run"),
        ({"architecture": lambda_.Architecture.custom("riscv")}, "architecture must be one of arm64, x86_64, got risc"),
    ],
)
def test_a_wrong_argument_of_a_function_is_refused_as_an_option_is(
    stack: Stack, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        StepFunction(stack, "Move", code=FUNCTIONS, handler="plain.handler", **given)
