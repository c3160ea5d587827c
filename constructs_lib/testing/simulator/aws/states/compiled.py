"""JSONata expressions as Python functions, for values of which the result is plain.

An expression is compiled once, from the engine's own syntax tree. Its function handles values of which the engine's
result is beyond doubt. It raises ``UndecidedError`` for every other one: null, an array in a path, a type that a
function would convert, a number that a double does not hold. The engine evaluates the expression then.
``tests/simulator/test_expressions.py`` evaluates every expression of a campaign in both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from jsonata import Jsonata

from constructs_lib.testing.expression_levels import EVALUATION_LEVELS

UNDEFINED: Final = object()
"""The result of an expression that evaluates to nothing."""

Compiled: TypeAlias = Callable[[Any, dict[str, Any]], Any]
"""Function of an input and of variables, ``states`` among them."""
Given: TypeAlias = Mapping[str, Callable[..., Any]]
_EXACT: Final = 2**53
_LEVELS: Final = EVALUATION_LEVELS // 2
"""A member of a path is a level that is not counted here."""


class UndecidedError(Exception):
    """The engine must evaluate the expression."""


class _UnknownError(Exception):
    """The expression has a node that is not compiled."""


def compiled(text: str, given: Given) -> Compiled | None:
    """Compile an expression.

    Args:
        text: the expression.
        given: functions that replace those of the engine, by name.

    Returns:
        Its function, which may return ``UNDEFINED``; None: only the engine evaluates it.
    """
    try:
        return _Compiler(given).node(Jsonata(text).ast)
    except _UnknownError:
        return None


class _Compiler:
    def __init__(self, given: Given) -> None:
        self._given = given
        self._level = 0

    def node(self, tree: Any) -> Compiled:
        """Compile a node of the syntax tree; of one that nests deep the engine counts the levels."""
        self._level += 1
        if self._level > _LEVELS:
            raise _UnknownError
        made = self._made(tree)
        self._level -= 1
        return made

    def _made(self, tree: Any) -> Compiled:
        make = getattr(self, f"_{tree.type}", None)
        marks = ("predicate", "stages", "group", "tuple", "focus", "index", "ancestor", "keep_array")
        if make is None or any(getattr(tree, mark, None) for mark in marks) or getattr(tree, "consarray", False):
            raise _UnknownError
        made: Compiled = make(tree)
        return made

    def _string(self, tree: Any) -> Compiled:
        value = tree.value
        return lambda _input, _variables: value

    def _number(self, tree: Any) -> Compiled:
        return self._string(tree)

    def _value(self, tree: Any) -> Compiled:
        if not isinstance(tree.value, bool):
            raise _UnknownError
        return self._string(tree)

    def _variable(self, tree: Any) -> Compiled:
        name = str(tree.value)
        if not name or name == "$":
            raise _UnknownError

        def variable(_input: Any, variables: dict[str, Any]) -> Any:
            found = variables.get(name, UNDEFINED)
            if found is None:
                raise UndecidedError
            return found

        return variable

    def _path(self, tree: Any) -> Compiled:
        if getattr(tree, "keep_singleton_array", False):
            raise _UnknownError
        first, *steps = tree.steps
        begin = self._name(first) if first.type == "name" else self.node(first)
        follow = tuple(self._name(step) if step.type == "name" else self.node(step) for step in steps)
        if first.type not in ("variable", "name", "block", "function"):
            raise _UnknownError
        if any(step.type != "name" and (step.type, step.value) != ("unary", "{") for step in steps):
            raise _UnknownError

        def path(given: Any, variables: dict[str, Any]) -> Any:
            held = begin(given, variables)
            for step in follow:
                if held is UNDEFINED:
                    return UNDEFINED
                if type(held) is not dict:
                    raise UndecidedError
                held = step(held, variables)
            return held

        return path

    def _name(self, tree: Any) -> Compiled:
        marks = ("predicate", "stages", "group", "tuple", "focus", "index", "ancestor", "keep_array")
        if any(getattr(tree, mark, None) for mark in marks):
            raise _UnknownError
        name = str(tree.value)

        def member(given: Any, _variables: dict[str, Any]) -> Any:
            if type(given) is not dict:
                raise UndecidedError
            found = given.get(name, UNDEFINED)
            if found is None:
                raise UndecidedError
            return found

        return member

    def _unary(self, tree: Any) -> Compiled:
        if tree.value == "[":
            if any(item.type == "unary" and item.value == "[" for item in tree.expressions):
                raise _UnknownError
            items = tuple(self.node(item) for item in tree.expressions)

            def array(given: Any, variables: dict[str, Any]) -> list[Any]:
                found = [item(given, variables) for item in items]
                if any(type(value) is list for value in found):  # they would be flattened
                    raise UndecidedError
                return [value for value in found if value is not UNDEFINED]

            return array
        if tree.value != "{":
            raise _UnknownError
        names = [name.value for name, _ in tree.lhs_object]
        if any(name.type != "string" for name, _ in tree.lhs_object) or len(set(names)) != len(names):
            raise _UnknownError
        members = tuple((name.value, self.node(value)) for name, value in tree.lhs_object)

        def made(given: Any, variables: dict[str, Any]) -> dict[str, Any]:
            found = {name: value(given, variables) for name, value in members}
            return {name: value for name, value in found.items() if value is not UNDEFINED}

        return made

    def _binary(self, tree: Any) -> Compiled:
        operate = _OPERATORS.get(tree.value)
        if operate is None:
            raise _UnknownError
        left, right = self.node(tree.lhs), self.node(tree.rhs)
        return lambda given, variables: operate(left(given, variables), right(given, variables))

    def _condition(self, tree: Any) -> Compiled:
        test, then = self.node(tree.condition), self.node(tree.then)
        otherwise = self.node(tree._else) if tree._else is not None else lambda _given, _variables: UNDEFINED  # noqa: SLF001

        def condition(given: Any, variables: dict[str, Any]) -> Any:
            return (then if _boolean(test(given, variables)) else otherwise)(given, variables)

        return condition

    def _block(self, tree: Any) -> Compiled:
        if not tree.expressions or tree.expressions[-1].type == "bind":
            raise _UnknownError
        *parts, last = (self._assign(part) if part.type == "bind" else self.node(part) for part in tree.expressions)
        if not parts:
            return last

        def block(given: Any, variables: dict[str, Any]) -> Any:
            inner = dict(variables)
            for part in parts:
                part(given, inner)
            return last(given, inner)

        return block

    def _assign(self, tree: Any) -> Compiled:
        name, value = str(tree.lhs.value), self.node(tree.rhs)

        def assign(given: Any, variables: dict[str, Any]) -> Any:
            found = variables[name] = value(given, variables)
            return found

        return assign

    def _function(self, tree: Any) -> Compiled:
        if tree.procedure.type != "variable":
            raise _UnknownError
        name = str(tree.procedure.value)
        arguments = tuple(self.node(argument) for argument in tree.arguments)
        own = _FUNCTIONS.get((name, len(arguments)))
        if own is None:
            taken = _GIVEN.get((name, len(arguments)))
            if taken is None:
                raise _UnknownError
            own = _passed(self._given[name], taken)
        if len(arguments) == 1:
            only = arguments[0]
            return lambda given, variables: own(only(given, variables))
        return lambda given, variables: own(*[argument(given, variables) for argument in arguments])


def _passed(function: Callable[..., Any], kinds: tuple[type, ...]) -> Callable[..., Any]:
    """Call a function that replaces the engine's with arguments of the types that it takes."""

    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if type(argument) not in kinds:
                raise UndecidedError
        found = function(*arguments)
        return UNDEFINED if found is None else found

    return call


