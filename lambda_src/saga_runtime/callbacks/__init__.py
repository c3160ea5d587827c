"""Callbacks: who waits for which job, what its provider reported, and who is woken.

Imports ``steps`` and ``saga_log``. ``rows``, ``decisions`` and ``writes`` are pure; ``registration`` records who waits,
``receipt`` what providers report, and ``task_tokens`` sends it to the state machine.
"""

from typing import TYPE_CHECKING

from saga_runtime.shared.lazy import lazy_exports

if TYPE_CHECKING:
    from saga_runtime.callbacks.decisions import Receipt, Registration, answer_of
    from saga_runtime.callbacks.receipt import heartbeat, receive
    from saga_runtime.callbacks.registration import adopt_alias, adopt_unknown, record_dispatch_error, register
    from saga_runtime.callbacks.rows import Callback, Failed, Heartbeat, Outcome, Succeeded, order_of
    from saga_runtime.callbacks.task_tokens import send_directly, settle
    from saga_runtime.callbacks.writes import Waiting

__all__ = [
    "Callback",
    "Failed",
    "Heartbeat",
    "Outcome",
    "Receipt",
    "Registration",
    "Succeeded",
    "Waiting",
    "adopt_alias",
    "adopt_unknown",
    "answer_of",
    "heartbeat",
    "order_of",
    "receive",
    "record_dispatch_error",
    "register",
    "send_directly",
    "settle",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Callback": ".rows",
        "Failed": ".rows",
        "Outcome": ".rows",
        "Receipt": ".decisions",
        "Registration": ".decisions",
        "Heartbeat": ".rows",
        "Succeeded": ".rows",
        "Waiting": ".writes",
        "adopt_alias": ".registration",
        "adopt_unknown": ".registration",
        "answer_of": ".decisions",
        "heartbeat": ".receipt",
        "order_of": ".rows",
        "receive": ".receipt",
        "record_dispatch_error": ".registration",
        "register": ".registration",
        "send_directly": ".task_tokens",
        "settle": ".task_tokens",
    },
)
