"""Members that a JSONata expression reads, found without running it.

The parser is that of ``jsonata-python``: a port of the reference implementation in pure Python, without dependencies,
maintained, and the engine by which local AWS evaluates. So it is a dependency of the wheel, not of an extra: a check of
money must not depend on what else is installed. Its syntax tree is not a public interface, hence the narrow pin.

Named paths are found: ``$request.a.b``, also through a variable, a filter or a function's parameter.
Computed ones (``$lookup($request, $name)``, ``$request.*``) are not known, and not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from jsonata.jexception import JException
from jsonata.parser import Parser

Path = tuple[str, ...]
"""A variable's name and the members that are read of it: ``("request", "account", "id")``."""

FUNCTIONS: Final = frozenset(
    """
    abs append assert average base64decode base64encode boolean ceil contains count decodeUrl decodeUrlComponent
    distinct each encodeUrl encodeUrlComponent error exists filter floor formatBase formatInteger formatNumber
    fromMillis join keys length lookup lowercase map match max merge millis min not now number pad parseInteger power
    random reduce replace reverse round shuffle sift single sort split spread sqrt string substring substringAfter
    substringBefore sum toMillis trim type uppercase zip
    hash parse partition range uuid
    """.split()
)
"""Functions of JSONata 2.0.6, and in the last line those that Step Functions adds. It has no ``$eval``
(docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html)."""

