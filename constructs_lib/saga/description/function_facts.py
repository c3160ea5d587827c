"""Properties of functions that a saga needs."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import aws_lambda as lambda_

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.saga.description.description import UNKNOWN, FunctionDescription
from constructs_lib.shared.accepted import AnyFunction

_asked: Final[WeakKeyDictionary[lambda_.Function, FunctionDescription]] = WeakKeyDictionary()


def facts_of(code: RuntimeFunction | AnyFunction) -> FunctionDescription:
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
