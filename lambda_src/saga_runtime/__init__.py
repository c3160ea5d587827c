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
    from saga_runtime.webhooks import WebhookEvent, event_receiver, webhook

__all__ = [
    "Accepted",
    "Applied",
    "Callback",
    "CallbackCall",
    "Commit",
    "Conflict",
    "Declined",
    "ExternalCall",
    "Failed",
    "Invalid",
    "NotApplied",
    "Pending",
    "PermanentError",
    "Rejected",
    "SagaError",
    "SagaFenced",
    "StepCall",
    "StepInDoubt",
    "StepUndecided",
    "StillWorking",
    "Succeeded",
    "TransientError",
    "Unknown",
    "Verdict",
    "WebhookEvent",
    "Write",
    "approval_link",
    "atomic_step",
    "callback_step",
    "compensation",
    "event_receiver",
    "external_compensation",
    "external_step",
    "read_only_step",
    "webhook",
]

_LATER: Final = {
    "Accepted": ".callback_call",
    "Callback": ".callback_rows",
    "CallbackCall": ".callback_call",
    "Failed": ".callback_rows",
    "StillWorking": ".callback_rows",
    "Succeeded": ".callback_rows",
    "WebhookEvent": ".webhooks",
    "approval_link": ".approvals",
    "callback_step": ".callback_handler",
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
