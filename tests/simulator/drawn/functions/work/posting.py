"""Steps whose effect is a posting of a ledger and an event of an outbox, in the transaction of their row."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from saga_runtime import (
    Clearing,
    Commit,
    Ledger,
    Leg,
    Money,
    Outbox,
    StepCall,
    Write,
    atomic_step,
    compensation,
)

from .atomic import count
from .behaviour import before, output_of

MODES: Final = {
    "D": "debit",
    "T": "transfer",
    "P": "pay out",
    "C": "credit",
    "B": "book",
    "H": "hold",
    "L": "hold long",
    "K": "capture",
}
"""What a step posts, by the first letter of its name."""
CUSTOMERS: Final = ("ann", "bob", "cat")
CAPPED, OTHER = "cat", "ann"
"""A customer whose account may be full, and who is paid instead of themselves."""
MERCHANTS: Final = ("merchant:1", "merchant:2")
AMOUNTS: Final = (1, 40, 400)
SECONDS: Final = (90, 7_200, 366 * 86_400)
"""For which an amount is held that may be captured too late; one that must be captured is held for the longest."""
ledger = Ledger.from_env()
outbox = Outbox.from_env()


def drawn(call: StepCall, values: Sequence[Any], salt: str) -> Any:
    """One of some values, always the same for a step."""
    return values[zlib.crc32(f"{call.saga_id} {call.row_name} {salt}".encode()) % len(values)]


def _amount(call: StepCall) -> Money:
    return Money(drawn(call, AMOUNTS, "amount"), "EUR")


def _posted(call: StepCall) -> tuple[Sequence[Write], list[Any]]:
    """Writes of the posting, and what its compensation has to know of it."""
    customer, merchant, amount = drawn(call, CUSTOMERS, "from"), drawn(call, MERCHANTS, "to"), _amount(call)
    match MODES[call.step[0]]:
        case "debit":
            writes = ledger.debit(call, account=customer, amount=amount, clearing="sales")
            return writes, [customer, amount.minor_units]
        case "transfer":
            return _transferred(call, customer, amount), []
        case "pay out":
            return ledger.debit(call, account=merchant, amount=amount, clearing="bank"), []
        case "credit":
            return ledger.credit(call, account=merchant, amount=amount, clearing="bank"), []
        case "book":
            return ledger.post(call, _booked(amount)), [amount.minor_units]
        case "hold" | "hold long" as mode:
            seconds = SECONDS[-1] if mode == "hold long" else drawn(call, SECONDS, "seconds")
            writes = ledger.authorize(call, account=customer, amount=amount, expires_in=timedelta(seconds=seconds))
            return writes, [customer, amount.minor_units]
        case "capture":
            (step,) = (name for name, output in call.outputs.items() if "held" in output)
            account, held = call.outputs[step]["held"]
            taken = max(1, held - drawn(call, (0, 1), "less"))
            legs: list[Leg] = [(merchant, Money(taken, "EUR"))]
            hold = f"{call.saga_id}#{step}"
            return ledger.capture(call, account=account, hold=hold, legs=legs), [account, taken]
    raise AssertionError(f"{call.step} posts nothing")


def _transferred(call: StepCall, source: str, amount: Money) -> Sequence[Write]:
    target = drawn(call, (*MERCHANTS, CAPPED), "to")
    return ledger.transfer(call, source=source, target=OTHER if source == target else target, amount=amount)


def _booked(amount: Money) -> list[Leg]:
    return [(Clearing("bank"), -amount), (Clearing("transit"), amount)]


@atomic_step
def act(call: StepCall) -> Commit:
    """Post, count the effect, and have it reported."""
    before(call)
    writes, told = _posted(call)
    name = "held" if MODES[call.step[0]].startswith("hold") else "posted"
    output = {**output_of(call), **({name: told} if told else {})}
    return Commit(writes=[*writes, count(call), outbox.event(call, "Posted", {"row": call.row_name})], output=output)


@compensation
def undo(call: StepCall, output: dict[str, Any]) -> Commit:
    """Give back what was posted, and have that reported."""
    event = outbox.event(call, "GivenBack", {"row": call.row_name})
    return Commit(writes=[*_given_back(call, output), count(call), event])


def _given_back(call: StepCall, output: dict[str, Any]) -> Sequence[Write]:
    match MODES[call.step[0]]:
        case "hold" | "hold long":
            return ledger.void(call, account=output["held"][0], hold=f"{call.saga_id}#{call.row_name}")
        case "book":
            return ledger.post(call, [(party, -amount) for party, amount in _booked(Money(output["posted"][0], "EUR"))])
        case "debit" | "capture" as mode:
            account, amount = output["posted"]
            clearing = "sales" if mode == "debit" else "bank"
            return ledger.refund(call, account=account, amount=Money(amount, "EUR"), clearing=clearing)
    raise AssertionError(f"{call.step} posts nothing")
