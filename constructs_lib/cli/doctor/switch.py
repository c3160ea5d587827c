"""The switch that holds a reconciler: reading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from constructs_lib.cli.doctor.aws import Aws
    from saga_runtime.recovery.hold import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The switch of one reconciler.

    Attributes:
        function: the reconciler.
        table: where the item is that holds it.
        held: since when, and why, it changes nothing; None: it may.
    """

    function: str
    table: str
    held: Held | None


def read_switch(aws: Aws, function: str, table: str) -> Switch:
    """Read a reconciler's switch."""
    from saga_runtime.recovery.hold import HOLD_KEY, Held

    item = aws.read(table, HOLD_KEY)
    return Switch(function=function, table=table, held=Held.from_item(item) if item is not None else None)
