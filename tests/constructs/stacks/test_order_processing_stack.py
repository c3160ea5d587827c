"""The order example's template: reviewed as a whole, clean, and with the permissions that its functions need."""

from __future__ import annotations

import pytest
from aws_cdk import Duration, Stack
from cdk_nag import AwsSolutionsChecks
from syrupy.assertion import SnapshotAssertion

from constructs_lib import Provider
from examples.order_processing.stack import OrderProcessingStack
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.logical_ids import require_same_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed
from tests.constructs.support.shipped import Shipped

pytestmark = pytest.mark.exhaustive

SHOP, LOG, REQUESTS = "${Shop.Arn}", "${Order/Log/Table.Arn}", "${Requests/Table.Arn}"
QUOTES = {(f"dynamodb:{action}", REQUESTS) for action in ("GetItem", "PutItem", "UpdateItem", "DeleteItem")}
MOVES = {("dynamodb:PutItem", SHOP), ("dynamodb:UpdateItem", SHOP)}
ROW = {("dynamodb:PutItem", LOG), ("dynamodb:GetItem", LOG)}
ROW_UPDATED = ROW | {("dynamodb:UpdateItem", LOG)}
FUNCTIONS = {
    "ValidateFunction": ROW | QUOTES | {("dynamodb:BatchGetItem", SHOP)},
    "ReserveFunction": ROW | MOVES,
    "ReleaseFunction": ROW_UPDATED | MOVES,
    "ChargeFunction": ROW_UPDATED,
    "RefundFunction": ROW_UPDATED,
    "UpdateFunction": ROW | MOVES,
    "ShipmentFunction": ROW | {("dynamodb:PutItem", SHOP)},
}


@pytest.fixture(scope="module")
def stack(shipped: Shipped) -> Stack:
    return shipped.stack("order processing")


@pytest.fixture(scope="module")
def cloud(shipped: Shipped) -> Cloud:
    return shipped.cloud("order processing")


def test_the_template_is_the_reviewed_one(cloud: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``."""
    assert reviewed(cloud) == snapshot(extension_class=ReviewExtension, name="order_processing")


def test_logical_ids_are_for_ever(cloud: Cloud) -> None:
    """A table under a new id is an EMPTY table; as in test_template_snapshot.py."""
    require_same_ids(cloud, "logical_ids_order_processing")


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(stack)

    assert [violation.rule_name for violation in result.violations] == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_may_touch_this_and_nothing_else(cloud: Cloud, function: str) -> None:
    found = {pair for pair in cloud.permissions(f"{function}/Role") if pair[0].startswith("dynamodb:")}

    assert found == FUNCTIONS[function]


def test_powertools_reaches_its_own_prefix_of_the_requests_only(cloud: Cloud) -> None:
    (statement,) = [s for s in cloud.statements("ValidateFunction/Role") if REQUESTS in s.resources]

    assert statement.condition == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["quotes#*"]}}


def test_only_the_paying_functions_have_the_gateways_address(new_app: AppFactory) -> None:
    cloud = Cloud(OrderProcessingStack(new_app(), "OrderProcessing", gateway_url="https://gateway.test"))
    variables = {
        function.path.partition("/")[0]: function.properties["Environment"]["Variables"]
        for function in cloud.of_type("AWS::Lambda::Function")
    }

    knowing = {name for name, values in variables.items() if "https://gateway.test" in values.values()}
    assert knowing == {"ChargeFunction", "RefundFunction"}


def test_a_providers_guarantees_reach_its_functions(new_app: AppFactory) -> None:
    asked = Provider(verify=True, verify_undo=True, grace=Duration.seconds(7))
    cloud = Cloud(OrderProcessingStack(new_app(), "OrderProcessing", provider=asked))

    payload = cloud.definition("Order/StateMachine")["States"]["ProcessPayment"]["Arguments"]["Payload"]
    assert payload["provider"] == {
        "grace": 7, "clock_skew": 5, "window": 0, "undo_window": 0, "verify": True, "verify_undo": True,
    }  # fmt: skip


def test_the_compensation_begins_at_the_pivot(cloud: Cloud) -> None:
    states = cloud.definition("Order/StateMachine")["States"]

    assert [name for name in states if name.startswith("Compensate ")] == [
        "Compensate ProcessPayment",
        "Compensate ReserveInventory",
    ]
