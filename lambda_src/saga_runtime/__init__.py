"""What runs inside Lambda: the runtime that step functions import.

Everything here imports without aws-cdk-lib. Decisions (``identity``, ``record``, ``saga_log``, ``money``, ``ledger``)
are pure; ``atomic_step``, ``compensation`` and ``ledger_store`` are the edge that talks to AWS.
"""

from saga_runtime.atomic_step import atomic_step
from saga_runtime.compensation import compensation
from saga_runtime.errors import (
    Conflict,
    Invalid,
    PermanentError,
    SagaError,
    SagaFenced,
    StepInDoubt,
    TransientError,
)
from saga_runtime.step import Commit, StepCall, Write

__all__ = [
    "Commit",
    "Conflict",
    "Invalid",
    "PermanentError",
    "SagaError",
    "SagaFenced",
    "StepCall",
    "StepInDoubt",
    "TransientError",
    "Write",
    "atomic_step",
    "compensation",
]
