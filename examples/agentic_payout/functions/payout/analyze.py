"""Look up what there is to know about a payout. Nothing is decided by it, except what can only get worse."""

from __future__ import annotations

from saga_runtime import Ledger, StepCall, read_only_step

from .controls import Controls, day_of
from .errors import SpendingCapExceeded
from .intent import Intent

ledger = Ledger.from_env()
controls = Controls.from_env()


@read_only_step
def handler(call: StepCall) -> dict[str, str]:
    """Facts for the model. Refused early is what cannot be paid today any more: before a model's call costs money.

    Spending of a day never decreases, so a refusal here is final; an approval is not, and ``act`` checks again in its
    transaction. The answer is recorded: a saga that is recovered after it paid would count its own payment, and refuse.
    """
    intent, agent = Intent.of_request(call.request), call.request["agent"]
    cap = controls.cap(agent, intent.amount)
    spent = controls.spent(agent, call.now_ms)
    if spent + intent.amount.minor_units > cap:
        raise SpendingCapExceeded(f"agent {agent} would exceed its spending cap of {day_of(call.now_ms)}")
    payer, payee = ledger.accounts(intent.payer, intent.payee)
    return {
        "day": day_of(call.now_ms),
        "agent_spent_today": str(spent),
        "agent_cap": str(cap),
        "payer_balance": str(payer.balance.minor_units),
        "payee_state": payee.state,
    }
