"""Pay, or hold: ledger, spending cap, claim and saga log in ONE transaction. After it nothing is compensated."""

from __future__ import annotations

from saga_runtime import Commit, Ledger, StepCall, atomic_step

from .controls import ClaimState, Controls, day_of
from .intent import Intent
from .recommendation import Decision, Recommendation

ledger = Ledger.from_env()
controls = Controls.from_env()


@atomic_step
def handler(call: StepCall) -> Commit:
    """Do what was recommended, within what was asked for and what the agent may spend today."""
    intent = Intent.of_request(call.request)
    version = int(call.outputs["Claim"]["version"])
    recommended = Recommendation.of_output(call.outputs["Recommend"], asked=intent.amount)
    if recommended.decision is Decision.HOLD:
        return Commit(
            writes=controls.conclude(call, intent.obligation, ClaimState.HELD, version=version),
            output={"decision": "held", "amount": "0", "currency": intent.amount.currency, "payee": intent.payee},
        )
    amount = recommended.amount
    return Commit(
        writes=[
            controls.spend(agent=call.request["agent"], amount=amount, now_ms=call.now_ms),
            *ledger.transfer(call, source=intent.payer, target=intent.payee, amount=amount),
            *controls.conclude(call, intent.obligation, ClaimState.PAID, version=version),
        ],
        output={
            "decision": "paid",
            "amount": str(amount.minor_units),
            "currency": amount.currency,
            "payee": intent.payee,
            "day": day_of(call.now_ms),
            "entry_id": call.key,
        },
    )
