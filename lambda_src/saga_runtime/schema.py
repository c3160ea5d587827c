"""Checking a body against the operation's JSON schema (draft 7), once compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saga_runtime.errors import Invalid

Validator = Callable[[Any], None]


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
        check = fastjsonschema.compile(schema, use_default=False)
    except fastjsonschema.JsonSchemaDefinitionException as error:
        raise ValueError(f"not a JSON schema: {error}") from error

    def validate(value: Any) -> None:
        try:
            check(value)
        except fastjsonschema.JsonSchemaValueException as error:
            raise Invalid(error.message) from None

    return validate
