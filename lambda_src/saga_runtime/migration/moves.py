"""The worker's moves: each is one transaction of two updates, conditional on what was read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from saga_runtime.migration.expressions import Placeholders
from saga_runtime.migration.layout import Concern, Layout, Place, Target
from saga_runtime.migration.places import AT, Item, place_of


class Move(StrEnum):
    """One step of one concern of one customer."""

    COPY = "copy"
    SEAL = "seal"
    UNSEAL = "unseal"
    RETREAT = "retreat"
    CONTRACT = "contract"


def next_move(concern: Concern, old: Item | None, new: Item | None, target: Target) -> Move | None:
    """The next move towards a target; None: the concern is there."""
    place = place_of(concern, old, new)
    if place is None or old is None:
        return None
    match place:
        case Place.OLD:
            return None if target is Target.OLD else Move.COPY
        case Place.DUAL if target is Target.OLD:
            return Move.RETREAT
        case Place.DUAL:
            return None if target is Target.DUAL else Move.SEAL
    if target in {Target.OLD, Target.DUAL}:
        return Move.UNSEAL
    contracted = not any(name in old for name in concern.attributes.values())
    return None if contracted or target is Target.NEW else Move.CONTRACT


def entries(layout: Layout, table: str, concern: Concern, move: Move, old: Item, new: Item | None) -> list[Any]:
    """Entries of a move's transaction. A refused one changes nothing: another run, or a writer, was faster."""
    customer = old[layout.partition_key]["S"]
    to_old = _Entry(layout, table, customer, layout.old_item)
    to_new = _Entry(layout, table, customer, concern.item)
    renamed = concern.attributes
    match move:
        case Move.COPY:
            read = {name: old[former] for name, former in renamed.items() if former in old}
            if not read:  # a comparison with a value demands the item as well
                to_old.exists()
            to_old.absent(concern.mark).as_read(old, renamed.values()).set({concern.mark: _at(Place.DUAL)})
            return [to_old.update(), to_new.absent(layout.partition_key).put({**read, AT: _at(Place.DUAL)})]
        case Move.SEAL:
            to_old.equal(concern.mark, _at(Place.DUAL)).set({concern.mark: _at(Place.NEW)})
            return [to_old.update(), to_new.equal(AT, _at(Place.DUAL)).set({AT: _at(Place.NEW)}).update()]
        case Move.UNSEAL:
            kept = new or {}
            back = {former: kept[name] for name, former in renamed.items() if name in kept}
            to_old.equal(concern.mark, _at(Place.NEW)).set({**back, concern.mark: _at(Place.DUAL)})
            to_old.remove([former for name, former in renamed.items() if name not in kept])
            to_new.equal(AT, _at(Place.NEW)).as_read(kept, renamed).set({AT: _at(Place.DUAL)})
            return [to_old.update(), to_new.update()]
        case Move.RETREAT:
            to_old.equal(concern.mark, _at(Place.DUAL)).remove([concern.mark])
            return [to_old.update(), to_new.equal(AT, _at(Place.DUAL)).delete()]
    return [to_old.equal(concern.mark, _at(Place.NEW)).remove(list(renamed.values())).update()]


def removable(layout: Layout, old: Item) -> bool:
    """Test whether an old item holds nothing any more: its keys, and a mark NEW for every concern.

    An attribute of no concern is data that no new item has: such an item is never deleted.
    """
    marks = {one.mark for one in layout.concerns}
    held = set(old) - {layout.partition_key, layout.sort_key}
    return held == marks and all(old[mark] == _at(Place.NEW) for mark in marks)


def removal(layout: Layout, table: str, customer: str) -> list[Any]:
    """The deletion of an old item, if it still holds nothing."""
    entry = _Entry(layout, table, customer, layout.old_item)
    for one in layout.concerns:
        entry.equal(one.mark, _at(Place.NEW))
        for name in one.attributes.values():
            entry.absent(name)
    return [entry.delete()]


def _at(place: Place) -> dict[str, str]:
    return {"S": place}


class _Entry:
    """One entry of a transaction."""

    def __init__(self, layout: Layout, table: str, customer: str, item: str) -> None:
        self._table = table
        self._key = {layout.partition_key: {"S": customer}, layout.sort_key: {"S": item}}
        self._partition_key = layout.partition_key
        self._use = Placeholders()
        self._conditions: list[str] = []
        self._sets: list[str] = []
        self._removes: list[str] = []

    def exists(self) -> _Entry:
        self._conditions.append(f"attribute_exists({self._use.name(self._partition_key)})")
        return self

    def absent(self, attribute: str) -> _Entry:
        self._conditions.append(f"attribute_not_exists({self._use.name(attribute)})")
        return self

    def equal(self, attribute: str, value: Mapping[str, Any]) -> _Entry:
        self._conditions.append(f"{self._use.name(attribute)} = {self._use.value(value)}")
        return self

    def as_read(self, item: Item, attributes: Any) -> _Entry:
        """Demand the values that were read. One that went and came back is the same value at commit."""
        for name in attributes:
            if name in item:
                self.equal(name, item[name])
            else:
                self.absent(name)
        return self

    def set(self, values: Mapping[str, Any]) -> _Entry:
        self._sets += [f"{self._use.name(name)} = {self._use.value(value)}" for name, value in values.items()]
        return self

    def remove(self, attributes: list[str]) -> _Entry:
        self._removes += [self._use.name(name) for name in attributes]
        return self

    def update(self) -> dict[str, Any]:
        sets = [f"SET {', '.join(self._sets)}"] if self._sets else []
        removes = [f"REMOVE {', '.join(self._removes)}"] if self._removes else []
        return {"Update": {**self._common(), "Key": self._key, "UpdateExpression": " ".join(sets + removes)}}

    def put(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {"Put": {**self._common(), "Item": {**self._key, **attributes}}}

    def delete(self) -> dict[str, Any]:
        return {"Delete": {**self._common(), "Key": self._key}}

    def _common(self) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "ConditionExpression": " AND ".join(self._conditions),
            **self._use.members(),
        }
