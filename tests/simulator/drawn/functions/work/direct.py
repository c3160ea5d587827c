"""The direct operation: its effect is in the transaction of its record."""

from __future__ import annotations

import os
import random
import time

from saga_runtime import Commit, DirectCall, Write, direct_operation

from .behaviour import SoldOut

TABLE = os.environ["EFFECTS_TABLE"]
NAME = "Direct"


@direct_operation
def handler(call: DirectCall) -> Commit:
    """Count the effect, as the request states."""
    match call.request["behave"].get(NAME):
        case "refuse" if random.random() < 0.7:
            raise SoldOut("sold out")
        case "crash" if random.random() < 0.7:
            raise KeyError("a mistake")
        case "slow":
            time.sleep(random.random() * 12)
    count = {
        "TableName": TABLE,
        "Key": {"id": {"S": call.key}},
        "UpdateExpression": "ADD times :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    return Commit(writes=[Write(action={"Update": count})], output={"of": call.key})
