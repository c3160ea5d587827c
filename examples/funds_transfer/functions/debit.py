"""First half of a transfer to the partner's ledger: account → clearing. And its compensation."""

from typing import Any

from saga_runtime import Commit, Ledger, Money, StepCall, atomic_step, compensation

CLEARING = "partner-clearing"

ledger = Ledger.from_env()


@atomic_step
def handler(call: StepCall) -> Commit:
    """Take the amount out of the account."""
    wanted = call.request
    amount = Money(wanted["amount"], wanted["currency"])
    return Commit(
        writes=ledger.debit(call, account=wanted["from"], amount=amount, clearing=CLEARING),
        output={"account": wanted["from"], "amount": str(amount.minor_units), "currency": amount.currency},
    )


@compensation
def refund(call: StepCall, debited: dict[str, Any]) -> Commit:
    """Give back what the debit recorded. It is never refused: a closed or full account's money waits in suspense."""
    amount = Money(int(debited["amount"]), debited["currency"])
    return Commit(writes=ledger.refund(call, account=debited["account"], amount=amount, clearing=CLEARING))
