"""Placeholders of one request's expressions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Placeholders:
    """Names and values of one request: a placeholder per attribute, and one per value."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def name(self, attribute: str) -> str:
        """The placeholder of an attribute."""
        return self._names.setdefault(attribute, f"#{len(self._names)}")

    def value(self, value: Mapping[str, Any]) -> str:
        """A placeholder of a typed value."""
        placeholder = f":{len(self._values)}"
        self._values[placeholder] = value
        return placeholder

    def members(self) -> dict[str, Any]:
        """Members of the request; it has no values if none was named."""
        names = {placeholder: attribute for attribute, placeholder in self._names.items()}
        values = {"ExpressionAttributeValues": self._values} if self._values else {}
        return {"ExpressionAttributeNames": names, **values}
