"""The layout of the migrated table."""

from __future__ import annotations

from typing import Final

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
