"""What can be watched: Standard state machines that are no sagas, each once, where they can be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from aws_cdk import NestedStack, Stack, Stage, Token
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.saga.state_machine import SagaStateMachine
from saga_runtime.protocol import BadEnd

if TYPE_CHECKING:
    from constructs_lib.execution_watch.execution_watch import WatchedMachine

_KIND: Final = ":stateMachine:"
_NAME: Final = r"[^\s:/*?<>{}\[\]\"#%\\^|~`$&,;]{1,80}"


def require_watchable(machine: sfn.IStateMachine) -> None:
    """Refuse what is no Standard state machine, or a saga's, as far as that is known.

    Raises:
        ValueError: if it is, naming it and the remedy.
    """
    path = machine.node.path
    if any(isinstance(scope, SagaStateMachine) for scope in machine.node.scopes):
        raise ValueError(f"machine must be a state machine that is no saga, got {path}; name its saga in sagas")
    if isinstance(machine, sfn.StateMachine):
        if machine.state_machine_type is sfn.StateMachineType.EXPRESS:
            raise ValueError(
                f"machine must be a Standard state machine, got the Express one {path}: nobody can ask what became of "
                "its executions; look at its log, or at whoever calls it"
            )
        return
    arn = machine.state_machine_arn
    _, kind, name = arn.partition(_KIND)
    if not kind and Token.is_unresolved(arn):
        return  # known at the deployment
    if not kind or not (Token.is_unresolved(name) or re.fullmatch(_NAME, name)):
        raise ValueError(
            f"machine {path} must be imported by name or ARN of a state machine, got {(name if kind else arn)!r}; "
            "leave out version and alias: executions, and what is told of them, go by the machine itself"
        )


def require_ends(path: str, ends: Sequence[BadEnd]) -> None:
    """Refuse ends that are none, or named twice.

    Raises:
        ValueError: if one is, naming the machine, the value and the remedy.
    """
    if not ends or len(set(ends)) < len(ends):
        raise ValueError(f"ends of {path} must be one or more, each once, got {list(ends)}; name those to tell")


def require_each_once_and_here(scope: Construct, machines: Iterable[WatchedMachine]) -> None:
    """Refuse machines that stand twice, and those, or functions, that cannot be reached from here.

    Raises:
        ValueError: if one is, naming it and the remedy.
    """
    path = scope.node.path
    seen: set[str] = set()
    for watched in machines:
        machine = watched.machine
        if machine.state_machine_arn in seen:
            raise ValueError(f"machines of {path} must be different ones, got {machine.node.path} twice; name it once")
        seen.add(machine.state_machine_arn)
        _require_here(scope, machine)
        here, there = Stack.of(scope).env.region, watched.function.env.region
        if _differ(here, there):
            raise ValueError(
                f"on_timeout of machine {machine.node.path} must be of the region of {path}, {here}, got {there}; name "
                f"a function of {here}, which may call that one"
            )


def _require_here(scope: Construct, machine: sfn.IStateMachine) -> None:
    path, name = scope.node.path, machine.node.path
    here, there = Stack.of(scope), Stack.of(machine)
    for kind, ours, theirs in (
        ("account", here.account, machine.env.account),
        ("region", here.region, machine.env.region),
    ):
        if _differ(ours, theirs):
            raise ValueError(
                f"machine {name} must be of the {kind} of {path}, {ours}, got {theirs}; make a TimeoutReconciler there"
            )
    if there is here or not isinstance(machine, sfn.StateMachine):
        return
    if Stage.of(there) is not Stage.of(here):
        raise ValueError(
            f"machine {name} must be in the stage of {path}, got another one; make a TimeoutReconciler there"
        )
    if isinstance(there, NestedStack) or isinstance(here, NestedStack):
        raise ValueError(
            f"machine {name} must be in the stack of {path}, got {there.node.path}: a nested stack shares names only "
            "with its parent; make a TimeoutReconciler where the machine is"
        )


def _differ(ours: str, theirs: str) -> bool:
    """Whether two accounts, or regions, are known to be different ones."""
    return not Token.is_unresolved(ours) and not Token.is_unresolved(theirs) and ours != theirs
