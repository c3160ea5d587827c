"""An agent's intent, without its wording. The ``Idempotency-Key`` is derived from it, and from nothing else.

An agent that plans again words its plan differently, calls its tool again and counts calls from 1. The intent stays:
who is to pay whom, for what, for which period. One intent is paid once.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from saga_runtime import Invalid, Money, check_account_id

PURPOSE_PATTERN: Final = r"^[a-z][a-z0-9-]{0,31}:[a-z0-9][a-z0-9._/-]{0,63}$"
PERIOD_PATTERN: Final = r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?$"
MAX_ATTEMPT: Final = 99
_VERSION: Final = "payout-intent-1"
_PURPOSE: Final = re.compile(PURPOSE_PATTERN)
_PERIOD: Final = re.compile(PERIOD_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Payer, payee, amount, purpose and period, in one spelling only.

    Attributes:
        payer: account that pays.
        payee: account that is paid.
        amount: the amount to pay.
        purpose: a reference to what is paid, not a sentence about it: ``invoice:4711``. Lower case.
        period: what it is paid for, ``2026``, ``2026-11`` or ``2026-11-21``.

    Raises:
        Invalid: for a part that is missing, malformed, or not in its one spelling (``of_plan`` normalizes it).
    """

    payer: str
    payee: str
    amount: Money
    purpose: str
    period: str

    def __post_init__(self) -> None:
        check_account_id(self.payer)
        check_account_id(self.payee)
        if self.payer == self.payee:
            raise Invalid(f"a payout needs two accounts, got {self.payer!r} twice")
        if self.amount.minor_units <= 0:
            raise Invalid(f"a payout's amount must be positive, got {self.amount}")
        if not _PURPOSE.fullmatch(self.purpose):
            raise Invalid(f'a purpose is a reference like "invoice:4711", got {self.purpose!r}')
        _check_period(self.period)

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> Intent:
        """The intent in an agent's plan: ``payer``, ``payee``, ``amount``, ``currency``, ``purpose``, ``period``.

        Everything else in the plan, its reasons, steps and wording, is left out. Spelling is normalized: blanks
        around a part, the case of currency and purpose, ``125`` for ``125.00``. Account names are taken as they are.

        Args:
            plan: the amount is a decimal text in major units (``"125.00"``), or a ``Decimal``; never a float, and
                never an integer, which could mean either unit.

        Raises:
            Invalid: if a part is missing or malformed.
        """
        parts = {name: plan.get(name) for name in ("payer", "payee", "amount", "currency", "purpose", "period")}
        missing = sorted(name for name, part in parts.items() if part is None)
        if missing:
            raise Invalid(f"a plan needs payer, payee, amount, currency, purpose and period; {missing} are missing")
        amount = parts["amount"]
        return cls(
            payer=_text(parts, "payer"),
            payee=_text(parts, "payee"),
            amount=Money.of(
                amount if isinstance(amount, Decimal) else _text(parts, "amount"), _text(parts, "currency").upper()
            ),
            purpose=_text(parts, "purpose").casefold(),
            period=_text(parts, "period"),
        )

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> Intent:
        """The intent in a request's body, which ``request_of`` wrote.

        Raises:
            Invalid: if it is not in its one spelling.
        """
        return cls(
            payer=request["payer"],
            payee=request["payee"],
            amount=Money(request["amount"], request["currency"]),
            purpose=request["purpose"],
            period=request["period"],
        )

    @property
    def obligation(self) -> str:
        """Digest of what is paid once: payer, payee, purpose and period. 64 hexadecimal digits.

        Amount and currency are not in it: who must pay 100.00 for an invoice must not pay 101.00 for it, too. Nor is
        the agent: two agents that find the same invoice pay it once.
        """
        parts = (_VERSION, self.payer, self.payee, self.purpose, self.period)
        return hashlib.sha256(_length_prefixed(*parts)).hexdigest()


def intent_key(intent: Intent, *, attempt: int = 1) -> str:
    """The ``Idempotency-Key`` of a payout: the same for everybody who wants the same, whenever and however.

    Guaranteed: equal for two plans that differ in wording, order or spelling only; different if payer, payee, purpose
    or period differ. The same intent with another amount or currency has the same key and another body: the front
    door refuses it (422), because one of both amounts is wrong and no machine knows which.
    Not guaranteed: that a key of another attempt is harmless. The claim of the intent makes it so, in the
    transaction that pays (``controls``).

    Args:
        intent: what is wanted.
        attempt: 1, and one more after each settled *refusal*: that answer is replayed under its key as long as the
            record is kept, so a caller that asks again (the cap is a new one tomorrow) needs a new key.

    Raises:
        ValueError: if the attempt is not 1 to 99.
    """
    if type(attempt) is not int or not 1 <= attempt <= MAX_ATTEMPT:
        raise ValueError(f"attempt must be 1 to {MAX_ATTEMPT}, got {attempt!r}; count settled refusals, not calls")
    return f"payout:{intent.obligation}:{attempt}"


def request_of(intent: Intent, *, agent: str) -> dict[str, Any]:
    """The request's body: the intent and who asks. Nothing of the plan's wording is in it, so it is the same too."""
    return {
        "agent": agent,
        "payer": intent.payer,
        "payee": intent.payee,
        "amount": intent.amount.minor_units,
        "currency": intent.amount.currency,
        "purpose": intent.purpose,
        "period": intent.period,
    }


def _text(parts: Mapping[str, Any], name: str) -> str:
    part = parts[name]
    if not isinstance(part, str):
        raise Invalid(f"{name} of a plan must be text, got {part!r} ({type(part).__name__})")
    return unicodedata.normalize("NFKC", part).strip()


def _check_period(period: str) -> None:
    try:
        if not _PERIOD.fullmatch(period):
            raise ValueError
        date.fromisoformat(period + "-01-01"[len(period) - 4 :])
    except ValueError:
        raise Invalid(f"a period is a year, a month or a day, e.g. 2026-11, got {period!r}") from None


def _length_prefixed(*parts: str) -> bytes:
    """Each part behind its length: no two lists of parts give the same bytes, whatever is in them."""
    encoded = (part.encode("utf-8") for part in parts)
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
