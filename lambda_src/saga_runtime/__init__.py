"""The runtime: what step functions import, inside Lambda.

Everything here imports without aws-cdk-lib. Names are imported when they are first used: each import is part of every
cold start.
"""

from typing import TYPE_CHECKING

from saga_runtime.shared.lazy import lazy_exports

if TYPE_CHECKING:
    from saga_runtime.approvals.links import approval_link
    from saga_runtime.callbacks.message import Accepted, CallbackCall
    from saga_runtime.callbacks.rows import Callback, Failed, Heartbeat, Succeeded
    from saga_runtime.callbacks.step import callback_step
    from saga_runtime.errors import (
        Conflict,
        Declined,
        Invalid,
        ManualResolutionRequired,
        NotYet,
        PermanentError,
        Rejected,
        SagaError,
        SagaFenced,
        StepInDoubt,
        TransientError,
    )
    from saga_runtime.http.direct_operation import DirectCall, direct_operation
    from saga_runtime.ledger.builder import LedgerBuilder
    from saga_runtime.ledger.errors import (
        AccountClosed,
        AccountNotFound,
        CapExceeded,
        CurrencyMismatch,
        DuplicatePosting,
        HoldClosed,
        HoldExceeded,
        HoldUnknown,
        InsufficientFunds,
    )
    from saga_runtime.ledger.items import (
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
    from saga_runtime.ledger.store import DirectEntry, Ledger
    from saga_runtime.ledger.terms import CollectingAccounts, LedgerTerms
    from saga_runtime.money import Money, Rounding, Unit
    from saga_runtime.outbox.event import EventExists, Outbox
    from saga_runtime.saga_log.write import Write
    from saga_runtime.shared.backoff import Backoff
    from saga_runtime.shared.masking import MaskingFormatter, masked_logger
    from saga_runtime.steps.atomic import atomic_step
    from saga_runtime.steps.atomic_compensation import compensation
    from saga_runtime.steps.external import external_step
    from saga_runtime.steps.external_call import ExternalCall
    from saga_runtime.steps.external_compensation import external_compensation
    from saga_runtime.steps.read_only import read_only_step
    from saga_runtime.steps.step import Commit, StepCall
    from saga_runtime.steps.verdict import Applied, NotApplied, Pending, Unknown, Verdict
    from saga_runtime.versions.errors import (
        HeldByAnother,
        InvalidTransition,
        ItemExists,
        OperationReused,
        VersionConflict,
    )
    from saga_runtime.versions.items import VersionedItem
    from saga_runtime.versions.once import Outcome, commit_once
    from saga_runtime.versions.transitions import Transitions
    from saga_runtime.webhooks.intake import Begin, event_operation, event_saga
    from saga_runtime.webhooks.receiver import WebhookEvent, event_receiver, webhook
    from saga_runtime.webhooks.signatures import SignedRequest

__all__ = [
    "ACCOUNT_ID_PATTERN",
    "Accepted",
    "Account",
    "AccountClosed",
    "AccountNotFound",
    "AccountState",
    "Applied",
    "Backoff",
    "Begin",
    "Callback",
    "CallbackCall",
    "CapExceeded",
    "Clearing",
    "CollectingAccounts",
    "Commit",
    "Conflict",
    "CurrencyMismatch",
    "Declined",
    "DirectCall",
    "DirectEntry",
    "DuplicatePosting",
    "EventExists",
    "ExternalCall",
    "Failed",
    "Heartbeat",
    "HeldByAnother",
    "Hold",
    "HoldClosed",
    "HoldExceeded",
    "HoldState",
    "HoldUnknown",
    "InsufficientFunds",
    "Invalid",
    "InvalidTransition",
    "ItemExists",
    "Ledger",
    "LedgerBuilder",
    "LedgerTerms",
    "Leg",
    "ManualResolutionRequired",
    "MaskingFormatter",
    "Money",
    "NotApplied",
    "NotYet",
    "OperationReused",
    "Outbox",
    "Outcome",
    "Pending",
    "PermanentError",
    "Rejected",
    "Rounding",
    "SagaError",
    "SagaFenced",
    "SignedRequest",
    "StepCall",
    "StepInDoubt",
    "Succeeded",
    "TransientError",
    "Transitions",
    "Unit",
    "Unknown",
    "Verdict",
    "VersionConflict",
    "VersionedItem",
    "WebhookEvent",
    "Write",
    "account_key",
    "approval_link",
    "atomic_step",
    "callback_step",
    "check_account_id",
    "commit_once",
    "compensation",
    "direct_operation",
    "event_operation",
    "event_receiver",
    "event_saga",
    "external_compensation",
    "external_step",
    "masked_logger",
    "read_only_step",
    "webhook",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ACCOUNT_ID_PATTERN": ".ledger.items",
        "Accepted": ".callbacks.message",
        "Account": ".ledger.items",
        "AccountClosed": ".ledger.errors",
        "AccountState": ".ledger.items",
        "AccountNotFound": ".ledger.errors",
        "Applied": ".steps.verdict",
        "Backoff": ".shared.backoff",
        "MaskingFormatter": "saga_runtime.shared.masking",
        "masked_logger": "saga_runtime.shared.masking",
        "Begin": ".webhooks.intake",
        "Callback": ".callbacks.rows",
        "CallbackCall": ".callbacks.message",
        "CapExceeded": ".ledger.errors",
        "Clearing": ".ledger.items",
        "CollectingAccounts": ".ledger.terms",
        "Commit": ".steps.step",
        "Conflict": ".errors",
        "CurrencyMismatch": ".ledger.errors",
        "Declined": ".errors",
        "DirectCall": ".http.direct_operation",
        "DirectEntry": ".ledger.store",
        "DuplicatePosting": ".ledger.errors",
        "ExternalCall": ".steps.external_call",
        "Failed": ".callbacks.rows",
        "Hold": ".ledger.items",
        "HoldClosed": ".ledger.errors",
        "HoldExceeded": ".ledger.errors",
        "HoldState": ".ledger.items",
        "HoldUnknown": ".ledger.errors",
        "InsufficientFunds": ".ledger.errors",
        "Invalid": ".errors",
        "Ledger": ".ledger.store",
        "LedgerBuilder": ".ledger.builder",
        "LedgerTerms": ".ledger.terms",
        "Leg": ".ledger.items",
        "Money": ".money",
        "NotApplied": ".steps.verdict",
        "NotYet": ".errors",
        "Pending": ".steps.verdict",
        "PermanentError": ".errors",
        "Rejected": ".errors",
        "Rounding": ".money",
        "SagaError": ".errors",
        "SagaFenced": ".errors",
        "SignedRequest": ".webhooks.signatures",
        "StepCall": ".steps.step",
        "StepInDoubt": ".errors",
        "ManualResolutionRequired": ".errors",
        "Heartbeat": ".callbacks.rows",
        "Succeeded": ".callbacks.rows",
        "TransientError": ".errors",
        "Unit": ".money",
        "Unknown": ".steps.verdict",
        "Verdict": ".steps.verdict",
        "WebhookEvent": ".webhooks.receiver",
        "Write": ".saga_log.write",
        "account_key": ".ledger.items",
        "approval_link": ".approvals.links",
        "atomic_step": ".steps.atomic",
        "callback_step": ".callbacks.step",
        "check_account_id": ".ledger.items",
        "compensation": ".steps.atomic_compensation",
        "direct_operation": ".http.direct_operation",
        "event_operation": ".webhooks.intake",
        "event_saga": ".webhooks.intake",
        "event_receiver": ".webhooks.receiver",
        "external_compensation": ".steps.external_compensation",
        "external_step": ".steps.external",
        "read_only_step": ".steps.read_only",
        "EventExists": ".outbox.event",
        "HeldByAnother": ".versions.errors",
        "InvalidTransition": ".versions.errors",
        "ItemExists": ".versions.errors",
        "OperationReused": ".versions.errors",
        "VersionConflict": ".versions.errors",
        "VersionedItem": ".versions.items",
        "Transitions": ".versions.transitions",
        "Outbox": ".outbox.event",
        "Outcome": ".versions.once",
        "commit_once": ".versions.once",
        "webhook": ".webhooks.receiver",
    },
)
