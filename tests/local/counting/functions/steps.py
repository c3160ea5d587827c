"""Steps that count in a table without any condition of their own: nothing but the saga log keeps them single."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime import Commit, PermanentError, StepCall, Write, atomic_step, compensation


class SoldOut(PermanentError):
    """A refusal after which the saga continues without the step."""


class Declined(PermanentError):
    """A refusal with a notification."""


_REFUSALS = {error.__name__: error for error in (SoldOut, Declined)}


@atomic_step
def step(call: StepCall) -> Commit:
    """Increment a counter, or fail as requested."""
    trouble = call.request.get(call.step)
    if trouble in _REFUSALS:
        raise _REFUSALS[trouble](f"{call.step} refuses")
    if trouble == "not granted":
        return Commit(writes=[Write(action={"Put": {"TableName": "elsewhere", "Item": {"id": {"S": "a"}}}})])
    if trouble is not None:
        raise RuntimeError(f"internal: {trouble}")
    seen = sorted(name for name, output in call.outputs.items() if output)
    return Commit(writes=[_count(call, 1)], output={"seen": seen})


@compensation
def undo(call: StepCall, output: dict[str, Any]) -> Commit:
    """Count one down."""
    return Commit(writes=[_count(call, -1)])


def _count(call: StepCall, by: int) -> Write:
    update = {
        "TableName": os.environ["COUNTERS"],
        "Key": {"id": {"S": f"{call.request['counter']}/{call.step}"}},
        "UpdateExpression": "ADD #n :by",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":by": {"N": str(by)}},
    }
    return Write(action={"Update": update})
