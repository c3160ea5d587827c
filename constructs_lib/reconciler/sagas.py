"""Sagas of a reconciler: its function's environment, the room for it, and whether it can reach them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import NestedStack, Stack, Stage, Token
from constructs import Construct

from constructs_lib.callbacks.callback_integration import CallbackIntegration
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.synthesis.described_entry import steps_entry
from constructs_lib.saga.validation.checks import leaves_of
from constructs_lib.shared.manifest_format import ManifestField as F
from constructs_lib.shared.stacks import depend_on
from constructs_lib.tables.interfaces import ITokenTable
from saga_runtime.protocol import WAYS_AT, ReconciledField

_MAX_ENVIRONMENT_BYTES: Final = 3_072
"""A function's environment holds 4 KB, and not only this."""
_GENERATED: Final = 14
"""What CloudFormation adds to the names of stack and resource when it makes a name: two dashes, twelve characters."""
_LONGEST: Final = {ReconciledField.MACHINE: 80, ReconciledField.OPERATORS: 140}
_LONGEST_TABLE: Final = 255


def require_sagas(scope: Construct, sagas: Sequence[SagaStateMachine]) -> None:
    """Refuse sagas that a reconciler cannot reconcile.

    Raises:
        ValueError: unless there is at least one, each once, in the app's stage, account and region.
    """
    path = scope.node.path
    if not sagas:
        raise ValueError(f"sagas of {path} must be at least one, got none; name those to reconcile")
    paths = [saga.node.path for saga in sagas]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise ValueError(f"sagas of {path} must be different ones, got {twice} twice; name each once")
    here = Stack.of(scope)
    for saga in sagas:
        there = Stack.of(saga)
        if there is here:
            continue
        if Stage.of(there) is not Stage.of(here) or there.environment != here.environment:
            raise ValueError(
                f"saga {saga.node.path} must be in the stage, account and region of {path} ({here.environment}), got "
                f"{there.environment}; make a TimeoutReconciler where the saga is"
            )
        if isinstance(there, NestedStack) or isinstance(here, NestedStack):
            raise ValueError(
                f"saga {saga.node.path} must be in the stack of {path}, got {there.node.path}: a nested stack shares "
                "only with its parent; make a TimeoutReconciler where the saga is"
            )
        depend_on(scope, "recovers", saga)


def told_of(scope: Construct, sagas: Sequence[SagaStateMachine]) -> str:
    """Value of ``Env.RECONCILED``.

    Raises:
        ValueError: if there is no room for it.
    """
    require_room(scope, sagas)
    return _text([fields_of(saga) for saga in sagas])


def require_room(scope: Construct, sagas: Sequence[SagaStateMachine], more: str = "") -> None:
    """Refuse sagas that a function's environment has no room for.

    Args:
        scope: whose function it is.
        sagas: of the value of ``told_of``.
        more: another value in the environment.

    Raises:
        ValueError: naming the size.
    """
    length = len(_text([_with_longest_names(saga, fields_of(saga)) for saga in sagas])) + len(more)
    if length > _MAX_ENVIRONMENT_BYTES:
        raise ValueError(
            f"{scope.node.path} must reconcile sagas that its function's environment has room for, got "
            f"{len(sagas)} of {length} bytes of {_MAX_ENVIRONMENT_BYTES}; make another TimeoutReconciler for some"
        )


def steps_told(sagas: Sequence[SagaStateMachine]) -> str:
    """Value of ``Env.OPERATED``: what an answer about a step depends on, saga by saga in their order."""
    told = [
        [
            saga.definition_fingerprint[WAYS_AT:],
            {
                step[F.NAME]: [
                    step.get(F.SIDE),
                    int(step.get(F.EXTERNAL, False)),
                    step.get(F.GRACE, 0),
                    int(F.MAP in step),
                    *step.get(F.SKIPPED_BY, ()),
                ]
                for step in steps_entry(saga.steps, saga.description)
            },
        ]
        for saga in sagas
    ]
    return json.dumps(told, separators=(",", ":"))


def late_tokens_of(saga: SagaStateMachine) -> dict[ITokenTable, list[str]]:
    """Steps whose late effects can be compensated, by the token table of their jobs."""
    found: dict[ITokenTable, list[str]] = {}
    for step in leaves_of(saga.steps):
        if not step.job or not step.compensated:
            continue
        if isinstance(step.via, CallbackIntegration):
            found.setdefault(step.via.tokens, []).append(step.name)
    return found


def fields_of(saga: SagaStateMachine) -> dict[str, Any]:
    """Fields of a saga for the function; names are tokens until the deployment."""
    f = ReconciledField
    return {
        f.MACHINE: saga.state_machine.state_machine_name,
        f.REQUESTS: saga.requests.table_name,
        f.SHARDS: saga.requests.due_shards,
        f.LOG: saga.log.table_name,
        f.DAYS: saga.log_days,
        f.OPERATORS: saga.operators.queue_url,
        f.TOKENS: {tokens.table_name: steps for tokens, steps in late_tokens_of(saga).items()},
    }


def _text(fields: Sequence[dict[str, Any]]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _with_longest_names(saga: SagaStateMachine, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with names that CloudFormation makes as long as they can be."""
    stacks = [Stack.of(construct) for construct in (saga, saga.requests, *late_tokens_of(saga))]
    stack = max(stacks, key=lambda stack: len(stack.stack_name))
    return {name: _widest(stack, name, value) for name, value in entry.items()}


def _widest(stack: Stack, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {_widest(stack, name, table): steps for table, steps in value.items()}
    if not isinstance(value, str) or not Token.is_unresolved(value):
        return value
    longest = _LONGEST.get(ReconciledField(name), _LONGEST_TABLE)
    resolved = stack.resolve(value)
    if longest == _LONGEST_TABLE and isinstance(resolved, dict) and "Ref" in resolved:
        longest = min(longest, len(stack.stack_name) + len(str(resolved["Ref"])) + _GENERATED)
    return "x" * longest
