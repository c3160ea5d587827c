"""Arguments of conditional writes: expressions, and what their placeholders mean. Pure: data in, data out.

One convention makes them short: ``#name`` is the attribute ``name``, and ``:name`` the value that was given by that
name. A condition is a text, so that it can be read, compared and removed by a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
        arguments["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
    return arguments


def update(
    condition: Arguments,
    sets: Mapping[Attribute, Value | str] | None = None,
    *,
    adds: Mapping[Attribute, Value] | None = None,
    removes: Iterable[str] = (),
    values: Mapping[str, Value] | None = None,
) -> Arguments:
    """Build the arguments of an update, next to its key.

    Args:
        condition: from ``when``. It may use ``:name`` of an attribute that is set or added, too.
        sets: by attribute, its new value; or a text, an expression: ``"#balance - :amount"``.
        adds: by attribute, the number to add; an absent one is 0.
        removes: attributes to remove.
        values: values of further placeholders.

    Raises:
        ValueError: if two values have one placeholder, or nothing is changed.
    """
    sets, adds, removes = sets or {}, adds or {}, tuple(removes)
    names = condition["ExpressionAttributeNames"] | {f"#{name}": name for name in (*sets, *adds, *removes)}
    given: dict[str, Value] = {f":{name}": value for name, value in (values or {}).items()}
    assigned: list[str] = []
    for name, value in sets.items():
        if isinstance(value, str):
            names |= names_in(value)
            assigned.append(f"#{name} = {value}")
        else:
            given[f":{name}"] = value
            assigned.append(f"#{name} = :{name}")
    given |= {f":{name}": value for name, value in adds.items()}
    compared: Mapping[str, Value] = condition.get("ExpressionAttributeValues", {})
    if given.keys() & compared.keys():
        raise ValueError(f"placeholders must have one value each, got {sorted(given.keys() & compared.keys())} twice")
    clauses = {
        "SET": assigned,
        "ADD": [f"#{name} :{name}" for name in adds],
        "REMOVE": [f"#{name}" for name in removes],
    }
    expression = " ".join(f"{kind} {', '.join(parts)}" for kind, parts in clauses.items() if parts)
    if not expression:
        raise ValueError("an update must change an attribute, got none; check the condition instead")
    arguments = condition | {"UpdateExpression": expression, "ExpressionAttributeNames": names}
    if given:
        arguments["ExpressionAttributeValues"] = {**given, **compared}
    return arguments


def names_in(expression: str) -> dict[str, str]:
    """Attributes by their placeholders in an expression."""
    return dict(_names_in(expression))


@lru_cache(maxsize=512)
def _names_in(expression: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"#{name}", name) for name in dict.fromkeys(_NAME.findall(expression)))
