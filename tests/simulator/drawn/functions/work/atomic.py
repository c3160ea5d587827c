"""Steps whose effect is in DynamoDB."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import Commit, StepCall, Write, atomic_step, compensation, read_only_step

from .behaviour import before, is_exact, is_whole, output_of

TABLE = os.environ["EFFECTS_TABLE"]


def count(call: StepCall) -> Write:
    """The write that counts an effect."""
    told = "" if is_exact(call) else " in another amount"
    told += "" if is_whole(call) else " with references"
    return Write(
        action={
            "Update": {
                "TableName": TABLE,
                "Key": {"id": {"S": f"{call.key}{told}"}},
                "UpdateExpression": "ADD times :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }
    )


@atomic_step
def act(call: StepCall) -> Commit:
    """Count the effect."""
    before(call)
    return Commit(writes=[count(call)], output=output_of(call))


@compensation
def undo(call: StepCall, _output: dict[str, Any]) -> Commit:
    """Count the undo."""
    return Commit(writes=[count(call)])


@read_only_step
def read(call: StepCall) -> dict[str, Any]:
    """Read nothing."""
    before(call)
    return output_of(call)
