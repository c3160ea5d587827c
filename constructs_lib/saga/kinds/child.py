"""A group of steps in a Standard state machine of its own."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.begin import given_to_phase
from constructs_lib.saga.asl.groups import MARGIN_SECONDS, machine_retries
from constructs_lib.saga.asl.plan import CompiledGroup, SagaPlan, State
from constructs_lib.saga.asl.states import EXECUTION
from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.usage import branch
from constructs_lib.saga.cost.ways import Passed
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Machine
from constructs_lib.saga.graph.looks import Tone, at_most
from constructs_lib.saga.kinds import GroupOfSteps
from constructs_lib.saga.steps.jsonata import expression

_NESTED: Final = "M2 2h12v12H2zM5.5 5.5h5v5h-5z"


class Child(GroupOfSteps, name="child"):
    """Steps in a Standard state machine with a history of its own."""

    icon = _NESTED
    tone = Tone.GROUP
    machine = Machine.STANDARD

    def caption(self, step: StepDescription) -> str:
        """Longest duration of the phase."""
        return at_most("Standard child", step)

    def state(self, plan: SagaPlan, group: CompiledGroup, known: str) -> State:
        """A task whose attempts have executions of their own, by a derived name; the saga log keeps steps single."""
        entered = "$toMillis($states.context.State.EnteredTime)"
        position = [node.name for node in plan.steps].index(group.name)
        name = f'{EXECUTION} & "-{position}-" & $string({entered}) & "-" & $string($states.context.State.RetryCount)'
        return {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Arguments": {
                "StateMachineArn": group.machine_arn,
                "Name": expression(name),
                "Input": expression(given_to_phase(group, known)),
            },
            "TimeoutSeconds": group.timeout + MARGIN_SECONDS,
            "Retry": machine_retries(),
            "Assign": {"phase": "$states.result.Output"},
        }

    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """A task that runs it, and a choice for its outcome; its steps are transitions of its own."""
        tally.state(group.name, 2)
        milliseconds = branch(tally, group.branches[0], passed, times=1, machine=True)
        tally.milliseconds += 2 * tally.inputs.state_ms + milliseconds
