"""Beginnings of requests whose keys are in one table."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from constructs_lib.tables.interfaces import IIdempotencyTable

_begun: Final[WeakKeyDictionary[IIdempotencyTable, dict[tuple[str, str], str]]] = WeakKeyDictionary()
"""Path of the saga, or that it is a direct operation, by the kind of those who ask and the operation."""


def require_one_beginning(
    name: str, *, table: IIdempotencyTable, kind: str, operation: str, saga: str | None, other: str
) -> None:
    """Refuse an operation under whose keys in a table something else begins: of two with one key, one would.

    Args:
        name: of the operation, in the error.
        table: where the keys are.
        kind: of those who ask: they share keys with each other only.
        operation: name in the records.
        saga: path of the saga that begins; None for a direct operation.
        other: what may have the operation, too, in the error.

    Raises:
        ValueError: another one with the operation begins something else.
    """
    begins = "a direct operation" if saga is None else saga
    before = _begun.setdefault(table, {}).setdefault((kind, operation), begins)
    if before != begins:
        raise ValueError(
            f"{name} must begin {before}, as that of {other} with {operation!r} in {table.node.path} does, "
            f"got {begins}; let both begin the same, or give a new one another operation: of two with one key only one "
            "would begin what it is for"
        )
