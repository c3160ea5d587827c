"""Environment of a function that begins sagas: an operation's gatekeeper, and an intake of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructs_lib.saga.synthesis.expression_scan import paths_environment
from saga_runtime.protocol import Env

if TYPE_CHECKING:
    from constructs_lib.saga.state_machine import SagaStateMachine


def begin_environment(saga: SagaStateMachine) -> dict[str, str]:
    """Variables that name the state machines by which a saga begins, and its definition."""
    express: dict[str, str] = (
        {Env.EXPRESS_MACHINE_ARN: saga.express_machine.state_machine_arn} if saga.express_machine else {}
    )
    alias: dict[str, str] = {Env.ALIAS: saga.alias} if saga.alias is not None else {}
    return {
        Env.STATE_MACHINE_ARN: saga.state_machine.state_machine_arn,
        Env.RECOVERY_MACHINE_ARN: saga.recovery_machine.state_machine_arn,
        **express,
        **alias,
        Env.DEFINITION: saga.definition_fingerprint,
        Env.DUE_AFTER_SECONDS: str(int(saga.requests.due_after.to_seconds())),
        **paths_environment(saga.steps),
    }
