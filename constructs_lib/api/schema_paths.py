"""True if a JSON schema leaves room for a value at some place. In doubt it does: nothing is refused that could work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_runtime.idempotency.amounts import index_of

_NONE: Final[frozenset[str]] = frozenset()


def may_lead_to(schema: Any, tokens: Sequence[str], kinds: Sequence[str]) -> bool:
    """Test whether a value that the schema allows may have a value of one of these types there.

    Args:
        schema: JSON schema (draft 7).
        tokens: reference tokens of a JSON pointer.
        kinds: types of JSON schema.
    """
    return _Search(schema, tuple(kinds)).may(schema, tuple(tokens), _NONE)


def may_have(schema: Any, members: Sequence[str]) -> bool:
    """Test whether a value that the schema allows may have this member of a member, as JSONata finds it in arrays too.

    Args:
        schema: JSON schema (draft 7).
        members: names, from the outside in.
    """
    kinds = ("array", "boolean", "integer", "null", "number", "object", "string")
    return _Search(schema, kinds, through_arrays=True).may(schema, tuple(members), _NONE)


class _Search:
    """``seen``: references that were followed since the last reference token; following one again yields nothing."""

    def __init__(self, root: Any, kinds: tuple[str, ...], *, through_arrays: bool = False) -> None:
        self._root = root
        self._kinds = kinds
        self._through_arrays = through_arrays

    def may(self, schema: Any, tokens: tuple[str, ...], seen: frozenset[str]) -> bool:
        if schema is False:
            return False
        if not isinstance(schema, Mapping):
            return True
        if "$ref" in schema:  # its siblings are ignored in draft 7
            reference = str(schema["$ref"])
            return reference in seen or self.may(self._referred(reference), tokens, seen | {reference})
        if any(not self.may(part, tokens, seen) for part in schema.get("allOf", ())):
            return False
        for name in ("anyOf", "oneOf"):
            if name in schema and not any(self.may(part, tokens, seen) for part in schema[name]):
                return False
        if not tokens:
            return self._is_allowed(schema, self._kinds)
        if self._through_arrays:
            return self._in_object(schema, tokens) or self._in_items(schema, tokens, seen)
        return self._in_object(schema, tokens) or self._in_array(schema, tokens)

    def _in_object(self, schema: Mapping[str, Any], tokens: tuple[str, ...]) -> bool:
        if not self._is_allowed(schema, ("object",)):
            return False
        name, rest = tokens[0], tokens[1:]
        parts = [schema["properties"][name]] if name in schema.get("properties", {}) else []
        parts += [part for pattern, part in schema.get("patternProperties", {}).items() if _matches(pattern, name)]
        parts = parts or [schema.get("additionalProperties", True)]
        return all(self.may(part, rest, _NONE) for part in parts)

    def _in_array(self, schema: Mapping[str, Any], tokens: tuple[str, ...]) -> bool:
        index = index_of(tokens[0])
        if index is None or not self._is_allowed(schema, ("array",)) or index >= schema.get("maxItems", index + 1):
            return False
        items = schema.get("items", True)
        if isinstance(items, list):
            items = items[index] if index < len(items) else schema.get("additionalItems", True)
        return self.may(items, tokens[1:], _NONE)

    def _in_items(self, schema: Mapping[str, Any], members: tuple[str, ...], seen: frozenset[str]) -> bool:
        if not self._is_allowed(schema, ("array",)):
            return False
        items = schema.get("items", True)
        parts = [*items, schema.get("additionalItems", True)] if isinstance(items, list) else [items]
        return any(self.may(part, members, seen) for part in parts)

    @staticmethod
    def _is_allowed(schema: Mapping[str, Any], kinds: Sequence[str]) -> bool:
        allowed = schema.get("type", kinds)
        return not set([allowed] if isinstance(allowed, str) else allowed).isdisjoint(kinds)

    def _referred(self, reference: str) -> Any:
        """Target of a reference within the schema; of any other, nothing is known."""
        found = self._root
        if reference == "#":
            return found
        if not reference.startswith("#/"):
            return True
        for token in reference[2:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return True
            found = found[name]
        return found


def _matches(pattern: str, name: str) -> bool:
    """As the schema's own expressions do, which are JavaScript's; one that Python cannot read may match."""
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True
