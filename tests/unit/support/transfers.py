"""A saga of one atomic step with its compensation, as a user writes it, and its state machine's part."""

from __future__ import annotations

from typing import Any

from saga_runtime import Commit, Ledger, Money, StepCall, atomic_step, compensation
from saga_runtime.errors import PermanentError, SagaFenced
from saga_runtime.protocol import OUTPUT_FIELD
from tests.unit.support.samples import BODY, SAGA_ID, step_event
from tests.unit.support.wire import Killed
from tests.unit.support.world import Context

LEDGER = Ledger("ledger")
TRIES = 60
"""More than any test's faults: what a state machine's retries are together."""


@atomic_step
def transfer(call: StepCall) -> Commit:
    """Move money from one account to another."""
    wanted = call.request
    amount = Money(wanted["amount"], wanted["currency"])
    return Commit(
        writes=LEDGER.transfer(call, source=wanted["from"], target=wanted["to"], amount=amount),
        output={"entry_id": call.key, "amount": str(amount.minor_units), "attempt": call.attempt},
    )


@compensation
def give_back(call: StepCall, output: dict[str, str]) -> Commit:
    """Move it back."""
    wanted = call.request
    amount = Money(int(output["amount"]), wanted["currency"])
    return Commit(writes=LEDGER.transfer(call, source=wanted["to"], target=wanted["from"], amount=amount))


def run(saga_id: str = SAGA_ID, body: Any = BODY, *, remaining_ms: int = 15_000) -> Any:
    """Invoke the step once; its output."""
    event = step_event(saga_id=saga_id, body=body)
    return transfer(event, Context(remaining_ms=remaining_ms))[OUTPUT_FIELD]


def undo(saga_id: str = SAGA_ID, body: Any = BODY) -> Any:
    """Invoke the compensation once."""
    return give_back(step_event(saga_id=saga_id, body=body), Context())


def settle_by(invoke: Any, *arguments: Any) -> Any:
    """Invoke until there is an outcome, as a state machine's Retry does; a refusal and a fence are outcomes."""
    for _ in range(TRIES):
        try:
            return invoke(*arguments)
        except (PermanentError, SagaFenced) as outcome:
            return outcome
        except (Exception, Killed):  # noqa: BLE001  # whatever it is, a state machine invokes again
            continue
    raise AssertionError("the step never came to an outcome")
