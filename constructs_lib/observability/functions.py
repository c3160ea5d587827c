"""The functions of a saga."""

from __future__ import annotations

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.validation.checks import leaves_of
from constructs_lib.shared.stacks import path_of


def functions_of(saga: SagaStateMachine, *, kind: str | None = None) -> list[RuntimeFunction]:
    """Step functions and compensations of a saga, each once, that are ``StepFunction`` or ``RuntimeFunction``.

    Args:
        saga: whose.
        kind: of steps; None: all.
    """
    found: dict[str, RuntimeFunction] = {}
    for step in (each for each in leaves_of(saga.steps) if kind in (None, each.kind)):
        for function in (step.fn, step.compensate):
            owner = function.node.scope if function is not None else None
            if isinstance(owner, RuntimeFunction):
                found[path_of(owner)] = owner
    return list(found.values())
