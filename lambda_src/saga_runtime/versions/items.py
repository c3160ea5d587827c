"""Items with a version: check-and-set. Pure builders of writes.

A version only grows, and belongs to one state of its item. That the version is ``expected + 1`` does not show who wrote
it: the log row of a step, the record of a direct operation, or the marker of ``commit_once`` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.errors import Conflict, Invalid, SagaError
from saga_runtime.saga_log.write import Write
from saga_runtime.shared.expressions import RETURNS_ITEM, update, when
from saga_runtime.versions.errors import HeldByAnother, ItemExists, VersionConflict

VERSION: Final = "version"
STATE: Final = "state"
HOLDER: Final = "holder"
_RESERVED: Final = frozenset({VERSION, STATE, HOLDER})
AttributeValue = Mapping[str, Any]
Item = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedItem:
    """One item that is changed by check-and-set.

    Attribute ``version`` is a number from 1 on; every write raises it by 1. So all writes of the item must be made
    here, and the item must never be deleted: with a new item under its key the versions would begin again, and a write
    that still travels could fit. Give it a state ``DELETED`` instead.

    Guaranteed: of all writes that expect one version, one takes effect.
    Not guaranteed: which operation's it was. Return the writes from an atomic step or a direct operation, or commit
    them by ``commit_once``: these know their operation, and answer its repetition with the first result.

    Example:
        >>> from saga_runtime import VersionedItem
        >>> account = VersionedItem(table="accounts", key={"id": {"S": "a-1"}})
        >>> [write] = account.update(expected_version=3, values={"limit": {"N": "500"}})
        >>> write.action["Update"]["ConditionExpression"]
        '#version = :expected'

    Attributes:
        table: name of the table.
        key: key of the item, in DynamoDB's typed form: ``{"id": {"S": "a-1"}}``.

    Raises:
        ValueError: if the table's name is blank, or there is no key.
    """

    table: str
    key: Item

    def __post_init__(self) -> None:
        table: object = self.table
        key: object = self.key
        if not isinstance(table, str) or not isinstance(key, Mapping):
            raise TypeError(f"table and key must be a name and a mapping, got {table!r} and {key!r}; pass them")
        if not self.table.strip():
            raise ValueError(f"table of an item must be a table's name, got {self.table!r}; pass its name")
        if not self.key or not all(self.key.values()):
            raise ValueError(f"key of an item must have a value of each of its attributes, got {self.key!r}; pass them")

    def create(self, values: Item | None = None) -> list[Write]:
        """Create the item, as version 1.

        Refused with ``ItemExists`` if it exists.

        Args:
            values: its attributes.
        """
        return self.put_new(self.checked(values))

    def update(
        self,
        *,
        expected_version: int,
        values: Item | None = None,
        remove: Collection[str] = (),
        read_now: bool = False,
    ) -> list[Write]:
        """Change the item, if its version is the expected one.

        Refused with ``VersionConflict``, which has the current version, if it is another one.

        Args:
            expected_version: the version that the caller has seen; 1 or more.
            values: attributes to set.
            remove: names of attributes to remove.
            read_now: whether this very plan has read the version. Then the plan is made again, with a new read,
                instead of a refusal.

        Raises:
            ValueError: for a wrong argument.
        """
        changes = self.checked(values)
        if isinstance(remove, str):
            raise Invalid(f"remove must be names of attributes, got the text {remove!r}; write [{remove!r}]")
        gone = [*self.checked({name: {} for name in remove})]
        named = [*changes, *remove]
        if len(set(named)) < len(named):
            raise ValueError(f"each attribute must be set or removed once, got {sorted(named)}; name it once")
        return self.change(expected_version=expected_version, values=changes, remove=gone, read_now=read_now)

    def checked(self, values: Item | None) -> dict[str, AttributeValue]:
        """Values of attributes that a caller may write.

        Raises:
            ValueError: for an attribute that belongs to the item, or is not an identifier.
        """
        for name in values or {}:
            if name in _RESERVED or name in self.key:
                raise ValueError(f"values must leave {name!r} to the item, got it; leave it out")
            if not (name.isascii() and name.isidentifier()):
                raise ValueError(f"names of attributes must be ASCII identifiers, got {name!r}; rename the attribute")
        # Of a member of an enumeration its value: its text cannot be a placeholder.
        return {str.__str__(name): value for name, value in (values or {}).items()}

    def put_new(self, values: Item) -> list[Write]:
        """Put the item if it does not exist."""
        put = {
            "TableName": self.table,
            "Item": {**self.key, **values, VERSION: {"N": "1"}},
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": next(iter(self.key))},
        }
        return [Write(action={"Put": put}, refusal=lambda _: ItemExists("the item exists"), key=self.key)]

    def change(
        self,
        *,
        expected_version: int | None,
        values: Item,
        remove: Collection[str] = (),
        conditions: Item | None = None,
        read_now: bool = False,
    ) -> list[Write]:
        """Change the item if its version, and further attributes, are as expected; version None: whatever it is."""
        expected = dict(conditions or {})
        if expected_version is not None:
            expected = {VERSION: {"N": str(_version(expected_version))}, **expected}
        compared = {"expected" if name == VERSION else f"old_{name}": name for name in expected}
        condition = " AND ".join(f"#{name} = :{placeholder}" for placeholder, name in compared.items())
        change = update(
            when(condition, **{placeholder: expected[name] for placeholder, name in compared.items()}) | RETURNS_ITEM,
            {VERSION: f"#{VERSION} + :one", **{name: f":new_{name}" for name in values}},
            removes=remove,
            values={"one": {"N": "1"}, **{f"new_{name}": value for name, value in values.items()}},
        )
        action = {"Update": {"TableName": self.table, "Key": dict(self.key), **change}}
        return [Write(action=action, refusal=lambda item: _refused(item, expected, read_now=read_now))]


def _version(value: int) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"expected_version must be an integer of 1 or more, got {value!r}; pass what was read")
    return value


def _refused(item: Item | None, expected: Item, *, read_now: bool) -> SagaError:
    found = item or {}
    if HOLDER in expected and all(found.get(name) == value for name, value in expected.items() if name != HOLDER):
        holder = found.get(HOLDER, {}).get("S")
        return HeldByAnother(f"the item is held by {holder!r}, not by {expected[HOLDER]['S']!r}", current_holder=holder)
    return Conflict("the item was changed after it was read") if read_now else _conflict(item)


def _conflict(item: Item | None) -> VersionConflict:
    if item is None:
        return VersionConflict("the item does not exist", current_version=None, current_state=None)
    found, state = str(item.get(VERSION, {}).get("N")), item.get(STATE, {}).get("S")
    version = int(found) if found.isdecimal() else 0
    if not version:
        text = "the item has no version; create and change it as a VersionedItem only"
        return VersionConflict(text, current_version=0, current_state=state)
    found = f"version {found}" if state is None else f"version {found}, state {state}"
    return VersionConflict(f"the item has another version: {found}", current_version=version, current_state=state)
