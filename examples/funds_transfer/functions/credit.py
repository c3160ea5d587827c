"""Second half of a transfer to the partner's ledger: clearing → account."""

from saga_runtime import Commit, Ledger, Money, StepCall, atomic_step

CLEARING = "main-clearing"

ledger = Ledger.from_env()


@atomic_step
def handler(call: StepCall) -> Commit:
    """Put the amount into the account. Refused when it is closed or would hold more than its cap."""
    wanted = call.request
    amount = Money(wanted["amount"], wanted["currency"])
    return Commit(
        writes=ledger.credit(call, account=wanted["to"], amount=amount, clearing=CLEARING),
        output={"account": wanted["to"], "amount": str(amount.minor_units), "currency": amount.currency},
    )
