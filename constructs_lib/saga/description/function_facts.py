"""Properties of functions that a saga needs."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.saga.description.description import UNKNOWN, FunctionDescription

_asked: Final[WeakKeyDictionary[lambda_.Function, FunctionDescription]] = WeakKeyDictionary()


def facts_of(code: RuntimeFunction | lambda_.IFunction) -> FunctionDescription:
    """A function's timeout, memory and architecture.

    Every query crosses to the process in which the CDK runs. So the library's own functions, whose properties are known
    in Python, are not queried, and others are queried once, however many steps and sagas they run for.
    """
    if isinstance(code, RuntimeFunction):
        return FunctionDescription(
            timeout=code.timeout_seconds, memory_mib=code.memory_mib, architecture=code.architecture_name
        )
    if not isinstance(code, lambda_.Function):
        return UNKNOWN
    if code not in _asked:
        _asked[code] = _ask(code)
    return _asked[code]


def require_here(saga: Construct, name: str, function: lambda_.IFunction) -> None:
    """Refuse a function that is made in another stack than the saga: each would refer to the other.

    Raises:
        ValueError: naming the argument, the function, its stack and the remedy.
    """
    here, there = Stack.of(saga), Stack.of(function)
    if there is here or function.node.default_child is None:  # an imported function has no resource
        return
    raise ValueError(
        f"{name} must be in the saga's stack {here.node.path}, got {function.node.path} of stack {there.node.path}: "
        "the state machine names the function, and its role the saga log; create the function in the saga's stack"
    )


def _ask(function: lambda_.Function) -> FunctionDescription:
    resource = function.node.default_child
    if not isinstance(resource, lambda_.CfnFunction):
        return UNKNOWN
    timeout, memory, architectures = resource.timeout, resource.memory_size, resource.architectures
    return FunctionDescription(
        timeout=int(timeout) if timeout is not None else 0,
        memory_mib=int(memory) if memory is not None else 128,
        architecture=architectures[0] if architectures else "x86_64",
    )
