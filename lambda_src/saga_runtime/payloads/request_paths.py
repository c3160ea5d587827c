"""Paths of a request, as expressions of a state machine follow them. Pure: data in, data out.

A path is the names of members, from the outermost inwards. An array on it represents all its elements, as in JSONata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from saga_runtime.errors import Invalid
from saga_runtime.protocol import MAX_EXPRESSION_DIGITS

Paths = Sequence[Sequence[str]]
"""What each path leads to is meant as a whole."""


class _Sequence(list[Any]):
    """Several values of one path. Unlike an array of the request, one value of it is that value."""


def refuse_inexact(request: Any, paths: Paths) -> None:
    """Refuse a number that an expression would read with other digits.

    Args:
        request: the body, parsed.
        paths: what the expressions read.

    Raises:
        Invalid: naming where the number is, how many digits it has, and the remedy.
    """
    for path in paths:
        for where, number in _numbers(request, tuple(path), "body"):
            digits = _significant(number)
            if digits > MAX_EXPRESSION_DIGITS:
                raise Invalid(
                    f"{where} must have at most {MAX_EXPRESSION_DIGITS} significant digits, got {digits}; "
                    "an expression reads it, so send it as a string"
                )


def items_at(request: Any, path: Sequence[str]) -> list[Any]:
    """Items of a map over this path, in the order in which the state machine counts them."""
    found: list[Any] = list(request) if isinstance(request, list) else [request]
    for number, name in enumerate(path, 1):
        values = [value for parent in found for value in _member(parent, name)]
        if number == len(path) and len(values) == 1 and type(values[0]) is list:
            return list(values[0])
        found = [inner for value in values for inner in (value if isinstance(value, list) else [value])]
    return found


def _member(parent: Any, name: str) -> Iterator[Any]:
    """Values of a name in a value; none if it is missing."""
    if isinstance(parent, Mapping):
        if name in parent:
            yield parent[name]
    elif isinstance(parent, list):
        found = _flat(parent, name)
        if found:
            yield found[0] if len(found) == 1 else found


def _flat(array: Sequence[Any], name: str) -> _Sequence:
    found = _Sequence()
    for element in array:
        if isinstance(element, list):
            found += _flat(element, name)
        elif isinstance(element, Mapping) and name in element:
            value = element[name]
            found += value if isinstance(value, list) else [value]
    return found


def _numbers(value: Any, path: tuple[str, ...], where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from _numbers(element, path, f"{where}[{index}]")
    elif isinstance(value, Mapping):
        for name, member in value.items():
            if not path or name == path[0]:
                yield from _numbers(member, path[1:], f"{where}.{name}")
    elif not path and isinstance(value, int | Decimal) and not isinstance(value, bool):
        yield where, value


def _significant(number: int | Decimal) -> int:
    digits = "".join(str(digit) for digit in Decimal(number).as_tuple().digits)
    return len(digits.strip("0"))
