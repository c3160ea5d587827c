"""The items of a map, each under a key of its own."""

from __future__ import annotations

from constructs_lib.saga.asl.plan import CompiledGroup
from constructs_lib.saga.asl.states import REQUEST


def items_of(group: CompiledGroup, known: str, *, strict: bool) -> str:
    """A map's items as an array of keys and values.

    Strictly, bad items are an error: nothing has happened yet. On the way back they are none: with bad items the map
    never began.
    """
    bad = '$error("the items of the map are not an array of distinct keys within its limit")' if strict else "[]"
    outputs = "" if known == "$outputs" else f" $outputs := {known};"
    return (
        # In brackets of their own: an array that is written out would become one item of another array.
        f"($request := $parse({REQUEST});{outputs} $all := [({group.items})];"
        f' $keyed := [$map($all, function($item) {{ {{"key": $string({group.key}), "value": $item}} }})];'
        f" $good := $count($keyed) <= {group.max_items} and $count($distinct($keyed.key)) = $count($keyed)"
        # Not an anchored match: whether "$" also matches before a newline differs between engines.
        " and $count($keyed[$length(key) > 0 and $length(key) <= 64 and"
        " $not($contains(key, /[^A-Za-z0-9._:\\/@+=,-]/))]) = $count($keyed);"
        f" $good ? $keyed : {bad})"
    )
