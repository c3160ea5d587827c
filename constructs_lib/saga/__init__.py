"""SagaStateMachine, and the vocabulary in which its steps are declared."""

from constructs_lib.saga.notices import GoOn, Notify
from constructs_lib.saga.retry import Retry
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.steps import Step, StepKind

__all__ = ["GoOn", "Notify", "Retry", "SagaStateMachine", "Step", "StepKind"]
