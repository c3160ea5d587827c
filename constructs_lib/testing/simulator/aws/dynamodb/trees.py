"""Syntax trees of DynamoDB's expressions, which evaluate themselves.

A tree is data: a test lists the clauses of a condition, and makes another one without one of them (``clauses_of``,
``without``). Names and values stay placeholders; each evaluation brings its own.

Source: the developer guide's "Comparison operator and function reference" and "Using update expressions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias

from constructs_lib.testing.simulator.aws.dynamodb.values import (
    Value,
    equal,
    is_type,
    kind_of,
    number,
    ordered,
    size_of,
)
from constructs_lib.testing.simulator.errors import invalid

Names: TypeAlias = Mapping[str, str]
Values: TypeAlias = Mapping[str, Value]
Attributes: TypeAlias = Mapping[str, Value]
"""An item; empty: it does not exist."""


@dataclass(frozen=True, slots=True)
class Path:
    """A place in an item: names, placeholders of names, and positions in lists."""

    elements: tuple[str | int, ...]

    def resolved(self, names: Names) -> tuple[str | int, ...]:
        """Replace the path's placeholders by their names."""
        return tuple(
            names[element] if isinstance(element, str) and element[0] == "#" else element for element in self.elements
        )

    def find(self, item: Attributes, names: Names, _values: Values) -> Value | None:
        """Find the value there; None: there is no value."""
        elements = self.elements
        first = elements[0]
        held = item.get(names[first] if first[0] == "#" else first) if isinstance(first, str) else None
        for element in elements[1:]:
            if held is None:
                return None
            held = _inside(held, element, names)
        return held

    def __str__(self) -> str:
        text = ""
        for element in self.elements:
            text += f"[{element}]" if isinstance(element, int) else f".{element}"
        return text[1:]


