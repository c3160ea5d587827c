"""AWS CDK constructs for workflows that move money and must never move it twice."""

from constructs_lib.idempotency_table import IdempotencyTable
from constructs_lib.ledger_table import LedgerTable
from constructs_lib.runtime_function import RuntimeFunction, StepFunction
from constructs_lib.saga import Retry, SagaStateMachine, Step, StepKind
from constructs_lib.transaction_api import Operation, TransactionApi
from saga_runtime.protocol import InProgressAnswer, KeyPolicy, OnExpired

__all__ = [
    "IdempotencyTable",
    "InProgressAnswer",
    "KeyPolicy",
    "LedgerTable",
    "OnExpired",
    "Operation",
    "Retry",
    "RuntimeFunction",
    "SagaStateMachine",
    "Step",
    "StepFunction",
    "StepKind",
    "TransactionApi",
]
