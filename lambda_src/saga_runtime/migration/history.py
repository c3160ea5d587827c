"""Rows of a history: they are facts, so both forms are written and copied freely. Pure.

A sum diverges if it is copied twice; a row that is identified does not. Each row carries the id of its operation from
the first release on. A row without one gets an id of its own key, which its copy keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from saga_runtime.migration.places import Item
from saga_runtime.saga_log.write import Write


def row_id(row: Item, *, id_attribute: str, partition_key: str, sort_key: str) -> str:
    """The id of a row: its operation's, or a hash of its key.

    Two equal purchases of one second have different keys, so they stay two.
    """
    if id_attribute in row:
        return str(row[id_attribute]["S"])
    key = "\n".join((row[partition_key]["S"], row[sort_key]["S"]))
    return hashlib.sha256(key.encode()).hexdigest()


def merged(rows: Iterable[Item], *, id_attribute: str, partition_key: str, sort_key: str) -> dict[str, Item]:
    """One row per id, whichever form it has; the first of several."""
    found: dict[str, Item] = {}
    for row in rows:
        found.setdefault(row_id(row, id_attribute=id_attribute, partition_key=partition_key, sort_key=sort_key), row)
    return found


def copy_row(
    row: Item, *, table: str, to: Mapping[str, Any], id_attribute: str, partition_key: str, sort_key: str
) -> list[Write]:
    """Writes that copy a row to another key, once: the copy keeps the id.

    Args:
        row: the row.
        table: the table's name.
        to: key of the copy, typed. Make it of the row's id: two copies of one row are one item then.
        id_attribute: attribute of the id.
        partition_key: name of the table's partition key.
        sort_key: name of its sort key.
    """
    id_ = row_id(row, id_attribute=id_attribute, partition_key=partition_key, sort_key=sort_key)
    put = {
        "TableName": table,
        "Item": {**row, **to, id_attribute: {"S": id_}},
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": partition_key},
    }
    return [Write(action={"Put": put})]
