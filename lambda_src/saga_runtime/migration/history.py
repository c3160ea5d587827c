"""Rows of a history: they are facts, so both forms are written and copied freely. Pure.

A sum diverges if it is copied twice; a row that is identified does not. Each row has the id of its operation from the
first release on. A row without one gets an id of its own key, which its copy keeps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from saga_runtime.errors import Invalid
from saga_runtime.migration.layout import MOST_SORT_KEY_BYTES, History, Layout, is_text
from saga_runtime.migration.places import Item
from saga_runtime.saga_log.write import Write

_ORDER_DIGITS: Final = 13
"""Digits of a number in a sort key: epoch milliseconds."""


def row_id(layout: Layout, row: Item) -> str:
    """The id of a row: its operation's, or a hash of its key.

    Two equal purchases of one second have different keys, so they stay two.

    Raises:
        Invalid: if the row is not of a history of the layout, or its id or a key is not a text.
    """
    history = _history(layout, row)
    if history.id_attribute in row:
        return _text(row, history.id_attribute)
    key = [row[name]["S"] for name in (layout.partition_key, layout.sort_key)]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def merged(layout: Layout, rows: Iterable[Item]) -> dict[str, Item]:
    """One row per id, whichever form it has; the first of several.

    Raises: as ``row_id``.
    """
    found: dict[str, Item] = {}
    for row in rows:
        found.setdefault(row_id(layout, row), row)
    return found


def copy_of(layout: Layout, row: Item) -> Item:
    """The copy of a row: it has the row's id, and a sort key that is made of it, so that two copies are one item.

    Raises:
        Invalid: as ``row_id``, and if the attribute that orders the rows is absent, or neither a text nor a number that
            is whole and not negative, or if the copy's sort key would be longer than 1,024 bytes.
    """
    history, id_ = _history(layout, row), row_id(layout, row)
    key = f"{history.new_prefix}{_order(history, row)}{id_}"
    if len(key.encode()) > MOST_SORT_KEY_BYTES:
        raise Invalid(
            f"sort key of a row's copy must be at most {MOST_SORT_KEY_BYTES} bytes, got {len(key.encode())}; shorten "
            f"{history.id_attribute} of the row"
        )
    return {**row, layout.sort_key: {"S": key}, history.id_attribute: {"S": id_}}


def copy_row(layout: Layout, table: str, row: Item) -> list[Write]:
    """Writes that copy a row, once; for the operation that writes the row in the same transaction.

    Raises: as ``copy_of``.
    """
    return [Write(action=_put(layout, table, copy_of(layout, row)))]


def copy_entries(layout: Layout, table: str, row: Item) -> list[Any]:
    """The worker's transaction: the copy, while the row exists. A row that was deleted does not return.

    Raises: as ``copy_of``.
    """
    exists = {
        "TableName": table,
        "Key": {name: row[name] for name in (layout.partition_key, layout.sort_key)},
        "ConditionExpression": "attribute_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": layout.partition_key},
    }
    return [{"ConditionCheck": exists}, _put(layout, table, copy_of(layout, row))]


def _put(layout: Layout, table: str, copy: Item) -> dict[str, Any]:
    return {
        "Put": {
            "TableName": table,
            "Item": copy,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": layout.partition_key},
        }
    }


def _history(layout: Layout, row: Item) -> History:
    _text(row, layout.partition_key)
    key = _text(row, layout.sort_key)
    found = layout.history_of(key)
    if found is None:
        raise Invalid(f"sort key of a row must begin as a history of the layout does, got {key!r}; declare the history")
    return found


def _text(row: Item, name: str) -> str:
    value: object = row.get(name)
    text = value.get("S") if isinstance(value, Mapping) else None
    if not is_text(text):
        raise Invalid(
            f"{name} of a row must be a text that is not blank, as {{'S': …}}, got {value!r}; correct the row"
        )
    return str(text)


def _order(history: History, row: Item) -> str:
    """The part of a copy's key before the id: it ends at the first ``#``, so that two rows never share a key."""
    if history.order_attribute is None:
        return ""
    value: object = row.get(history.order_attribute)
    if isinstance(value, Mapping) and "S" in value:
        return f"{_text(row, history.order_attribute).replace('%', '%25').replace('#', '%23')}#"
    number = _number(value.get("N")) if isinstance(value, Mapping) else None
    if number is None or number < 0 or number != number.to_integral_value():
        raise Invalid(
            f"{history.order_attribute} of a row must be a text, or a whole number from 0, got {value or 'none'}; "
            "correct the row"
        )
    return f"{int(number):0{_ORDER_DIGITS}d}#"


def _number(text: object) -> Decimal | None:
    """The finite number that a text is; None: another text."""
    try:
        number = Decimal(str(text))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
