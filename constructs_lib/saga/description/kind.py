"""Attributes of a kind of step, which every room may read. A kind is one class, in one module of the room ``kinds``.

A room that needs more of a kind than these attributes declares its question itself: ``CompiledKind``, ``CountedKind``,
``DeclaredKind``. The classes in ``kinds`` answer all of them.
"""

from __future__ import annotations

from abc import ABC
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar, Final

from constructs_lib.saga.description.description import StepDescription

_ROOM: Final = "constructs_lib.saga.kinds"
_KINDS: Final[dict[str, Kind]] = {}


class Mutation(Enum):
    """Ways in which a step's effect and its row in the saga log are written."""

    BY_FUNCTION = "by a function"
    """Its function commits both in one transaction."""
    BY_MACHINE = "by the state machine"
    """The state machine commits both in one transaction, and compensates likewise."""
    OUTSIDE = "outside"
    """The effect is at a provider: there is a row before its call, and one after it."""


class Machine(Enum):
    """Types of a state machine of a group's own."""

    EXPRESS = "EXPRESS"
    STANDARD = "STANDARD"


class Kind(ABC):
    """Attributes of a kind. A subclass with a name is registered: ``class Notify(PlainStep, name="notify")``.

    Attributes:
        name: as in ``Step.kind`` and ``StepDescription.kind``; with ``-`` for ``_`` the name of its module.
        icon: its icon in a drawing: a path in a square of 16, stroked.
        words: its caption in a drawing, so that no legend is needed.
        tone: its colour in a drawing: a ``Tone``.
        asks_first: whether a separate state compares the definition when it begins a state machine: its own state
            evaluates no expression of the saga's.
    """

    name: ClassVar[str]
    icon: ClassVar[str]
    words: ClassVar[str] = ""
    tone: ClassVar[str]
    asks_first: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        super().__init_subclass__()
        if name is None:
            return
        missing = [attribute for attribute in ("icon", "tone") if not hasattr(cls, attribute)]
        # Python knows the abstract methods of a class only after this method.
        missing += [member for member in dir(cls) if getattr(getattr(cls, member, None), "__isabstractmethod__", False)]
        if missing:
            raise ValueError(f"kind {cls.__qualname__} must define {missing[0]}, got nothing; define it")
        if name in _KINDS:
            raise ValueError(f"name of kind {cls.__qualname__} must be new, got {name!r}; choose another one")
        cls.name = name
        _KINDS[name] = cls()

    def caption(self, step: StepDescription) -> str:
        """Caption of one step: ``words`` by default."""
        return self.words or step.kind


class PlainKind(Kind):
    """Attributes of a kind of plain step.

    Attributes:
        mutation: how its effect is written; None if it has none that a compensation could undo.
        sends: whether its effect is a message, which cannot be taken back.
        keyed_message: whether its step key is the deduplication id of that message, in a FIFO queue.
        runs_function: whether its state calls a function.
        runs_task: whether its state is a task, whose attempts are events of the history.
        keeps_answer: whether its function reads, and only its answer is a row.
        own_state: whether its state is the user's own, which may fail and wait as the user declares.
    """

    mutation: ClassVar[Mutation | None] = None
    sends: ClassVar[bool] = False
    keyed_message: ClassVar[bool] = False
    runs_function: ClassVar[bool] = False
    runs_task: ClassVar[bool] = True
    keeps_answer: ClassVar[bool] = False
    own_state: ClassVar[bool] = False

    @property
    def mutates(self) -> bool:
        """True if it has an effect that a compensation could undo."""
        return self.mutation is not None

    @property
    def commits(self) -> bool:
        """True if its effect and its row are one transaction."""
        return self.mutation in (Mutation.BY_FUNCTION, Mutation.BY_MACHINE)


class GroupKind(Kind):
    """Attributes of a kind of group.

    Attributes:
        at_once: whether its steps run concurrently with others.
        machine: type of the state machine of their own in which its steps run; None if they run in the saga's.
        per_item: whether its steps run once for each item.
        refusals: names of the errors with which its own state refuses the saga.
    """

    at_once: ClassVar[bool] = False
    machine: ClassVar[Machine | None] = None
    per_item: ClassVar[bool] = False
    refusals: ClassVar[tuple[str, ...]] = ()


def kind_named(name: str) -> Kind | None:
    """The kind of this name; None if nothing that was imported declares one."""
    if name not in _KINDS:
        module = f"{_ROOM}.{name.replace('-', '_')}"
        if name.replace("-", "").isalpha() and find_spec(module) is not None:
            import_module(module)
    return _KINDS.get(name)


def plain_kind(name: str) -> PlainKind:
    """The kind of a plain step.

    Raises:
        ValueError: if nothing that was imported declares it.
    """
    kind = kind_named(name)
    if not isinstance(kind, PlainKind):
        raise ValueError(f"kind of a plain step must be declared by a PlainKind, got {name!r}; import its module")
    return kind


def group_kind(name: str) -> GroupKind:
    """The kind of a group.

    Raises:
        ValueError: if nothing that was imported declares it.
    """
    kind = kind_named(name)
    if not isinstance(kind, GroupKind):
        raise ValueError(f"kind of a group must be declared by a GroupKind, got {name!r}; import its module")
    return kind
