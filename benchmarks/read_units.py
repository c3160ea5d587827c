"""DynamoDB's price of reads, by its published rules: an item's size, and the units of a request.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html and
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html: a unit is 4 KB read
strongly, half of one read eventually; what a request reads is added up, then rounded up to 4 KB; nothing found costs as
much as the smallest item; attributes that are not asked for count, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

UNIT: Final = 4_096
"""Bytes."""


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Bytes of an item of texts and numbers: its attributes' names and values."""
    return sum(len(name.encode("utf-8")) + _value_size(value) for name, value in item.items())


def units(sizes: Iterable[int], *, strong: bool) -> float:
    """Read units of one request that read items of these sizes, or none."""
    blocks = max(1, math.ceil(sum(sizes) / UNIT))
    return blocks if strong else blocks / 2


def _value_size(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(str(content).encode("utf-8"))
    if kind == "N":
        # A byte for two significant digits, and one more; zeros at either end count for nothing.
        digits = Decimal(content).normalize().as_tuple().digits
        return math.ceil(len(digits) / 2) + 1
    raise ValueError(f"an attribute must be a text or a number, got {kind}")
