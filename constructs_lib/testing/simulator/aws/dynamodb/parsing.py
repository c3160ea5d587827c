"""Expressions of DynamoDB, from text to tree. A text is parsed once in a process.

Source: the developer guide's grammar of condition, update, projection and key condition expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as File
from typing import Any, Final, NoReturn

from constructs_lib.testing.simulator.aws.dynamodb.trees import (
    AllOf,
    AnyOf,
    Between,
    Comparison,
    Condition,
    Function,
    In,
    Not,
    Operand,
    Path,
    Placeholder,
    Size,
    Typed,
    typed_operands,
)
from constructs_lib.testing.simulator.aws.dynamodb.updates import (
    Addition,
    Assignment,
    Combination,
    Deletion,
    IfNotExists,
    Joined,
    Removal,
    Source,
    Update,
)
from constructs_lib.testing.simulator.errors import invalid

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<name>#[A-Za-z0-9_\-.]+?(?=[^A-Za-z0-9_\-]|$))|(?P<value>:[A-Za-z0-9_]+)"
    r"|(?P<number>[0-9]+)|(?P<sign><=|>=|<>|[=<>()\[\],.+\-]))"
)
_RESERVED: Final = frozenset((File(__file__).parent / "reserved_words.txt").read_text("utf-8").split())
_FUNCTIONS: Final = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_MOST_CHOICES: Final = 100
_MOST_BYTES: Final = 4_096
_MOST_OPERATORS: Final = 300


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed text.

    Attributes:
        text: the text.
        tree: what it means.
        names: placeholders of names that it uses.
        values: placeholders of values that it uses.
        typed: of a condition: operands of operators that take some types only.
        attributes: top-level names, or their placeholders, of all paths.
    """

    text: str
    tree: Any
    names: frozenset[str]
    values: frozenset[str]
    typed: tuple[Typed, ...]
    attributes: frozenset[str]

    def check_given(self, kind: str, names: Mapping[str, str], values: Mapping[str, Any]) -> None:
        """Refuse a request that leaves a placeholder undefined.

        Raises:
            ServiceError: naming the placeholder.
        """
        for given, used, what in ((names, self.names, "name"), (values, self.values, "value")):
            for placeholder in used:
                if placeholder not in given:
                    raise invalid(
                        f"Invalid {kind}: An expression attribute {what} used in expression is not defined; "
                        f"attribute {what}: {placeholder}"
                    )


@lru_cache(maxsize=4096)
def condition_of(text: str, kind: str = "ConditionExpression") -> Expression:
    """Parse a condition, a filter or a key condition.

    Raises:
        ServiceError: as DynamoDB refuses it.
    """
    return _parsed(text, kind, _Parser.condition)


@lru_cache(maxsize=4096)
def update_of(text: str) -> Expression:
    """Parse an update.

    Raises:
        ServiceError: as DynamoDB refuses it.
    """
    return _parsed(text, "UpdateExpression", _Parser.update)


@lru_cache(maxsize=4096)
def projection_of(text: str) -> Expression:
    """Parse a projection: its tree is a tuple of paths.

    Raises:
        ServiceError: as DynamoDB refuses it.
    """
    return _parsed(text, "ProjectionExpression", _Parser.paths)


def _parsed(text: str, kind: str, rule: Callable[[_Parser], Any]) -> Expression:
    if not text.strip():
        raise invalid(f"Invalid {kind}: The expression can not be empty;")
    if len(text.encode("utf-8")) > _MOST_BYTES:
        raise invalid(f"Invalid {kind}: Expression size has exceeded the maximum allowed size;")
    parser = _Parser(text, kind)
    tree = rule(parser)
    if parser.token is not None:
        parser.refuse()
    typed = tuple(typed_operands(tree)) if rule is _Parser.condition else ()
    if parser.operators > _MOST_OPERATORS:
        raise invalid(f"Invalid {kind}: The expression contains too many operators;")
    return Expression(
        text, tree, frozenset(parser.names), frozenset(parser.values), typed, frozenset(parser.attributes)
    )


