"""Move money between two accounts of one ledger, in one transaction."""

from saga_runtime import Commit, Ledger, Money, StepCall, atomic_step

ledger = Ledger.from_env()


@atomic_step
def handler(call: StepCall) -> Commit:
    """Read both accounts, and return the writes. The function writes nothing: the runtime commits them, once."""
    wanted = call.request
    amount = Money(wanted["amount"], wanted["currency"])
    return Commit(
        writes=ledger.transfer(call, source=wanted["from"], target=wanted["to"], amount=amount),
        output={"entry_id": call.key, "amount": str(amount.minor_units), "currency": amount.currency},
    )
