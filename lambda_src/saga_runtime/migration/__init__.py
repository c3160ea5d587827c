"""Migrations of a table's items under load: from one item per customer to one per concern, and back.

Imports ``saga_log``, ``shared`` and ``errors``. Public are the names in ``__all__``.
"""

from saga_runtime.migration.changes import CLEAR, Change, Clear, CustomerUnknown, born, writes_of
from saga_runtime.migration.history import copy_row, merged, row_id
from saga_runtime.migration.layout import Concern, Layout, Place, Target
from saga_runtime.migration.store import Items, Store

__all__ = [
    "CLEAR",
    "Change",
    "Clear",
    "Concern",
    "CustomerUnknown",
    "Items",
    "Layout",
    "Place",
    "Store",
    "Target",
    "born",
    "copy_row",
    "merged",
    "row_id",
    "writes_of",
]
