"""Checks of the writes of a ``Step.dynamodb``: entries of ``TransactItems``, as DynamoDB takes them.

DynamoDB refuses a malformed write each time, and a compensation that is refused parks its saga: so it is refused when
it is declared. The value of an expression, a text in ``{% %}``, is not known then, and not checked.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aws_cdk import Token

from constructs_lib.saga.steps.jsonata import CHANGING, is_expression
from saga_runtime.protocol import MAX_TRANSACT_ITEMS

_NEEDED: Final = {
    "ConditionCheck": {"Key", "ConditionExpression"},
    "Delete": {"Key"},
    "Put": {"Item"},
    "Update": {"Key", "UpdateExpression"},
}
"""Members that each has to have."""
_MEMBERS: Final = {
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValuesOnConditionCheckFailure",
}
"""Members that each may have."""
_VALUES: Final = ("Key", "Item", "ExpressionAttributeValues")
"""Members that map names to attribute values."""
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_CHANCE: Final = re.compile(rf"\$(?:{'|'.join(sorted(CHANGING))})\b")


def require_writes(step: str, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse writes that DynamoDB would refuse.

    Args:
        step: name of the step.
        name: name of the argument.
        entries: its value.

    Raises:
        ValueError: if there are too many, one is malformed, or two are of one item.
    """
    if len(entries) > MAX_TRANSACT_ITEMS - 1:
        raise ValueError(
            f"{name} of step {step} may have {MAX_TRANSACT_ITEMS - 1} entries in addition to the log row, "
            f"got {len(entries)}; split the step"
        )
    for index, entry in enumerate(entries):
        _require_write(f"{name}[{index}]", f"of step {step}", entry)
    _require_different_items(f"{name} of step {step}", entries)


def _require_write(name: str, of: str, entry: Mapping[str, Any]) -> None:
    if len(entry) != 1 or not _NEEDED.keys() >= entry.keys():
        known = list(_NEEDED)
        raise ValueError(f"{name} {of} must have one of {known}, got {sorted(entry)}; write one action per entry")
    ((action, fields),) = entry.items()
    name = f"{name}[{action!r}]"
    if not isinstance(fields, Mapping):
        raise ValueError(f"{name} {of} must be a dict, got {fields!r}; pass a dict")
    if "TableName" in fields:
        raise ValueError(f"{name} {of} must not name a table, got {fields['TableName']!r}; remove TableName")
    if missing := sorted(_NEEDED[action] - fields.keys()):
        raise ValueError(f"{name} {of} must have {missing}, got {sorted(fields)}; add them")
    if unknown := sorted(fields.keys() - _NEEDED[action] - _MEMBERS):
        raise ValueError(f"{name} {of} must have members that DynamoDB knows, got {unknown}; remove them")
    for member in _VALUES:
        if member not in fields or _is_expression(fields[member]):
            continue
        values = fields[member]
        if not isinstance(values, Mapping) or not values:
            raise ValueError(f"{name}[{member!r}] {of} must be a dict of attribute values, got {values!r}; pass one")
        for key, value in values.items():
            _require_value(f"{name}[{member!r}][{key!r}]", of, value)


def _require_value(name: str, of: str, value: object) -> None:
    """Refuse what is not an attribute value: ``{"N": 1.5}`` for ``{"N": "1.5"}``, or a bare text."""
    if _is_expression(value):
        return
    if not isinstance(value, Mapping) or len(value) != 1 or not _TYPES.keys() >= value.keys():
        example = '{"S": "text"}'
        raise ValueError(f"{name} {of} must be an attribute value, got {value!r}; write one type, like {example}")
    ((kind, content),) = value.items()
    if _is_expression(content):
        return
    condition, fits = _TYPES[kind]
    if not fits(content):
        raise ValueError(f"{name}[{kind!r}] {of} must be {condition}, got {content!r}; write it so, or in {{% %}}")
    if kind == "M":
        for key, inner in content.items():
            _require_value(f"{name}['M'][{key!r}]", of, inner)
    if kind == "L":
        for index, inner in enumerate(content):
            _require_value(f"{name}['L'][{index}]", of, inner)


def _require_different_items(name: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse two actions on one item: DynamoDB refuses the transaction. Two expressions of one text give one key."""
    keys = [fields["Key"] for entry in entries for fields in entry.values() if isinstance(fields.get("Key"), Mapping)]
    attributes = set(keys[0]) if keys else set()
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        ((_, fields),) = entry.items()
        item = fields.get("Key", fields.get("Item"))
        if not isinstance(item, Mapping) or not attributes <= item.keys():
            continue
        key = repr(sorted((attribute, item[attribute]) for attribute in attributes or item))
        if _CHANCE.search(key) is None and key in seen:
            raise ValueError(
                f"{name} must be of different items, got {seen[key]} and {index} of one; write both in one Update"
            )
        seen[key] = index


def _is_expression(value: object) -> bool:
    return isinstance(value, str) and is_expression(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return _is_expression(value) or Token.is_unresolved(value) or _NUMBER.fullmatch(value) is not None


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_set(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(fits, value))


_TYPES: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "S": ("text", _is_text),
    "N": ("a number as text", _is_number),
    "B": ("text in Base64", _is_text),
    "BOOL": ("True or False", lambda value: isinstance(value, bool)),
    "NULL": ("True", lambda value: value is True),
    "M": ("a dict of attribute values", lambda value: isinstance(value, Mapping)),
    "L": ("a list of attribute values", _is_list),
    "SS": ("a list of texts", lambda value: _is_set(value, _is_text)),
    "NS": ("a list of numbers as texts", lambda value: _is_set(value, _is_number)),
    "BS": ("a list of texts in Base64", lambda value: _is_set(value, _is_text)),
}
