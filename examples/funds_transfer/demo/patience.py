"""Time for functions: emulated time passes fast, and a process that starts on a busy machine does not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from constructs_lib.testing import LocalAws

FUNCTION_SECONDS: Final = 60
"""Of emulated time: a slow process must not look like a planned fault."""
_EXPRESS_SECONDS: Final = 240
"""Of emulated time, likewise: of an Express execution."""
_MORE: Final = 10
"""How much longer a task waits than its function may take."""


def give_time(aws: LocalAws, outputs: Mapping[str, str], functions: Iterable[str]) -> None:
    """Let functions, and the tasks that wait for them, take longer.

    Args:
        aws: Local AWS.
        outputs: The stack's outputs.
        functions: Construct paths.
    """
    for path in functions:
        name = aws.resolve_function(path)
        aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
    machines = aws.client("stepfunctions")
    for arn in (outputs["ExpressMachineArn"], outputs["StateMachineArn"], outputs["RecoveryMachineArn"]):
        definition = json.loads(machines.describe_state_machine(stateMachineArn=arn)["definition"])
        for state in definition["States"].values():
            if state.get("Resource", "").endswith("lambda:invoke"):
                state["TimeoutSeconds"] = FUNCTION_SECONDS + _MORE
        definition["TimeoutSeconds"] = max(definition["TimeoutSeconds"], _EXPRESS_SECONDS)
        machines.update_state_machine(stateMachineArn=arn, definition=json.dumps(definition))
