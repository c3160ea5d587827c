"""A direct operation's handler."""

from saga_runtime import Commit, DirectCall, direct_operation


@direct_operation
def handler(call: DirectCall) -> Commit:
    """Write nothing."""
    return Commit(output={"key": call.key})
