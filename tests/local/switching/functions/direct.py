"""A direct operation that counts in a table without any condition of its own."""

from __future__ import annotations

import os

from saga_runtime import Commit, DirectCall, Write, direct_operation


@direct_operation
def handler(call: DirectCall) -> Commit:
    """Count one up."""
    update = {
        "TableName": os.environ["COUNTERS"],
        "Key": {"id": {"S": f"{call.request['counter']}/Pay"}},
        "UpdateExpression": "ADD #n :by",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":by": {"N": "1"}},
    }
    return Commit(writes=[Write(action={"Update": update})], output={"counted": call.request["counter"]})
