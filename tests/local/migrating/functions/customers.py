"""Operations on customers, wherever their items are: each counts once."""

from __future__ import annotations

import os
from typing import Any

from saga_runtime.migration import Change, Layout, Store, copy_row
from saga_runtime.protocol import Env
from saga_runtime.saga_log.transaction import commit_first
from saga_runtime.saga_log.write import Write

STORE = Store(layout=Layout.from_env(os.environ[Env.MIGRATION]), table=os.environ[Env.MIGRATION_TABLE])


def handler(event: dict[str, Any], context: Any) -> str:
    """Run ``{"do": "add" | "born" | "gone" | "read", "customer": …, "op": …}``."""
    customer, operation = event["customer"], event["op"]
    if event["do"] == "read":
        return str(STORE.read(customer, "POINT").get("balance", {}).get("N", "0"))
    record = {
        "Put": {
            "TableName": STORE.table,
            "Item": {"pk": {"S": customer}, "sk": {"S": f"op#{operation}"}},
            "ConditionExpression": "attribute_not_exists(pk)",
        }
    }
    committed = commit_first(
        lambda: (record, _writes(event, customer, operation)), remaining_ms=context.get_remaining_time_in_millis
    )
    return type(committed).__name__


def _writes(event: dict[str, Any], customer: str, operation: str) -> list[Write]:
    if event["do"] == "born":
        return STORE.born(customer, {"POINT": {"balance": 0}, "PROFILE": {"name": customer}})
    if event["do"] == "gone":
        return STORE.gone(customer)
    row = {
        "pk": {"S": customer},
        "sk": {"S": f"tx#{operation}"},
        "points": {"N": str(event["points"])},
        "op": {"S": operation},
    }
    put = {"TableName": STORE.table, "Item": row, "ConditionExpression": "attribute_not_exists(pk)"}
    changed = STORE.writes(customer, {"POINT": Change(add={"balance": event["points"]})})
    return [*changed, Write(action={"Put": put}), *copy_row(STORE.layout, STORE.table, row)]
