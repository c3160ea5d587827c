"""Step Functions in memory: an interpreter of generated definitions, executions that end early and are redriven."""

from .executions import Execution
from .machines import StateMachines
from .tasks import Tasks

__all__ = ["Execution", "StateMachines", "Tasks"]
