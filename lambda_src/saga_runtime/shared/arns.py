"""ARNs of state machines and of their executions."""

from __future__ import annotations

import re
from typing import Final

_MACHINE: Final = re.compile(r"^(arn:[^:]+:states:[^:]+:[^:]+):execution:([^:]+):[^:]+$")


def machine_of(execution_arn: str) -> str:
    """The state machine's ARN, from the ARN of one of its executions."""
    match = _MACHINE.match(execution_arn)
    if match is None:
        raise ValueError(f"not the ARN of an execution: {execution_arn!r}")
    return f"{match.group(1)}:stateMachine:{match.group(2)}"


def execution_of(machine_arn: str, name: str) -> str:
    """The ARN of a state machine's execution."""
    return f"{machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"
