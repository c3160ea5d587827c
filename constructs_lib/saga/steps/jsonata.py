"""JSONata expressions as texts: in fields of states, and the outputs that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OUTPUTS: Final = re.compile(r"\$outputs\b(?:\s*\.\s*([A-Z][A-Za-z0-9]*))?")

MEMBERS: Final = r"((?:\s*\.\s*(?:[^\W\d]\w*|`[^`]*`))*)"
"""Pattern of members of a variable, one inside of the other."""
_MEMBER: Final = re.compile(r"\.\s*(?:([^\W\d]\w*)|`([^`]*)`)")

CHANGING: Final = frozenset({"millis", "now", "random", "shuffle", "uuid"})
"""Functions that give another value each time."""

Path = tuple[str, ...]
"""Names of members, from the outermost inwards; an array on the path represents all its elements."""


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


def members_of(text: str) -> Path:
    """The names that ``MEMBERS`` has found."""
    return tuple(plain or quoted for plain, quoted in _MEMBER.findall(text))


def request_path(jsonata: str) -> Path | None:
    """The path that an expression is, if it is one of the request and nothing else."""
    found = re.fullmatch(r"\$request" + MEMBERS, jsonata.strip())
    return members_of(found[1]) if found else None


def outputs_named(texts: Iterable[str], steps: Iterable[str]) -> frozenset[str]:
    """Names of the steps whose outputs an expression names, in whole or in part."""
    known = frozenset(steps)
    found: set[str] = set()
    for text in texts:
        for match in OUTPUTS.finditer(text):
            found |= {match.group(1)} if match.group(1) in known else known
    return frozenset(found)


def sendable_json(text: str) -> str:
    """Expression of a JSON text with those characters escaped that SQS refuses, and JSON does not.

    Args:
        text: expression of the text.
    """
    for character in (r"\uFFFE", r"\uFFFF"):
        text = f'$replace({text}, "{character}", "\\{character}")'
    return text


def message_of(message: str | None, default: str) -> str:
    """The text of a message, which SQS refuses if it is empty.

    Args:
        message: expression of its body, a text or a value; None: the default document.
        default: expression of the document that is sent without one, or if that is missing or empty.
    """
    if message is None:
        return f"$string({default})"
    return f'($m := ({message}); $exists($m) and $m != "" ? $string($m) : $string({default}))'
