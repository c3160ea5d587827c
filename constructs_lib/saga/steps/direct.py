"""Calls and writes that the state machine makes itself, without a function, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aws_cdk import aws_events as events
    from aws_cdk import aws_iam as iam

CALL_SECONDS: Final = 30
"""Timeout of one call, unless its step declares another one."""


class Effect(StrEnum):
    """Effect of a call from the state machine."""

    READ = "read"
    """Nothing: it may be made anywhere, any number of times."""
    IDEMPOTENT = "idempotent"
    """A repeated call changes nothing more; it has no compensation, so it follows the pivot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectCall:
    """A state that is not a function's: its fields, without where it leads.

    Attributes:
        fields: of the state.
        effect: what it does to the world.
        output: JSONata expression of the step's output.
        written: what the user wrote of the fields, by argument; texts with ``{% %}`` in it are JSONata.
        policies: what the state machine's role needs.
        timeout: of one attempt, in seconds.
        bus: whose name is in the fields.
    """

    fields: Mapping[str, Any]
    effect: Effect
    output: str
    written: Mapping[str, object]
    policies: tuple[iam.PolicyStatement, ...] = ()
    timeout: int = CALL_SECONDS
    bus: events.IEventBus | None = None

    @property
    def retried(self) -> bool:
        """True if the state has ``Retry`` and ``Catch``: not if it only waits, or passes data on."""
        return self.fields["Type"] not in ("Pass", "Wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTransaction:
    """Writes to one table, committed together with the saga log row.

    Attributes:
        table_name: the table's name.
        writes: entries of ``TransactItems``, without ``TableName``.
        compensate: likewise, what undoes them.
        output: JSONata expression of the step's output.
    """

    table_name: str
    writes: tuple[Mapping[str, Any], ...]
    compensate: tuple[Mapping[str, Any], ...] = ()
    output: str = "{}"

    def entries(self, *, undo: bool) -> list[dict[str, Any]]:
        """The transaction's entries, with the table's name."""
        return [
            {action: {"TableName": self.table_name, **fields}}
            for entry in (self.compensate if undo else self.writes)
            for action, fields in entry.items()
        ]
