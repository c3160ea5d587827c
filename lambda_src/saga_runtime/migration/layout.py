"""Layout of a migration: its concerns, where each one lives, and the phases. Pure.

Each customer has one old item, which holds every concern. The migration moves concerns, a group at a time, to new items
of the same partition: one item per concern. The items themselves record where a concern of a customer lives:

========  ====================================  ======================  =============
place     old item                              new item                truth
========  ====================================  ======================  =============
``OLD``   values, no ``at_<concern>``           absent                  the old item
``DUAL``  the same values, ``at_… = DUAL``      values, ``at = DUAL``   both, equal
``NEW``   ``at_… = NEW``; values mean nothing   values, ``at = NEW``    the new item
========  ====================================  ======================  =============
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.errors import Invalid, TransientError
from saga_runtime.protocol import MigrationAttribute, MigrationField

LEGACY, READY = 0, 1
"""Phases before the first group: code that knows no marks; code that knows them, while nothing moves."""
PHASES_OF_A_GROUP: Final = 6
MOST_CONCERNS: Final = 20
MOST_PILOTS: Final = 20
OWN: Final = "migration#"
"""Begin of the partition keys of migrations' own items."""
MOST_HISTORIES: Final = 5
MOST_KEY_BYTES: Final = 2_048
"""Of a partition key: DynamoDB's limit."""
MOST_SORT_KEY_BYTES: Final = 1_024
"""Of a sort key: likewise."""
_SHOWN: Final = 50
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_encodable(text: str) -> bool:
    """Test whether UTF-8 has a text: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_text(value: object) -> bool:
    """Test whether a value is a text that is not blank, and that UTF-8 has."""
    return isinstance(value, str) and bool(value.strip()) and is_encodable(value)


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _is_tuple_of(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, kind) for one in value)


class LayoutChanged(TransientError):
    """The layout is not the one that phase 1 began with: nothing is written until the right one is deployed."""

    code = "LAYOUT_CHANGED"


class Place(StrEnum):
    """Place of a concern of a customer."""

    OLD = "OLD"
    DUAL = "DUAL"
    NEW = "NEW"


class Target(StrEnum):
    """Place to which a phase moves a concern of a customer."""

    OLD = "OLD"
    DUAL = "DUAL"
    NEW = "NEW"
    CONTRACTED = "CONTRACTED"
    """As ``NEW``, and its values are removed from the old item."""
    REMOVED = "REMOVED"
    """As ``CONTRACTED``, and the old item is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One concern: what it is called, and where its values are.

    Attributes:
        name: names the old item's mark, ``at_<name>``.
        item: sort key of the new item.
        attributes: attribute of the new item to attribute of the old one.

    Raises:
        Invalid: if a name is not one.
    """

    name: str
    item: str
    attributes: Mapping[str, str]

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise Invalid(f"name of a concern must match {_NAME.pattern}, got {self.name!r}; use letters and digits")
        if not is_text(self.item) or len(self.item.encode()) > MOST_SORT_KEY_BYTES:
            raise Invalid(
                f"item of concern {self.name} must be a sort key of at most {MOST_SORT_KEY_BYTES} bytes, got "
                f"{repr(self.item)[:_SHOWN]}; name its new item"
            )
        if not _is_map(self.attributes):
            raise Invalid(
                f"attributes of concern {self.name} must name an attribute or more, got {self.attributes!r}; map the "
                "new item's attributes to the old one's"
            )
        for new, old in self.attributes.items():
            if not (is_text(new) and is_text(old)):
                raise Invalid(f"attributes of concern {self.name} must not be blank, got {new!r}: {old!r}; name both")
        if MigrationAttribute.AT in self.attributes or len(set(self.attributes.values())) != len(self.attributes):
            raise Invalid(
                f"attributes of concern {self.name} must differ, and from {MigrationAttribute.AT}, got "
                f"{dict(self.attributes)}; rename one"
            )

    @property
    def mark(self) -> str:
        """The attribute of an old item that records the place."""
        return f"{MigrationAttribute.AT}_{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rows of customers that get other keys. They are facts: they are copied, and never change.

    Attributes:
        old_prefix: begin of the sort keys of old rows.
        new_prefix: begin of the sort keys of their copies.
        id_attribute: attribute of the operation's id, a text, no key of the table; the copy of a row without it
            gets a hash of its key.
        order_attribute: attribute that comes before the id in a copy's sort key, no key of the table: a text (``#``
            as ``%23``, ``%`` as ``%25``), or a whole number, which is written with 13 digits; None: the id alone.

    Raises:
        Invalid: if a name is not one, or one prefix begins with the other.
    """

    old_prefix: str
    new_prefix: str
    id_attribute: str
    order_attribute: str | None = None

    def __post_init__(self) -> None:
        for field in ("old_prefix", "new_prefix", "id_attribute"):
            if not is_text(getattr(self, field)):
                raise Invalid(f"{field} of a history must be a text, got {getattr(self, field)!r}; name it")
        if self.order_attribute is not None and not is_text(self.order_attribute):
            raise Invalid(f"order_attribute of a history must be a name or None, got {self.order_attribute!r}; name it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A migration of a table.

    Attributes:
        name: part of the keys of the migration's own items; it never changes.
        old_item: sort key of the old items.
        groups: concerns that move together, in the order in which the groups move.
        partition_key, sort_key: the table's keys, both text.
        pilots: up to 20 customers that move first in each group.
        histories: up to 5 kinds of rows whose copies the worker makes, in the first two phases of the first group.

    Raises:
        Invalid: if two concerns share an item, an attribute of the old item, or a name, or a value is not of its type.
    """

    name: str
    old_item: str
    groups: tuple[tuple[Concern, ...], ...]
    partition_key: str = "pk"
    sort_key: str = "sk"
    pilots: tuple[str, ...] = ()
    histories: tuple[History, ...] = ()

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise Invalid(f"name of a migration must match {_NAME.pattern}, got {self.name!r}; use letters and digits")
        for field in ("old_item", "partition_key", "sort_key"):
            value = getattr(self, field)
            if not is_text(value):
                raise Invalid(f"{field} of migration {self.name} must be a name, got {value!r}; name it")
        for key in (self.partition_key, self.sort_key):
            if key in set(MigrationAttribute):
                raise Invalid(
                    f"keys of migration {self.name} must not be attributes of its own items, got {key!r}; name the "
                    "table's key otherwise"
                )
        if self.partition_key == self.sort_key:
            raise Invalid(f"keys of migration {self.name} must differ, got {self.sort_key!r} twice; name the sort key")
        if not _is_tuple_of(self.groups, tuple) or not all(self.groups):
            raise Invalid(f"groups of migration {self.name} must be tuples of concerns, got {self.groups!r}")
        if not all(_is_tuple_of(group, Concern) for group in self.groups):
            raise Invalid(f"groups of migration {self.name} must hold Concern(…), got {self.groups!r}")
        if len(self.concerns) > MOST_CONCERNS:
            raise Invalid(f"a migration must have at most {MOST_CONCERNS} concerns, got {len(self.concerns)}; split it")
        keys = (self.partition_key, self.sort_key)
        self._differ("names of concerns", [one.name for one in self.concerns])
        self._differ("items", [self.old_item, *(one.item for one in self.concerns)])
        self._differ(
            "attributes of the old item",
            [*keys, *(each for one in self.concerns for each in (one.mark, *one.attributes.values()))],
        )
        for one in self.concerns:
            self._differ(f"attributes of {one.item}", [*keys, *one.attributes])
        if (self.pilots and not _is_tuple_of(self.pilots, str)) or len(self.pilots) > MOST_PILOTS:
            raise Invalid(f"pilots must be a tuple of at most {MOST_PILOTS} customers, got {self.pilots!r}")
        for pilot in self.pilots:
            self.require_customer(pilot)
        self._check_histories()

    def _check_histories(self) -> None:
        """No row has the sort key of another history, or of an item."""
        if (self.histories and not _is_tuple_of(self.histories, History)) or len(self.histories) > MOST_HISTORIES:
            raise Invalid(f"histories must be a tuple of at most {MOST_HISTORIES} History(…), got {self.histories!r}")
        for one in self.histories:
            for field in ("id_attribute", "order_attribute"):
                if (name := getattr(one, field)) in {self.partition_key, self.sort_key}:
                    raise Invalid(
                        f"{field} of history {one.old_prefix!r} must not be a key of the table, got {name!r}; name the "
                        "attribute that has the operation's id, or the order"
                    )
        prefixes = [each for one in self.histories for each in (one.old_prefix, one.new_prefix)]
        items = [self.old_item, *(one.item for one in self.concerns)]
        for index, prefix in enumerate(prefixes):
            for other in (*prefixes[:index], *prefixes[index + 1 :], *items):
                if other.startswith(prefix):
                    raise Invalid(
                        f"sort keys of migration {self.name} must not begin with {prefix!r} but in its history, got "
                        f"{other!r}; rename one"
                    )

    def _differ(self, what: str, names: list[str]) -> None:
        twice = sorted({one for one in names if names.count(one) > 1})
        if twice:
            raise Invalid(f"{what} of migration {self.name} must differ, got {', '.join(twice)} twice; rename one")

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """All concerns."""
        return tuple(one for group in self.groups for one in group)

    def concern(self, name: str) -> Concern:
        """A concern by its name.

        Raises:
            Invalid: if the layout does not have it.
        """
        for one in self.concerns:
            if one.name == name:
                return one
        raise Invalid(f"a concern must be one of {', '.join(c.name for c in self.concerns)}, got {name!r}; declare it")

    def history_of(self, sort_key: str) -> History | None:
        """The history to which a row belongs, in either form; None: it is not a row."""
        for one in self.histories:
            if sort_key.startswith((one.old_prefix, one.new_prefix)):
                return one
        return None

    @property
    def fingerprint(self) -> str:
        """Hash of where each value is: it stays the same from phase 1 on. Pilots may change."""
        f = MigrationField
        fixed = {name: value for name, value in self.to_json().items() if name not in {f.NAME, f.PILOTS}}
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def own_partition(self) -> str:
        """Partition key of the migration's own items."""
        return f"{OWN}{self.name}"

    def require_customer(self, customer: object) -> None:
        """Refuse what is not a customer's key.

        Raises:
            Invalid: if it is not a text, blank, longer than a key may be, or the key of a migration's own items.
        """
        text = str(customer) if is_text(customer) else ""
        if not text or len(text.encode()) > MOST_KEY_BYTES or text.startswith(OWN):
            raise Invalid(
                f"customer must be a text of 1 to {MOST_KEY_BYTES} bytes, not blank, that does not begin with {OWN}, "
                f"got {repr(customer)[:_SHOWN]}; pass the partition key of its items"
            )

    # -- phases ----------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The last phase: old items are deleted."""
        return READY + PHASES_OF_A_GROUP * len(self.groups) + 1

    def group_of(self, phase: int) -> int | None:
        """The group that a phase moves; None: the phase moves none."""
        return None if phase <= READY or phase >= self.last else (phase - READY - 1) // PHASES_OF_A_GROUP

    def stage(self, phase: int, group: int) -> int:
        """Number of the group's phase, 1 to 6; 0: its first one is still to come."""
        return min(max(0, phase - READY - PHASES_OF_A_GROUP * group), PHASES_OF_A_GROUP)

    def target(self, phase: int, concern: Concern, customer: str) -> Target:
        """Place to which a phase moves a concern of a customer."""
        if phase >= self.last:
            return Target.REMOVED
        group = next(index for index, group in enumerate(self.groups) if concern in group)
        pilot = customer in self.pilots
        match self.stage(phase, group):
            case 0:
                return Target.OLD
            case 1:
                return Target.DUAL if pilot else Target.OLD
            case 2 | 3:
                return Target.DUAL
            case 4:
                return Target.NEW if pilot else Target.DUAL
            case 5:
                return Target.NEW
        return Target.CONTRACTED

    def copies_rows(self, phase: int) -> bool:
        """True if a phase copies rows of histories: every writer writes both forms by then."""
        return bool(self.histories) and READY < phase <= READY + 2

    def copies_row(self, phase: int, customer: str) -> bool:
        """True if a phase copies a customer's rows: in the first one those of pilots."""
        return self.copies_rows(phase) and (phase > READY + 1 or customer in self.pilots)

    def reads_new_first(self, phase: int, concern: Concern) -> bool:
        """True if a reader tries the new item first: a hint, since the item itself decides."""
        group = next(index for index, group in enumerate(self.groups) if concern in group)
        return self.stage(phase, group) >= 3

    def describe(self, phase: int) -> str:
        """A phase in words."""
        if phase == LEGACY:
            return "legacy code writes old items only"
        if phase == READY:
            return "every function knows old and new items; nothing moves"
        group = self.group_of(phase)
        if group is None:
            return "old items are deleted"
        names = ", ".join(one.name for one in self.groups[group])
        return (
            f"expand: both items for pilots: {names}",
            f"expand: both items for all: {names}",
            f"migrate: compared, the new item is read first: {names}",
            f"migrate: the new item alone for pilots: {names}",
            f"migrate: the new item alone for all: {names}",
            f"contract: values leave the old item: {names}",
        )[self.stage(phase, group) - 1]

    # -- stored form -----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The layout as JSON values."""
        f = MigrationField
        return {
            f.NAME: self.name,
            f.OLD_ITEM: self.old_item,
            f.PARTITION_KEY: self.partition_key,
            f.SORT_KEY: self.sort_key,
            f.PILOTS: list(self.pilots),
            f.GROUPS: [
                {one.name: {f.ITEM: one.item, f.ATTRIBUTES: dict(one.attributes)} for one in group}
                for group in self.groups
            ],
            f.HISTORIES: [
                {
                    f.OLD_PREFIX: one.old_prefix,
                    f.NEW_PREFIX: one.new_prefix,
                    f.ID: one.id_attribute,
                    # The CDK leaves out members that are null.
                    **({f.ORDER: one.order_attribute} if one.order_attribute is not None else {}),
                }
                for one in self.histories
            ],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Layout:
        """Read what ``to_json`` wrote."""
        f = MigrationField
        return cls(
            name=told[f.NAME],
            old_item=told[f.OLD_ITEM],
            partition_key=told[f.PARTITION_KEY],
            sort_key=told[f.SORT_KEY],
            pilots=tuple(told[f.PILOTS]),
            groups=tuple(
                tuple(Concern(name=name, item=one[f.ITEM], attributes=one[f.ATTRIBUTES]) for name, one in group.items())
                for group in told[f.GROUPS]
            ),
            histories=tuple(
                History(
                    old_prefix=one[f.OLD_PREFIX],
                    new_prefix=one[f.NEW_PREFIX],
                    id_attribute=one[f.ID],
                    order_attribute=one.get(f.ORDER),
                )
                for one in told[f.HISTORIES]
            ),
        )

    @classmethod
    def from_env(cls, text: str) -> Layout:
        """Read ``Env.MIGRATION``."""
        return cls.from_json(json.loads(text))
