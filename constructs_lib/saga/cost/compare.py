"""The same saga built in other ways: what they would use for the same steps, sizes and durations.

None of them gives what a saga here gives; the omissions are printed next to each number. Their rules are stated as
text, and were written before the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from constructs_lib.saga.cost.assumptions import Assumptions, write_units
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally, Usage, api_call
from constructs_lib.saga.cost.usage import check_names, counted_kind, happy_path, times_of
from constructs_lib.saga.cost.ways import Passed, entered, ways_of
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.description.kind import group_kind, plain_kind

RETENTION_DAYS: Final = 14
"""How long a durable execution's data is kept after its end; the service's default."""
_GB: Final = 1_024**3
_DAYS_A_MONTH: Final = 30
_MARKER_BYTES: Final = 100

_Count = Callable[[Tally, SagaDescription, Passed], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another way to build the saga.

    Attributes:
        name: in a few words.
        usage: of one saga that completes.
        rule: how it was counted.
        without: what it does not do.
    """

    name: str
    usage: Usage
    rule: str
    without: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    step: StepDescription
    times: int


def alternatives(saga: SagaDescription, inputs: Assumptions | None = None) -> list[Alternative]:
    """The saga as declared, then built in three other ways; happy paths, on the dearest way of each."""
    known = inputs or Assumptions()
    check_names(saga, known)
    return [
        Alternative(
            name="this saga",
            usage=happy_path(saga, known),
            rule="as generated",
            without="",
        ),
        Alternative(
            name="Standard only, by hand",
            usage=_dearest(saga, known, _by_hand),
            rule="one state and function per step, one choice per undecided condition, two states per parallel or map, "
            "one state and function that writes the response; a marker in the transaction of a step's writes; the "
            "gatekeeper reads the key, and puts it",
            without="no undo that is safe to repeat, no recovery; a provider's call has no record",
        ),
        Alternative(
            name="function per step with Powertools",
            usage=_dearest(saga, known, _with_powertools),
            rule="as by hand, but plain writes, and @idempotent on every function: 2 write units per call and KB",
            without="a function that times out runs again: its effect may happen twice",
        ),
        Alternative(
            name="Lambda durable functions",
            usage=_dearest(saga, known, _durable),
            rule="one operation for the start, one per step, one per parallel or map, and one per branch or item; "
            f"request and outputs written once and kept for {RETENTION_DAYS} days after; one function that runs all "
            "steps",
            without="steps run at least once: an effect needs an idempotency of its own",
        ),
    ]


def _dearest(saga: SagaDescription, inputs: Assumptions, count: _Count) -> Usage:
    usages = []
    for passed in ways_of(saga, inputs.skip):
        tally = Tally(inputs)
        count(tally, saga, passed)
        usages.append(tally.usage("completes"))
    return max(usages, key=lambda usage: usage.dollars())


def _by_hand(tally: Tally, saga: SagaDescription, passed: Passed) -> None:
    _front_door(tally)
    _states(tally, saga, passed)
    for leaf in _leaves(tally.inputs, saga, passed):
        _function(tally, leaf)
        counted_kind(leaf.step).count_effects(tally, leaf.step, leaf.times)
        if plain_kind(leaf.step.kind).commits:
            items = tally.inputs.items_written_by(leaf.step) * tally.inputs.item_units
            marker = 2 * write_units(_MARKER_BYTES)
            tally.write(Purpose.LOG, leaf.step.name, (marker + items) * leaf.times)
    _answer(tally)


def _with_powertools(tally: Tally, saga: SagaDescription, passed: Passed) -> None:
    _front_door(tally)
    _states(tally, saga, passed)
    for leaf in _leaves(tally.inputs, saga, passed):
        _function(tally, leaf)
        counted_kind(leaf.step).count_effects(tally, leaf.step, leaf.times)
        if plain_kind(leaf.step.kind).runs_function:
            tally.write(Purpose.LOG, leaf.step.name, 2 * tally.inputs.row_units * leaf.times)
    _answer(tally)


