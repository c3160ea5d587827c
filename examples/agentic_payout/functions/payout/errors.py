"""Refusals of a payout, and the one failure that passes. Each name is in the stack's ``refusals`` or ``transient``."""

from __future__ import annotations

from saga_runtime import PermanentError, TransientError


class AgentUnknown(PermanentError):
    """No cap is set for this agent: it may not spend anything."""

    code = "AGENT_UNKNOWN"


class IntentTaken(PermanentError):
    """The same payout was made, held, or is being decided, under another request."""

    code = "INTENT_TAKEN"


class SpendingCapExceeded(PermanentError):
    """The agent would spend more than it may on this day."""

    code = "SPENDING_CAP_EXCEEDED"


class ModelAnswerRefused(PermanentError):
    """The model's answer is not one, or goes beyond what was asked for."""

    code = "MODEL_ANSWER_REFUSED"


class ModelUnavailable(TransientError):
    """The model gave no answer. It may have been paid for."""

    code = "MODEL_UNAVAILABLE"
