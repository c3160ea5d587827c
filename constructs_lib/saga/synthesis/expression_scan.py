"""Requests and outputs that the expressions of a saga read.

What they read must not travel by reference, or they would find nothing. Numbers of a request that they read must fit
JSONata's, which are doubles. Errs on the safe side: an expression that passes members on is taken to read them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.jsonata import MEMBERS, OUTPUTS, Path, members_of, request_path
from saga_runtime.protocol import Env

_REQUEST: Final = re.compile(
    r"\$request\b|\$states\b(?:\s*\.\s*(?:input\b|context\b(?:\s*\.\s*Execution\b(?:\s*\.\s*Input\b)?)?))?"
    r"(?!\s*\.\s*(?!request\b)[^\W\d])"
)
"""The request by its name, or what holds it: not another member of that."""
_ENDS_A_NAME: Final = frozenset(" \t\r\n.,:;?!()[]{}<>=+-*/%&|^~@#'\"")
_PARENT: Final = re.compile(r"\.\s*%")
_BEFORE_A_WHOLE: Final = re.compile(r"(^|:|\$exists\s*\()\s*$")
_AFTER_A_WHOLE: Final = re.compile(r"^\s*($|[,})])")


def texts_of(declared: object) -> Iterator[str]:
    """Yield every text in a user's declaration: steps, groups of steps, routes; other objects are skipped."""
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
    """Test whether an expression reads the request."""
    return any(_REQUEST.search(text) for text in texts)


def request_paths(steps: Iterable[object]) -> tuple[Path, ...]:
    """Paths of the request that expressions of these steps read.

    A map over a path of the request reads no more of its items than their keys: they are taken from the request's text.
    """
    found: set[Path] = set()
    for node in steps:
        read = node
        if isinstance(node, StepGroup) and node.items is not None and (items := request_path(node.items)) is not None:
            read = dataclasses.replace(node, items=None)
            found |= {(*items, *path) for path in _paths("item", node.key or "")}
        for text in texts_of(read):
            found |= _paths("request", text)
            found |= {()} if _REQUEST.search(text.replace("$request", "")) else set()
    return tuple(sorted(path for path in found if not any(path[:n] in found for n in range(len(path)))))


def paths_environment(steps: Iterable[object]) -> dict[str, str]:
    """Environment of a function that starts sagas: which numbers of a request expressions of these steps read."""
    paths = request_paths(steps)
    return {Env.EXPRESSION_PATHS: json.dumps(paths, separators=(",", ":"), ensure_ascii=False)} if paths else {}


def _paths(variable: str, text: str) -> set[Path]:
    """Paths of a variable that an expression reads."""
    if not re.search(rf"\${variable}\b", text):
        return set()
    if _PARENT.search(text):
        return {()}
    found: set[Path] = set()
    for match in re.finditer(rf"\${variable}\b" + MEMBERS, text):
        names, behind = members_of(match[1]), text[match.end() : match.end() + 1]
        # A name of other characters than the usual ones: what is meant is somewhere in what its parent holds.
        whole = not behind or behind in _ENDS_A_NAME
        found.add(names if whole else names[:-1])
    return found


def outputs_looked_into(texts: Iterable[str], steps: Iterable[str]) -> frozenset[str]:
    """Names of the steps whose outputs an expression reads in part.

    A reference to a whole output is not a partial read: ``$outputs``, ``$outputs.Quote`` as a member's value or as the
    whole expression, and ``$exists($outputs.Quote)``.
    """
    known = frozenset(steps)
    found: set[str] = set()
    for text in texts:
        bare = text.strip().removeprefix("{%").removesuffix("%}").strip()
        for match in OUTPUTS.finditer(bare):
            whole = _BEFORE_A_WHOLE.search(bare[: match.start()]) and _AFTER_A_WHOLE.search(bare[match.end() :])
            if not whole:
                # Without a step's name it could be any of them.
                found |= {match.group(1)} if match.group(1) in known else known
    return frozenset(found)
