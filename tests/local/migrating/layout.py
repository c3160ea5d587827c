"""The layout of the migrated table, and its items before the migration."""

from __future__ import annotations

from typing import Any, Final

from saga_runtime.migration import Concern, History, Layout

LAYOUT: Final = Layout(
    name="split",
    old_item="customer",
    groups=(
        (
            Concern(name="PROFILE", item="PROFILE", attributes={"name": "name"}),
            Concern(name="POINT", item="BALANCE#POINT", attributes={"balance": "point"}),
        ),
    ),
    pilots=("c-00",),
    histories=(History(old_prefix="tx#", new_prefix="history#", id_attribute="op"),),
)


def legacy_items(customer: str, points: int) -> list[dict[str, Any]]:
    """Items of a customer as legacy code has left them: its own, and a row of the history."""
    key, amount = {"pk": {"S": customer}}, {"N": str(points)}
    return [
        {**key, "sk": {"S": LAYOUT.old_item}, "name": {"S": customer}, "point": amount},
        {**key, "sk": {"S": "tx#legacy"}, "points": amount},
    ]
