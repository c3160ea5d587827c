"""An integration with everything that one can have: reviewed as a whole, clean, and with names that stay."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType

import pytest
from aws_cdk import Acknowledgment, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct
from syrupy.assertion import SnapshotAssertion

from constructs_lib.callbacks import approval_page, callback_integration
from constructs_lib.callbacks import receivers as callback_receivers
from tests.constructs.stacks.test_names import fixed_names
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.integrations import WarehouseStack
from tests.constructs.support.masked import masked_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed

GOLDEN = Path(__file__).parents[1] / "golden" / "logical_ids_callbacks.json"
ACKNOWLEDGED = [
    (callback_receivers, "AwsSolutions-APIG3"),
    (callback_receivers, "AwsSolutions-APIG4"),
    (callback_receivers, "AwsSolutions-COG4"),
    (callback_integration, "AwsSolutions-SQS3"),
    (approval_page, "AwsSolutions-SMG4"),
]


@pytest.fixture(scope="module")
def warehouse(new_app: AppFactory) -> WarehouseStack:
    return WarehouseStack(new_app(), "Shop")


@pytest.fixture(scope="module")
def cloud(warehouse: WarehouseStack) -> Cloud:
    return Cloud(warehouse)


def test_the_template_is_the_reviewed_one(cloud: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``.

    Resources of the integration only; the saga's are reviewed with the examples.
    """
    assert reviewed(cloud, "Warehouse/") == snapshot(extension_class=ReviewExtension, name="callbacks")


def test_logical_ids_are_for_ever(cloud: Cloud) -> None:
    """A table under a new id is an EMPTY table; as in test_template_snapshot.py."""
    found = {
        masked_ids(resource.logical_id): f"{resource.type} {resource.path}"
        for resource in cloud.resources.values()
        if resource.path.startswith("Warehouse/")
    }
    if os.environ.get("CDK_SAGAS_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    assert found == json.loads(GOLDEN.read_text("utf-8"))


def test_cdk_nag_finds_nothing(warehouse: WarehouseStack) -> None:
    result = AwsSolutionsChecks().validate_scope(warehouse)

    assert [violation.rule_name for violation in result.violations] == []


class _Forgetful:
    """``Validations`` that forgets to acknowledge one rule."""

    def __init__(self, forgotten: str) -> None:
        self._forgotten = forgotten
        self.forgot = 0

    def of(self, scope: IConstruct) -> _Forgetful:
        self._scope = scope
        return self

    def acknowledge(self, acknowledgment: Acknowledgment) -> None:
        if acknowledgment.id == self._forgotten:
            self.forgot += 1
        else:
            Validations.of(self._scope).acknowledge(acknowledgment)


@pytest.mark.parametrize(("module", "rule"), ACKNOWLEDGED, ids=[rule for _, rule in ACKNOWLEDGED])
def test_every_acknowledgement_is_needed(
    new_app: AppFactory, monkeypatch: pytest.MonkeyPatch, module: ModuleType, rule: str
) -> None:
    forgetful = _Forgetful(rule)
    monkeypatch.setattr(module, "Validations", forgetful)

    result = AwsSolutionsChecks().validate_scope(WarehouseStack(new_app(), "Shop"))
    assert forgetful.forgot > 0
    assert {violation.rule_name for violation in result.violations} == {rule}


def test_every_acknowledgement_is_granular_and_has_a_reason(warehouse: WarehouseStack) -> None:
    found = [
        (construct.node.path, rule.rsplit("Annotation::", 1)[-1], reason)
        for construct in warehouse.warehouse.node.find_all()
        for entry in construct.node.metadata
        if entry.type == "aws:cdk:acknowledged-rules"
        for rule, reason in entry.data.items()
    ]
    assert {rule for _, rule in ACKNOWLEDGED} <= {rule for _, rule, _ in found}
    for path, rule, reason in found:
        assert path.count("/") >= 2, path
        assert rule not in {"*", "AwsSolutions-*", "AwsSolutions-IAM4", "AwsSolutions-IAM5"}, path
        assert len(reason.split()) >= 10, f"{path}: {rule}: {reason}"


def test_two_synths_give_the_same_template(cloud: Cloud, new_app: AppFactory) -> None:
    assert Cloud(WarehouseStack(new_app(), "Shop")).template == cloud.template


def test_nothing_has_a_physical_name_that_is_fixed(cloud: Cloud) -> None:
    assert fixed_names(cloud) == []
