"""Logical ids of a stack's resources, compared with a committed file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from tests.constructs.support.cloud import Cloud
from tests.constructs.support.masked import masked_ids

_GOLDEN: Final = Path(__file__).parents[1] / "golden"
_STATEFUL: Final = {"AWS::DynamoDB::GlobalTable", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup"}
_WHAT_TO_DO: Final = """logical ids of the stack changed.
CloudFormation replaces a resource whose logical id changes: a table under a new id is an EMPTY table.
 - Not on purpose? A construct id was renamed or moved in the tree: put it back.
 - On purpose? List under "Template changes" in CHANGELOG.md what is replaced and what users of a deployed stack do,
   then write the new ids:
       CDK_SAGAS_WRITE_GOLDEN=1 python -m pytest tests/constructs/stacks -k logical_ids
"""


def require_same_ids(cloud: Cloud, name: str) -> None:
    """Compare a stack's logical ids with those in ``golden``; write them if the variable asks for it."""
    file = _GOLDEN / f"{name}.json"
    found = {masked_ids(r.logical_id): f"{r.type} {r.path}" for r in cloud.resources.values()}
    if os.environ.get("CDK_SAGAS_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    golden: dict[str, str] = json.loads(file.read_text("utf-8"))
    gone = {name: golden[name] for name in sorted(set(golden) - set(found))}
    new = {name: found[name] for name in sorted(set(found) - set(golden))}
    lost = {name: what for name, what in gone.items() if what.split()[0] in _STATEFUL}
    assert found == golden, f"{_WHAT_TO_DO}\ngone: {gone}\nnew: {new}\ngone, WITH THEIR DATA: {lost}"
