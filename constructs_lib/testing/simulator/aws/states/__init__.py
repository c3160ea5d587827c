"""Step Functions in memory: an interpreter of generated definitions, executions that end early and are redriven."""

from constructs_lib.testing.simulator.aws.states.executions import Execution
from constructs_lib.testing.simulator.aws.states.machines import StateMachines
from constructs_lib.testing.simulator.aws.states.tasks import Tasks

__all__ = ["Execution", "StateMachines", "Tasks"]
