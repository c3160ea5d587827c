"""One write of a transaction, and why it is refused when its condition is not met."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saga_runtime.errors import Conflict, Invalid, SagaError
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
        key: of a ``Put``, the item's primary key, if it is known: two writes of one item are refused before anything is
            sent. The other actions name theirs.
    """

    action: Mapping[str, Any]
    refusal: Refusal | None = None
    more: int = 0
    key: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        kinds = {"Put", "Update", "Delete", "ConditionCheck"}
        refusal: object = self.refusal
        if refusal is not None and not callable(refusal):
            raise TypeError(f"refusal of a Write must be a function, got {refusal!r:.60}; write lambda item: …")
        if len(self.action) != 1 or not kinds.issuperset(self.action):
            raise ValueError(f"a write has exactly one of {sorted(kinds)}, got {sorted(self.action)}")


def require_different_items(writes: Sequence[Write]) -> None:
    """Refuse writes of which two are of one item: DynamoDB would refuse the transaction, in each try.

    Raises:
        Invalid: naming the positions of both.
    """
    seen: dict[str, int] = {}
    for position, write in enumerate(writes):
        (arguments,) = write.action.values()
        key = arguments.get("Key", write.key)
        if key is None:
            continue
        other = seen.setdefault(repr((arguments.get("TableName"), sorted(key.items()))), position)
        if other != position:
            raise Invalid(
                f"writes that are committed together must be of different items, got number {other} and number "
                f"{position} of one; make one write of both, of postings one with all their legs"
            )


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