class _Parser:
    """One text on its way to a tree."""

    def __init__(self, text: str, kind: str) -> None:
        self._text = text
        self._kind = kind
        self._at = 0
        self.names: set[str] = set()
        self.values: set[str] = set()
        self.attributes: set[str] = set()
        self.operators = 0
        self.what = ""
        self.token: str | None = None
        self._enclosed: Condition | None = None  # the content of the last pair of parentheses
        self._read()

    def refuse(self, message: str = "Syntax error") -> NoReturn:
        """Raise what DynamoDB answers."""
        near = self._text[max(0, self._at - 20) : self._at + 10]
        raise invalid(f'Invalid {self._kind}: {message}; token: "{self.token or "<EOF>"}", near: "{near}"')

    def _read(self) -> None:
        if not self._text[self._at :].strip():
            self.token, self.what = None, "end"
            return
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self.token = self._text[self._at]
            self.refuse()
        self._at = found.end()
        self.what = str(found.lastgroup)
        self.token = found[self.what]

    def _next(self) -> str:
        token = self.token
        if token is None:
            self.refuse()
        self._read()
        return token

    def _is(self, word: str) -> bool:
        return self.token is not None and self.token.upper() == word

    def _take(self, word: str) -> bool:
        if self._is(word):
            self._read()
            return True
        return False

    def _takes_operator(self, word: str) -> bool:
        taken = self._take(word)
        self.operators += taken
        return taken

    def _need(self, word: str) -> None:
        if not self._take(word):
            self.refuse()

    # --- Conditions

    def condition(self) -> Condition:
        """``a OR b``."""
        parts = [self._conjunction()]
        while self._takes_operator("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._takes_operator("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negation(self) -> Condition:
        if self._takes_operator("NOT"):
            return Not(self._negation())
        if not self._take("("):
            return self._test()
        inner = self.condition()
        if inner is self._enclosed:
            raise invalid(f"Invalid {self._kind}: The expression has redundant parentheses;")
        self._need(")")
        self._enclosed = inner
        return inner

    def _test(self) -> Condition:
        word = self.token or ""
        if self.what == "word" and word in _FUNCTIONS and self._text[self._at :].lstrip().startswith("("):
            return self._function(word)
        operand = self._operand()
        if self._takes_operator("BETWEEN"):
            low = self._operand()
            self._need("AND")
            return Between(operand, low, self._operand())
        if self._takes_operator("IN"):
            return self._choice(operand)
        operator = self._next()
        self.operators += 1
        if operator not in ("=", "<>", "<", "<=", ">", ">="):
            self.refuse()
        right = self._operand()
        if operand == right:
            raise invalid(
                f"Invalid {self._kind}: The first operand must be distinct from the remaining operands for this "
                f"operator or function; operator: {operator}, first operand: [{operand}]"
            )
        return Comparison(operand, operator, right)

    def _choice(self, operand: Operand) -> In:
        self._need("(")
        choices = [self._operand()]
        while self._take(","):
            choices.append(self._operand())
        self._need(")")
        if len(choices) > _MOST_CHOICES:
            raise invalid(f"Invalid {self._kind}: The IN operator is provided with too many operands; ")
        return In(operand, tuple(choices))

    def _function(self, name: str) -> Function:
        self._next()
        self.operators += 1
        self._need("(")
        operands = [self._operand()]
        while self._take(","):
            operands.append(self._operand())
        self._need(")")
        if len(operands) != _FUNCTIONS[name]:
            raise invalid(
                f"Invalid {self._kind}: Incorrect number of operands for operator or function; "
                f"operator or function: {name}, number of operands: {len(operands)}"
            )
        if name.startswith("attribute_") and not isinstance(operands[0], Path):
            raise invalid(
                f"Invalid {self._kind}: Operator or function requires a document path; operator or function: {name}"
            )
        return Function(name, tuple(operands))

    def _operand(self) -> Operand:
        if self._is("SIZE") and self._text[self._at :].lstrip().startswith("("):
            self._next()
            self.operators += 1
            self._need("(")
            inner = self._operand()
            self._need(")")
            return Size(inner)
        if self.what == "value":
            return self._placeholder()
        return self.path()

    def _placeholder(self) -> Placeholder:
        name = self._next()
        self.values.add(name)
        return Placeholder(name)

    def path(self) -> Path:
        """``a.b[1]``."""
        first = self._element()
        self.attributes.add(first)
        elements: list[str | int] = [first]
        while self.token in (".", "["):
            if self._next() == ".":
                elements.append(self._element())
            else:
                if self.what != "number":
                    self.refuse()
                elements.append(int(self._next()))
                self._need("]")
        return Path(tuple(elements))

    def _element(self) -> str:
        if self.what == "name":
            name = self._next()
            self.names.add(name)
            return name
        if self.what != "word":
            self.refuse()
        word = self._next()
        if word.lower() in _RESERVED:
            raise invalid(f"Invalid {self._kind}: Attribute name is a reserved keyword; reserved keyword: {word}")
        return word

    def paths(self) -> tuple[Path, ...]:
        """``a, b.c``."""
        found = [self.path()]
        while self._take(","):
            found.append(self.path())
        return tuple(found)

    # --- Updates

    def update(self) -> Update:
        """``SET … REMOVE … ADD … DELETE …``, each at most once."""
        sections: dict[str, list[Any]] = {}
        rules: dict[str, Callable[[], Any]] = {
            "SET": self._assignment,
            "REMOVE": lambda: Removal(self.path()),
            "ADD": lambda: Addition(self.path(), self._update_value()),
            "DELETE": lambda: Deletion(self.path(), self._update_value()),
        }
        while self.token is not None:
            section = self.token.upper()
            if section not in rules:
                self.refuse()
            if section in sections:
                raise invalid(
                    f'Invalid {self._kind}: The "{section}" section can only be used once in an update expression;'
                )
            self._next()
            actions = sections[section] = [rules[section]()]
            while self._take(","):
                actions.append(rules[section]())
        return Update(tuple(action for actions in sections.values() for action in actions))

    def _update_value(self) -> Placeholder:
        if self.what != "value":
            self.refuse()
        return self._placeholder()

    def _assignment(self) -> Assignment:
        path = self.path()
        self._need("=")
        left = self._source()
        if self.token in ("+", "-"):
            sign = 1 if self._next() == "+" else -1
            return Assignment(path, Combination(left, sign, self._source()))
        return Assignment(path, left)

    def _source(self) -> Source:
        word = self.token or ""
        if self.what == "word" and word in ("if_not_exists", "list_append"):
            self._next()
            self._need("(")
            if word == "if_not_exists":
                first: Any = self.path()
                self._need(",")
                source: Source = IfNotExists(first, self._source())
            else:
                first = self._source()
                self._need(",")
                source = Joined(first, self._source())
            self._need(")")
            return source
        if self._take("("):
            inner = self._source()
            self._need(")")
            return inner
        return self._placeholder() if self.what == "value" else self.path()
