"""cdk-nag's packs for regulations on every shipped stack: clean, for reasons that are each needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from aws_cdk import App, Duration, NestedStack, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Annotations, Match
from cdk_nag import (
    AwsSolutionsChecks,
    HIPAASecurityChecks,
    NIST80053R5Checks,
    PCIDSS321Checks,
    ServerlessChecks,
)

from constructs_lib import (
    CallbackIntegration,
    Compliance,
    EventIntake,
    IdempotencyTable,
    StepFunction,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
)
from examples.funds_transfer.stack import FundsTransferStack
from examples.on_call import TOPIC_CONTEXT
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import context
from tests.constructs.support.integrations import own
from tests.constructs.support.sagas import FUNCTIONS, saga
from tests.constructs.support.shipped import EXAMPLES, SHIPPED

TOPIC: Final = "arn:aws:sns:eu-west-1:111111111111:OnCall"
PACKS: Final = (AwsSolutionsChecks, ServerlessChecks, NIST80053R5Checks, PCIDSS321Checks, HIPAASecurityChecks)
KEY: Final = "aws:cdk:acknowledged-rules"


@pytest.fixture(scope="module")
def new_app(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], App]:
    """Apps whose alarms have an action."""
    settings = {**context(), TOPIC_CONTEXT: TOPIC}
    return lambda: App(outdir=str(tmp_path_factory.mktemp("app")), context=settings, analytics_reporting=False)


def _compliant(stack: Stack) -> Compliance:
    return Compliance(stack, "Compliance", log_key=kms.Key(stack, "LogKey", enable_key_rotation=True))


def _findings(stack: Stack) -> Iterator[tuple[str, str]]:
    """Rule and path of each finding of each pack."""
    for pack in PACKS:
        for violation in pack().validate_scope(stack).violations:
            for resource in violation.violating_resources:
                yield violation.rule_name, str(resource.construct_path)


def _acknowledged(stack: Stack) -> Iterator[tuple[str, str, str]]:
    """Rule, path and reason of each acknowledgement."""
    for construct in stack.node.find_all():
        for entry in construct.node.metadata:
            if entry.type == KEY:
                for rule, reason in entry.data.items():
                    yield rule.rsplit("Annotation::", 1)[-1], construct.node.path, reason


@pytest.mark.exhaustive
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_clean_by_every_pack(new_app: Callable[[], App], example: str) -> None:
    stack = SHIPPED[example](new_app())
    _compliant(stack)

    assert sorted(_findings(stack)) == []


@pytest.mark.proof
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_acknowledgement_is_of_a_finding_and_has_a_reason(new_app: Callable[[], App], example: str) -> None:
    plain = SHIPPED[example](new_app())
    before, own = set(_findings(plain)), {(rule, path) for rule, path, _ in _acknowledged(plain)}
    stack = SHIPPED[example](new_app())
    _compliant(stack)

    added = [(rule, path, reason) for rule, path, reason in _acknowledged(stack) if (rule, path) not in own]

    assert added
    assert {(rule, path) for rule, path, _ in added} <= before
    assert all(len(reason.split()) >= 20 for _, _, reason in added)


def test_every_log_group_is_encrypted_and_cloudwatch_may_use_the_key(new_app: Callable[[], App]) -> None:
    stack = FundsTransferStack(new_app(), "Shop")
    _compliant(stack)
    cloud = Cloud(stack)

    assert {group.properties.get("KmsKeyId") for group in cloud.of_type("AWS::Logs::LogGroup")} == {"${LogKey.Arn}"}
    statement = cloud.one("LogKey").properties["KeyPolicy"]["Statement"][-1]
    assert statement["Principal"] == {"Service": "logs.${AWS::Region}.${AWS::URLSuffix}"}
    groups = "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:*"
    assert statement["Condition"] == {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}}


def test_log_group_that_is_declared_later_ends_the_synth(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    saga(stack)
    _compliant(stack)
    logs.LogGroup(stack, "Late")

    (error,) = Annotations.from_stack(stack).find_error("/Test/Compliance", Match.any_value())
    assert "must be declared after every log group, got Test/Late/Resource later" in str(error.entry.data)


def test_log_groups_of_nested_stacks_are_encrypted(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    nested = NestedStack(stack, "Nested")
    saga(nested)
    logs.LogGroup(NestedStack(nested, "Inner"), "Mine")
    _compliant(stack)

    Annotations.from_stack(stack).has_no_error("*", Match.any_value())
    found = [each for each in nested.node.find_all() if isinstance(each, logs.CfnLogGroup)]
    assert "Test/Nested/Inner/Mine/Resource" in {each.node.path for each in found}
    assert all(each.kms_key_id for each in found)
    assert any(path.startswith("Test/Nested/") for _, path, _ in _acknowledged(stack))


def test_log_group_of_another_stack_below_the_parent_ends_the_synth(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    saga(stack)
    inner = Stack(stack, "Inner")
    logs.LogGroup(inner, "Plain")
    logs.LogGroup(inner, "Own", encryption_key=kms.Key(inner, "Key"))
    _compliant(stack)

    (error,) = Annotations.from_stack(stack).find_error("/Test/Compliance", Match.any_value())
    text = str(error.entry.data)
    assert "must be in its stack or in a nested one, got Test/Inner/Plain/Resource without a key" in text
    assert not [path for _, path, _ in _acknowledged(stack) if path.startswith("Test/Inner/")]


def test_dead_letter_queues_of_users_are_not_acknowledged(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    saga(stack)
    dead = sqs.Queue(stack, "Dead")
    imported = sqs.Queue.from_queue_arn(stack, "Imported", "arn:aws:sqs:eu-west-1:111111111111:dead")
    for name, queue in (("Mine", dead), ("Other", imported)):
        sqs.Queue(stack, name, dead_letter_queue=sqs.DeadLetterQueue(queue=queue, max_receive_count=3))
    _compliant(stack)

    assert not [path for _, path, _ in _acknowledged(stack) if path.startswith("Test/Dead")]


def test_reason_against_a_dead_letter_target_goes_by_how_the_function_is_invoked(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    made = saga(stack)
    api = TransactionApi(stack, "Api", operations={"orders": made})
    reconciler = TimeoutReconciler(stack, "Reconciler", sagas=[made])
    jobs = CallbackIntegration(stack, "Jobs", fn=own(stack, "Send"), tokens=TokenTable(stack, "Tokens"))
    jobs.add_direct_receiver("Direct")
    _compliant(stack)

    reasons = {path: reason for rule, path, reason in _acknowledged(stack) if rule == "Serverless-LambdaDLQ"}
    assert "await its response" in reasons[f"{api.gatekeepers['orders'].function.node.path}/Resource"]
    assert "Only schedules" in reasons[f"{reconciler.function.function.node.path}/Resource"]
    direct = [reason for path, reason in reasons.items() if path.startswith("Test/Jobs/Direct/")]
    assert direct
    assert all("on-failure destination" in reason for reason in direct)


def test_stream_with_a_failure_destination_needs_no_reason(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    begin = StepFunction(stack, "Begin", code=FUNCTIONS, handler="intake.handler")
    intake = EventIntake(stack, "Intake", operation="stripe", fn=begin, requests=IdempotencyTable(stack, "Requests"))
    key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
    intake.add_stream(
        dynamodb.TableV2(stack, "Table", partition_key=key, dynamo_stream=dynamodb.StreamViewType.NEW_IMAGE)
    )
    _compliant(stack)

    rule = "Serverless-LambdaEventSourceMappingDestination"
    sources = {each.node.path for each in stack.node.find_all() if isinstance(each, lambda_.CfnEventSourceMapping)}
    acknowledged = {path for found, path, _ in _acknowledged(stack) if found == rule}
    (stream,) = sources - acknowledged
    assert "DynamoDB" in stream


def test_resources_of_users_are_not_acknowledged(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    saga(stack)
    lambda_.Function(
        stack,
        "Mine",
        code=lambda_.Code.from_inline("x"),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_14,
        timeout=Duration.seconds(3),
    )
    sqs.Queue(stack, "Queue")
    _compliant(stack)

    found = {path for _, path in _findings(stack)}
    assert {"Test/Mine/Resource", "Test/Queue/Resource"} <= found


def test_stage_without_a_web_acl_that_clients_call_is_not_acknowledged(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    TransactionApi(stack, "Api", operations={"orders": saga(stack)})
    _compliant(stack)

    assert ("PCI.DSS.321-APIGWAssociatedWithWAF", "Test/Api/RestApi/DeploymentStage.v1/Resource") in set(
        _findings(stack)
    )


def test_web_acl_logs_what_it_blocks_without_credentials(new_app: Callable[[], App]) -> None:
    stack = Stack(new_app(), "Test")
    TransactionApi(stack, "Api", operations={"orders": saga(stack)}, waf=True, removal_policy=RemovalPolicy.DESTROY)
    cloud = Cloud(stack)

    logging: Any = cloud.one("Api/WebAcl/Logging", "AWS::WAFv2::LoggingConfiguration").properties
    group = cloud.one("Api/WebAcl/Log", "AWS::Logs::LogGroup")
    name = f"aws-waf-logs-${{AWS::StackName}}-{group.logical_id}-${{Api/WebAcl/Acl.Id}}"
    assert group.properties["LogGroupName"] == name, "a group that was retained would be in the way of a later web ACL"
    assert group.raw["DeletionPolicy"] == "Delete"
    assert logging["ResourceArn"] == "${Api/WebAcl/Acl.Arn}"
    assert not logging["LogDestinationConfigs"][0].endswith(":*")
    assert {field["SingleHeader"]["Name"] for field in logging["RedactedFields"]} >= {
        "authorization",
        "idempotency-key",
    }
    assert logging["LoggingFilter"]["DefaultBehavior"] == "DROP"
    assert json.dumps(logging["LoggingFilter"]["Filters"]).count('"Action"') == 3
