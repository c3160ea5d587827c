"""What the expressions of a saga look into: that must not travel by reference, or they would find nothing.

Erring on the safe side: an expression that passes a request's or an output's members on is taken to look into them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

_REQUEST: Final = re.compile(r"\$request\b")
_OUTPUTS: Final = re.compile(r"\$outputs\b(?:\s*\.\s*([A-Z][A-Za-z0-9]*))?")
_BEFORE_A_WHOLE: Final = re.compile(r"(^|:|\$exists\s*\()\s*$")
_AFTER_A_WHOLE: Final = re.compile(r"^\s*($|[,})])")


def texts_of(declared: object) -> Iterator[str]:
    """Every text in what a user declared: steps, groups of steps, routes; what is no data of ours is passed over."""
    if isinstance(declared, str):
        yield declared
    elif isinstance(declared, Mapping):
        for key, value in declared.items():
            yield from texts_of(key)
            yield from texts_of(value)
    elif isinstance(declared, Sequence):
        for item in declared:
            yield from texts_of(item)
    elif dataclasses.is_dataclass(declared):
        for field in dataclasses.fields(declared):
            yield from texts_of(getattr(declared, field.name))


def looks_into_request(texts: Iterable[str]) -> bool:
    """Whether an expression looks into the request."""
    return any(_REQUEST.search(text) for text in texts)


def outputs_looked_into(texts: Iterable[str], steps: Iterable[str]) -> frozenset[str]:
    """Names of the steps whose outputs an expression looks into.

    Looking at a whole output is no looking into it: ``$outputs``, ``$outputs.Quote`` as a member's value or as the
    whole expression, and ``$exists($outputs.Quote)``.
    """
    known = frozenset(steps)
    found: set[str] = set()
    for text in texts:
        bare = text.strip().removeprefix("{%").removesuffix("%}").strip()
        for match in _OUTPUTS.finditer(bare):
            whole = _BEFORE_A_WHOLE.search(bare[: match.start()]) and _AFTER_A_WHOLE.search(bare[match.end() :])
            if not whole:
                # Without a step's name it could be any of them.
                found |= {match.group(1)} if match.group(1) in known else known
    return frozenset(found)
