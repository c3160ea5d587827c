"""JSONata expressions as texts: in fields of states, and the outputs that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OUTPUTS: Final = re.compile(r"\$outputs\b(?:\s*\.\s*([A-Z][A-Za-z0-9]*))?")


def expression(jsonata: str) -> str:
    """A JSONata expression as a field's value."""
    return f"{{% {jsonata} %}}"


def bare(text: str) -> str:
    """A JSONata expression without its ``{% %}``, if it has them."""
    text = text.strip()
    return text[2:-2].strip() if is_expression(text) else text


def is_expression(text: str) -> bool:
    """Test whether Step Functions reads a text as JSONata."""
    return text.startswith("{%") and text.endswith("%}")


def outputs_named(texts: Iterable[str], steps: Iterable[str]) -> frozenset[str]:
    """Names of the steps whose outputs an expression names, in whole or in part."""
    known = frozenset(steps)
    found: set[str] = set()
    for text in texts:
        for match in OUTPUTS.finditer(text):
            found |= {match.group(1)} if match.group(1) in known else known
    return frozenset(found)
