"""What runs inside Lambda: the runtime that step functions import.

Everything here imports without aws-cdk-lib. Decisions (``identity``, ``record``, ``saga_log``, ``money``, ``ledger``
and ``external_log``) are pure; ``atomic_step``, ``compensation``, ``external_step``, ``external_compensation``,
``callback_step``, ``read_only_step`` and ``ledger_store`` are the edge that talks to AWS and to providers.

What only some functions need is imported when it is first asked for: each import is part of every cold start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from saga_runtime.atomic_step import atomic_step
from saga_runtime.compensation import compensation
from saga_runtime.errors import (
    Conflict,
    Declined,
    Invalid,
    PermanentError,
    Rejected,
    SagaError,
    SagaFenced,
    StepInDoubt,
    StepUndecided,
    TransientError,
)
from saga_runtime.external_call import ExternalCall
from saga_runtime.external_compensation import external_compensation
from saga_runtime.external_step import external_step
from saga_runtime.read_only_step import read_only_step
from saga_runtime.step import Commit, StepCall, Write
from saga_runtime.verdict import Applied, NotApplied, Pending, Unknown, Verdict

if TYPE_CHECKING:
    from saga_runtime.approvals import approval_link
    from saga_runtime.callback_call import Accepted, CallbackCall
    from saga_runtime.callback_handler import callback_step
    from saga_runtime.callback_rows import Callback, Failed, StillWorking, Succeeded
    from saga_runtime.ledger import LedgerBuilder
    from saga_runtime.ledger_errors import (
        AccountClosed,
        AccountUnknown,
        CapExceeded,
        CurrencyMismatch,
        DuplicatePosting,
        HoldClosed,
        HoldExceeded,
        HoldUnknown,
        InsufficientFunds,
    )
    from saga_runtime.ledger_items import (
        ACCOUNT_ID_PATTERN,
        Account,
        AccountState,
        Clearing,
        Hold,
        HoldState,
        Leg,
        account_key,
        check_account_id,
    )
    from saga_runtime.ledger_store import DirectEntry, Ledger
    from saga_runtime.ledger_terms import CollectingAccounts, LedgerTerms
    from saga_runtime.money import Money, Rounding, Unit
    from saga_runtime.webhooks import WebhookEvent, event_receiver, webhook

__all__ = [
    "ACCOUNT_ID_PATTERN",
    "Accepted",
    "Account",
    "AccountClosed",
    "AccountState",
    "AccountUnknown",
    "Applied",
    "Callback",
    "CallbackCall",
    "CapExceeded",
    "Clearing",
    "CollectingAccounts",
    "Commit",
    "Conflict",
    "CurrencyMismatch",
    "Declined",
    "DirectEntry",
    "DuplicatePosting",
    "ExternalCall",
    "Failed",
    "Hold",
    "HoldClosed",
    "HoldExceeded",
    "HoldState",
    "HoldUnknown",
    "InsufficientFunds",
    "Invalid",
    "Ledger",
    "LedgerBuilder",
    "LedgerTerms",
    "Leg",
    "Money",
    "NotApplied",
    "Pending",
    "PermanentError",
    "Rejected",
    "Rounding",
    "SagaError",
    "SagaFenced",
    "StepCall",
    "StepInDoubt",
    "StepUndecided",
    "StillWorking",
    "Succeeded",
    "TransientError",
    "Unit",
    "Unknown",
    "Verdict",
    "WebhookEvent",
    "Write",
    "account_key",
    "approval_link",
    "atomic_step",
    "callback_step",
    "check_account_id",
    "compensation",
    "event_receiver",
    "external_compensation",
    "external_step",
    "read_only_step",
    "webhook",
]

_LATER: Final = {
    "ACCOUNT_ID_PATTERN": ".ledger_items",
    "Accepted": ".callback_call",
    "Account": ".ledger_items",
    "AccountClosed": ".ledger_errors",
    "AccountState": ".ledger_items",
    "AccountUnknown": ".ledger_errors",
    "Callback": ".callback_rows",
    "CallbackCall": ".callback_call",
    "CapExceeded": ".ledger_errors",
    "Clearing": ".ledger_items",
    "CollectingAccounts": ".ledger_terms",
    "CurrencyMismatch": ".ledger_errors",
    "DirectEntry": ".ledger_store",
    "DuplicatePosting": ".ledger_errors",
    "Failed": ".callback_rows",
    "Hold": ".ledger_items",
    "HoldClosed": ".ledger_errors",
    "HoldExceeded": ".ledger_errors",
    "HoldState": ".ledger_items",
    "HoldUnknown": ".ledger_errors",
    "InsufficientFunds": ".ledger_errors",
    "Ledger": ".ledger_store",
    "LedgerBuilder": ".ledger",
    "LedgerTerms": ".ledger_terms",
    "Leg": ".ledger_items",
    "Money": ".money",
    "Rounding": ".money",
    "StillWorking": ".callback_rows",
    "Succeeded": ".callback_rows",
    "Unit": ".money",
    "WebhookEvent": ".webhooks",
    "account_key": ".ledger_items",
    "approval_link": ".approvals",
    "callback_step": ".callback_handler",
    "check_account_id": ".ledger_items",
    "event_receiver": ".webhooks",
    "webhook": ".webhooks",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATER[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
