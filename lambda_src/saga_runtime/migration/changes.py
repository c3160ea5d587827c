"""Writes of operations while a table is migrated. Pure: writers never read the phase, the items decide.

Each write asks for the place that was read. If a worker moved the concern meanwhile, the transaction is refused as a
``Conflict``, and the operation is planned again with fresh reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from saga_runtime.errors import Conflict, Invalid, PermanentError, SagaError
from saga_runtime.migration.expressions import Placeholders
from saga_runtime.migration.layout import Concern, Layout, Place, Target, is_encodable
from saga_runtime.migration.places import AT, Item, place_of
from saga_runtime.saga_log.write import Write

Number = int | Decimal
Value = int | Decimal | str


_MOST_DIGITS: Final = 38
_LEAST_EXPONENT: Final = -130
_MOST_EXPONENT: Final = 125
"""Of DynamoDB's numbers: docs.aws.amazon.com/amazondynamodb, "Supported data types"."""


class Clear(Enum):
    """The value that removes an attribute."""

    CLEAR = "CLEAR"


CLEAR: Final = Clear.CLEAR
"""Value in ``Change.put`` that removes an attribute."""


class CustomerExists(PermanentError):
    """There is such a customer already, or another item that has its keys."""

    code = "CUSTOMER_EXISTS"


class CustomerUnknown(PermanentError):
    """There is no such customer."""

    code = "CUSTOMER_UNKNOWN"


