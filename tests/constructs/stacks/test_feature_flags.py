"""Feature flags of the CDK: apps that ``cdk init`` makes set all of them, older ones none."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk
import pytest
from aws_cdk import App, Environment, Stack, Stage
from cdk_nag import AwsSolutionsChecks

from examples.agentic_payout.stack import AgenticPayoutStack
from examples.cart_fulfilment.stack import CartFulfilmentStack
from examples.funds_transfer.stack import FundsTransferStack
from examples.order_processing.stack import OrderProcessingStack
from examples.wallet.stack import WalletStack
from tests.constructs.reconciler.test_findings import saga
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import ANNOTATIONS_IN_REPORT, ROOT, context, without_flags

StackOf = Callable[[Stage, str], Stack]
STACKS: list[StackOf] = [FundsTransferStack, OrderProcessingStack, AgenticPayoutStack, CartFulfilmentStack, WalletStack]
ENVIRONMENT = Environment(account="111111111111", region="eu-west-1")


def _recommended() -> dict[str, Any]:
    """Feature flags that ``cdk init`` of the pinned CDK writes."""
    (package,) = (Path(aws_cdk.__file__).parent / "_jsii").glob("aws-cdk-lib@*.jsii.tgz")
    with tarfile.open(package) as archive:
        member = archive.extractfile("package/recommended-feature-flags.json")
        assert member is not None
        flags: dict[str, Any] = json.load(member)
    return flags


def test_the_reference_app_sets_every_recommended_flag() -> None:
    """With it, all other tests of templates run as in an app that is made today."""
    assert json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"] == _recommended()


def _app(folder: Path, settings: dict[str, Any]) -> App:
    return App(outdir=str(folder), context=settings, analytics_reporting=False)


@pytest.mark.proof
@pytest.mark.parametrize("kind", STACKS)
def test_a_stack_has_the_same_resources_and_permissions_without_any_flag(kind: StackOf, tmp_path: Path) -> None:
    today = Cloud(kind(_app(tmp_path / "today", context()), "Shop"))
    before = Cloud(kind(_app(tmp_path / "before", without_flags()), "Shop"))

    assert set(today.template["Resources"]) == set(before.template["Resources"])
    for path, resource in today.resources.items():
        if resource.type == "AWS::IAM::Policy":  # the flags join statements
            for role in (name.removeprefix("${").removesuffix("}") for name in resource.properties["Roles"]):
                assert today.permissions(role) == before.permissions(role), path
        else:
            assert resource.raw == before.resources[path].raw, path


@pytest.mark.proof
@pytest.mark.parametrize("settings", [context, without_flags])
@pytest.mark.parametrize("kind", STACKS)
def test_a_stack_with_an_environment_of_its_own_is_clean(
    kind: StackOf, settings: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    """With an environment the flags write the partition into ARNs, by which findings go."""
    stack = kind(Stage(_app(tmp_path, settings()), "Prod", env=ENVIRONMENT), "Shop")

    assert not [violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations]


def test_an_error_ends_the_synth_and_a_warning_does_not(tmp_path: Path) -> None:
    flagged = {**context(), ANNOTATIONS_IN_REPORT: True}
    warned = _app(tmp_path / "warned", flagged)
    saga(Stack(warned, "Test"), seconds=61)
    warned.synth()

    wrong = _app(tmp_path / "wrong", flagged)
    file = tmp_path / "saga.json"
    gone = {"name": "Gone", "kind": "atomic", "side": "pivot", "compensated": False, "per_item": False}
    file.write_text(json.dumps({"steps": [gone], "ways": {}}), encoding="utf-8")
    saga(Stack(wrong, "Test"), seconds=86_400, definition_file=file)
    with pytest.raises(RuntimeError, match="ERROR step Gone was removed or renamed"):
        wrong.synth()
