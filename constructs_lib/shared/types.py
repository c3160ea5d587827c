"""Types of arguments, checked by the annotations before anything is made of them.

The commonest slip of a Python CDK app is a value of a wrong type: ``timeout=10``, ``refusals="SoldOut"``, an imported
table where a construct of ours is needed. Unchecked, it ends in an ``AttributeError`` from deep inside, which names
neither argument nor step. Nothing here imports the CDK: plans of sagas are made without it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MOST: Final = 60
"""Characters that an error shows of a value."""
_NONE: Final = type(None)
_CONFUSED: Final = {
    ("IAlarmAction", "Topic"): "write SnsAction(topic), of aws_cdk.aws_cloudwatch_actions",
    ("IGrantable", "str"): "pass a role, or import one with iam.Role.from_role_arn",
    ("IResource", "RestApi"): "pass its .root",
    ("ISecret", "str"): "keep it in Secrets Manager, and pass a secretsmanager.Secret",
    ("IStateMachine", "SagaStateMachine"): "name it in sagas",
    ("Path", "AssetCode"): "pass the path of a folder",
    ("SagaStateMachine", "StateMachine"): "name other state machines in machines",
    ("Step", "StepGroup"): "put one next to the other: a group holds plain steps only",
    ("WatchedMachine", "StateMachine"): "write WatchedMachine(machine=…, on_timeout=…)",
}
"""What is wanted, what is taken for it, and what to do."""
_SPOKEN: Final = {
    "CallbackVia": "CallbackIntegration",
    "IIdempotencyTable": "IdempotencyTable",
    "ITokenTable": "TokenTable",
}
"""Names of the constructs that users know, by the name of what they are to others."""
_INSIDE: Final = ("bucket", "function", "queue", "state_machine", "table")
"""Attributes of our constructs that hold what the CDK knows."""


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check the types of a call's arguments by the annotations, before the function runs.

    For constructors, methods and factories. Errors name the argument and what it is of: a step, a construct, a class.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}() {error}") from None
        hints = _hints(function)
        for name, value in given.items():
            # Only an error asks the CDK's process for the owner: a saga calls hundreds of grants.
            if name in hints and not _fits(value, hints[name]):
                require_type(name, value, hints[name], _owner(function, given))
            if name == "removal_policy" and getattr(value, "name", None) == "SNAPSHOT":
                raise ValueError(
                    f"removal_policy of {_owner(function, given)} must be RETAIN, RETAIN_ON_UPDATE_OR_DELETE or "
                    "DESTROY, got SNAPSHOT: CloudFormation makes no snapshot of these resources; choose RETAIN, and "
                    "back up tables"
                )
        return function(*args, **kwargs)

    return call


def check_fields(value: Any) -> None:
    """Check the types of a dataclass' fields; called by its ``__post_init__``.

    Raises:
        ValueError: naming field, class, value and remedy.
    """
    kind: Callable[..., Any] = type(value)
    hints, owner = _hints(kind), type(value).__name__
    for field in dataclasses.fields(value):
        require_type(field.name, getattr(value, field.name), hints[field.name], owner)


def require_type(name: str, value: object, hint: Any, owner: str) -> None:
    """Refuse a value that is not of a type.

    Args:
        name: of the argument, with the place in it: ``refusals[0]``.
        value: what was given.
        hint: the annotation.
        owner: what the argument is of.

    Raises:
        ValueError: naming argument, owner, value and remedy.
    """
    if _fits(value, hint):
        return
    options = _options(hint)
    around = [option for option in options if _is_container(value, option)]
    if not around:
        wanted = " or ".join(dict.fromkeys(_kind(option) for option in options))
        raise ValueError(f"{name} of {owner} must be {wanted}, got {shown(value)}; {_remedy(value, options)}")
    # Of several containers the last is the widest: a key or a value that it does not take, none takes.
    for place, part, inner in _parts(value, around[-1]):
        require_type(f"{name}{place}", part, inner, owner)


def shown(value: object) -> str:
    """A value as an error shows it."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, float) and _is_token(value):
        return "a token, which only the deployment resolves"
    if value is None or isinstance(value, str | bytes | int | float | Path | Mapping | Sequence | set | Enum):
        text = repr(value)
        return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
    return _a(type(value).__name__.removeprefix("_").removesuffix("Proxy"))