def _boolean(value: Any) -> bool:
    if value is UNDEFINED:
        return False
    if type(value) is not bool:
        raise UndecidedError
    return value


def _is_equal(left: Any, right: Any) -> bool:
    if left is UNDEFINED or right is UNDEFINED:
        return False
    if type(left) is not type(right) or type(left) not in (str, int, bool):
        raise UndecidedError
    return bool(left == right)


def _differs(left: Any, right: Any) -> bool:
    if left is UNDEFINED or right is UNDEFINED:
        return False
    return not _is_equal(left, right)


def _is_in(left: Any, right: Any) -> bool:
    if left is UNDEFINED or right is UNDEFINED:
        return False
    if type(right) is not list or type(left) is not str or any(type(member) is not str for member in right):
        raise UndecidedError
    return left in right


def _joined(left: Any, right: Any) -> str:
    if type(left) is not str or type(right) is not str:
        raise UndecidedError
    return left + right


def _compared(compare: Callable[[int, int], Any]) -> Callable[[Any, Any], Any]:
    """Make an operator of whole numbers that doubles hold."""

    def operate(left: Any, right: Any) -> Any:
        if type(left) is not int or type(right) is not int:
            raise UndecidedError
        found = compare(left, right)
        if not max(abs(left), abs(right), abs(found)) <= _EXACT:
            raise UndecidedError
        return found

    return operate


