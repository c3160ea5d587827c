"""Arguments of conditional writes: expressions, and what their placeholders mean. Pure: data in, data out.

One convention makes them short: ``#name`` is the attribute ``name``, and ``:name`` the value that was given by that
name. A condition is a text, so that it can be read, compared and removed by a test.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

Attribute = TypeVar("Attribute", bound=str)
Value = Mapping[str, Any]
"""A typed attribute value: ``{"N": "3"}``."""
Arguments = dict[str, Any]

RETURNS_ITEM: Final = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
"""Next to a condition: its refusal contains the existing item."""
_NAME: Final = re.compile(r"#(\w+)")


def when(condition: str, **values: Value) -> Arguments:
    """Build the arguments of a condition: those of a put, a delete or a condition check, next to its item or key.

    Args:
        condition: the condition.
        values: values of its placeholders.
    """
    arguments: Arguments = {"ConditionExpression": condition, "ExpressionAttributeNames": names_in(condition)}
    if values:
        arguments["ExpressionAttributeValues"] = _placed(values)
    return arguments


def update(
    condition: Arguments,
    sets: Mapping[Attribute, Value | str] | None = None,
    *,
    adds: Mapping[Attribute, Value] | None = None,
    removes: Collection[str] = (),
    values: Mapping[str, Value] | None = None,
) -> Arguments:
    """Build the arguments of an update, next to its key.

    Args:
        condition: from ``when``; empty: none. It may use ``:name`` of an attribute that is set or added, too.
        sets: by attribute, its new value; or a text, an expression: ``"#balance - :amount"``.
        adds: by attribute, the number to add; an absent one is 0.
        removes: attributes to remove.
        values: values of further placeholders.

    Raises:
        ValueError: if two values have one placeholder, or nothing is changed.
    """
    clauses: list[str] = []
    given: list[tuple[str, Value]] = list(condition.get("ExpressionAttributeValues", {}).items())
    if sets:
        assigned = []
        for name, value in sets.items():
            # Added, not formatted: to format a member of an enumeration takes ten times as long.
            if isinstance(value, str):
                assigned.append("#" + name + " = " + value)
            else:
                assigned.append("#" + name + " = :" + name)
                given.append((":" + name, value))
        clauses.append("SET " + ", ".join(assigned))
    if adds:
        clauses.append("ADD " + ", ".join(["#" + name + " :" + name for name in adds]))
        given += _placed(adds).items()
    if removes:
        clauses.append("REMOVE " + ", ".join(["#" + name for name in removes]))
    if not clauses:
        raise ValueError("an update must change an attribute, got none; check the condition instead")
    if values:
        given += _placed(values).items()
    placed = dict(given)
    if len(placed) < len(given):
        twice = sorted({name for name, _ in given if [one for one, _ in given].count(name) > 1})
        raise ValueError(f"placeholders must have one value each, got {twice} twice")
    expression = " ".join(clauses)
    arguments = {
        **condition,
        "UpdateExpression": expression,
        "ExpressionAttributeNames": {**condition.get("ExpressionAttributeNames", {}), **_names_in(expression)},
    }
    if placed:
        arguments["ExpressionAttributeValues"] = placed
    return arguments


def _placed(values: Mapping[Attribute, Value]) -> dict[str, Value]:
    return {":" + name: value for name, value in values.items()}


def names_in(expression: str) -> dict[str, str]:
    """Attributes by their placeholders in an expression."""
    return dict(_names_in(expression))


@lru_cache(maxsize=512)
def _names_in(expression: str) -> Mapping[str, str]:
    return {f"#{name}": name for name in _NAME.findall(expression)}
