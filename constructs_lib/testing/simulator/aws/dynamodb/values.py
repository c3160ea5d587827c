"""Attribute values as DynamoDB stores, compares and measures them.

A value is what travels: ``{"S": "text"}``. Numbers have 38 digits; what is stored is written without an exponent and
without zeros that mean nothing, as DynamoDB returns it.

Sources: the developer guide's "Supported data types and naming rules" and "Item sizes and formats".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException, Inexact, localcontext
from functools import lru_cache
from typing import Any, Final

from constructs_lib.testing.simulator.errors import invalid

Value = Mapping[str, Any]
Item = dict[str, dict[str, Any]]

MOST_ITEM_BYTES: Final = 409_600
_DIGITS: Final = 38
_PLAIN: Final = re.compile(r"0|-?[1-9][0-9]{0,37}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST: Final = Decimal("9.9999999999999999999999999999999999999E+125")
_SMALLEST: Final = Decimal("1E-130")
_EXACT: Final = Context(prec=_DIGITS, traps=[Inexact], Emax=200, Emin=-200)
_MOST_DEPTH: Final = 32
_TYPES: Final = frozenset({"S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M"})


@lru_cache(maxsize=4096)
def number(text: str) -> Decimal | int:
    """Parse a number; whole numbers as ``int``, which compare and add more quickly.

    Raises:
        ServiceError: if it is not a number, or has more digits or another magnitude than DynamoDB stores.
    """
    if _PLAIN.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    value = Decimal(text)
    return _checked(value)


def _checked(value: Decimal) -> Decimal | int:
    try:
        exact = _EXACT.plus(value).normalize(_EXACT)
    except DecimalException:
        raise invalid("Attempting to store more than 38 significant digits in a Number") from None
    if exact and abs(exact) > _LARGEST:
        raise invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
    if exact and abs(exact) < _SMALLEST:
        raise invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
    return exact if exact.as_tuple().exponent != 0 else int(exact)


def number_text(value: Decimal | int) -> str:
    """The text of a number as DynamoDB returns it.

    Raises:
        ServiceError: if it has more than 38 digits.
    """
    if isinstance(value, int):
        if -(10**_DIGITS) < value < 10**_DIGITS:
            return str(value)
        value = Decimal(value)
    checked = _checked(value)
    return str(checked) if isinstance(checked, int) else format(checked, "f")


def added(left: str, right: str, *, sign: int = 1) -> str:
    """The sum of two numbers, or their difference for ``sign=-1``."""
    a, b = number(left), number(right)
    if isinstance(a, int) and isinstance(b, int):
        return number_text(a + sign * b)
    with localcontext(Context(prec=300)):
        return number_text(Decimal(a) + sign * Decimal(b))


def kind_of(value: Value) -> str:
    """Type of a value: the one member that it has."""
    for kind in value:
        return kind
    raise invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")


def stored(value: Any, depth: int = 0) -> dict[str, Any]:
    """A copy of a value as it is stored: checked, its numbers in their one spelling.

    Raises:
        ServiceError: if DynamoDB does not take it.
    """
    if (type(value) is not dict and not isinstance(value, Mapping)) or len(value) != 1:
        raise invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the ...")
    if depth > _MOST_DEPTH:
        raise invalid("Nesting Levels have exceeded supported limits: Attributes have nested more than 32 levels")
    for kind, held in value.items():
        if kind == "S":
            return {"S": held if type(held) is str else _plain(held, "S must be a text")}
        if kind == "N":
            return {"N": _number(held)}
        return {kind: _STORED[kind](held, depth)} if kind in _STORED else _unknown(kind)
    raise AssertionError  # a mapping of one member has a first one


def _plain(held: Any, rule: str) -> str:
    """The text itself; of a member of a ``StrEnum``, what boto3 sends."""
    if not isinstance(held, str):
        raise invalid(f"Type mismatch: {rule}, got {type(held).__name__}")
    return str(held)


def _unknown(kind: str) -> dict[str, Any]:
    raise invalid(f"Supplied AttributeValue has an unknown datatype: {kind}")


def _number(held: Any) -> str:
    held = _plain(held, "N must be a text")
    return held if _PLAIN.fullmatch(held) else number_text(number(held))


def _flag(held: Any, _depth: int) -> bool:
    if type(held) is not bool:
        raise invalid("Type mismatch: BOOL must be a Boolean")
    return held


def _null(held: Any, _depth: int) -> bool:
    if held is not True:
        raise invalid(
            "One or more parameter values were invalid: Null attribute value types must have the value of true"
        )
    return True


def _list(held: Any, depth: int) -> list[dict[str, Any]]:
    return [stored(element, depth + 1) for element in held]


def _map(held: Any, depth: int) -> dict[str, dict[str, Any]]:
    return {str(name): stored(element, depth + 1) for name, element in held.items()}


def _bytes(held: Any, _depth: int = 0) -> bytes:
    if not isinstance(held, bytes | bytearray):
        raw = getattr(held, "value", held)  # boto3's Binary
        if not isinstance(raw, bytes | bytearray):
            raise invalid(f"Type mismatch: B must be bytes, got {type(held).__name__}")
        return bytes(raw)
    return bytes(held)


def _set_of(spell: Callable[[Any], Any]) -> Callable[[Any, int], list[Any]]:
    def check(held: Any, _depth: int) -> list[Any]:
        members = [spell(member) for member in held]
        if not members:
            raise invalid("One or more parameter values were invalid: An string set  may not be empty")
        if len(set(members)) != len(members):
            raise invalid("One or more parameter values were invalid: Input collection contains duplicates.")
        return members

    return check


def _text(held: Any) -> str:
    return _plain(held, "SS must hold texts")


_STORED: Final[dict[str, Callable[[Any, int], Any]]] = {
    "B": _bytes,
    "BOOL": _flag,
    "NULL": _null,
    "L": _list,
    "M": _map,
    "SS": _set_of(_text),
    "NS": _set_of(_number),
    "BS": _set_of(_bytes),
}


def copied(value: Value) -> dict[str, Any]:
    """A copy of a stored value that its reader may change."""
    for kind, held in value.items():
        if kind == "M":
            return {"M": {name: copied(element) for name, element in held.items()}}
        if kind == "L":
            return {"L": [copied(element) for element in held]}
        if kind in ("SS", "NS", "BS"):
            return {kind: list(held)}
    return dict(value)


def copied_item(item: Mapping[str, Value]) -> Item:
    """A copy of a stored item that its reader may change."""
    return {name: dict(value) if "S" in value or "N" in value else copied(value) for name, value in item.items()}


def equal(left: Value, right: Value) -> bool:
    """Test whether two stored values are the same: numbers by their value, sets in any order."""
    kind = kind_of(left)
    if kind != kind_of(right):
        return False
    a, b = left[kind], right[kind]
    if kind == "N":
        return number(a) == number(b)
    if kind == "L":
        return len(a) == len(b) and all(map(equal, a, b))
    if kind == "M":
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)
    if kind == "NS":
        return {number(member) for member in a} == {number(member) for member in b}
    if kind in ("SS", "BS"):
        return set(a) == set(b)
    return bool(a == b)


def ordered(value: Value) -> Any:
    """Return the key that orders values of one type; None: values of its type have no order."""
    for kind, held in value.items():
        if kind == "N":
            return number(held)
        if kind in ("S", "B"):
            return held
    return None


def size_of(value: Value) -> int:
    """Bytes of a stored value, its name not counted."""
    for kind, held in value.items():
        match kind:
            case "S":
                return len(held) if held.isascii() else len(held.encode())
            case "N":
                return number_size(held)
            case "B":
                return len(held)
            case "BOOL" | "NULL":
                return 1
            case "SS":
                return sum(len(member.encode()) for member in held)
            case "NS":
                return sum(map(number_size, held))
            case "BS":
                return sum(map(len, held))
            case "L":
                return 3 + sum(1 + size_of(member) for member in held)
            case "M":
                return 3 + sum(1 + len(name.encode()) + size_of(member) for name, member in held.items())
    raise AssertionError(f"no value that was stored: {value!r}")


@lru_cache(maxsize=4096)
def number_size(text: str) -> int:
    """About one byte for two significant digits, and one more."""
    digits = len(text.lstrip("-0.").replace(".", "").rstrip("0")) or 1
    return (digits + 1) // 2 + 1 + text.startswith("-")


def item_size(item: Mapping[str, Value]) -> int:
    """Bytes of an item."""
    size = 0
    for name, value in item.items():
        for kind, held in value.items():
            if kind == "S" and held.isascii():
                size += len(name) + len(held)
            elif kind == "N":
                size += len(name) + number_size(held)
            else:
                size += len(name) + size_of(value)
    return size


def stored_item(item: Mapping[str, Any]) -> Item:
    """A copy of an item as it is stored.

    Raises:
        ServiceError: if DynamoDB does not take one of its values.
    """
    return {
        name: {"S": value["S"]}
        if type(value) is dict and len(value) == 1 and type(value.get("S")) is str
        else stored(value)
        for name, value in item.items()
    }


def is_type(kind: object) -> bool:
    """Test whether a text names a type of values."""
    return kind in _TYPES
