"""History in both forms. Rows are facts: every release from 1 on writes both, and a copy is a put on "absent"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from saga_runtime import Write
from saga_runtime.migration import copy_row

from .layout import LAYOUT, OLD_FORM


def both_forms(
    *, table: str, uuid: str, operation_id: str, operation: str, unit: str, amount: int, now_ms: int
) -> list[Write]:
    """A row in the old form and its copy in the new one; ``[]`` if nothing changes."""
    if amount == 0:
        return []
    row = old_form(uuid=uuid, suffix=f"{operation_id}#{unit}", operation=operation, unit=unit, amount=amount, ms=now_ms)
    row["operation_id"] = {"S": f"{operation_id}#{unit}"}
    put = {
        "TableName": table,
        "Item": row,
        "ConditionExpression": "attribute_not_exists(#uuid)",
        "ExpressionAttributeNames": {"#uuid": "uuid"},
    }
    return [Write(action={"Put": put}), *copy_row(LAYOUT, table, row)]


def old_form(*, uuid: str, suffix: str, operation: str, unit: str, amount: int, ms: int) -> dict[str, Any]:
    """A row as legacy code writes it, without an operation's id."""
    second = datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {
        "uuid": {"S": uuid},
        "type": {"S": f"{OLD_FORM}{second}#{operation}#{suffix}"},
        "operation": {"S": operation},
        "unit": {"S": unit},
        "amount": {"N": str(amount)},
        "ms": {"N": str(ms)},
    }
