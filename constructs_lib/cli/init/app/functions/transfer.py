"""The saga's one step: move an amount from one account to another."""

from saga_runtime import Commit, Ledger, Money, StepCall, atomic_step

ledger = Ledger.from_env()


@atomic_step
def handler(call: StepCall) -> Commit:
    """Return the writes. Nothing is written here."""
    wanted = call.request
    amount = Money(wanted["amount"], wanted["currency"])
    return Commit(
        writes=ledger.transfer(call, source=wanted["from"], target=wanted["to"], amount=amount),
        output={"entry_id": call.key},
    )
