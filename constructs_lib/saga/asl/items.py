"""The items of a map, each under a key of its own."""

from __future__ import annotations

import re
from typing import Final

from constructs_lib.saga.asl.plan import CompiledGroup, State
from constructs_lib.saga.asl.states import REQUEST
from constructs_lib.saga.steps.jsonata import MEMBERS, expression, request_path
from saga_runtime.protocol import ITEM_MEMBER, CallField

_ITEM: Final = "$states.context.Map.Item"
ITEM_KEY: Final = f"{_ITEM}.Value.key"
"""Expression of the key of the item that a map's step works on."""


def item_fields(group: CompiledGroup) -> State:
    """Fields of a call that identify its item, with every digit of the request.

    An item of a list in the request is identified by its index. Any other is written as JSON: its numbers have no more
    digits than JSONata keeps, because the gatekeeper refuses longer ones.
    """
    items, _ = group.items_and_key
    path = request_path(items)
    key: State = {CallField.ITEM_KEY: expression(ITEM_KEY)}
    if path is not None:
        return {
            **key,
            CallField.ITEM_PATH: list(path),
            CallField.ITEM_INDEX: expression(f"{_ITEM}.Index"),
        }
    return {**key, CallField.ITEM: expression(f'$string({{"{ITEM_MEMBER}": {_ITEM}.Value.value}})')}


def may_throw(group: CompiledGroup) -> bool:
    """Test whether the items or their keys are more than paths, whose evaluation cannot fail."""
    items, key = group.items_and_key
    return request_path(items) is None or not re.fullmatch(r"\$item" + MEMBERS, key.strip())


def items_of(group: CompiledGroup, known: str, *, strict: bool) -> str:
    """A map's items as an array of keys, and of values if they are not identified by their index in the request.

    Strictly, invalid items are an error: nothing has happened yet. In a compensation they are not: with invalid items
    the map never began: functions of a definition with a higher limit were outlived.
    """
    items, key = group.items_and_key
    bad = '$error("the items of the map are not an array of distinct keys within its limit")' if strict else "[]"
    outputs = "" if known == "$outputs" else f" $outputs := {known};"
    value = "" if request_path(items) is not None else ', "value": $item'
    return (
        # In brackets of their own: an array that is written out would become one item of another array.
        f"($request := $parse({REQUEST});{outputs} $all := [({items})];"
        f' $keyed := [$map($all, function($item) {{ {{"key": $string({key}){value}}} }})];'
        f" $good := $count($keyed) <= {group.max_items} and $count($distinct($keyed.key)) = $count($keyed)"
        # Not an anchored match: whether "$" also matches before a newline differs between engines.
        " and $count($keyed[$length(key) > 0 and $length(key) <= 64 and"
        " $not($contains(key, /[^A-Za-z0-9._:\\/@+=,-]/))]) = $count($keyed);"
        f" $good ? $keyed : {bad})"
    )
