"""Outbox: a table whose stream and schedule invoke its publisher, and exact grants."""

from __future__ import annotations

import json

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match, Template
from cdk_nag import AwsSolutionsChecks

from constructs_lib import Outbox, StepFunction
from saga_runtime.protocol import METRIC_NAMESPACE, Env, Metric, OutboxAttribute
from tests.constructs.support.cloud import Cloud


@pytest.fixture
def outbox(stack: Stack) -> Outbox:
    """An outbox, and a function that puts events into it."""
    made = Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop.orders")
    code = "examples/funds_transfer/functions"
    commit = StepFunction(stack, "Commit", code=code, handler="transfer.handler", environment=made.environment)
    made.grant_put(commit)
    return made


def test_the_table_has_a_stream_of_new_rows_and_is_retained(stack: Stack, outbox: Outbox) -> None:
    table = Cloud(stack).one("Outbox/Table")

    assert table.properties["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert [key["AttributeName"] for key in table.properties["KeySchema"]] == [OutboxAttribute.ID]
    assert "TimeToLiveSpecification" not in table.properties, "an unpublished event is never deleted"
    assert outbox.unpublished_alarm.node.path.startswith(f"{stack.node.path}/Outbox/")


@pytest.mark.usefixtures("outbox")
def test_the_publisher_is_invoked_by_new_rows_and_every_minute(stack: Stack) -> None:
    cloud = Cloud(stack)

    (mapping,) = (each.properties for each in cloud.resources.values() if each.type.endswith("EventSourceMapping"))
    (criteria,) = mapping["FilterCriteria"]["Filters"]
    assert json.loads(criteria["Pattern"]) == {"eventName": ["INSERT"]}
    assert (mapping["MaximumRetryAttempts"], mapping["MaximumRecordAgeInSeconds"]) == (2, 3600)
    assert cloud.one("Outbox/Schedule").properties["ScheduleExpression"] == "rate(1 minute)"
    function = cloud.one("Outbox/Publisher/Function").properties
    assert function["Handler"] == "handlers.outbox.handler"
    assert function["Timeout"] < 60
    variables = function["Environment"]["Variables"]
    assert variables[Env.OUTBOX_SOURCE] == "shop.orders"
    assert {Env.OUTBOX_TABLE, Env.OUTBOX_BUS} <= set(variables)


@pytest.mark.usefixtures("outbox")
def test_grants_name_one_table_and_one_bus(stack: Stack) -> None:
    allowed = {permission for statement in Cloud(stack).statements(None) for permission in statement.permissions}
    ours = {(action, resource) for action, resource in allowed if action.startswith(("dynamodb:", "events:"))}

    table, stream = "${Outbox/Table.Arn}", "${Outbox/Table.StreamArn}"
    assert ours == {
        ("dynamodb:DeleteItem", table),
        ("dynamodb:PutItem", table),
        ("dynamodb:Scan", table),
        ("dynamodb:DescribeStream", stream),
        ("dynamodb:GetRecords", stream),
        ("dynamodb:GetShardIterator", stream),
        ("dynamodb:ListStreams", stream),
        ("events:PutEvents", "${Bus.Arn}"),
    }


@pytest.mark.usefixtures("outbox")
def test_the_alarm_is_on_the_age_of_events_and_on_silence(stack: Stack) -> None:
    alarm = Cloud(stack).one("Outbox/Unpublished").properties

    assert (alarm["Namespace"], alarm["MetricName"]) == (METRIC_NAMESPACE, Metric.OLDEST_UNPUBLISHED)
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (900, "breaching")


@pytest.mark.parametrize("source", ["", " ", "aws.orders", "a b", "x" * 129, "\u00e4"])
def test_a_source_that_the_bus_would_refuse_is_refused(stack: Stack, source: str) -> None:
    with pytest.raises(ValueError, match="source must"):
        Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source=source)


@pytest.mark.usefixtures("outbox")
def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(stack)
    assert result.success, result.violations


def test_a_key_of_ones_own_is_granted_to_the_publisher(regional_stack: Stack) -> None:
    key, bus = kms.Key(regional_stack, "Key"), events.EventBus(regional_stack, "Bus")
    made = Outbox(regional_stack, "Outbox", bus=bus, source="shop", encryption_key=key)

    allowed = {action for statement in Cloud(regional_stack).statements(None) for action, _ in statement.permissions}
    assert {"kms:Decrypt", "kms:Encrypt"} <= allowed
    assert made.encryption_key is key


def test_a_function_without_the_variable_is_warned_of(stack: Stack) -> None:
    made = Outbox(stack, "Outbox", bus=events.EventBus(stack, "Bus"), source="shop")
    code, handler = "examples/cart_fulfilment/functions", "cart.inventory.commit"
    StepFunction(stack, "Without", code=code, handler=handler)
    StepFunction(stack, "With", code=code, handler=handler, environment=made.environment)

    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("Outbox.from_env"))
    (warning,) = (str(message.entry.data) for message in found)
    assert warning.startswith("environment of Test/Without must have CDK_SAGAS_OUTBOX_TABLE, got none: ")


@pytest.mark.parametrize(
    ("arn", "expected"),
    [
        ("arn:aws:events:eu-central-1:999999999999:event-bus/central", True),
        ("arn:aws:events:us-west-2:111122223333:event-bus/central", True),
        ("arn:aws:events:eu-central-1:111122223333:event-bus/central", False),
    ],
)
def test_a_bus_elsewhere_is_addressed_by_its_arn(arn: str, *, expected: bool) -> None:
    stack = Stack(App(), "Near", env=Environment(account="111122223333", region="eu-central-1"))
    Outbox(stack, "Outbox", bus=events.EventBus.from_event_bus_arn(stack, "Bus", arn), source="shop.orders")

    functions = Template.from_stack(stack).find_resources("AWS::Lambda::Function").values()
    (variables,) = (one["Properties"]["Environment"]["Variables"] for one in functions)
    assert (variables[Env.OUTBOX_BUS] == arn) is expected
