"""One write of a transaction, and why it is refused when its condition is not met."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saga_runtime.errors import Conflict, SagaError
from saga_runtime.shared.writes import Refused

Refusal = Callable[[Mapping[str, Mapping[str, Any]] | None], SagaError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of a transaction.

    Attributes:
        action: one entry of DynamoDB's ``TransactItems``, with typed attribute values:
            ``{"Put": {...}}``, ``{"Update": {...}}``, ``{"Delete": {...}}`` or ``{"ConditionCheck": {...}}``.
        refusal: returns the error of this write's failed condition. It receives the existing item if the
            action asks for it (``ReturnValuesOnConditionCheckFailure: ALL_OLD``). Return a ``PermanentError`` to
            refuse the step, or a ``Conflict`` to have the step function called again with fresh reads.
        more: how many further writes the same operation may have in another phase of a migration. A transaction that
            is too large in one phase is refused in each.
    """

    action: Mapping[str, Any]
    refusal: Refusal | None = None
    more: int = 0

    def __post_init__(self) -> None:
        kinds = {"Put", "Update", "Delete", "ConditionCheck"}
        refusal: object = self.refusal
        if refusal is not None and not callable(refusal):
            raise TypeError(f"refusal of a Write must be a function, got {refusal!r:.60}; write lambda item: …")
        if len(self.action) != 1 or not kinds.issuperset(self.action):
            raise ValueError(f"a write has exactly one of {sorted(kinds)}, got {sorted(self.action)}")


def refusal_of(writes: Sequence[Write], refused: Refused, *, first: int = 0) -> SagaError:
    """The error of the first refused write; ``first`` is the position of the first write in the transaction."""
    position, item = min(refused.items.items(), key=lambda entry: entry[0])
    refusal = writes[position - first].refusal
    if refusal is None:
        return Conflict("an item changed between read and write")
    error: object = refusal(item)
    if not isinstance(error, SagaError):
        raise TypeError(
            f"refusal of a write must return a SagaError, got {type(error).__name__}; return a PermanentError, or a "
            "Conflict"
        )
    return error
