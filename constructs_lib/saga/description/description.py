"""A saga as plain data, for cost, budget, drawing and comparison. Written into the cloud assembly at synth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from saga_runtime.protocol import Side

METADATA_TYPE: Final = "cdk-sagas:saga"
"""Type of the construct metadata that holds a saga's description in the cloud assembly."""
SCHEMA: Final = 3

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDescription:
    """Retries of one class of failures, in seconds."""

    attempts: int
    interval: int
    rate: float
    cap: int

    @property
    def delays(self) -> tuple[float, ...]:
        """Delays before each retry."""
        return tuple(min(self.interval * self.rate**n, self.cap) for n in range(self.attempts))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDescription:
    """A function, as far as it is known at synth; None for unknown properties of an imported function."""

    timeout: int
    memory_mib: int | None = None
    architecture: str | None = None


UNKNOWN: Final = FunctionDescription(timeout=0)
"""Of an imported function, or an alias of one, nothing is known. A timeout of 0 is one that is not known."""


def timed(function: object | None, timeout: int, facts: FunctionDescription | None) -> FunctionDescription | None:
    """A function with the timeout that its step knows, which may be declared for it; None without a function."""
    return dataclasses.replace(facts or UNKNOWN, timeout=timeout) if function is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescription:
    """A step or a group of steps.

    Attributes:
        name: its name.
        kind: value of ``StepKind``.
        side: value of ``Side``: before the pivot, the pivot, after it. Of a group: its first step's.
        when: its condition, if it has one.
        function: what it runs; None if the state machine does it itself.
        compensation: what undoes it; None if nothing does, or the state machine does it itself.
        compensated: whether something undoes it.
        recorded: whether it leaves a row in the saga log.
        grace: of an external step's provider and its clock margin together, in seconds.
        margin: its clock margin alone.
        writes: items that a step writes straight from the state machine; None if a function decides.
        timeout: of a phase, of one call straight from the state machine, or of waiting for an answer, in seconds.
        redelivery: of a job, seconds after which its queue delivers it again; 0 for anything else.
        heartbeat: seconds after which an outcome is treated as lost; 0 if the step does not wait.
        transient: retries of what passes.
        in_doubt: retries of what is in doubt.
        routes: what named errors lead to: ``notify`` or ``go on``.
        branches: of a group; empty for a plain step.
        max_items: of a map; 0 for anything else.
        max_concurrency: items of a map at once.
        window: how long an external step's provider knows a key, in seconds; 0 if it does not.
        verify: whether an external step's provider can be asked.
        undo_window: how long it knows the key of an undo, in seconds; 0 if it does not.
        verify_undo: whether it can be queried for the outcome of a compensation.
        messages: of a job, seconds for which one of its messages can be delivered, by its queue and after its
            dead-letter queue; 0 for anything else.
        constant: bytes that its state sends from the definition: parameters, writes, a message.
        instead: bytes of the largest output that a ``ContinueWith`` substitutes for the step's.
    """

    name: str
    kind: str
    side: str
    when: str | None = None
    function: FunctionDescription | None = None
    compensation: FunctionDescription | None = None
    compensated: bool = False
    recorded: bool = True
    grace: int = 0
    margin: int = 0
    writes: int | None = None
    timeout: int = 0
    heartbeat: int = 0
    redelivery: int = 0
    transient: RetryDescription | None = None
    in_doubt: RetryDescription | None = None
    routes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    branches: tuple[tuple[StepDescription, ...], ...] = ()
    max_items: int = 0
    max_concurrency: int = 1
    window: int = 0
    verify: bool = False
    undo_window: int = 0
    verify_undo: bool = False
    messages: int = 0
    constant: int = 0
    instead: int = 0

    @property
    def leaves(self) -> Iterator[StepDescription]:
        """The plain steps: itself, or those of its branches in order."""
        if not self.branches:
            yield self
        for branch in self.branches:
            for step in branch:
                yield from step.leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaDescription:
    """A saga.

    Attributes:
        name: path of the construct in its app.
        steps: in order.
        timeout: of the whole saga, in seconds.
        fingerprint: of the definition.
        tells_of_failure: whether a notification is sent when it fails.
        replayed: for how long its request's response is replayed after it settled, in seconds; 0 if that is not known.
        remembered: for how long its request's key is refused, in seconds; 0 if that is not known.
        due_after: seconds after which its request's record is first checked; 0 if that is not known.
        log_days: how long rows of its log are kept; 0 if that is not known.
        inline: whether it begins in an Express machine.
        definition: what sagas in flight depend on, as in a definition file.
        schema: of this description.
    """

    name: str
    steps: tuple[StepDescription, ...]
    timeout: int
    fingerprint: str
    tells_of_failure: bool = False
    replayed: int = 0
    remembered: int = 0
    due_after: int = 0
    log_days: int = 0
    inline: bool = False
    definition: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def leaves(self) -> Iterator[StepDescription]:
        """Every plain step, in order."""
        for step in self.steps:
            yield from step.leaves

    def to_json(self) -> str:
        """One text per description."""
        return json.dumps(self, default=_fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SagaDescription:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: if it is the description of another release.
        """
        document: dict[str, Any] = json.loads(text)
        if document.get("schema") != SCHEMA:
            raise ValueError(
                f"a saga's description has schema {SCHEMA}, got {document.get('schema')!r}; synthesize the app again "
                "with this release"
            )
        return cls(**document | {"steps": tuple(_step(step) for step in document["steps"])})


def sides_in(names: Sequence[str], pivots: Collection[str]) -> dict[str, Side]:
    """Position of each plain step, by its name.

    Args:
        names: of the plain steps, in order.
        pivots: those of the pivots.
    """
    last = max((index for index, name in enumerate(names) if name in pivots), default=len(names))
    return {
        name: Side.PIVOT if name in pivots else Side.BEFORE if index < last else Side.AFTER
        for index, name in enumerate(names)
    }


def _fields(described: Any) -> dict[str, Any]:
    """A description's fields as they are: ``dataclasses.asdict`` would copy all that is in them first."""
    return {field.name: getattr(described, field.name) for field in dataclasses.fields(described)}


def _step(document: Mapping[str, Any]) -> StepDescription:
    functions = {name: _optional(FunctionDescription, document[name]) for name in ("function", "compensation")}
    retries = {name: _optional(RetryDescription, document[name]) for name in ("transient", "in_doubt")}
    branches = tuple(tuple(_step(step) for step in branch) for branch in document["branches"])
    return StepDescription(**{**document, **functions, **retries, "branches": branches})


def _optional(kind: type[_T], fields: Mapping[str, Any] | None) -> _T | None:
    return kind(**fields) if fields is not None else None