def _inside(held: Value, element: str | int, names: Names) -> Value | None:
    found: Value | None
    if isinstance(element, int):
        members = held.get("L", ())
        found = members[element] if element < len(members) else None
    else:
        found = held.get("M", {}).get(names[element] if element[0] == "#" else element)
    return found


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder of a value."""

    name: str

    def find(self, _item: Attributes, _names: Names, values: Values) -> Value | None:
        """The value."""
        return values[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Size:
    """``size(path)``: bytes of a text, members of a collection."""

    of: Operand

    def find(self, item: Attributes, names: Names, values: Values) -> Value | None:
        """The size as a number; None: there is nothing, or nothing that has a size."""
        value = self.of.find(item, names, values)
        if value is None:
            return None
        kind = kind_of(value)
        if kind in ("S", "B"):
            return {"N": str(size_of(value))}
        if kind in ("SS", "NS", "BS", "L", "M"):
            return {"N": str(len(value[kind]))}
        return None

    def __str__(self) -> str:
        return f"size({self.of})"


Operand: TypeAlias = Path | Placeholder | Size


@dataclass(frozen=True, slots=True)
class Comparison:
    """``a = b`` and its like."""

    left: Operand
    operator: str
    right: Operand

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether it is true of an item."""
        left, right = self.left.find(item, names, values), self.right.find(item, names, values)
        if self.operator == "<>":
            # An attribute that is missing differs from every value.
            return left is None or right is None or not equal(left, right)
        if left is None or right is None:
            return False
        if self.operator == "=":
            return equal(left, right)
        return _ordered(_COMPARED[self.operator], left, right)

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def _ordered(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> bool:
    if kind_of(left) != kind_of(right):
        return False
    a, b = ordered(left), ordered(right)
    return a is not None and b is not None and compare(a, b)


@dataclass(frozen=True, slots=True)
class Between:
    """``a BETWEEN b AND c``, both ends included."""

    operand: Operand
    low: Operand
    high: Operand

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether it is true of an item."""
        found = [part.find(item, names, values) for part in (self.operand, self.low, self.high)]
        value, low, high = found
        if value is None or low is None or high is None:
            return False
        return _ordered(ge, value, low) and _ordered(le, value, high)

    def __str__(self) -> str:
        return f"{self.operand} BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True, slots=True)
class In:
    """``a IN (b, c)``."""

    operand: Operand
    choices: tuple[Operand, ...]

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether it is true of an item."""
        value = self.operand.find(item, names, values)
        found = (choice.find(item, names, values) for choice in self.choices)
        return value is not None and any(choice is not None and equal(value, choice) for choice in found)

    def __str__(self) -> str:
        return f"{self.operand} IN ({', '.join(map(str, self.choices))})"


@dataclass(frozen=True, slots=True)
class Function:
    """``attribute_exists(path)`` and the other functions that are true or false."""

    name: str
    operands: tuple[Operand, ...]

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether it is true of an item."""
        found = self.operands[0].find(item, names, values)
        if self.name == "attribute_exists":
            return found is not None
        if self.name == "attribute_not_exists":
            return found is None
        second = self.operands[1].find(item, names, values)
        if found is None or second is None:
            return False
        if self.name == "attribute_type":
            return second.get("S") in found
        if self.name == "begins_with":
            return kind_of(found) == kind_of(second) and _text(found).startswith(_text(second))
        return _contains(found, second)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))})"


def _text(value: Value) -> Any:
    """A text or bytes; of everything else, what begins with nothing."""
    return value.get("S", value.get("B", ""))


def _contains(value: Value, part: Value) -> bool:
    kind, wanted = kind_of(value), kind_of(part)
    if kind in ("S", "B"):
        return wanted == kind and part[kind] in value[kind]
    if kind == "L":
        return any(equal(member, part) for member in value["L"])
    if kind == "NS" and wanted == "N":
        return number(part["N"]) in map(number, value["NS"])
    return kind in ("SS", "BS") and wanted == kind[0] and part[wanted] in value[kind]


@dataclass(frozen=True, slots=True)
class AllOf:
    """``a AND b AND …``."""

    parts: tuple[Condition, ...]

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether all of them are true of an item."""
        return all(part.holds(item, names, values) for part in self.parts)

    def __str__(self) -> str:
        return " AND ".join(f"({part})" if isinstance(part, AnyOf) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """``a OR b OR …``."""

    parts: tuple[Condition, ...]

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether one of them is true of an item."""
        return any(part.holds(item, names, values) for part in self.parts)

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT a``."""

    part: Condition

    def holds(self, item: Attributes, names: Names, values: Values) -> bool:
        """Test whether it is not true of an item."""
        return not self.part.holds(item, names, values)

    def __str__(self) -> str:
        return f"NOT ({self.part})" if isinstance(self.part, AllOf | AnyOf) else f"NOT {self.part}"


@dataclass(frozen=True, slots=True)
class Always:
    """Rest of a condition without clauses."""

    def holds(self, _item: Attributes, _names: Names, _values: Values) -> bool:
        """True."""
        return True

    def __str__(self) -> str:
        return "(always)"


Condition: TypeAlias = Comparison | Between | In | Function | AllOf | AnyOf | Not | Always


def clauses_of(condition: Condition) -> Iterator[Condition]:
    """Yield every clause that can be left out alone: what ``AND`` joins, at any depth; or the whole."""
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield part
                if isinstance(part, AllOf | AnyOf):
                    yield from clauses_of(part)
        case Always():
            return
        case _:
            yield condition


def without(condition: Condition, clause: Condition) -> Condition:
    """The condition without one of its clauses: a clause of ``AND`` is taken to be true, one of ``OR`` to be false."""
    if condition is clause:
        return Always()
    if isinstance(condition, AllOf | AnyOf):
        kept = tuple(without(part, clause) for part in condition.parts if part is not clause)
        kept = tuple(part for part in kept if not isinstance(part, Always))
        if not kept:
            return Always()
        return kept[0] if len(kept) == 1 else replace(condition, parts=kept)
    return condition


@dataclass(frozen=True, slots=True)
class Typed:
    """A value of an operator that takes some types only.

    Attributes:
        operator: the operator.
        name: the value's placeholder.
        kinds: types that the operator takes there.
        most: placeholder of the upper bound, if this is the lower one.
    """

    operator: str
    name: str
    kinds: tuple[str, ...]
    most: str | None = None


def typed_operands(condition: Condition) -> Iterator[Typed]:
    """Yield operands that are values, of operators that take some types only."""
    match condition:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from typed_operands(part)
        case Not(part):
            yield from typed_operands(part)
        case Comparison(left, operator, right) if operator not in ("=", "<>"):
            yield from _typed(operator, (left, right), ("S", "N", "B"))
        case Between(_, low, high):
            yield from _typed("BETWEEN", (high, low), ("S", "N", "B"))
            if isinstance(low, Placeholder) and isinstance(high, Placeholder):
                yield Typed("BETWEEN", low.name, ("S", "N", "B"), most=high.name)
        case Function("begins_with", (_, operand)):
            yield from _typed("begins_with", (operand,), ("S", "B"))
        case Function("attribute_type", (_, operand)):
            yield from _typed("attribute_type", (operand,), ("S",))
        case _:
            return


def _typed(operator: str, operands: tuple[Operand, ...], kinds: tuple[str, ...]) -> Iterator[Typed]:
    return (Typed(operator, operand.name, kinds) for operand in operands if isinstance(operand, Placeholder))


def check_types(operands: tuple[Typed, ...], values: Values) -> None:
    """Refuse operands of types that an operator does not take, as DynamoDB does before it reads an item.

    Raises:
        ServiceError: naming operator and type.
    """
    for operand in operands:
        value = values[operand.name]
        if kind_of(value) not in operand.kinds:
            raise invalid(
                "Incorrect operand type for operator or function; "
                f"operator or function: {operand.operator}, operand type: {kind_of(value)}"
            )
        if operand.operator == "attribute_type" and not is_type(value.get("S")):
            raise invalid(f"Invalid attribute type name found; type: {value.get('S')}")
        if operand.most is not None and not _ordered(le, value, values[operand.most]):
            raise invalid(
                "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; "
                f"lower bound operand: {value}, upper bound operand: {values[operand.most]}"
            )
