"""Steps whose effect is in DynamoDB."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import Commit, StepCall, Write, atomic_step, compensation, read_only_step

from .behaviour import before, is_exact, output_of

TABLE = os.environ["EFFECTS_TABLE"]


def _count(call: StepCall) -> Write:
    return Write(
        action={
            "Update": {
                "TableName": TABLE,
                "Key": {"id": {"S": call.key if is_exact(call) else f"{call.key} in another amount"}},
                "UpdateExpression": "ADD times :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }
    )


@atomic_step
def act(call: StepCall) -> Commit:
    """Count the effect."""
    before(call)
    return Commit(writes=[_count(call)], output=output_of(call))


@compensation
def undo(call: StepCall, _output: dict[str, Any]) -> Commit:
    """Count the undo."""
    return Commit(writes=[_count(call)])


@read_only_step
def read(call: StepCall) -> dict[str, Any]:
    """Read nothing."""
    before(call)
    return output_of(call)
