"""Direct operations that move nothing: what comes in and goes out is what counts."""

from saga_runtime import Commit, DirectCall, direct_operation


@direct_operation
def handler(call: DirectCall) -> Commit:
    """Answer with what was asked."""
    return Commit(output={"asked": call.request})
