"""An invalid JSON schema is refused, with the path of the error."""

from __future__ import annotations

from typing import Any

import pytest

from constructs_lib.api.schema_form import require_schema

TYPES = "one of array, boolean, integer, null, number, object, string, or a list of them"
SCHEMA = "a schema: an object, true or false"

WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([], f"/ must be {SCHEMA}, got []"),
    "a type": ({"type": "strnig"}, f"/type must be {TYPES}, got 'strnig'"),
    "types": ({"type": ["string", "nul"]}, f"/type must be {TYPES}, got ['string', 'nul']"),
    "a class of Python": ({"type": str}, f"/type must be {TYPES}, got <class 'str'>"),
    "a type in a property": (
        {"properties": {"a/b": {"type": "int"}}}, f"/properties/a~1b/type must be {TYPES}, got 'int'",
    ),
    "a type in a definition": (
        {"definitions": {"money": {"properties": {"minor": {"type": "int"}}}}},
        f"/definitions/money/properties/minor/type must be {TYPES}, got 'int'",
    ),
    "a property that is a type": ({"properties": {"a": "string"}}, f"/properties/a must be {SCHEMA}, got 'string'"),
    "a list of properties": (
        {"properties": ["a"]}, "/properties must be an object of schemas by their names, got ['a']",
    ),
    "one required name": ({"required": "name"}, "/required must be a list of different names, got 'name'"),
    "a required name twice": ({"required": ["a", "a"]}, "/required must be a list of different names, got ['a', 'a']"),
    "items": ({"items": {"type": "int"}}, f"/items/type must be {TYPES}, got 'int'"),
    "items in a row": ({"items": [{}, {"type": "int"}]}, f"/items/1/type must be {TYPES}, got 'int'"),
    "an alternative": ({"anyOf": [{}, 3]}, f"/anyOf/1 must be {SCHEMA}, got 3"),
    "no alternative": ({"oneOf": []}, "/oneOf must be a list of at least one schema, got []"),
    "a bound": ({"minimum": "3"}, "/minimum must be a number, got '3'"),
    "a truth": ({"maximum": True}, "/maximum must be a number, got True"),
    "a length": ({"maxLength": -1}, "/maxLength must be a whole number of 0 or more, got -1"),
    "a multiple": ({"multipleOf": 0}, "/multipleOf must be a number above 0, got 0"),
    "a pattern": ({"pattern": "["}, "/pattern must be a regular expression that Python reads, got '['"),
    "a pattern of names": (
        {"patternProperties": {"[": {}}},
        "/patternProperties/[ must be under a regular expression that Python reads, got '['",
    ),
    "no values": ({"enum": []}, "/enum must be a list of at least one value, got []"),
    "unique": ({"uniqueItems": "yes"}, "/uniqueItems must be true or false, got 'yes'"),
    "a dependency": (
        {"dependencies": {"a": ["b", 1]}}, "/dependencies/a must be a list of different names, got ['b', 1]",
    ),
    "a reference elsewhere": (
        {"$ref": "https://example.com/schema"},
        "/$ref must be a reference within the schema, e.g. #/definitions/money, got 'https://example.com/schema'",
    ),
    "a keyword with a typo": (
        {"additionalProprties": False},
        "/additionalProprties must be a keyword of JSON schema; write additionalProperties, got False",
    ),
    "a name that is not text": ({1: {}}, "/ must be an object with texts for names, got 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_schema_is_refused_with_its_path(case: str) -> None:
    schema, message = WRONG[case]

    with pytest.raises(ValueError) as raised:  # noqa: PT011 -- the whole message is compared
        require_schema("schema of operation pay", schema)

    assert str(raised.value) == f"schema of operation pay must be a JSON schema (draft 7): {message}; correct it"


@pytest.mark.parametrize("schema", [{"$ref": "#/definitions/nowhere"}, {"const": {1, 2}}])
def test_errors_that_only_the_validator_finds_are_refused_too(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"^schema must be a JSON schema \(draft 7\): .*; correct it$"):
        require_schema("schema", schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "x-own": 1, "nullable": True, "$comment": "why", "examples": [1]},
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": False},
        {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}, "propertyNames": {"pattern": "^[a-z]+$"}},
        {"items": [{"type": "integer"}], "additionalItems": False, "contains": {"minimum": 1.5}},
    ],
)
def test_a_schema_is_taken(schema: Any) -> None:
    require_schema("schema", schema)
