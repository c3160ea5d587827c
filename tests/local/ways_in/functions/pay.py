"""Direct operations that move nothing: what comes in and goes out is what counts."""

from saga_runtime import Commit, DirectCall, InsufficientFunds, direct_operation


@direct_operation
def handler(call: DirectCall) -> Commit:
    """Answer with what was asked."""
    if isinstance(call.request, dict) and call.request.get("amount", 0) == 1_000_000:
        raise InsufficientFunds("the balance is below a million")
    return Commit(output={"asked": call.request})
