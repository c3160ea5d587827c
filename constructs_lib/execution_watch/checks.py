"""Checks of watched machines: Standard state machines that are not sagas, each once, whose executions can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aws_cdk import Token
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib.saga.state_machine import SagaStateMachine
from saga_runtime.protocol import FailedStatus

_KIND: Final = ":stateMachine:"
_NAME: Final = r"[^\s:/*?<>{}\[\]\"#%\\^|~`$&,;]{1,80}"


def require_watchable(machine: sfn.IStateMachine) -> None:
    """Refuse a machine that is not a Standard state machine, or is a saga's, as far as that is known.

    Raises:
        ValueError: if it is, naming it and the remedy.
    """
    path = machine.node.path
    if any(isinstance(scope, SagaStateMachine) for scope in machine.node.scopes):
        raise ValueError(f"machine must be a state machine that is not a saga, got {path}; name its saga in sagas")
    if isinstance(machine, sfn.StateMachine):
        if machine.state_machine_type is sfn.StateMachineType.EXPRESS:
            raise ValueError(
                f"machine must be a Standard state machine, got the Express one {path}: it does not keep the status of "
                "its executions; read its log, or watch its caller"
            )
        return
    arn = machine.state_machine_arn
    _, kind, name = arn.partition(_KIND)
    if not kind and Token.is_unresolved(arn):
        return  # known at the deployment
    if not kind or not (Token.is_unresolved(name) or re.fullmatch(_NAME, name)):
        raise ValueError(
            f"machine {path} must be imported by name or ARN of a state machine, got {(name if kind else arn)!r}; "
            "leave out version and alias: executions and their events name the machine itself"
        )


def require_ends(path: str, ends: Sequence[FailedStatus]) -> None:
    """Refuse invalid statuses, or one named twice.

    Raises:
        ValueError: if one is, naming the machine, the value and the remedy.
    """
    if not ends or len(set(ends)) < len(ends):
        raise ValueError(f"ends of {path} must be one or more, each once, got {list(ends)}; name those to report")
