"""Steps with a large output: the first makes it of a large request, the second reads it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from saga_runtime import Commit, PermanentError, StepCall, Write, atomic_step, compensation


@atomic_step
def make(call: StepCall) -> Commit:
    """Turn the request's text around, cut to the length that is asked for."""
    text = call.request["text"][::-1][: call.request["length"]]
    return Commit(writes=[_count(call, 1)], output={"text": text})


@atomic_step
def check(call: StepCall) -> Commit:
    """Return what arrived."""
    if call.request.get("refuse"):
        raise PermanentError("refused as asked")
    return Commit(
        writes=[_count(call, 1)],
        output={"request": _hash(call.request["text"]), "output": _hash(call.outputs["Make"]["text"])},
    )


@compensation
def undo(call: StepCall, output: dict[str, Any]) -> Commit:
    """Count down, under the hash of the output that is undone."""
    return Commit(writes=[_count(call, -1), _note(call, _hash(output["text"]))])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _count(call: StepCall, by: int) -> Write:
    update = {
        "TableName": os.environ["COUNTERS"],
        "Key": {"id": {"S": f"{call.saga_id}/{call.step}"}},
        "UpdateExpression": "ADD #n :by",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":by": {"N": str(by)}},
    }
    return Write(action={"Update": update})


def _note(call: StepCall, text: str) -> Write:
    item = {"id": {"S": f"{call.saga_id}/undone"}, "text": {"S": text}}
    return Write(action={"Put": {"TableName": os.environ["COUNTERS"], "Item": item}})
