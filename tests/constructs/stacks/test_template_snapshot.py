"""The reference app's template as a whole: a change is seen, read, and told to those who deploy."""

from __future__ import annotations

import json
import os
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from examples.funds_transfer.stack import FundsTransferStack
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory
from tests.constructs.support.masked import masked_ids
from tests.constructs.support.reviewed import ReviewExtension, reviewed

GOLDEN = Path(__file__).parents[1] / "golden" / "logical_ids.json"
WHAT_TO_DO = """logical ids of the reference app changed.
CloudFormation replaces a resource whose logical id changes: a table under a new id is an EMPTY table.
 - Not on purpose? A construct id was renamed or moved in the tree: put it back.
 - On purpose? Say under "Template changes" in CHANGELOG.md what is replaced and what whoever has it deployed must do,
   then write the new ids:
       CDK_SAGAS_WRITE_GOLDEN=1 python -m pytest tests/constructs/stacks/test_template_snapshot.py
"""
STATEFUL = {"AWS::DynamoDB::GlobalTable", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup"}


def test_the_template_is_the_reviewed_one(reference: Cloud, snapshot: SnapshotAssertion) -> None:
    """Review the difference, then ``python -m pytest tests/constructs --snapshot-update``."""
    assert reviewed(reference) == snapshot(extension_class=ReviewExtension, name="funds_transfer")


def _ids(cloud: Cloud) -> dict[str, str]:
    return {masked_ids(r.logical_id): f"{r.type} {r.path}" for r in cloud.resources.values()}


def test_logical_ids_are_for_ever(reference: Cloud) -> None:
    found = _ids(reference)
    if os.environ.get("CDK_SAGAS_WRITE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    golden: dict[str, str] = json.loads(GOLDEN.read_text("utf-8"))
    gone = {name: golden[name] for name in sorted(set(golden) - set(found))}
    new = {name: found[name] for name in sorted(set(found) - set(golden))}
    lost = {name: what for name, what in gone.items() if what.split()[0] in STATEFUL}
    assert found == golden, f"{WHAT_TO_DO}\ngone: {gone}\nnew: {new}\ngone, WITH THEIR DATA: {lost}"


def test_two_synths_give_the_same_template(reference: Cloud, new_app: AppFactory) -> None:
    assert Cloud(FundsTransferStack(new_app(), "FundsTransfer")).template == reference.template