def _refused() -> SagaError:
    return PermanentError("the values do not allow this operation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One operation's change of one concern, by the names of the new item's attributes.

    Attributes:
        add: what is added to numbers; an absent number is 0.
        put: values that replace others; ``None`` leaves, ``CLEAR`` removes.
        once: values that are written if the attribute is absent.
        at_least: numbers that must be there, and at least so high before the change.
        at_most: numbers that must be absent, or at most so high before the change.
        equal: texts that must be there.
        refusal: the error when a value is not as these three demand.

    Raises:
        Invalid: if a value is not of these types, or an attribute is changed twice.
    """

    add: Mapping[str, Number] = field(default_factory=dict)
    put: Mapping[str, Value | Clear | None] = field(default_factory=dict)
    once: Mapping[str, Value] = field(default_factory=dict)
    at_least: Mapping[str, Number] = field(default_factory=dict)
    at_most: Mapping[str, Number] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    refusal: Callable[[], SagaError] = _refused

    def __post_init__(self) -> None:
        for field_ in ("add", "put", "once", "at_least", "at_most", "equal"):
            whole = getattr(self, field_)
            if not isinstance(whole, Mapping) or not all(isinstance(name, str) and name.strip() for name in whole):
                raise Invalid(f"{field_} must be a mapping of attributes' names, got {type(whole).__name__}; name them")
        if not callable(self.refusal):
            raise Invalid(f"refusal must be a function, got {type(self.refusal).__name__}; return an error from it")
        for name, value in (*self.add.items(), *self.at_least.items(), *self.at_most.items()):
            if type(value) not in (int, Decimal):
                raise Invalid(f"{name} must be an int or a Decimal, got {type(value).__name__}; use smallest units")
            _require_number(name, value)
        for name, text in self.equal.items():
            if not isinstance(text, str):
                raise Invalid(f"{name} must be equal to a text, got {type(text).__name__}; compare texts")
            _require_value(name, text)
        for name, given in self.put.items():
            if given is not None and given is not CLEAR:
                _require_value(name, given)
        for name, first in self.once.items():
            _require_value(name, first)
        names = [*self.add, *self.put, *self.once]
        if len(names) != len(set(names)):
            raise Invalid(f"an attribute must be changed once, got {', '.join(sorted(names))}; leave one out")

    @property
    def changes(self) -> bool:
        """True if there is anything to write."""
        return bool(any(self.add.values()) or any(value is not None for value in self.put.values()) or self.once)

    @property
    def counts(self) -> bool:
        """True if it writes or demands anything: a demand holds although nothing is written."""
        return bool(self.changes or self.at_least or self.at_most or self.equal)

    @property
    def names(self) -> set[str]:
        """Every attribute that is read or written."""
        return {*self.add, *self.put, *self.once, *self.at_least, *self.at_most, *self.equal}


def writes_of(
    layout: Layout,
    table: str,
    customer: str,
    items: Mapping[str, Item],
    changes: Mapping[str, Change],
) -> list[Write]:
    """Writes of an operation's changes of one customer: at most one per item, ``[]`` if nothing counts.

    Guaranteed: they take effect only where the concerns were read to be. In ``DUAL`` both items change, by the same. A
    change that only demands is a ``ConditionCheck`` of the item that decides.

    Args:
        layout: the migration.
        table: the table's name.
        customer: partition key.
        items: the old item and the concerns' new items by sort key, read strongly; absent ones left out.
        changes: by name of the concern.

    Raises:
        CustomerUnknown: if neither item exists.
        Invalid: if a change names an attribute that its concern does not have.
    """
    wanted = [(layout.concern(name), change) for name, change in changes.items() if change.counts]
    old = _Update(layout, table, customer, layout.old_item)
    writes: list[Write] = []
    for concern, change in wanted:
        _require_known(concern, change)
        place = place_of(concern, items.get(layout.old_item), items.get(concern.item))
        if place is None:
            raise CustomerUnknown("there is no such customer")
        if place is Place.OLD or (place is Place.DUAL and change.changes):
            old.change(concern.mark, place, change, concern.attributes, guarded=place is Place.OLD)
        if place is not Place.OLD:
            new = _Update(layout, table, customer, concern.item)
            new.change(AT, place, change, {name: name for name in concern.attributes}, guarded=True)
            writes += new.write()
    # While the concerns are in both items, each has a write, and the old item one.
    return _counted([*old.write(), *writes], len(wanted) + any(change.changes for _, change in wanted))


def gone(
    layout: Layout,
    table: str,
    customer: str,
    items: Mapping[str, Item],
    demands: Mapping[str, Change],
) -> list[Write]:
    """Writes that delete a customer: the old item, and every new one that is the migration's.

    Guaranteed: all of them are deleted, where the concerns were read to be, or none is. What a worker read before
    writes nothing afterwards, not even if the customer is born again.

    Args:
        layout: the migration.
        table: the table's name.
        customer: partition key.
        items: the old item and all new items by sort key, read strongly, each at a moment of its own; absent ones left
            out.
        demands: changes that only demand, by name of the concern.

    Raises:
        CustomerUnknown: if there is no item to delete.
        Conflict: if the item that decides about a demand was absent, maybe because the concern moved between reads.
        Invalid: if a demand writes, or names an attribute that its concern does not have.
    """
    for name, demand in demands.items():
        _require_known(layout.concern(name), demand)
        if demand.changes:
            raise Invalid(f"a deletion must only demand, got a change of {name}; leave add, put and once out")
    old_item = items.get(layout.old_item)
    old = _Update(layout, table, customer, layout.old_item)
    deleted: list[Write] = []
    undecided: list[str] = []
    for concern in layout.concerns:
        demand, new_item = demands.get(concern.name, Change()), items.get(concern.item)
        place = place_of(concern, old_item, new_item)
        if old_item is not None and place is not None:
            old.change(concern.mark, place, demand, concern.attributes, guarded=place is Place.OLD)
        if place is not None and place is not Place.OLD and new_item is not None:
            new = _Update(layout, table, customer, concern.item)
            new.change(AT, place, demand, {name: name for name in concern.attributes}, guarded=True)
            deleted += new.delete()
        elif demand.counts and place is not Place.OLD:
            undecided.append(concern.name)
    deleted = [*old.delete(), *deleted]
    if not deleted:
        raise CustomerUnknown("there is no such customer")
    if undecided:
        raise Conflict(f"concern {', '.join(undecided)} has no item that decides about a demand; find what deleted it")
    absent = [one for one in (layout.old_item, *(each.item for each in layout.concerns)) if one not in items]
    return _counted(
        [*deleted, *(_check_absent(layout, table, customer, one) for one in absent)], 1 + len(layout.concerns)
    )


def born(
    layout: Layout, table: str, customer: str, phase: int, values: Mapping[str, Mapping[str, Value]]
) -> list[Write]:
    """Writes that create a customer in the form that a phase wants.

    Guaranteed: of several births of one customer, in whatever phases, one succeeds; the others are refused as
    ``CustomerExists``.

    Args:
        layout: the migration.
        table: the table's name.
        customer: partition key.
        phase: read strongly, in the same invocation.
        values: first values by concern, by the names of the new item's attributes.

    Raises:
        Invalid: if there is no such concern or attribute, or a value is not a text, an int or a Decimal.
    """
    require_values(values)
    for name, given_values in values.items():
        layout.concern(name)
        for attribute, value in given_values.items():
            _require_value(attribute, value)
    targets = {one.name: layout.target(phase, one, customer) for one in layout.concerns}
    old: dict[str, Any] = _key(layout, customer, layout.old_item)
    writes: list[Write] = []
    for concern in layout.concerns:
        target = targets[concern.name]
        given = {name: encoded(value) for name, value in values.get(concern.name, {}).items()}
        if unknown := sorted(set(given) - set(concern.attributes)):
            raise Invalid(f"attributes of {concern.name} must be of {sorted(concern.attributes)}, got {unknown}")
        if target in {Target.OLD, Target.DUAL}:
            old |= {concern.attributes[name]: value for name, value in given.items()}
        if target is not Target.OLD:
            place = Place.DUAL if target is Target.DUAL else Place.NEW
            old[concern.mark] = {"S": place}
            new = {**_key(layout, customer, concern.item), **given, AT: {"S": place}}
            writes.append(_put_absent(layout, table, new))
    # The last phase deletes old items; the new ones refuse a second birth.
    removed = Target.REMOVED in targets.values()
    births = writes if removed else [_put_absent(layout, table, old), *writes]
    return _counted(births, 1 + len(layout.concerns))


def _counted(writes: list[Write], most: int) -> list[Write]:
    """The writes, with the number of those that another phase has in addition."""
    more = max(0, most - len(writes))
    return [replace(writes[0], more=more), *writes[1:]] if writes and more else writes


def _put_absent(layout: Layout, table: str, item: Item) -> Write:
    return Write(
        action={
            "Put": {
                "TableName": table,
                "Item": item,
                "ConditionExpression": "attribute_not_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": layout.partition_key},
            }
        },
        refusal=lambda _: CustomerExists("there is such a customer already"),
    )


def _check_absent(layout: Layout, table: str, customer: str, item: str) -> Write:
    return Write(
        action={
            "ConditionCheck": {
                "TableName": table,
                "Key": _key(layout, customer, item),
                "ConditionExpression": "attribute_not_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": layout.partition_key},
            }
        },
        refusal=lambda _: Conflict("an item was created between read and write"),
    )


def require_changes(changes: object) -> None:
    """Refuse what is not a mapping of changes.

    Raises:
        Invalid: if it is not.
    """
    if not isinstance(changes, Mapping) or not all(isinstance(one, Change) for one in changes.values()):
        raise Invalid(f"changes must be a mapping of concerns to Change(…), got {changes!r}; name the concerns")


def require_values(values: object) -> None:
    """Refuse what is not a mapping of concerns to first values.

    Raises:
        Invalid: if it is not.
    """
    given = [values, *values.values()] if isinstance(values, Mapping) else [values]
    for one in given:
        if not isinstance(one, Mapping):
            raise Invalid(
                f"values must be a mapping of concerns to mappings of values, got {type(one).__name__}; name concerns "
                "and attributes"
            )


def _require_known(concern: Concern, change: Change) -> None:
    if unknown := sorted(change.names - set(concern.attributes)):
        raise Invalid(f"attributes of {concern.name} must be of {sorted(concern.attributes)}, got {unknown}")


def _require_value(name: str, value: object) -> None:
    if type(value) not in (int, Decimal, str):
        raise Invalid(f"{name} must be a text, an int or a Decimal, got {type(value).__name__}; encode it")
    if not isinstance(value, str):
        _require_number(name, value)
    elif not is_encodable(value):
        raise Invalid(f"{name} must be a text of whole characters, got half of a surrogate pair; correct the text")


def _require_number(name: str, value: Any) -> None:
    """Refuse numbers that DynamoDB does not hold: it would refuse the whole transaction."""
    number = Decimal(value)
    finite = number.is_finite()
    digits = "".join(map(str, number.as_tuple().digits)).strip("0") if finite else ""
    if (
        not finite
        or len(digits) > _MOST_DIGITS
        or (digits and not _LEAST_EXPONENT <= number.adjusted() <= _MOST_EXPONENT)
    ):
        raise Invalid(
            f"{name} must be a finite number of at most {_MOST_DIGITS} digits, from 1E{_LEAST_EXPONENT} to below "
            f"1E{_MOST_EXPONENT + 1}, got {number}; round it"
        )


def encoded(value: Value) -> dict[str, Any]:
    """A value as DynamoDB has it."""
    return {"S": value} if isinstance(value, str) else {"N": format(Decimal(value), "f")}


def _key(layout: Layout, customer: str, item: str) -> dict[str, Any]:
    return {layout.partition_key: {"S": customer}, layout.sort_key: {"S": item}}


@dataclass(slots=True)
class _Guard:
    """Why a write of one concern may be refused."""

    mark: str
    place: Place
    change: Change
    names: Mapping[str, str]
    guarded: bool

    def refusal(self, item: Item) -> SagaError | None:
        """The error that an item explains; None: this concern is not the reason."""
        stored = item.get(self.mark)
        if stored != (None if self.place is Place.OLD else {"S": self.place}):
            return Conflict("a concern moved between read and write")
        for name in (*self.change.at_least, *self.change.at_most) if self.guarded else ():
            if (value := item.get(self.names[name])) is not None and "N" not in value:
                return Invalid(f"{self.names[name]} must be a number, got {', '.join(value)}; correct the item")
        return self.change.refusal() if self.guarded and not self._holds(item) else None

    def _holds(self, item: Item) -> bool:
        def number(name: str) -> Decimal | None:
            value = item.get(self.names[name])
            return Decimal(value["N"]) if value is not None else None

        least = all((have := number(name)) is not None and have >= want for name, want in self.change.at_least.items())
        most = all((have := number(name)) is None or have <= want for name, want in self.change.at_most.items())
        equal = all(item.get(self.names[name]) == {"S": want} for name, want in self.change.equal.items())
        return least and most and equal


class _Update:
    """One item's update: of the old item, for all of its concerns at once."""

    def __init__(self, layout: Layout, table: str, customer: str, item: str) -> None:
        self._layout, self._table, self._customer, self._item = layout, table, customer, item
        self._use = Placeholders()
        self._clauses: dict[str, list[str]] = {"SET": [], "REMOVE": [], "ADD": []}
        self._conditions: list[str] = []
        self._compares = False
        self._guards: list[_Guard] = []

    def change(self, mark: str, place: Place, change: Change, names: Mapping[str, str], *, guarded: bool) -> None:
        """Apply a change if the mark is as read; ``guarded``: this item decides whether its values allow it."""
        at = self._use.name(mark)
        self._conditions.append(
            f"attribute_not_exists({at})" if place is Place.OLD else f"{at} = {self._use.value({'S': place})}"
        )
        self._compares |= place is not Place.OLD or (guarded and bool(change.at_least or change.equal))
        for name, number in change.add.items():
            if number:
                self._clauses["ADD"].append(f"{self._use.name(names[name])} {self._use.value(encoded(number))}")
        for name, value in change.put.items():
            if value is CLEAR:
                self._clauses["REMOVE"].append(self._use.name(names[name]))
            elif value is not None and not isinstance(value, Clear):
                self._clauses["SET"].append(f"{self._use.name(names[name])} = {self._use.value(encoded(value))}")
        for name, first in change.once.items():
            at = self._use.name(names[name])
            self._clauses["SET"].append(f"{at} = if_not_exists({at}, {self._use.value(encoded(first))})")
        if guarded:
            for name, least in change.at_least.items():
                self._conditions.append(f"{self._use.name(names[name])} >= {self._use.value(encoded(least))}")
            for name, most in change.at_most.items():
                at = self._use.name(names[name])
                self._conditions.append(f"(attribute_not_exists({at}) OR {at} <= {self._use.value(encoded(most))})")
            for name, text in change.equal.items():
                self._conditions.append(f"{self._use.name(names[name])} = {self._use.value({'S': text})}")
        self._guards.append(_Guard(mark, place, change, names, guarded))

    def delete(self) -> list[Write]:
        """The deletion of the item; none if nothing is known of it."""
        if not self._guards:
            return []
        return [Write(action={"Delete": self._action()}, refusal=_refusal(self._guards))]

    def write(self) -> list[Write]:
        """The write: an update, or a check of the conditions if it changes nothing; none without a change."""
        if not self._guards:
            return []
        action = self._action()
        update = " ".join(f"{kind} {', '.join(parts)}" for kind, parts in self._clauses.items() if parts)
        if not update:
            return [Write(action={"ConditionCheck": action}, refusal=_refusal(self._guards))]
        return [Write(action={"Update": {**action, "UpdateExpression": update}}, refusal=_refusal(self._guards))]

    def _action(self) -> dict[str, Any]:
        if not self._compares:  # a comparison demands the item as well; an update of an absent one would create it
            self._conditions.insert(0, f"attribute_exists({self._use.name(self._layout.partition_key)})")
        return {
            "TableName": self._table,
            "Key": _key(self._layout, self._customer, self._item),
            "ConditionExpression": " AND ".join(self._conditions),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **self._use.members(),
        }


def _refusal(guards: Sequence[_Guard]) -> Callable[[Item | None], SagaError]:
    """The error of an update that was refused, by the item that exists. A move explains more than a value."""

    def refusal(item: Item | None) -> SagaError:
        if item is None:
            return Conflict("an item was deleted between read and write")
        errors = [error for guard in guards if (error := guard.refusal(item)) is not None]
        moved = next((error for error in errors if isinstance(error, Conflict)), None)
        return moved or (errors[0] if errors else Conflict("an item changed between read and write"))

    return refusal
