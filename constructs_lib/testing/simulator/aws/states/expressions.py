"""JSONata as Step Functions evaluates it.

The engine is ``jsonata-python``. Where it accepts more than the reference implementation (2.0.6, which AWS names), it
is made as strict: numbers are doubles, and ``$string`` writes 15 significant digits of them. Evaluation nests no deeper
than on AWS. Expressions that are plain are evaluated without the engine (``compiled``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from random import Random
from typing import Any, Final

from jsonata import Jsonata
from jsonata.functions import Functions as JsonataFunctions
from jsonata.jexception import JException
from jsonata.utils import Utils

from constructs_lib.testing.expression_levels import EVALUATION_LEVELS
from constructs_lib.testing.simulator.aws.states.compiled import UNDEFINED, Compiled, compiled

_PATH: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)((?:\.[A-Za-z_][A-Za-z0-9_]*)*)")
_TIME: Final = re.compile(r"\$string\((?:\$millis\(\)|\$floor\(\$millis\(\) / 1000\)(?: \+ ([0-9]{1,12}))?)\)")
"""The time in milliseconds, or in seconds with some more: as every write of a definition has it."""
_EXACT: Final = 2**53
_UNDEFINED: Final = object()
_PLAIN: Final = (str, bool, type(None))


class ExpressionError(Exception):
    """An expression failed, or evaluated to nothing: ``States.QueryEvaluationError``."""


@dataclass(slots=True)
class Moment:
    """Time and randomness, as expressions see them."""

    now_ms: int
    entropy: Random


_moment: list[Moment] = [Moment(0, Random(0))]


def evaluate(template: Any, states: Mapping[str, Any], variables: Mapping[str, Any], moment: Moment) -> Any:
    """A value with every expression in it replaced by what it evaluates to.

    Args:
        template: from the definition.
        states: ``$states``.
        variables: what was assigned.
        moment: when.

    Raises:
        ExpressionError: if an expression fails or evaluates to nothing.
    """
    kind = type(template)
    if kind is str:
        if template[:2] == "{%" and template[-2:] == "%}":
            return _value(template[2:-2].strip(), states, variables, moment)
        return template
    if kind is dict:
        return {name: evaluate(part, states, variables, moment) for name, part in template.items()}
    if kind is list:
        return [evaluate(part, states, variables, moment) for part in template]
    return template


def _value(text: str, states: Mapping[str, Any], variables: Mapping[str, Any], moment: Moment) -> Any:
    path = _path(text)
    if path is not None:
        found = _followed(path, states, variables)
        if found is not _UNDEFINED:
            return found
    time = _time(text)
    if time is not None:
        unit, more = time
        return str(moment.now_ms // unit + more)
    plain = _compiled(text)
    if plain is not None:
        _moment[0] = moment
        try:
            found = plain(None, {**variables, "states": states})
        except Exception:  # noqa: BLE001, S110 - it is undecided, or the engine names the error
            pass
        else:
            if found is not UNDEFINED:
                return _plain(found)
    return by_engine(text, states, variables, moment)


def by_engine(text: str, states: Mapping[str, Any], variables: Mapping[str, Any], moment: Moment) -> Any:
    """Evaluate an expression with the engine.

    Raises:
        ExpressionError: if it fails or evaluates to nothing.
    """
    program = _program(text)
    bindings = {name: Utils.NULL_VALUE if value is None else value for name, value in variables.items()}
    bindings["states"] = states
    _moment[0] = moment
    program.environment.set_runtime_bounds(None, EVALUATION_LEVELS)  # each time: an error leaves its count behind
    try:
        found = program.evaluate(None, bindings)
        if found is None and not _program(f"$exists(({text}))").evaluate(None, bindings):
            raise ExpressionError(f"The JSONata expression '{text}' returned nothing (undefined).")
    except ExpressionError:
        raise
    except Exception as error:  # noqa: BLE001 - the engine raises what Python raises
        code = getattr(error, "error", None)
        raise ExpressionError(f"The JSONata expression '{text}' threw an error: {code or ''} {error}") from None
    return _plain(found)


@lru_cache(maxsize=8192)
def _path(text: str) -> tuple[str, ...] | None:
    """Names of a plain path; None: it is more than that."""
    found = _PATH.fullmatch(text)
    return None if found is None else (found[1], *found[2].split(".")[1:])


@lru_cache(maxsize=8192)
def _time(text: str) -> tuple[int, int] | None:
    """Parse an expression of the time: milliseconds of its unit, and what it adds; None: it is another one."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    return (1, 0) if "$floor" not in text else (1_000, int(found[1] or 0))