def _durable(tally: Tally, saga: SagaDescription, passed: Passed) -> None:
    inputs = tally.inputs
    _front_door(tally)
    tally.add(Meter.DURABLE_OPERATIONS, Purpose.ORCHESTRATION, "start", 1)
    milliseconds, written = 0, inputs.request_bytes
    for step in (step for step in entered(saga.steps, passed) if step is not None):
        if step.branches and group_kind(step.kind).at_once:
            contexts = len(step.branches) * times_of(step, inputs)
            tally.add(Meter.DURABLE_OPERATIONS, Purpose.ORCHESTRATION, step.name, 1 + contexts)
    for leaf in _leaves(inputs, saga, passed):
        tally.add(Meter.DURABLE_OPERATIONS, Purpose.ORCHESTRATION, leaf.step.name, leaf.times)
        written += inputs.output_bytes * leaf.times
        own = inputs.duration_of(leaf.step) if plain_kind(leaf.step.kind).runs_function else inputs.state_ms
        milliseconds += own * leaf.times
        counted_kind(leaf.step).count_effects(tally, leaf.step, leaf.times)
    gigabytes = Decimal(written) / _GB
    tally.add(Meter.DURABLE_GB_WRITTEN, Purpose.ORCHESTRATION, "data", gigabytes)
    kept = gigabytes * RETENTION_DAYS / _DAYS_A_MONTH
    tally.add(Meter.DURABLE_GB_MONTHS, Purpose.ORCHESTRATION, "data", kept)
    tally.call("all steps", None, milliseconds)
    _write_answer(tally)


def _states(tally: Tally, saga: SagaDescription, passed: Passed) -> None:
    """One state per step and open condition; phases are taken apart, since all of them is one Standard machine."""
    for step in entered(saga.steps, passed):
        if step is None:
            tally.state("choice")
        elif not step.branches:
            tally.state(step.name)
        else:
            times = times_of(step, tally.inputs)
            if group_kind(step.kind).at_once:
                tally.state(step.name, 2)
            for branch in step.branches:
                for inner in entered(branch, passed):
                    tally.state(inner.name if inner else "choice", times)


def _leaves(inputs: Assumptions, saga: SagaDescription, passed: Passed) -> Iterator[_Leaf]:
    for step in (step for step in entered(saga.steps, passed) if step is not None):
        times = times_of(step, inputs)
        for leaf in step.leaves:
            if leaf.name not in passed:
                yield _Leaf(step=leaf, times=times)


def _front_door(tally: Tally) -> None:
    """Look the key up, put it."""
    if tally.inputs.api:
        api_call(tally, "request")
    tally.read(Purpose.API, "look up", 1)
    tally.write(Purpose.API, "reserve", write_units(_MARKER_BYTES + tally.inputs.request_bytes))


def _answer(tally: Tally) -> None:
    """A last state, whose function writes the answer."""
    tally.state("answer")
    tally.call("answer", None, tally.inputs.duration_ms)
    _write_answer(tally)


def _write_answer(tally: Tally) -> None:
    size = _MARKER_BYTES + tally.inputs.request_bytes + tally.inputs.result_bytes
    tally.write(Purpose.API, "answer", write_units(size))
    _look(tally)


def _look(tally: Tally) -> None:
    for _ in range(tally.inputs.polls if tally.inputs.api else 0):
        api_call(tally, "poll")
        tally.read(Purpose.API, "poll", 1)


def _function(tally: Tally, leaf: _Leaf) -> None:
    if plain_kind(leaf.step.kind).runs_function:
        tally.call(leaf.step.name, leaf.step.function, tally.inputs.duration_of(leaf.step), leaf.times)
        tally.add(Meter.TRANSITIONS, Purpose.ORCHESTRATION, leaf.step.name, tally.inputs.retries * leaf.times)
