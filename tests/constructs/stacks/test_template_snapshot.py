"""The reference app's whole template: a change is visible, reviewed, and announced to its users."""

from __future__ import annotations

from syrupy.assertion import SnapshotAssertion

from examples.funds_transfer.stack import FundsTransferStack
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.logical_ids import require_same_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed


def test_the_template_is_the_reviewed_one(reference: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``."""
    assert reviewed(reference) == snapshot(extension_class=ReviewExtension, name="funds_transfer")


def test_logical_ids_are_for_ever(reference: Cloud) -> None:
    require_same_ids(reference, "logical_ids")


def test_two_synths_give_the_same_template(reference: Cloud, new_app: AppFactory) -> None:
    assert Cloud(FundsTransferStack(new_app(), "FundsTransfer")).template == reference.template
