"""DynamoDB's condition and update expressions, as far as this project uses them.

``test_fakes_keep_their_contracts`` holds it against moto. Like DynamoDB it refuses placeholders that are not defined
and definitions that are not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

Value = Mapping[str, Any]
Item = dict[str, Any]
Names = Mapping[str, str]
Values = Mapping[str, Value]
Node = Callable[[Mapping[str, Any], Names, Values], bool]

_TOKEN = re.compile(r"\s*(<=|>=|[=<>(),]|[#:][A-Za-z0-9_]+|[A-Za-z_]+)")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


class BadExpression(Exception):
    """DynamoDB would answer with a ValidationException."""


def holds(condition: str | None, item: Mapping[str, Any] | None, names: Names, values: Values) -> bool:
    """True if an item (None: no item) meets a condition."""
    return condition is None or _parsed(condition)(item or {}, names, values)


def updated(update: str, item: Mapping[str, Any], names: Names, values: Values) -> Item:
    """The item after ``SET #a = :a, #b = if_not_exists(#b, :b), #c = #c - :c, … ADD #d :d, … REMOVE #e, …``."""
    parsed = re.fullmatch(r"(?:SET (?P<set>.+?))?\s*(?:ADD (?P<add>.+?))?\s*(?:REMOVE (?P<remove>.+))?", update)
    if parsed is None:
        raise BadExpression(update)
    after = dict(item)
    for assignment in filter(None, re.split(r",(?![^(]*\))", parsed["set"] or "")):
        path, _, value = assignment.partition("=")
        after[_name(path.strip(), names)] = _assigned(value.strip(), item, names, values)
    for addition in filter(None, (parsed["add"] or "").split(",")):
        path, operand = addition.split()
        name = _name(path, names)
        after[name] = _sum(item.get(name, {"N": "0"}), _value(operand, values))
    for path in filter(None, (parsed["remove"] or "").split(",")):
        after.pop(_name(path.strip(), names), None)
    return after


def _assigned(value: str, item: Mapping[str, Any], names: Names, values: Values) -> Value:
    unless = re.fullmatch(r"if_not_exists\((#\w+), (:\w+)\)", value)
    change = re.fullmatch(r"(#\w+) ([+-]) (:\w+)", value)
    if change is not None:
        return _sum(item[_name(change[1], names)], _value(change[3], values), sign=-1 if change[2] == "-" else 1)
    if unless is None:
        return _value(value, values)
    there: Value | None = item.get(_name(unless[1], names))
    return there if there is not None else _value(unless[2], values)


def _sum(there: Value, operand: Value, *, sign: int = 1) -> Value:
    return {"N": str(Decimal(there["N"]) + sign * Decimal(operand["N"]))}


def check_placeholders(expressions: list[str | None], names: Names, values: Values) -> None:
    """Refuse what is undefined and what is unused."""
    used = {token for text in expressions if text for token in re.findall(r"[#:][A-Za-z0-9_]+", text)}
    defined = {*names, *values}
    if used != defined:
        raise BadExpression(f"undefined: {sorted(used - defined)}, unused: {sorted(defined - used)}")


def _name(token: str, names: Names) -> str:
    if token not in names:
        raise BadExpression(f"a path must be a defined name, got {token!r}")
    return names[token]


def _value(token: str, values: Values) -> Value:
    if token not in values:
        raise BadExpression(f"an operand must be a defined value, got {token!r}")
    return values[token]


@lru_cache(maxsize=256)
def _parsed(text: str) -> Node:
    tokens = _tokens(text)
    node, rest = _or(tokens)
    if rest:
        raise BadExpression(f"{text!r}: left over {rest}")
    return node


def _tokens(text: str) -> tuple[str, ...]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpression(f"{text!r} at {at}")
        tokens.append(match[1])
        at = match.end()
    return tuple(tokens)


Parsed = tuple[Node, tuple[str, ...]]


def _or(tokens: tuple[str, ...]) -> Parsed:
    left, rest = _and(tokens)
    while rest[:1] == ("OR",):
        right, rest = _and(rest[1:])
        left = _either(left, right)
    return left, rest


def _either(left: Node, right: Node) -> Node:
    return lambda item, names, values: left(item, names, values) or right(item, names, values)


def _and(tokens: tuple[str, ...]) -> Parsed:
    left, rest = _not(tokens)
    while rest[:1] == ("AND",):
        right, rest = _not(rest[1:])
        left = _both(left, right)
    return left, rest


def _both(left: Node, right: Node) -> Node:
    return lambda item, names, values: left(item, names, values) and right(item, names, values)


def _not(tokens: tuple[str, ...]) -> Parsed:
    if tokens[:1] == ("NOT",):
        inner, rest = _not(tokens[1:])
        return (lambda item, names, values: not inner(item, names, values)), rest
    return _primary(tokens)


def _primary(tokens: tuple[str, ...]) -> Parsed:
    head = tokens[0]
    if head == "(":
        inner, rest = _or(tokens[1:])
        return inner, _expect(")", rest)
    if head in {"attribute_exists", "attribute_not_exists"}:
        path = _expect("(", tokens[1:])[0]
        wanted = head == "attribute_exists"
        return (lambda item, names, _: (_name(path, names) in item) is wanted), _expect(")", tokens[3:])
    if tokens[1] == "IN":
        rest = _expect("(", tokens[2:])
        operands = [rest[0]]
        while rest[1] == ",":
            rest = rest[2:]
            operands.append(rest[0])
        return _any_of([_comparison(head, "=", operand) for operand in operands]), _expect(")", rest[1:])
    return _comparison(head, tokens[1], tokens[2]), tokens[3:]


def _any_of(nodes: list[Node]) -> Node:
    return lambda item, names, values: any(node(item, names, values) for node in nodes)


def _comparison(path: str, operator: str, operand: str) -> Node:
    if operator not in _COMPARE:
        raise BadExpression(f"not an operator: {operator!r}")

    def compare(item: Mapping[str, Any], names: Names, values: Values) -> bool:
        left, right = item.get(_name(path, names)), _value(operand, values)
        if left is None or set(left) != set(right):
            return False
        return _COMPARE[operator](_plain(left), _plain(right))

    return compare


def _plain(value: Value) -> Any:
    ((kind, raw),) = value.items()
    return Decimal(raw) if kind == "N" else raw


def _expect(token: str, tokens: tuple[str, ...]) -> tuple[str, ...]:
    if tokens[:1] != (token,):
        raise BadExpression(f"expected {token!r}, got {tokens[:1]}")
    return tokens[1:]
