"""Refusals of the wallet, each with the code that its clients know."""

from __future__ import annotations

from saga_runtime import PermanentError


class CardUnknown(PermanentError):
    """There is no such card, or it is closed."""

    code = "CARD_UNKNOWN"


class CardExists(PermanentError):
    """The card was opened before."""

    code = "CARD_EXISTS"


class KeyTaken(PermanentError):
    """Another face, or another caller, used the key for this card and operation."""

    code = "KEY_TAKEN"


class PaymentUnknown(PermanentError):
    """The card has no such payment to this merchant."""

    code = "PAYMENT_UNKNOWN"


class RefundExceeded(PermanentError):
    """More than is left of the payment."""

    code = "REFUND_EXCEEDED"
