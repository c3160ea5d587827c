"""A group of short steps in one Express state machine."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.begin import given_to_phase
from constructs_lib.saga.asl.failures import broken, jsonata_object
from constructs_lib.saga.asl.groups import MARGIN_SECONDS, machine_retries
from constructs_lib.saga.asl.plan import CompiledGroup, SagaPlan, State
from constructs_lib.saga.cost.tally import Tally, express
from constructs_lib.saga.cost.usage import work
from constructs_lib.saga.cost.ways import Passed, entered
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Machine
from constructs_lib.saga.graph.looks import Tone, at_most
from constructs_lib.saga.kinds import GroupOfSteps
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import PhaseField

_BOLT: Final = "M9 1.5L3 9h4.5L7 14.5L13 7H8.5z"


class Express(GroupOfSteps, name="express"):
    """Short steps in one EXPRESS state machine."""

    icon = _BOLT
    tone = Tone.GROUP
    machine = Machine.EXPRESS

    def caption(self, step: StepDescription) -> str:
        """Longest duration of the phase."""
        return at_most("Express phase", step)

    def state(self, plan: SagaPlan, group: CompiledGroup, known: str) -> State:  # noqa: ARG002 - for other groups
        """A call of the machine, which succeeds even if the execution fails: its status shows that."""
        lost = jsonata_object({PhaseField.OK: False, PhaseField.FAILURE: broken(group.name)})
        answer = f'$states.result.Status = "SUCCEEDED" ? $parse($states.result.Output) : {lost}'
        return {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:sfn:startSyncExecution",
            "Arguments": {
                "StateMachineArn": group.machine_arn,
                "Input": expression(f"$string({given_to_phase(group, known)})"),
            },
            "TimeoutSeconds": group.timeout + MARGIN_SECONDS,
            "Retry": machine_retries(),
            "Assign": {"phase": answer},
        }

    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """A task that calls it, and a choice for its outcome; inside, states cost time only."""
        tally.state(group.name, 2)
        milliseconds = 0
        for step in entered(group.branches[0], passed, machine=True):
            milliseconds += tally.inputs.state_ms if step is None else work(tally, step)
        express(tally, group.name, milliseconds)
        tally.milliseconds += milliseconds + 2 * tally.inputs.state_ms
