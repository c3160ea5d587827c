"""Griffe's extension that renders docstrings of this project as sections of the API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

_PROMISE = re.compile(r"^(Guaranteed|Not guaranteed): ", re.MULTILINE)
_SESSION = re.compile(r"^Example:$", re.MULTILINE)
_BLOCK = re.compile(r"^Example::$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Name the sections as Griffe and Markdown know them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            text = _PROMISE.sub(r"\n**\1:** ", obj.docstring.value)
            obj.docstring.value = _BLOCK.sub("**Example:**", _SESSION.sub("Examples:", text))