_OF_ITEMS: Final = {"filter": 1, "map": 1, "single": 1, "sort": 2}
"""How many parameters of the function that is given to these are items of what they work on."""
_KEEPS_ITEMS: Final = frozenset({"distinct", "filter", "reverse", "shuffle", "single", "sort"})
TOKEN: Final = re.compile(r"\$\{Token\[[^\]]*\]\}")
"""A value in a text that the deployment fills in."""
_NUMBER_TOKEN: Final = re.compile(r"-1\.88815458\d*e\+289")
"""What the CDK gives for a number of the deployment. In a text it stays that number: nothing fills it in."""
_BROKEN: Final = (
    JException,
    re.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of the parser for a text that is not JSONata: its own, or that of an unexpected line."""


class BadExpressionError(Exception):
    """An expression cannot work; the message has the reason, and ``remedy`` the correction."""

    def __init__(self, wrong: str, remedy: str) -> None:
        super().__init__(wrong)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Reads:
    """Paths that an expression reads.

    Attributes:
        paths: every path of which a member is read, or the whole value.
        value: the path whose value the expression is, or items of it; None if it is computed.
        functions: names of JSONata's functions that it calls.
        levels: how deep it nests. Each operator of a chain is a level.
    """

    paths: frozenset[Path]
    value: Path | None
    functions: frozenset[str]
    levels: int


def reads_of(text: str, names: Mapping[str, Path | None]) -> Reads:
    """Parse an expression and find what it reads.

    Args:
        text: JSONata, without ``{% %}``.
        names: variables that it may read, and their values; None: something computed.

    Raises:
        BadExpressionError: if it is not JSONata, or reads an unknown variable, function or member.
    """
    if (number := _NUMBER_TOKEN.search(text)) is not None:
        raise BadExpressionError(f"where {number[0]} is a token that nothing resolves in a text", "use value_as_string")
    try:
        # A deployment value is inside a string, or a number: it cannot change what is read.
        tree = Parser().parse(TOKEN.sub("0", text))
    except JException as error:
        raise BadExpressionError(f"which is not JSONata ({error})", "correct it") from None
    except _BROKEN:
        raise BadExpressionError("which is not JSONata", "correct it") from None
    reader = _Reader()
    value = reader.value(tree, _NOWHERE, _Scope(dict(names), None))
    return Reads(frozenset(reader.paths), value, frozenset(reader.functions), reader.levels)


@dataclass(slots=True)
class _Scope:
    """Variables of a block or a function, within those around it."""

    names: dict[str, Path | None]
    outer: _Scope | None = None

    def find(self, name: str) -> Path | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        raise KeyError(name)

    def known(self) -> Iterator[str]:
        yield from self.names
        if self.outer is not None:
            yield from self.outer.known()


_NOWHERE: Final[Path] = ("",)
"""The context at the top: Step Functions gives an expression no input document."""


@dataclass(slots=True)
class _Reader:
    paths: set[Path] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    levels: int = 0
    _level: int = 0

    def value(self, node: Any, context: Path | None, scope: _Scope) -> Path | None:
        """The path that a node's value is, or None if it is computed."""
        found = self._plain(node, context, scope)
        for stage in (*_of(node, "predicate"), *_of(node, "stages")):
            self._stage(stage, found, scope)
        return self._grouped(node, found, scope)

    def _grouped(self, node: Any, found: Path | None, scope: _Scope) -> Path | None:
        group = getattr(node, "group", None)
        if group is None:
            return found
        for pair in group.lhs_object:
            for part in pair:
                self.value(part, found, scope)
        return None

    def _plain(self, node: Any, context: Path | None, scope: _Scope) -> Path | None:
        self._level += 1
        self.levels = max(self.levels, self._level)
        found = self._node(node, context, scope)
        self._level -= 1
        return found

    def _node(self, node: Any, context: Path | None, scope: _Scope) -> Path | None:
        match node.type:
            case "path":
                return self._path(node.steps, context, scope)
            case "variable":
                return self._variable(str(node.value), context, scope)
            case "block":
                return self._block(node.expressions, context, scope)
            case "bind":
                return self._bind(node, context, scope)
            case "function" | "partial":
                return self._call(node, context, scope)
            case "apply":
                return self._apply(node, context, scope)
            case "lambda":
                return self._function(node, (), context, scope)
            case "name" | "wildcard" | "descendant" | "parent":
                return self._member(node, context)
            case "transform":
                for part in (node.pattern, node.update, *([node.delete] if node.delete is not None else [])):
                    self.value(part, None, scope)
                return None
            case _:
                return self._computed(node, context, scope)

    def _path(self, steps: Sequence[Any], context: Path | None, scope: _Scope) -> Path | None:
        for step in steps:
            found = self._plain(step, context, scope) if step.type != "sort" else context
            for term in _of(step, "terms"):
                self.value(term.expression, context, scope)
            focus, index = getattr(step, "focus", None), getattr(step, "index", None)
            if isinstance(focus, str):  # names the items, and leaves the context where it was
                scope.names[focus] = found
            if isinstance(index, str):
                scope.names[index] = None
            for stage in (*_of(step, "predicate"), *_of(step, "stages")):
                self._stage(stage, found, scope)
            found = self._grouped(step, found, scope)
            context = context if isinstance(focus, str) else found
        return context

    def _stage(self, stage: Any, items: Path | None, scope: _Scope) -> None:
        if stage.type == "index":
            scope.names[str(stage.value)] = None
        else:
            self.value(stage.expr, items, scope)

    def _member(self, node: Any, context: Path | None) -> Path | None:
        if context == _NOWHERE:
            raise BadExpressionError(
                f"where {node.value} is a member of nothing", f"begin with a variable, e.g. $request.{node.value}"
            )
        if context is None or node.type != "name":
            return None
        self.paths.add((*context, str(node.value)))
        return (*context, str(node.value))

    def _variable(self, name: str, context: Path | None, scope: _Scope) -> Path | None:
        if name == "$" or (not name and context == _NOWHERE):
            raise BadExpressionError(
                f"where ${name} is nothing: Step Functions gives no input document", "begin with a variable"
            )
        if not name:
            return context
        try:
            found = scope.find(name)
        except KeyError:
            if name in FUNCTIONS:
                self.functions.add(name)
                return None
            raise BadExpressionError(f"where nothing is known of ${name}", _known(name, set(scope.known()))) from None
        if found is not None:
            self.paths.add(found)
        return found

    def _block(self, nodes: Sequence[Any], context: Path | None, scope: _Scope) -> Path | None:
        inner = _Scope({node.lhs.value: None for node in nodes if _defines_function(node)}, scope)
        last: Path | None = None
        for node in nodes:
            last = self.value(node, context, inner)
        return last

    def _bind(self, node: Any, context: Path | None, scope: _Scope) -> Path | None:
        if _defines_function(node):  # which may call itself
            scope.names[str(node.lhs.value)] = None
        found = self.value(node.rhs, context, scope)
        scope.names[str(node.lhs.value)] = found
        return found

    def _call(self, node: Any, context: Path | None, scope: _Scope, first: Sequence[Path | None] = ()) -> Path | None:
        """A call of a function; ``first`` are arguments that come before its own, from ``~>``."""
        name = str(node.procedure.value) if node.procedure.type == "variable" else ""
        self.value(node.procedure, context, scope)
        given: list[Path | None] = [*first]
        for argument in node.arguments or ():
            if argument.type == "lambda" and given and name in _OF_ITEMS:
                given.append(self._function(argument, [given[0]] * _OF_ITEMS[name], context, scope))
            elif argument.type != "operator":  # `?`, the place of a partial application
                given.append(self.value(argument, context, scope))
        return given[0] if given and name in _KEEPS_ITEMS and node.type == "function" else None

    def _apply(self, node: Any, context: Path | None, scope: _Scope) -> Path | None:
        given = self.value(node.lhs, context, scope)
        if node.rhs.type == "function":
            return self._call(node.rhs, context, scope, [given])
        self.value(node.rhs, context, scope)
        return None

    def _function(self, node: Any, given: Sequence[Path | None], context: Path | None, scope: _Scope) -> Path | None:
        names = [str(parameter.value) for parameter in node.arguments or ()]
        known = dict(zip(names, given, strict=False))
        self.value(node.body, context, _Scope({name: known.get(name) for name in names}, scope))
        return None

    def _computed(self, node: Any, context: Path | None, scope: _Scope) -> Path | None:
        """An operator, a constructor, a literal: read are its parts."""
        parts = [getattr(node, name, None) for name in ("lhs", "rhs", "expression", "condition", "then", "_else")]
        pairs = [part for pair in _of(node, "lhs_object") for part in pair]
        for part in (*parts, *_of(node, "expressions"), *pairs):
            if part is not None:
                self.value(part, context, scope)
        return None


def _known(name: str, known: set[str]) -> str:
    meant = get_close_matches(name, sorted(known), 1) or get_close_matches(name, sorted(FUNCTIONS), 1, cutoff=0.8)
    names = ", ".join(f"${one}" for one in sorted(known))
    return f"{f'write ${meant[0]}; ' if meant else ''}known are {names} and JSONata's functions"


def _of(node: Any, name: str) -> Iterable[Any]:
    return getattr(node, name, None) or ()


def _defines_function(node: Any) -> bool:
    return bool(node.type == "bind" and node.rhs.type == "lambda")
