"""Callbacks: everything that dispatchers and receivers need, through one door.

``callback_rows``, ``callback_decisions`` and ``callback_writes`` are pure; ``callback_registration`` says who waits,
``callback_receipt`` writes down what providers say, ``callback_sending`` tells whoever waits.
"""

from saga_runtime.callback_decisions import Receipt, Registration, answer_of
from saga_runtime.callback_receipt import heartbeat, receive
from saga_runtime.callback_registration import adopt_alias, record_dispatch_error, register
from saga_runtime.callback_rows import Callback, Failed, Outcome, StillWorking, Succeeded, order_of
from saga_runtime.callback_sending import send_directly, settle
from saga_runtime.callback_writes import Waiting

__all__ = [
    "Callback",
    "Failed",
    "Outcome",
    "Receipt",
    "Registration",
    "StillWorking",
    "Succeeded",
    "Waiting",
    "adopt_alias",
    "answer_of",
    "heartbeat",
    "order_of",
    "receive",
    "record_dispatch_error",
    "register",
    "send_directly",
    "settle",
]
