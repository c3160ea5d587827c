"""A saga as plain data, for cost, budget, drawing and comparison. Written into the cloud assembly at synth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from constructs_lib.saga.description.retry import Retry
from saga_runtime.protocol import PERMANENT_ERRORS, Side
from saga_runtime.saga_log.provider import ProviderSettings

METADATA_TYPE: Final = "cdk-sagas:saga"
"""Type of the construct metadata that holds a saga's description in the cloud assembly."""
SCHEMA: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDescription:
    """A function, as far as it is known at synth; None for unknown properties of an imported function."""

    timeout: int
    memory_mib: int | None = None
    architecture: str | None = None


UNKNOWN: Final = FunctionDescription(timeout=0)
"""Of an imported function, or an alias of one, nothing is known. A timeout of 0 is one that is not known."""


def seconds_of(function: FunctionDescription | None) -> int:
    """Timeout of a function; 0 without one."""
    return function.timeout if function is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait of a step for an outcome. Times are seconds.

    Attributes:
        heartbeat: longest time without an outcome or a heartbeat, after which the outcome is treated as lost, and the
            provider is queried.
        timeout: when the step fails.
        redelivery: of a job, when its queue delivers it again; 0 for anything else.
        messages: of a job, how long one of its messages can be delivered, by its queue and after its dead-letter queue;
            0 for anything else.
    """

    heartbeat: int
    timeout: int
    redelivery: int = 0
    messages: int = 0

    @property
    def attempts(self) -> int:
        """Number of times that an outcome may be treated as lost before the time is up."""
        return max(1, ceil(self.timeout / self.heartbeat))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """Facts of a plain step, as plain data: each field is declared here only.

    ``Step`` declares them, with the constructs that it needs. ``CompiledStep`` has them with names and ARNs,
    ``StepDescription`` with what follows from a step's place and contents.

    Attributes:
        name: unique in its saga; part of every key, so renaming a deployed step makes it another one.
        kind: name of its ``Kind``.
        when: JSONata condition (without the ``{% %}``); the step is skipped when it is false. Anything but true and
            false, a missing value included, fails the saga before the step (``ConditionNotBoolean``).
        retry: how its failures are retried.
        refusals: names of permanent errors of the user's own.
        transient: names of transient errors of the user's own.
        function: what it runs; None if the state machine does it itself.
        compensation: what undoes it; None if nothing does, or the state machine does it itself.
        recorded: whether it leaves a row in the saga log.
        provider: what the provider of an external step, or of a job, guarantees.
        wait: how it waits for an outcome from outside.
    """

    name: str
    kind: str
    when: str | None = None
    retry: Retry = field(default_factory=Retry)
    refusals: tuple[str, ...] = ()
    transient: tuple[str, ...] = ()
    function: FunctionDescription | None = None
    compensation: FunctionDescription | None = None
    recorded: bool = True
    provider: ProviderSettings | None = None
    wait: Wait | None = None

    @property
    def permanent_errors(self) -> tuple[str, ...]:
        """Every error name that refuses this step."""
        return tuple(dict.fromkeys((*PERMANENT_ERRORS, *self.refusals)))

    @property
    def job(self) -> bool:
        """True if a provider works on it and reports later: its effect may be late."""
        return self.wait is not None and self.provider is not None

    @property
    def doubt(self) -> int:
        """Seconds for which a request to its provider can be on its way after its sender died; 0 without one."""
        return self.provider.grace + self.provider.clock_skew if self.provider is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts of a group of steps, as plain data, of which ``StepGroup`` and ``CompiledGroup`` are made.

    Attributes:
        name: unique among the saga's steps and groups.
        kind: kind of the group.
        when: JSONata condition (without the ``{% %}``); the whole group is skipped when it is false.
        items: JSONata expression of the items of a map.
        key: JSONata expression of an item's key, over ``$item``.
        max_items: how many items a map may have.
        max_concurrency: items that run at once.
        timeout: of a phase in a state machine of its own, in seconds.
    """

    name: str
    kind: str
    when: str | None = None
    items: str | None = None
    key: str | None = None
    max_items: int = 40
    max_concurrency: int = 10
    timeout: int = 0


def fields_in(value: Any, of: type) -> dict[str, Any]:
    """The fields of a dataclass that a value has by that class, as they are: ``dataclasses.asdict`` would copy them."""
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(of)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescription(StepFacts):
    """A step or a group of steps.

    Attributes:
        side: value of ``Side``: before the pivot, the pivot, after it. Of a group: its first step's.
        compensated: whether something undoes it.
        writes: items that a step writes straight from the state machine; None if a function decides.
        timeout: of a phase, of one call straight from the state machine, or of waiting for an answer, in seconds.
        retried: whether its state may fail and be entered again; one that only waits, or passes data on, is not.
        routes: what named errors lead to: ``notify`` or ``continue``.
        branches: of a group; empty for a plain step.
        max_items: of a map; 0 for anything else.
        max_concurrency: items of a map at once.
        constant: bytes that its state sends from the definition: parameters, writes, a message.
        instead: bytes of the largest output that a ``ContinueWith`` substitutes for the step's.
    """

    side: str
    compensated: bool = False
    writes: int | None = None
    timeout: int = 0
    retried: bool = True
    routes: Mapping[str, str] = field(default_factory=dict)
    branches: tuple[tuple[StepDescription, ...], ...] = ()
    max_items: int = 0
    max_concurrency: int = 1
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
    definition: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def leaves(self) -> Iterator[StepDescription]:
        """Every plain step, in order."""
        for step in self.steps:
            yield from step.leaves

    def to_json(self) -> str:
        """One text per description."""
        return json.dumps(
            self, default=lambda value: fields_in(value, type(value)), sort_keys=True, separators=(",", ":")
        )

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


def _step(document: Mapping[str, Any]) -> StepDescription:
    nested: dict[str, Callable[..., object]] = {
        "function": FunctionDescription,
        "compensation": FunctionDescription,
        "retry": Retry,
        "provider": _provider,
        "wait": Wait,
    }
    made = {name: make(**document[name]) for name, make in nested.items() if document[name] is not None}
    errors = {name: tuple(document[name]) for name in ("refusals", "transient")}
    branches = tuple(tuple(_step(step) for step in branch) for branch in document["branches"])
    return StepDescription(**{**document, **made, **errors, "branches": branches})


def _provider(*, refusals: Sequence[str], **settings: Any) -> ProviderSettings:
    return ProviderSettings(refusals=tuple(refusals), **settings)
