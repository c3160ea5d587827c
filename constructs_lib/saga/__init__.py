"""SagaStateMachine, and the vocabulary in which its steps are declared.

Names are imported when they are first used: the descriptions of sagas are read without the CDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

_MODULES: Final = {
    "Effect": "constructs_lib.saga.direct",
    "GoOn": "constructs_lib.saga.notices",
    "Notify": "constructs_lib.saga.notices",
    "Provider": "constructs_lib.saga.provider",
    "Retry": "constructs_lib.saga.retry",
    "SagaStateMachine": "constructs_lib.saga.state_machine",
    "Step": "constructs_lib.saga.steps",
    "StepGroup": "constructs_lib.saga.groups",
    "StepKind": "constructs_lib.saga.steps",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