_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": _is_equal,
    "!=": _differs,
    "and": lambda left, right: _boolean(left) & _boolean(right),
    "or": lambda left, right: _boolean(left) | _boolean(right),
    "in": _is_in,
    "&": _joined,
    "+": _compared(lambda left, right: left + right),
    "-": _compared(lambda left, right: left - right),
    "<": _compared(lambda left, right: left < right),
    "<=": _compared(lambda left, right: left <= right),
    ">": _compared(lambda left, right: left > right),
    ">=": _compared(lambda left, right: left >= right),
}


def _not(value: Any) -> bool:
    if type(value) is not bool:
        raise UndecidedError
    return not value


def _merge(values: Any) -> dict[str, Any]:
    if type(values) is not list or any(type(value) is not dict for value in values):
        raise UndecidedError
    merged: dict[str, Any] = {}
    for value in values:
        merged.update(value)
    return merged


def _lookup(value: Any, name: Any) -> Any:
    if type(value) is not dict or type(name) is not str:
        raise UndecidedError
    found = value.get(name, UNDEFINED)
    if found is None:
        raise UndecidedError
    return found


def _count(values: Any) -> int:
    if type(values) is not list:
        raise UndecidedError
    return len(values)


def _texts(*values: Any) -> None:
    for value in values:
        if type(value) is not str or not value.isascii():  # the engine counts characters in several ways
            raise UndecidedError


def _substring(text: Any, start: Any, length: Any = None) -> str:
    _texts(text)
    if type(start) is not int or start < 0 or (length is not None and (type(length) is not int or length < 0)):
        raise UndecidedError
    found: str = text[start:] if length is None else text[start : start + length]
    return found


def _substring_before(text: Any, part: Any) -> str:
    _texts(text, part)
    if not part:
        raise UndecidedError
    found: str = text.partition(part)[0]
    return found


def _contains(text: Any, part: Any) -> bool:
    _texts(text, part)
    return part in text


_TYPES: Final = {str: "string", bool: "boolean", int: "number", dict: "object", list: "array"}


def _type(value: Any) -> str:
    if type(value) not in _TYPES:
        raise UndecidedError
    return _TYPES[type(value)]


_FUNCTIONS: Final[dict[tuple[str, int], Callable[..., Any]]] = {
    ("contains", 2): _contains,
    ("count", 1): _count,
    ("exists", 1): lambda value: value is not UNDEFINED,
    ("lookup", 2): _lookup,
    ("merge", 1): _merge,
    ("not", 1): _not,
    ("substring", 2): _substring,
    ("substring", 3): _substring,
    ("substringBefore", 2): _substring_before,
    ("type", 1): _type,
}
_GIVEN: Final[dict[tuple[str, int], tuple[type, ...]]] = {
    ("millis", 0): (),
    ("parse", 1): (str,),
    ("string", 1): (str, bool, int, dict),
}
"""Functions that are given, with the types of arguments that are passed to them."""
