"""Check of a JSON schema (draft 7): the first invalid part, and its place.

``fastjsonschema`` names no place, takes ``required: "name"`` for four members, and fetches what a ``$ref`` names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from aws_cdk import Token

from saga_runtime.http.schema import compile_validator
from saga_runtime.protocol import SCHEMA_FILE

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_Wrong = Iterator[tuple[str, str, Any]]
"""Pointer, condition and value of what is wrong."""


def require_schema(name: str, schema: object) -> None:
    """Refuse anything but a JSON schema of draft 7.

    Raises:
        ValueError: naming the place by a JSON pointer, the value and the remedy.
    """
    for pointer, condition, value in _schema("", schema):
        raise ValueError(
            f"{name} must be a JSON schema (draft 7): {pointer or '/'} must be {condition}, got {value!r}; correct it"
        )
    try:
        text = json.dumps(schema)
        compile_validator(json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a JSON schema (draft 7): {error}; correct it") from None
    if Token.is_unresolved(text) or any(Token.is_unresolved(number) for number in _fractions(schema)):
        raise ValueError(
            f"{name} must be known at synth, got a token: no deployment resolves this file; write the value"
        )


def _fractions(value: object) -> Iterator[float]:
    """Numbers that may represent tokens: no integer does, and the CDK's process has no others."""
    if isinstance(value, float) and math.isfinite(value):
        yield value
    elif isinstance(value, Mapping):
        yield from _fractions(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _fractions(item)


def schema_file(schema: Mapping[str, Any] | None) -> dict[str, bytes] | None:
    """The file that holds an operation's schema next to its function's code; None: it has none."""
    if schema is None:
        return None
    return {SCHEMA_FILE: json.dumps(schema, sort_keys=True, separators=(",", ":")).encode("utf-8")}


def _schema(at: str, value: object) -> _Wrong:
    if isinstance(value, bool):
        return
    if not isinstance(value, Mapping):
        yield at, "a schema: an object, true or false", value
        return
    for keyword, inner in value.items():
        if not isinstance(keyword, str):
            yield at, "an object with texts for names", keyword
        elif keyword in _KEYWORDS:
            yield from _KEYWORDS[keyword](f"{at}/{keyword}", inner)
        elif meant := get_close_matches(keyword, _KEYWORDS, 1, cutoff=0.85):
            yield f"{at}/{keyword}", f"a keyword of JSON schema; write {meant[0]}", inner


def _is(condition: str, test: Callable[[Any], bool]) -> Callable[[str, object], _Wrong]:
    def check(at: str, value: object) -> _Wrong:
        if not test(value):
            yield at, condition, value

    return check


def _schemas(at: str, value: Any) -> _Wrong:
    if not _is_list(value) or not value:
        yield at, "a list of at least one schema", value
        return
    for index, part in enumerate(value):
        yield from _schema(f"{at}/{index}", part)


def _schema_or_list(at: str, value: object) -> _Wrong:
    yield from _schemas(at, value) if _is_list(value) else _schema(at, value)


def _named_schemas(at: str, value: object) -> _Wrong:
    if not isinstance(value, Mapping):
        yield at, "an object of schemas by their names", value
        return
    for name, part in value.items():
        yield from _schema(f"{at}/{_token(name)}", part)


def _by_pattern(at: str, value: object) -> _Wrong:
    yield from _named_schemas(at, value)
    for name in value if isinstance(value, Mapping) else ():
        if not _is_pattern(name):
            yield f"{at}/{_token(name)}", "under a regular expression that Python reads", name


def _dependencies(at: str, value: object) -> _Wrong:
    if not isinstance(value, Mapping):
        yield at, "an object of schemas, or of lists of names", value
        return
    for name, part in value.items():
        place = f"{at}/{_token(name)}"
        yield from _names(place, part) if _is_list(part) else _schema(place, part)


def _token(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return _is_list(value) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    return value in _TYPES if isinstance(value, str) else _is_names(value) and bool(value) and set(value) <= {*_TYPES}


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except re.error:
        return False


_names: Final = _is("a list of different names", _is_names)
_number: Final = _is("a number", _is_number)
_count: Final = _is("a whole number of 0 or more", _is_count)
_text: Final = _is("a text", lambda value: isinstance(value, str))
_anything: Final = _is("anything", lambda _: True)
_KEYWORDS: Final[Mapping[str, Callable[[str, object], _Wrong]]] = {
    **dict.fromkeys(("$comment", "$id", "$schema", "description", "format", "title"), _text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("const", "default", "example", "examples", "readOnly", "writeOnly"), _anything),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _number),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"), _count),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _schemas),
    **dict.fromkeys(("additionalItems", "additionalProperties", "contains", "propertyNames"), _schema),
    **dict.fromkeys(("else", "if", "not", "then"), _schema),
    **dict.fromkeys(("definitions", "properties"), _named_schemas),
    "$ref": _is("a reference within the schema, e.g. #/definitions/money", lambda v: str(v).startswith("#")),
    "dependencies": _dependencies,
    "enum": _is("a list of at least one value", lambda value: _is_list(value) and len(value) > 0),
    "items": _schema_or_list,
    "multipleOf": _is("a number above 0", lambda value: _is_number(value) and value > 0),
    "pattern": _is("a regular expression that Python reads", _is_pattern),
    "patternProperties": _by_pattern,
    "required": _names,
    "type": _is(f"one of {', '.join(_TYPES)}, or a list of them", _is_type),
    "uniqueItems": _is("true or false", lambda value: isinstance(value, bool)),
}
