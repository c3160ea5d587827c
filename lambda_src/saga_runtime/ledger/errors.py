"""Why a posting did not happen: one error per reason, each permanent or retried in one place."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

from saga_runtime.errors import Conflict, Invalid, PermanentError, SagaError, TransientError


class LedgerFailure(StrEnum):
    """Why a posting did not happen. ``FAILURES`` names the error of each."""

    INSUFFICIENT = "INSUFFICIENT"
    CAP_EXCEEDED = "CAP_EXCEEDED"
    ACCOUNT_NOT_FOUND = "ACCOUNT_NOT_FOUND"
    ACCOUNT_CLOSED = "ACCOUNT_CLOSED"
    CURRENCY_MISMATCH = "CURRENCY_MISMATCH"
    DUPLICATE = "DUPLICATE"
    HOLD_UNKNOWN = "HOLD_UNKNOWN"
    HOLD_CLOSED = "HOLD_CLOSED"
    HOLD_EXCEEDED = "HOLD_EXCEEDED"
    INVALID = "INVALID"
    CONFLICT = "CONFLICT"
    THROTTLED = "THROTTLED"


class InsufficientFunds(PermanentError):
    """The account does not hold the amount, or holds it for something else."""

    code: ClassVar[str] = LedgerFailure.INSUFFICIENT


class CapExceeded(PermanentError):
    """The account may not hold that much."""

    code: ClassVar[str] = LedgerFailure.CAP_EXCEEDED


class AccountNotFound(PermanentError):
    """There is no such account."""

    code: ClassVar[str] = LedgerFailure.ACCOUNT_NOT_FOUND


class AccountClosed(PermanentError):
    """The account is closed."""

    code: ClassVar[str] = LedgerFailure.ACCOUNT_CLOSED


class CurrencyMismatch(PermanentError):
    """The account is kept in another unit."""

    code: ClassVar[str] = LedgerFailure.CURRENCY_MISMATCH


class DuplicatePosting(PermanentError):
    """This posting was made before, under the same id; of a hold with another amount, of a capture with other legs."""

    code: ClassVar[str] = LedgerFailure.DUPLICATE


class HoldUnknown(PermanentError):
    """The account has no such hold."""

    code: ClassVar[str] = LedgerFailure.HOLD_UNKNOWN


class HoldClosed(PermanentError):
    """The hold was captured under another id, was voided, or has expired."""

    code: ClassVar[str] = LedgerFailure.HOLD_CLOSED


class HoldExceeded(PermanentError):
    """A capture takes more than is held."""

    code: ClassVar[str] = LedgerFailure.HOLD_EXCEEDED


FAILURES: Final[Mapping[LedgerFailure, type[SagaError]]] = {
    LedgerFailure.INSUFFICIENT: InsufficientFunds,
    LedgerFailure.CAP_EXCEEDED: CapExceeded,
    LedgerFailure.ACCOUNT_NOT_FOUND: AccountNotFound,
    LedgerFailure.ACCOUNT_CLOSED: AccountClosed,
    LedgerFailure.CURRENCY_MISMATCH: CurrencyMismatch,
    LedgerFailure.DUPLICATE: DuplicatePosting,
    LedgerFailure.HOLD_UNKNOWN: HoldUnknown,
    LedgerFailure.HOLD_CLOSED: HoldClosed,
    LedgerFailure.HOLD_EXCEEDED: HoldExceeded,
    LedgerFailure.INVALID: Invalid,
    LedgerFailure.CONFLICT: Conflict,
    LedgerFailure.THROTTLED: TransientError,
}
"""The error of each failure; its ``retryable`` decides whether it is retried."""
