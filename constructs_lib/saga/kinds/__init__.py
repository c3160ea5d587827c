"""One class per kind of step, which answers every question of a saga. ``kind_named`` imports its module."""

from __future__ import annotations

from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.groups import CompiledGroupKind
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.tasks import CompiledKind, Exits, direct_states, function_states
from constructs_lib.saga.cost.usage import CountedGroupKind, CountedKind
from constructs_lib.saga.description.kind import GroupKind, PlainKind
from constructs_lib.saga.steps.kind import DeclaredKind

__all__ = ["DirectStep", "FunctionStep", "GroupOfSteps", "PlainStep"]


class PlainStep(PlainKind, CompiledKind, CountedKind, DeclaredKind):
    """Base of each kind of plain step."""


class FunctionStep(PlainStep):
    """Base of each kind whose task calls a function."""

    runs_function = True

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """A task that calls its function."""
        return function_states(plan, flow, index, exits)


class DirectStep(PlainStep):
    """Base of each kind that is a state without a function."""

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """The declared state."""
        return direct_states(plan, flow, index, exits)


class GroupOfSteps(GroupKind, CompiledGroupKind, CountedGroupKind):
    """Base of each kind of group."""
