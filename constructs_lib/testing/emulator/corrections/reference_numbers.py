"""Numbers of the reference implementation of JSONata (2.0.6), which the emulator's port does not have.

There every number is a double, and ``$string`` keeps 15 significant digits of it. The port keeps integers exact, which
hides that an amount above that loses digits on AWS.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from jsonata.functions import Functions
from jsonata.jsonata import Jsonata
from jsonata.parser import Parser
from jsonata.utils import Utils

from constructs_lib.testing.emulator.corrections import replace

_PLAIN_BELOW: Final = 1e21
_DIGITS: Final = 15


def double(number: float) -> float:
    """The number as a double: an ``int`` where it has no fraction, since Python writes 1.0 where JSON has 1.

    Raises:
        ValueError: if it is out of a double's range.
    """
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"D1001: Number out of range: {number}")
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < _PLAIN_BELOW else value


def doubles(value: Any) -> Any:
    """The value with every number in it as a double; itself, if that changes nothing."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        new = double(value)
        return value if type(new) is type(value) and new == value else new
    if isinstance(value, dict):
        changed = {name: new for name, item in value.items() if (new := doubles(item)) is not item}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [doubles(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def parse(text: str) -> Any:
    """``$parse``: numbers become doubles."""
    return json.loads(text, parse_int=lambda digits: double(int(digits)), parse_float=lambda text: double(float(text)))


def string(value: Any, prettify: bool = False) -> str:
    """``$string`` of any value but a string: JSON, with 15 significant digits of each number."""
    if _is_function(value):
        return ""
    return "".join(_written(value, "\n" if prettify else "", "  " if prettify else ""))


def _written(value: Any, line: str, indent: str) -> Iterator[str]:
    if isinstance(value, bool) or value is None or value is Utils.NULL_VALUE:
        yield json.dumps(None if value is Utils.NULL_VALUE else value)
    elif isinstance(value, int | float):
        yield _number(value)
    elif isinstance(value, str):
        yield json.dumps(value, ensure_ascii=False)
    elif isinstance(value, Mapping):
        members = (
            [json.dumps(name, ensure_ascii=False), ": " if line else ":", *_written(item, line + indent, indent)]
            for name, item in value.items()
        )
        yield from _enclosed("{}", members, line, indent)
    elif isinstance(value, list | tuple):
        yield from _enclosed("[]", (list(_written(item, line + indent, indent)) for item in value), line, indent)
    elif _is_function(value):
        yield '""'
    else:
        raise TypeError(f"JSON cannot hold {type(value).__name__}")


def _enclosed(brackets: str, members: Iterator[list[str]], line: str, indent: str) -> Iterator[str]:
    empty = True
    for member in members:
        yield (brackets[0] if empty else ",") + line + (indent if line else "")
        yield from member
        empty = False
    yield brackets if empty else line + brackets[1]


def _number(number: float) -> str:
    """As JavaScript writes ``Number(number.toPrecision(15))``."""
    value = float(f"{double(number):.{_DIGITS}g}")
    if not math.isfinite(value):
        return "null"
    plain = double(value)
    if isinstance(plain, int):
        return str(plain)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    if -7 < int(exponent) < 0:
        return format(Decimal(repr(value)), "f")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def _is_function(value: Any) -> bool:
    return isinstance(value, Jsonata.JFunction | Parser.Symbol)


def correct_the_library() -> None:
    """Let the port calculate and write numbers as the reference does, in this process."""
    replace(Jsonata, "evaluate_numeric_expression", _calculating)
    replace(Functions, "_string", lambda _original: staticmethod(string))


def _calculating(original: Callable[..., Any]) -> Callable[..., Any]:
    def calculate(self: Jsonata, left: Any, right: Any, operator: str) -> Any:
        result = original(self, left, right, operator)
        # The port cuts the fraction of a remainder off.
        return double(math.fmod(left, right)) if operator == "%" and result is not None else result

    return calculate
