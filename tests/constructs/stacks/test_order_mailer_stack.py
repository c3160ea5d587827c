"""The order example with its mailer: what is added, what it may do, and that it can read what the saga sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack
from aws_lambda_powertools.utilities.validation import validate
from cdk_nag import AwsSolutionsChecks

from examples.order_processing.stack import CONFIRMATION, DECLINED, FAILED
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.jsonata import EXECUTION, context, evaluate
from tests.constructs.support.shipped import Shipped

pytestmark = pytest.mark.exhaustive

ROLE = "Mailer/Function/Role"
FUNCTION = "Mailer/Function/Function"
QUEUE = "${Notices.Arn}"
READS = {"ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl"}


@pytest.fixture(scope="module")
def stack(shipped: Shipped) -> Stack:
    return shipped.stack("order mailer")


@pytest.fixture(scope="module")
def cloud(shipped: Shipped) -> Cloud:
    return shipped.cloud("order mailer")


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(stack)

    assert [violation.rule_name for violation in result.violations] == []


def test_the_mailer_is_added_and_nothing_else_changes(cloud: Cloud, shipped: Shipped) -> None:
    plain = shipped.cloud("order processing")

    added = set(cloud.resources) - set(plain.resources)
    assert {cloud.resources[path].type for path in added} == {
        "AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping", "AWS::IAM::Role", "AWS::IAM::Policy",
        "AWS::Logs::LogGroup",
    }  # fmt: skip
    assert all(path.startswith("Mailer/Function/") for path in added)
    assert {path: cloud.resources[path] for path in plain.resources} == plain.resources


def test_it_may_read_the_notices_and_put_mail_and_nothing_else(cloud: Cloud) -> None:
    found = {pair for pair in cloud.permissions(ROLE) if not pair[0].startswith(("logs:", "xray:"))}

    assert found == {*((f"sqs:{action}", QUEUE) for action in READS), ("dynamodb:PutItem", "${Shop.Arn}")}
    (put,) = [statement for statement in cloud.statements(ROLE) if "dynamodb:PutItem" in statement.actions]
    assert put.condition == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["mail#*"]}}


def test_it_reports_failed_messages_and_not_the_whole_batch(cloud: Cloud) -> None:
    mappings = cloud.of_type("AWS::Lambda::EventSourceMapping")
    (mapping,) = (mapping for mapping in mappings if mapping.path.startswith("Mailer/"))

    assert mapping.properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert (mapping.properties["BatchSize"], mapping.properties["EventSourceArn"]) == (10, QUEUE)
    assert mapping.properties["FunctionName"] == f"${{{FUNCTION}}}"


def test_the_visibility_timeout_is_six_times_the_functions(cloud: Cloud) -> None:
    default_seconds = 30
    seconds = cloud.one("Notices").properties.get("VisibilityTimeout", default_seconds)

    assert seconds >= 6 * cloud.one(FUNCTION).properties["Timeout"]


@pytest.mark.parametrize(
    ("message", "status"), [(CONFIRMATION, "COMPLETED"), (FAILED, "FAILED"), (DECLINED, "DECLINED")]
)
def test_it_reads_the_sagas_messages(monkeypatch: pytest.MonkeyPatch, message: str, status: str) -> None:
    monkeypatch.setenv("SHOP_TABLE", "shop")
    from examples.order_processing.functions.steps.mailer import NOTICE

    request = {"customer": "ada", "card": "card-1", "items": [{"sku": "lamp", "quantity": 1}]}
    outputs = {"UpdateInventory": {"order": EXECUTION}, "ProcessPayment": {"amount": "1250", "currency": "EUR"}}
    failure = {"step": "ReserveInventory", "error": "OutOfStock", "detail": "lamp is out of stock"}
    sent: Any = evaluate(
        message,
        states={"context": context(request=json.dumps(request))},
        request=request,
        outputs=outputs,
        failure=failure,
    )

    validate(event=sent, schema=NOTICE)
    assert (sent["status"], sent["customer"], sent["order"]) == (status, "ada", EXECUTION)