def _followed(path: tuple[str, ...], states: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
    """Follow a plain path; ``_UNDEFINED``: there is no value, or only the engine can decide."""
    if path[0] == "states":
        held: Any = states
    elif path[0] in variables:
        held = variables[path[0]]
    else:
        return _UNDEFINED
    for name in path[1:]:
        if type(held) is not dict or name not in held:
            return _UNDEFINED
        held = held[name]
    return _UNDEFINED if held is None else _plain(held) if type(held) is not str else held


def _plain(value: Any) -> Any:
    """A value as JSON holds it: numbers as doubles are, lists without the engine's marks."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else int(float(value))
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < 1e21 else value
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is Utils.NULL_VALUE:
        return None
    raise ExpressionError(f"The JSONata expression returned a {kind.__name__}, which is not JSON.")


@lru_cache(maxsize=8192)
def _compiled(text: str) -> Compiled | None:
    """The function of an expression; None: only the engine evaluates it, or refuses it."""
    try:
        return compiled(text, _FUNCTIONS)
    except JException:
        return None


@lru_cache(maxsize=8192)
def _program(text: str) -> Jsonata:
    """A compiled expression, with the functions that Step Functions adds.

    Raises:
        ExpressionError: if it is not an expression.
    """
    try:
        program = Jsonata(text)
    except JException as error:
        raise ExpressionError(f"The JSONata expression '{text}' is not an expression: {error}") from None
    for name, function in _FUNCTIONS.items():
        program.register_lambda(name, function)
    return program


def _string(value: Any = _UNDEFINED, prettify: bool = False) -> Any:
    """``$string``: texts as they are, everything else as JSON, numbers with 15 significant digits."""
    if value is _UNDEFINED or value is None:
        return None
    if isinstance(value, str):
        return value
    return _json(value, 2 if prettify else None)


def _json(value: Any, indent: int | None) -> str:
    rounded = _rounded(value)
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(rounded, ensure_ascii=False, separators=separators, indent=indent)


def _rounded(value: Any) -> Any:
    if value is Utils.NULL_VALUE or value is None:
        return None
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        short = float(f"{value:.15g}")
        return int(short) if short.is_integer() and abs(short) < 1e21 else short
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return ""  # functions


def _parse(text: Any = None) -> Any:
    """``$parse``: numbers become doubles."""
    if text is None:
        return None
    return _plain(json.loads(text))


def _to_millis(text: Any = None, picture: Any = None) -> Any:
    if text is None:
        return None
    if picture is None and isinstance(text, str) and "T" not in text:
        raise ExpressionError("D3110: The argument of the toMillis function must be an ISO 8601 formatted timestamp.")
    return JsonataFunctions.datetime_to_millis(text, picture)


def _now(picture: Any = None, timezone: Any = None) -> Any:
    if picture is None and timezone is None:
        moment = datetime.fromtimestamp(_moment[0].now_ms / 1_000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return JsonataFunctions.datetime_from_millis(_moment[0].now_ms, picture, timezone)


def _uuid() -> str:
    drawn = f"{_moment[0].entropy.getrandbits(128):032x}"
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-8{drawn[17:20]}-{drawn[20:]}"


def _random(_seed: Any = None) -> float:
    return _moment[0].entropy.random()


def _partition(values: Any, size: Any) -> list[list[Any]]:
    step = int(size)
    return [list(values[start : start + step]) for start in range(0, len(values), step)]


def _range(first: Any, last: Any, step: Any) -> list[int]:
    return list(range(int(first), int(last) + (1 if step > 0 else -1), int(step)))


def _hash(text: Any, algorithm: Any) -> str:
    return hashlib.new(str(algorithm).replace("-", "").lower(), str(text).encode()).hexdigest()


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "hash": _hash,
    "millis": lambda: _moment[0].now_ms,
    "now": _now,
    "parse": _parse,
    "partition": _partition,
    "random": _random,
    "range": _range,
    "string": _string,
    "toMillis": _to_millis,
    "uuid": _uuid,
}
