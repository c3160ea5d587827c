"""SagaStateMachine, and the vocabulary in which its steps are declared."""

from constructs_lib.saga.direct import Effect
from constructs_lib.saga.groups import StepGroup
from constructs_lib.saga.notices import GoOn, Notify
from constructs_lib.saga.provider import Provider
from constructs_lib.saga.retry import Retry
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.steps import Step, StepKind

__all__ = [
    "Effect",
    "GoOn",
    "Notify",
    "Provider",
    "Retry",
    "SagaStateMachine",
    "Step",
    "StepGroup",
    "StepKind",
]
