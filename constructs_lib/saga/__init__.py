"""SagaStateMachine, and the vocabulary in which its steps are declared.

Names are imported when they are first used: the descriptions of sagas are read without the CDK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_runtime.shared.lazy import lazy_exports

if TYPE_CHECKING:
    from constructs_lib.saga.description.retry import Retry
    from constructs_lib.saga.state_machine import SagaStateMachine
    from constructs_lib.saga.steps.direct import Effect
    from constructs_lib.saga.steps.group import StepGroup
    from constructs_lib.saga.steps.provider import Provider
    from constructs_lib.saga.steps.routes import ContinueWith, Notify
    from constructs_lib.saga.steps.run import Run
    from constructs_lib.saga.steps.step import Step
    from constructs_lib.saga.steps.versions import Shift, Versions

__all__ = [
    "ContinueWith",
    "Effect",
    "Notify",
    "Provider",
    "Retry",
    "Run",
    "SagaStateMachine",
    "Shift",
    "Step",
    "StepGroup",
    "Versions",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Effect": "constructs_lib.saga.steps.direct",
        "ContinueWith": "constructs_lib.saga.steps.routes",
        "Notify": "constructs_lib.saga.steps.routes",
        "Provider": "constructs_lib.saga.steps.provider",
        "Retry": "constructs_lib.saga.description.retry",
        "Run": "constructs_lib.saga.steps.run",
        "SagaStateMachine": "constructs_lib.saga.state_machine",
        "Shift": "constructs_lib.saga.steps.versions",
        "Step": "constructs_lib.saga.steps.step",
        "StepGroup": "constructs_lib.saga.steps.group",
        "Versions": "constructs_lib.saga.steps.versions",
    },
)
