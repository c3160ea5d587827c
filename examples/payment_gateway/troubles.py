"""Failures of the gateway, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from constructs_lib.testing.fault_plan import Moment
from constructs_lib.testing.providers import troubles
from constructs_lib.testing.providers.troubles import TroubleReport

_CURRENCY: Final = re.compile(r"[A-Z]{3}")


class Operation(StrEnum):
    """Operations of the gateway."""

    CHARGE = "charge"
    REFUND = "refund"
    FIND_CHARGE = "find-charge"
    FIND_REFUND = "find-refund"

    @property
    def acts(self) -> bool:
        """True if the operation moves money."""
        return self in {Operation.CHARGE, Operation.REFUND}

    def wrong(self, body: Any) -> str | None:
        """Return the error in a body; None if it is valid."""
        texts = ("currency", "card", "reference") if self is Operation.CHARGE else ("charge", "reference")
        if not isinstance(body, dict) or set(body) != {"amount", *texts}:
            return f"the body has amount, {', '.join(texts)}, and nothing else"
        if type(body["amount"]) is not int or body["amount"] < 1:
            return "amount is a whole number of minor units from 1 on"
        if not all(isinstance(body[name], str) and body[name] for name in texts):
            return f"{', '.join(texts)} are texts"
        if self is Operation.CHARGE and not _CURRENCY.fullmatch(body["currency"]):
            return "currency has three capital letters"
        return None


class Action(StrEnum):
    """Effect of a trouble on a request.

    Attributes:
        DECLINE: the charge is refused, clearly (402). Only at `before`, only for charges.
        ERROR: HTTP 500, which at `after` hides that the request took effect.
        DROP: the connection is closed without an answer.
        HANG: no answer ever comes; it ends when the caller gives up.
        KILL: the process that sent the request dies at once (SIGKILL).
        SLOW: the request waits for `seconds`, while the gateway reports it as in progress. Only at `before`.
        LATE: the request travels for `seconds` before the gateway knows of it, whether its sender lives or not. Only
            at `before`.
    """

    DECLINE = "decline"
    ERROR = "error"
    DROP = "drop"
    HANG = "hang"
    KILL = "kill"
    SLOW = "slow"
    LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(troubles.Trouble):
    """A failure of an operation.

    Example:
        >>> Trouble(on=Operation.CHARGE, action=Action.HANG, moment=Moment.AFTER, containing="order-7").times
        1
    """

    ACTION: ClassVar[type[StrEnum]] = Action
    ON: ClassVar[type[str]] = Operation
    LASTING: ClassVar[tuple[str, ...]] = (Action.SLOW, Action.LATE)
    LONGEST_SECONDS: ClassVar[int] = 3600

    def __post_init__(self) -> None:
        if self.action is Action.DECLINE and self.on is not Operation.CHARGE:
            raise ValueError(f"only a charge can be declined, got on={self.on}; use error")
        troubles.Trouble.__post_init__(self)


__all__ = ["Action", "Moment", "Operation", "Trouble", "TroubleReport"]
