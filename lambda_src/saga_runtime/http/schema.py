"""Checking a body against the operation's JSON schema (draft 7), once compiled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from saga_runtime.errors import Invalid

Validator = Callable[[Any], None]
_DOMAIN: Final = r"[^@][^@.]*\.[^@]+"
_FORMATS: Final = {
    "email": rf"^[^@.]+(?:\.[^@.]+)*@{_DOMAIN}\Z",
    "idn-email": rf"^[^@]+@{_DOMAIN}\Z",
}
"""Formats for which ``fastjsonschema`` takes a time that grows with the square of a text: seconds for one body."""


def load_validator(file: Path) -> Validator | None:
    """The validator of a schema file; None if there is no such file."""
    return compile_validator(json.loads(file.read_text("utf-8"))) if file.is_file() else None


def compile_validator(schema: Any) -> Validator:
    """A function that refuses what the schema refuses.

    Raises:
        ValueError: if the schema itself is not one.
    """
    import fastjsonschema

    try:
        check = fastjsonschema.compile(schema, formats=_FORMATS, use_default=False)
    except fastjsonschema.JsonSchemaDefinitionException as error:
        raise ValueError(f"not a JSON schema: {error}") from error

    def validate(value: Any) -> None:
        try:
            check(_with_floats(value))
        except fastjsonschema.JsonSchemaValueException as error:
            raise Invalid(error.message) from None
        except RecursionError:
            raise Invalid("the JSON value nests too deep") from None
        except ArithmeticError:
            raise Invalid("a number is out of range") from None

    return validate


def _with_floats(value: Any) -> Any:
    """The value as the compiled schema can compare it: its own numbers are floats, and 1.0 is the integer 1.

    Only for the comparison. A fraction that a float would change is refused: it could slip past a bound.
    """
    if isinstance(value, Decimal):
        number = float(value)
        if Decimal(repr(number)) != value:
            raise Invalid(f"a number has too many digits: {value}")
        return number
    if isinstance(value, Mapping):
        return {name: _with_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return value
