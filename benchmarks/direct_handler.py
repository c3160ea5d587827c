"""The payment as a direct operation."""

from __future__ import annotations

from benchmarks.direct_writes import writes
from saga_runtime import Commit, DirectCall, Write, direct_operation


@direct_operation
def handler(call: DirectCall) -> Commit:
    """Pay."""
    return Commit(writes=[Write(action=action) for action in writes(call.request)], output={"paid": 100})
