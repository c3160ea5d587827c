"""Usage of a saga that completes: counted from its description, step by step.

Convention for Standard transitions, which AWS does not spell out to the last one: one per state that is entered, and
one per retry. Every count follows the generated definition and the runtime's own calls; tests hold them together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from constructs_lib.saga.cost.assumptions import Assumptions
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import (
    Purpose,
    Tally,
    Usage,
    arrival,
    front_door,
    look,
    run_inline,
    settle,
)
from constructs_lib.saga.cost.ways import Passed, entered, leads_around_pivots, ways_of
from constructs_lib.saga.cost.work import INDEX_UNITS
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.description.kind import Mutation, group_kind, plain_kind


class CountedKind:
    """A kind of plain step: the usage of a step."""

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """Add the usage of its work, without its state and its function."""

    def count_effects(self, tally: Tally, step: StepDescription, times: int) -> None:
        """Add the usage of its effects alone: plain writes, messages and events, as any other design has them."""


class CountedGroupKind(ABC):
    """A kind of group: the usage of a group."""

    @abstractmethod
    def count(self, tally: Tally, group: StepDescription, passed: Passed) -> None:
        """Add the usage of a group that runs to its end; ``passed`` are the names of the steps that are skipped."""


def counted_kind(step: StepDescription) -> CountedKind:
    """The kind of a plain step.

    Raises:
        TypeError: if its usage cannot be counted.
    """
    kind = plain_kind(step.kind)
    if not isinstance(kind, CountedKind):
        raise TypeError(f"kind of step {step.name} must be a CountedKind, got {step.kind!r}; make it a PlainStep")
    return kind


def counted_group_kind(group: StepDescription) -> CountedGroupKind:
    """The kind of a group.

    Raises:
        TypeError: if its usage cannot be counted.
    """
    kind = group_kind(group.kind)
    if not isinstance(kind, CountedGroupKind):
        raise TypeError(f"kind of {group.name} must be a CountedGroupKind, got {group.kind!r}; make it a GroupOfSteps")
    return kind


def happy_path(saga: SagaDescription, inputs: Assumptions | None = None) -> Usage:
    """Usage of a saga that completes: on its most expensive path, if conditions leave several.

    Raises:
        ValueError: if the inputs name steps that the saga does not have.
    """
    known = inputs or Assumptions()
    check_names(saga, known)
    ways = [_completed(saga, known, passed) for passed in ways_of(saga, known.skip)]
    return max(ways, key=lambda usage: usage.dollars())


def direct_operation(inputs: Assumptions | None = None) -> Usage:
    """Usage of a direct operation: one request or event, one function, one transaction, and no transition."""
    known = inputs or Assumptions()
    tally = Tally(known)
    if known.api:
        tally.add(Meter.REST_REQUESTS, Purpose.API, "request", 1)
    elif known.event is not None:
        arrival(tally, known.event)
    tally.call("request", None, known.duration_ms)
    tally.milliseconds += known.duration_ms
    record, items = known.direct_record_units, known.items * known.item_units
    tally.write(Purpose.API, "record, in a transaction", 2 * record)
    tally.write(Purpose.API, "record, index", INDEX_UNITS)
    tally.write(Purpose.API, "response removed", record)
    tally.write(Purpose.API, "response removed, index", INDEX_UNITS)
    tally.write(Purpose.LOG, "items, in a transaction", items)
    tally.write(Purpose.EFFECTS, "items", items)
    return tally.usage("direct operation")


def check_names(saga: SagaDescription, inputs: Assumptions) -> None:
    """Refuse inputs for steps that do not exist: a typing error would silently change nothing.

    Raises:
        ValueError: naming the step and those that the saga has.
    """
    names = {step.name for step in saga.leaves}
    for name in (*inputs.durations, *inputs.items_of):
        if name not in names:
            raise ValueError(f"saga {saga.name} has no step {name!r}; its steps are {', '.join(sorted(names))}")


def _completed(saga: SagaDescription, inputs: Assumptions, passed: Passed) -> Usage:
    tally = Tally(inputs)
    front_door(tally)
    for step in entered(saga.steps, passed, machine=True):
        forward(tally, step, passed)
    if leads_around_pivots(saga, passed):
        tally.state("direction")
        tally.write(Purpose.LOG, "direction", inputs.record_units)
        tally.milliseconds += inputs.state_ms
    tally.state("settle")
    settle(tally)
    tally.milliseconds += inputs.state_ms
    if saga.inline:
        run_inline(tally)
    look(tally, rows=rows_of(saga.steps, inputs, passed))
    return tally.usage(described_way(saga, passed))


def described_way(saga: SagaDescription, passed: Passed) -> str:
    """The steps of a way, by their names at the top level."""
    return ", ".join(step.name for step in saga.steps if step.name not in passed)


def forward(tally: Tally, step: StepDescription | None, passed: Passed) -> None:
    """One entry of the saga's list; None is a state that chooses."""
    if step is None:
        tally.state("choice")
        tally.milliseconds += tally.inputs.state_ms
    elif not step.branches:
        _plain(tally, step)
    else:
        counted_group_kind(step).count(tally, step, passed)


def _plain(tally: Tally, step: StepDescription) -> None:
    tally.state(step.name)
    if plain_kind(step.kind).runs_function:
        tally.add(Meter.TRANSITIONS, Purpose.ORCHESTRATION, step.name, tally.inputs.retries)
    tally.milliseconds += work(tally, step)


def work(tally: Tally, step: StepDescription, times: int = 1) -> int:
    """Work of a plain step, wherever its state is; returns the milliseconds that it takes once."""
    kind, inputs = plain_kind(step.kind), tally.inputs
    milliseconds = inputs.state_ms
    if kind.runs_function:
        own = inputs.duration_of(step)
        tally.call(step.name, step.function, own, times)
        milliseconds += own
    counted_kind(step).count(tally, step, times)
    return milliseconds


def branch(tally: Tally, steps: Sequence[StepDescription], passed: Passed, *, times: int, machine: bool = False) -> int:
    """States of a branch, of a child, or of a map; returns the milliseconds of one pass."""
    milliseconds = 0
    last: StepDescription | None = None
    for step in entered(steps, passed, machine=machine):
        tally.state(step.name if step else "choice", times)
        if step is None:
            milliseconds += tally.inputs.state_ms
            continue
        if plain_kind(step.kind).runs_function:
            tally.add(Meter.TRANSITIONS, Purpose.ORCHESTRATION, step.name, tally.inputs.retries * times)
        milliseconds += work(tally, step, times)
        last = step
    if last is None or last is not steps[-1] or plain_kind(last.kind).mutation is Mutation.BY_MACHINE:
        # The last step's own state ends the branch, unless it is skipped, or cannot return the branch's result.
        tally.state("through", times)
    return milliseconds


def times_of(step: StepDescription, inputs: Assumptions) -> int:
    """Number of times that the steps of one entry of the saga's list run: once, or for each item that a map takes."""
    if not step.branches or not group_kind(step.kind).per_item:
        return 1
    return min(inputs.map_items, step.max_items) if step.max_items else inputs.map_items


def rows_of(steps: Iterable[StepDescription], inputs: Assumptions, passed: Passed = frozenset()) -> int:
    """Rows that these steps leave in the saga log."""
    rows = 0
    for step in steps:
        if step.name not in passed:
            rows += times_of(step, inputs) * sum(1 for leaf in step.leaves if leaf.recorded and leaf.name not in passed)
    return rows
