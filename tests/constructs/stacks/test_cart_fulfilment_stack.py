"""The cart example's template: reviewed as a whole, clean, and with the permissions that its functions need."""

from __future__ import annotations

import pytest
from aws_cdk import Duration, Stack
from cdk_nag import AwsSolutionsChecks
from syrupy.assertion import SnapshotAssertion

from examples.cart_fulfilment.waits import Job, Waits
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.logical_ids import require_same_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed
from tests.constructs.support.shipped import Shipped

pytestmark = pytest.mark.exhaustive

SHOP = "${Shop.Arn}"
SHOP_ACTIONS = {
    "AskFunction": set(),
    "InvestigateFunction": set(),
    "KeepFindingFunction": {"PutItem"},
    "LookAtOrderFunction": {"GetItem"},
    "PriceFunction": {"GetItem", "Query"},
    "AssessFunction": set(),
    "ReserveFunction": {"GetItem", "Query", "PutItem", "UpdateItem"},
    "ReleaseFunction": {"DeleteItem"},
    "AuthorizeFunction": set(),
    "VoidFunction": set(),
    "PaymentEventsFunction": set(),
    "ReviewFunction": set(),
    "CommitFunction": {"GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"},
    "CancelFunction": {"PutItem", "UpdateItem"},
    "CaptureFunction": set(),
    "RefundFunction": set(),
    "LabelFunction": set(),
    "VoidLabelFunction": set(),
    "PickFunction": set(),
    "PickEventsFunction": set(),
    "PutBackFunction": set(),
    "LookFunction": set(),
    "PublishScanFunction": set(),
    "ScanFunction": set(),
    "ShipFunction": {"UpdateItem"},
}


@pytest.fixture(scope="module")
def stack(shipped: Shipped) -> Stack:
    return shipped.stack("cart fulfilment")


@pytest.fixture(scope="module")
def cloud(shipped: Shipped) -> Cloud:
    return shipped.cloud("cart fulfilment")


def test_the_template_is_the_reviewed_one(cloud: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``."""
    assert reviewed(cloud) == snapshot(extension_class=ReviewExtension, name="cart_fulfilment")


def test_logical_ids_are_for_ever(cloud: Cloud) -> None:
    """A table under a new id is an EMPTY table; as in test_template_snapshot.py."""
    require_same_ids(cloud, "logical_ids_cart_fulfilment")


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(stack)

    assert [violation.rule_name for violation in result.violations] == []


def test_every_function_of_the_example_is_checked_here(cloud: Cloud) -> None:
    found = {function.path.partition("/")[0] for function in cloud.of_type("AWS::Lambda::Function")}

    assert {name for name in found if name.endswith("Function")} == set(SHOP_ACTIONS)


@pytest.mark.parametrize("function", SHOP_ACTIONS)
def test_a_function_may_do_this_to_the_shop_and_nothing_else(cloud: Cloud, function: str) -> None:
    found = {action for action, resource in cloud.permissions(f"{function}/Role") if resource == SHOP}

    assert found == {f"dynamodb:{action}" for action in SHOP_ACTIONS[function]}


@pytest.mark.parametrize(
    ("variable", "knowing"),
    [
        (
            "PAYMENTS_URL",
            {
                "AuthorizeFunction",
                "VoidFunction",
                "CaptureFunction",
                "RefundFunction",
                "PaymentEventsFunction",
                "AskFunction",
            },
        ),
        ("WAREHOUSE_URL", {"PickFunction", "PutBackFunction", "PickEventsFunction", "AskFunction"}),
        ("CARRIER_URL", {"LabelFunction", "VoidLabelFunction", "LookFunction", "PublishScanFunction", "ScanFunction"}),
    ],
)
def test_a_provider_is_known_to_the_functions_that_work_with_it(cloud: Cloud, variable: str, knowing: set[str]) -> None:
    found = {
        function.path.partition("/")[0]
        for function in cloud.of_type("AWS::Lambda::Function")
        if variable in function.properties.get("Environment", {}).get("Variables", {})
    }

    assert found == knowing


def test_only_the_publisher_of_scans_may_put_events(cloud: Cloud) -> None:
    putting = {
        name for name in SHOP_ACTIONS if any(a == "events:PutEvents" for a, _ in cloud.permissions(f"{name}/Role"))
    }

    assert putting == {"LookFunction", "PublishScanFunction"}


def test_unanswered_jobs_go_to_the_investigation_and_others_to_their_queue(cloud: Cloud) -> None:
    for name in ("AuthorizeFunction", "PickFunction"):
        assert cloud.one(f"{name}/Function").properties["Environment"]["Variables"][Env.DEAD_LETTERS] == "${Unanswered}"
    assert ("sqs:SendMessage", "${Unanswered.Arn}") in cloud.permissions("Tokens/Sweeper/Role")
    assert (
        cloud.one("Payments/Queue").properties["RedrivePolicy"]["deadLetterTargetArn"] == "${Payments/DeadLetters.Arn}"
    )


def test_everything_before_the_scan_can_be_compensated(cloud: Cloud) -> None:
    states = cloud.definition("Cart/StateMachine")["States"]

    assert [name.removeprefix("Compensate ") for name in states if name.startswith("Compensate ")] == [
        "Pick", "ShippingLabel", "CapturePayment", "CommitOrder", "AuthorizePayment", "ReserveInventory",
    ]  # fmt: skip


def test_a_job_times_out_after_its_provider_must_have_ended_it() -> None:
    job = Job(expected=Duration.minutes(5), within=Duration.minutes(30))

    last_question = job.timeout.to_seconds() - 2 * job.expected.to_seconds()
    assert last_question > job.within.to_seconds()


def test_goods_are_held_for_longer_than_paying_and_reviewing_take() -> None:
    waits = Waits()

    assert waits.hold(reviewed=False).to_seconds() > waits.authorize.timeout.to_seconds()
    longest = waits.authorize.timeout.to_seconds() + waits.review.to_seconds()
    assert waits.hold(reviewed=True).to_seconds() > longest
