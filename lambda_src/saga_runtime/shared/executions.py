"""Starting an execution of a state machine, or of the version that its alias points to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


def start_execution(
    step_functions: SFNClient, machine_arn: str, name: str, start_input: str, *, alias: str | None = None
) -> None:
    """Start an execution by name, with the stored bytes.

    An execution's name is unique per state machine, not per version: whichever version a second start would run, it
    starts nothing. A policy names the state machine, also for a start by an alias
    (docs.aws.amazon.com/step-functions, "Authorization for versions and aliases").

    Args:
        step_functions: the client.
        machine_arn: the state machine, without a qualifier.
        name: the execution's name.
        start_input: its input.
        alias: starts the version that it points to. One that does not exist, because a release has none, or has not
            made it yet, is left out.

    Raises:
        ClientError: as Step Functions refuses the start.
    """
    errors = step_functions.exceptions
    if alias is not None:
        try:
            step_functions.start_execution(stateMachineArn=f"{machine_arn}:{alias}", name=name, input=start_input)
        except (errors.StateMachineDoesNotExist, errors.ResourceNotFound):
            pass
        else:
            return
    step_functions.start_execution(stateMachineArn=machine_arn, name=name, input=start_input)
