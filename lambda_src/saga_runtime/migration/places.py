"""Places of concerns, by the customer's items. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from saga_runtime.errors import Invalid
from saga_runtime.migration.layout import Concern, Place
from saga_runtime.protocol import MigrationAttribute

Item = Mapping[str, Mapping[str, Any]]
AT = MigrationAttribute.AT


def place_of(concern: Concern, old: Item | None, new: Item | None) -> Place | None:
    """The place that the items record; None: there is no such customer.

    An old item decides. Without one, a new item does: the last phase deletes old items.

    Raises:
        Invalid: if the mark's attribute holds anything else.
    """
    if old is not None:
        mark = old.get(concern.mark)
        if mark not in (None, {"S": Place.DUAL}, {"S": Place.NEW}):
            raise Invalid(
                f"{concern.mark} must be absent, {Place.DUAL} or {Place.NEW}, got {mark}; correct the item, which was "
                "written by something else"
            )
        return Place(mark["S"]) if mark else Place.OLD
    return Place.NEW if new is not None and new.get(AT) == {"S": Place.NEW} else None


def truth_of(concern: Concern, item: Item | None, *, is_new: bool) -> dict[str, Any] | None:
    """Values of a concern in one item, by the new item's names; None: the item is not the truth."""
    if item is None:
        return None
    if is_new:
        true = item.get(AT) in ({"S": Place.DUAL}, {"S": Place.NEW})
        return {name: item[name] for name in concern.attributes if name in item} if true else None
    if concern.mark in item and item[concern.mark] != {"S": Place.DUAL}:
        return None
    return {new: item[old] for new, old in concern.attributes.items() if old in item}


def same(concern: Concern, old: Item, new: Item) -> bool:
    """Test whether both items hold the same values, in whatever form."""
    return all(alike(old.get(former), new.get(name)) for name, former in concern.attributes.items())


def alike(one: object, other: object) -> bool:
    """Test whether two typed values, or two items, are equal: numbers as numbers, sets in any order."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _PLAIN[name](one) if _is_typed(name, one) else _plain(one) for name, one in value.items()}


_PLAIN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "N": Decimal,
    "NS": lambda numbers: frozenset(map(Decimal, numbers)),
    "SS": frozenset,
    "BS": frozenset,
}


def _is_typed(name: str, value: object) -> bool:
    """Test whether a member is a type and its value: an attribute's name is followed by such a pair."""
    return name in _PLAIN and not isinstance(value, Mapping)
