"""AWS CDK constructs for workflows that move money and must never move it twice.

Names are imported when they are first used: the CDK takes seconds and a Node process, and neither the test kit nor
the command needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_runtime.shared.lazy import lazy_exports

if TYPE_CHECKING:
    from constructs_lib.api.direct_operation import DirectFunction, DirectOperation
    from constructs_lib.api.http_transaction_api import HttpTransactionApi
    from constructs_lib.api.operations import Operation
    from constructs_lib.api.transaction_api import TransactionApi
    from constructs_lib.callbacks.approval_page import ApprovalPage
    from constructs_lib.callbacks.callback_integration import CallbackIntegration
    from constructs_lib.callbacks.event_intake import EventIntake
    from constructs_lib.callbacks.receivers import DirectReceiver, Webhook
    from constructs_lib.callbacks.webhook_schemes import (
        AdyenSignature,
        HmacSignature,
        OwnSignature,
        PaddleSignature,
        StandardWebhooks,
        StripeSignature,
    )
    from constructs_lib.execution_watch.execution_watch import ExecutionWatch
    from constructs_lib.execution_watch.watched_machine import WatchedMachine
    from constructs_lib.functions.function_options import FunctionOptions
    from constructs_lib.functions.runtime_function import RuntimeFunction, StepFunction
    from constructs_lib.migration.migration import Migration
    from constructs_lib.observability.compliance import Compliance
    from constructs_lib.observability.saga_monitoring import SagaMonitoring
    from constructs_lib.reconciler.operator_access import OperatorAccess
    from constructs_lib.reconciler.timeout_reconciler import TimeoutReconciler
    from constructs_lib.saga import (
        ContinueWith,
        Effect,
        Notify,
        Provider,
        Retry,
        Run,
        SagaStateMachine,
        Shift,
        Step,
        StepGroup,
        Versions,
    )
    from constructs_lib.saga.step_host import StepHost
    from constructs_lib.saga.synthesis.starting import ISagaStateMachine
    from constructs_lib.tables.idempotency_table import IdempotencyTable
    from constructs_lib.tables.interfaces import IIdempotencyTable, ILedgerTable, ITokenTable
    from constructs_lib.tables.ledger_table import LedgerTable
    from constructs_lib.tables.money_field import MoneyField
    from constructs_lib.tables.outbox import Outbox
    from constructs_lib.tables.payload_bucket import PayloadBucket
    from constructs_lib.tables.token_table import TokenTable
    from saga_runtime.http.key_source import KeySource
    from saga_runtime.ledger.terms import CollectingAccounts
    from saga_runtime.money import Unit
    from saga_runtime.protocol import FailedStatus, InProgressResponse, KeyPolicy, RefusalPolicy, SecondPerson
    from saga_runtime.shared.backoff import Backoff

__all__ = [
    "AdyenSignature",
    "ApprovalPage",
    "Backoff",
    "CallbackIntegration",
    "CollectingAccounts",
    "Compliance",
    "ContinueWith",
    "DirectFunction",
    "DirectOperation",
    "DirectReceiver",
    "Effect",
    "EventIntake",
    "ExecutionWatch",
    "FailedStatus",
    "FunctionOptions",
    "HmacSignature",
    "HttpTransactionApi",
    "IIdempotencyTable",
    "ILedgerTable",
    "ISagaStateMachine",
    "ITokenTable",
    "IdempotencyTable",
    "InProgressResponse",
    "KeyPolicy",
    "KeySource",
    "LedgerTable",
    "Migration",
    "MoneyField",
    "Notify",
    "Operation",
    "OperatorAccess",
    "Outbox",
    "OwnSignature",
    "PaddleSignature",
    "PayloadBucket",
    "Provider",
    "RefusalPolicy",
    "Retry",
    "Run",
    "RuntimeFunction",
    "SagaMonitoring",
    "SagaStateMachine",
    "SecondPerson",
    "Shift",
    "StandardWebhooks",
    "Step",
    "StepFunction",
    "StepGroup",
    "StepHost",
    "StripeSignature",
    "TimeoutReconciler",
    "TokenTable",
    "TransactionApi",
    "Unit",
    "Versions",
    "WatchedMachine",
    "Webhook",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ApprovalPage": "constructs_lib.callbacks.approval_page",
        "Backoff": "saga_runtime.shared.backoff",
        "FailedStatus": "saga_runtime.protocol",
        "CallbackIntegration": "constructs_lib.callbacks.callback_integration",
        "CollectingAccounts": "saga_runtime.ledger.terms",
        "DirectFunction": "constructs_lib.api.direct_operation",
        "DirectOperation": "constructs_lib.api.direct_operation",
        "DirectReceiver": "constructs_lib.callbacks.receivers",
        "Effect": "constructs_lib.saga",
        "EventIntake": "constructs_lib.callbacks.event_intake",
        "ExecutionWatch": "constructs_lib.execution_watch.execution_watch",
        "ContinueWith": "constructs_lib.saga",
        "FunctionOptions": "constructs_lib.functions.function_options",
        "HmacSignature": "constructs_lib.callbacks.webhook_schemes",
        "HttpTransactionApi": "constructs_lib.api.http_transaction_api",
        "IIdempotencyTable": "constructs_lib.tables.interfaces",
        "ILedgerTable": "constructs_lib.tables.interfaces",
        "ISagaStateMachine": "constructs_lib.saga.synthesis.starting",
        "ITokenTable": "constructs_lib.tables.interfaces",
        "IdempotencyTable": "constructs_lib.tables.idempotency_table",
        "InProgressResponse": "saga_runtime.protocol",
        "KeyPolicy": "saga_runtime.protocol",
        "KeySource": "saga_runtime.http.key_source",
        "LedgerTable": "constructs_lib.tables.ledger_table",
        "Migration": "constructs_lib.migration.migration",
        "MoneyField": "constructs_lib.tables.money_field",
        "Notify": "constructs_lib.saga",
        "Operation": "constructs_lib.api.operations",
        "OperatorAccess": "constructs_lib.reconciler.operator_access",
        "Outbox": "constructs_lib.tables.outbox",
        "PayloadBucket": "constructs_lib.tables.payload_bucket",
        "Provider": "constructs_lib.saga",
        "RefusalPolicy": "saga_runtime.protocol",
        "Retry": "constructs_lib.saga",
        "Run": "constructs_lib.saga",
        "RuntimeFunction": "constructs_lib.functions.runtime_function",
        "Compliance": "constructs_lib.observability.compliance",
        "SagaMonitoring": "constructs_lib.observability.saga_monitoring",
        "SagaStateMachine": "constructs_lib.saga",
        "PaddleSignature": "constructs_lib.callbacks.webhook_schemes",
        "OwnSignature": "constructs_lib.callbacks.webhook_schemes",
        "AdyenSignature": "constructs_lib.callbacks.webhook_schemes",
        "StandardWebhooks": "constructs_lib.callbacks.webhook_schemes",
        "Shift": "constructs_lib.saga",
        "Step": "constructs_lib.saga",
        "StepFunction": "constructs_lib.functions.runtime_function",
        "StepGroup": "constructs_lib.saga",
        "StepHost": "constructs_lib.saga.step_host",
        "StripeSignature": "constructs_lib.callbacks.webhook_schemes",
        "SecondPerson": "saga_runtime.protocol",
        "TimeoutReconciler": "constructs_lib.reconciler.timeout_reconciler",
        "TokenTable": "constructs_lib.tables.token_table",
        "TransactionApi": "constructs_lib.api.transaction_api",
        "Unit": "saga_runtime.money",
        "Versions": "constructs_lib.saga",
        "WatchedMachine": "constructs_lib.execution_watch.watched_machine",
        "Webhook": "constructs_lib.callbacks.receivers",
        "__version__": "constructs_lib.shared.version",
    },
)
