"""Migrations of a table's items under load: from one item per customer to one per concern, and back.

Imports ``saga_log``, ``shared`` and ``errors``. Public are the names in ``__all__``, imported at first use.
"""

from typing import TYPE_CHECKING

from saga_runtime.shared.lazy import lazy_exports

if TYPE_CHECKING:
    from saga_runtime.migration.changes import (
        CLEAR,
        Change,
        Clear,
        CustomerExists,
        CustomerUnknown,
        born,
        gone,
        writes_of,
    )
    from saga_runtime.migration.history import copy_of, copy_row, merged, row_id
    from saga_runtime.migration.layout import Concern, History, Layout, LayoutChanged, Place, Target
    from saga_runtime.migration.store import Items, Store

__all__ = [
    "CLEAR",
    "Change",
    "Clear",
    "Concern",
    "CustomerExists",
    "CustomerUnknown",
    "History",
    "Items",
    "Layout",
    "LayoutChanged",
    "Place",
    "Store",
    "Target",
    "born",
    "copy_of",
    "copy_row",
    "gone",
    "merged",
    "row_id",
    "writes_of",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CLEAR": ".changes",
        "Change": ".changes",
        "Clear": ".changes",
        "Concern": ".layout",
        "CustomerExists": ".changes",
        "CustomerUnknown": ".changes",
        "History": ".layout",
        "Items": ".store",
        "Layout": ".layout",
        "LayoutChanged": ".layout",
        "Place": ".layout",
        "Store": ".store",
        "Target": ".layout",
        "born": ".changes",
        "copy_of": ".history",
        "copy_row": ".history",
        "gone": ".changes",
        "merged": ".history",
        "row_id": ".history",
        "writes_of": ".changes",
    },
)
