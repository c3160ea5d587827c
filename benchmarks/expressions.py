"""DynamoDB's expressions for the fakes of benchmarks, as the simulator evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constructs_lib.testing.simulator.aws.dynamodb.parsing import condition_of, update_of

Item = Mapping[str, Any]


def holds(condition: str | None, item: Item | None, names: Mapping[str, str], values: Item) -> bool:
    """Test whether an item (None: no item) meets a condition (None: no condition)."""
    return condition is None or bool(condition_of(condition).tree.holds(item or {}, names, values))


def updated(update: str, item: Item, names: Mapping[str, str], values: Item) -> dict[str, Any]:
    """Apply an update to an item; its key's attributes are not checked."""
    after: dict[str, Any] = update_of(update).tree.applied(item, names, values, ())
    return after
