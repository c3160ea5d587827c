"""The wallet's template: reviewed as a whole, clean, and with functions that may write items and read nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from aws_cdk import Stack
from cdk_nag import AwsSolutionsChecks
from syrupy.assertion import SnapshotAssertion

from examples.wallet.stack import FACES, WalletStack
from saga_runtime.protocol import Env
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.masked import masked_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed
from tests.constructs.support.shipped import Shipped

pytestmark = pytest.mark.exhaustive

GOLDEN = Path(__file__).parents[1] / "golden" / "logical_ids_wallet.json"
FUNCTIONS = [
    f"{face}/{''.join(part.capitalize() for part in name.split('-'))}"
    for face, names in FACES.items()
    for name in names
]
WALLET, REQUESTS = "${Wallet.Arn}", "${Requests/Table.Arn}"


@pytest.fixture(scope="module")
def stack(shipped: Shipped) -> Stack:
    return shipped.stack("wallet")


@pytest.fixture(scope="module")
def cloud(shipped: Shipped) -> Cloud:
    return shipped.cloud("wallet")


def test_the_template_is_the_reviewed_one(cloud: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``."""
    assert reviewed(cloud) == snapshot(extension_class=ReviewExtension, name="wallet")


def test_logical_ids_are_for_ever(cloud: Cloud) -> None:
    """A table under a new id is an EMPTY table: balances gone, every key free again."""
    found = {masked_ids(r.logical_id): f"{r.type} {r.path}" for r in cloud.resources.values()}
    if os.environ.get("CDK_SAGAS_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    assert found == json.loads(GOLDEN.read_text("utf-8"))


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    result = AwsSolutionsChecks().validate_scope(stack)

    assert [violation.rule_name for violation in result.violations] == []


NOT_NEEDED = {"Admin/Cards": "ConditionCheckItem", "Admin/Profiles": "PutItem"}
"""Actions on the wallet that an operation does not need."""


@pytest.mark.parametrize("function", [*FUNCTIONS, "Stripe"])
def test_a_function_may_touch_this_and_nothing_else(cloud: Cloud, function: str) -> None:
    found = {pair for pair in cloud.permissions(f"{function}/Role") if pair[0].startswith("dynamodb:")}
    needed = {"PutItem", "UpdateItem", "ConditionCheckItem"} - {NOT_NEEDED.get(function)}

    assert found == {
        *((f"dynamodb:{action}", WALLET) for action in needed),
        *((f"dynamodb:{action}", REQUESTS) for action in ("PutItem", "GetItem")),
    }


def test_each_face_has_functions_and_an_api_of_its_own(cloud: Cloud) -> None:
    apis = {api.path.split("/")[0] for api in cloud.of_type("AWS::ApiGateway::RestApi")}

    assert apis == {*FACES, "StripeEvents"}
    assert len({r.path for r in cloud.of_type("AWS::Lambda::Function")} & {f"{f}/Function" for f in FUNCTIONS}) == 9


def test_conflicts_and_missing_keys_set_off_alarms(new_app: AppFactory) -> None:
    cloud = Cloud(WalletStack(new_app(), "Wallet", optional_keys=FACES))
    alarms = {r.path: r.properties for r in cloud.of_type("AWS::CloudWatch::Alarm")}
    of_functions = {
        alarm["Dimensions"][0]["Value"]: path.rpartition("/")[0]
        for path, alarm in alarms.items()
        if path.endswith("/KeyMissing")
    }

    assert len(of_functions) == len(FUNCTIONS)
    for function in FUNCTIONS:
        service = cloud.one(f"{function}/Function").properties["Environment"]["Variables"][Env.SERVICE]
        room = of_functions[service]
        conflict, missing = alarms[f"{room}/Conflicts"], alarms[f"{room}/KeyMissing"]
        assert (conflict["MetricName"], conflict["Threshold"], conflict["Period"]) == ("TransactionConflict", 5, 300)
        assert (missing["MetricName"], missing["Threshold"]) == ("IdempotencyKeyMissing", 0)
        assert conflict["Dimensions"] == [{"Name": "service", "Value": service}]


def test_keys_are_optional_only_at_the_named_faces(new_app: AppFactory) -> None:
    cloud = Cloud(WalletStack(new_app(), "Wallet", optional_keys=["Terminal"]))

    policies = {
        function: cloud.one(f"{function}/Function").properties["Environment"]["Variables"][Env.KEY_POLICY]
        for function in FUNCTIONS
    }
    assert {f for f, policy in policies.items() if policy == "OPTIONAL"} == {"Terminal/Payments", "Terminal/TopUps"}


def test_a_face_that_does_not_exist_is_refused(new_app: AppFactory) -> None:
    with pytest.raises(ValueError, match="optional_keys must be of"):
        WalletStack(new_app(), "Wallet", optional_keys=["Kiosk"])
