"""One class per kind of step, which answers every question of a saga. ``kind_named`` imports its module."""

from __future__ import annotations

from constructs_lib.saga.asl.groups import CompiledGroupKind
from constructs_lib.saga.asl.tasks import CompiledKind
from constructs_lib.saga.cost.usage import CountedGroupKind, CountedKind
from constructs_lib.saga.description.kind import GroupKind, PlainKind
from constructs_lib.saga.steps.kind import DeclaredKind

__all__ = ["GroupOfSteps", "PlainStep"]


class PlainStep(PlainKind, CompiledKind, CountedKind, DeclaredKind):
    """Base of each kind of plain step."""


class GroupOfSteps(GroupKind, CompiledGroupKind, CountedGroupKind):
    """Base of each kind of group."""
