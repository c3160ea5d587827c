"""SagaStateMachine, and the vocabulary in which its steps are declared.

Names are imported when they are first used: the descriptions of sagas are read without the CDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructs_lib.lazy import lazy_exports

if TYPE_CHECKING:
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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Effect": "constructs_lib.saga.direct",
        "GoOn": "constructs_lib.saga.notices",
        "Notify": "constructs_lib.saga.notices",
        "Provider": "constructs_lib.saga.provider",
        "Retry": "constructs_lib.saga.retry",
        "SagaStateMachine": "constructs_lib.saga.state_machine",
        "Step": "constructs_lib.saga.steps",
        "StepGroup": "constructs_lib.saga.groups",
        "StepKind": "constructs_lib.saga.steps",
    },
)