def _owner(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Owner of an argument: ``step Charge``, ``StepFunction Pay``, ``Carrier.add_webhook Scans``."""
    name, of, own = given.get("name"), function.__qualname__.rpartition(".")[0], given.get("self")
    if own is None:
        return f"step {name}" if isinstance(name, str) else f"{of}.{function.__name__}"
    id_ = given.get("id")
    place = type(own).__name__
    if function.__name__ != "__init__":
        place = f"{own.node.id}.{function.__name__}"
    return f"{place} {id_}" if isinstance(id_, str) else place


@functools.cache
def _hints(of: Callable[..., Any]) -> Mapping[str, Any]:
    """Resolved at the first call: a module may name types of one that imports it."""
    return typing.get_type_hints(of)


def _options(hint: Any) -> list[Any]:
    """The alternatives of a union, with those of unions in it."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [option for part in typing.get_args(hint) for option in _options(part)]
    return [_NONE if hint is None else hint]


def _fits(value: object, hint: Any) -> bool:
    return any(_is(value, option) for option in _options(hint))


def _is(value: object, hint: Any) -> bool:
    if hint is Any:
        return True
    if typing.get_origin(hint) is not None:
        parts = _parts(value, hint) if _is_container(value, hint) else None
        return parts is not None and all(_fits(part, inner) for _, part, inner in parts)
    if hint in (int, float):
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return hint is float or isinstance(value, int) or _is_token(value)
    if getattr(hint, "_is_protocol", False):
        return _has_all(value, hint)
    # The CDK takes a dict for a struct.
    return isinstance(value, hint) or (isinstance(value, dict) and hasattr(hint, "__jsii_struct_bases__"))


def _is_token(value: float) -> bool:
    """Test whether a number represents a token that only the deployment resolves."""
    from aws_cdk import Token

    # JSON, by which the CDK's own process gets the question, has no other numbers: one ends that process.
    return math.isfinite(value) and bool(Token.is_unresolved(value))


def _is_container(value: object, hint: Any) -> bool:
    """Test whether a value is a list or a dict, as the annotation has it, whatever is in it."""
    kind = typing.get_origin(hint)
    return isinstance(kind, type) and isinstance(value, kind) and not isinstance(value, str | bytes)


def _parts(value: Any, hint: Any) -> list[tuple[str, object, Any]]:
    """Place, value and annotation of what is in a container."""
    inner = typing.get_args(hint)
    if not isinstance(value, Mapping):
        return [(f"[{index}]", item, inner[0]) for index, item in enumerate(value)]
    keys = [("", key, inner[0]) for key in value]
    return [*keys, *((f"[{key!r}]", item, inner[1]) for key, item in value.items())]


@functools.cache
def _members(protocol: type) -> frozenset[str]:
    annotated = [name for base in protocol.__mro__ for name in getattr(base, "__annotations__", ())]
    return frozenset(name for name in (*dir(protocol), *annotated) if not name.startswith("_"))


def _has_all(value: object, protocol: type) -> bool:
    """Test whether a value has what an interface has.

    A value of the CDK is not asked itself, which would evaluate its properties; its class is. An imported resource may
    be a proxy of several classes.
    """
    if "__jsii_type__" not in vars(protocol):
        return all(hasattr(value, name) for name in _members(protocol))
    delegates = getattr(value, "_delegates", None) if type(value).__name__ == "InterfaceDynamicProxy" else None
    kinds = [type(one) for one in delegates] if delegates else [type(value)]
    return all(any(hasattr(kind, name) for kind in kinds) for name in _members(protocol))


def _kind(hint: Any) -> str:
    kind = typing.get_origin(hint)
    if kind is None:
        return "None" if hint is _NONE else _a(_SPOKEN.get(hint.__name__, hint.__name__))
    if issubclass(kind, Mapping):
        return "a dict"
    return f"a list of {' or '.join(_name(option) for option in _options(typing.get_args(hint)[0]))}"


def _name(hint: Any) -> str:
    kind = typing.get_origin(hint)
    return str(hint.__name__) if kind is None else "dicts" if issubclass(kind, Mapping) else "lists"


def _a(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


def _remedy(value: object, options: Sequence[Any]) -> str:
    wanted = [option for option in options if option is not _NONE]
    for option in wanted:
        if (meant := _CONFUSED.get((_name(option), type(value).__name__))) is not None:
            return meant
        if _name(option) == "Duration" and type(value) in (int, float):
            return f"write Duration.seconds({value})"
        if option is str and isinstance(value, type):
            return f"write its name, {value.__name__!r}"
        if isinstance(option, type) and issubclass(option, Enum):
            return f"write {' or '.join(f'{option.__name__}.{member.name}' for member in option)}"
        if (one := _inside_of(value, option)) is not None:
            return f"pass its .{one}"
        kind = typing.get_origin(option)
        if kind is not None and not issubclass(kind, Mapping):
            inner = _options(typing.get_args(option)[0])
            text = value.__name__ if isinstance(value, type) and str in inner else value
            if any(_is(text, one) for one in inner):
                return f"write [{text!r}]" if isinstance(text, str) else "put it into a list"
    kinds = dict.fromkeys(_kind(option) for option in wanted)
    return "pass a path" if Path in wanted else f"pass {' or '.join(kinds)}"


def _inside_of(value: object, wanted: Any) -> str | None:
    """Attribute of a construct of ours that is of the wanted type."""
    known = vars(value) if hasattr(value, "__dict__") and typing.get_origin(wanted) is None else {}
    return next((name for name in _INSIDE if name in known and _is(known[name], wanted)), None)
