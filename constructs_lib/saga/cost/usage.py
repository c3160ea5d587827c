"""Usage of a saga that completes: counted from its description, step by step.

Convention for Standard transitions, which AWS does not spell out to the last one: one per state that is entered, and
one per retry. Every count follows the generated definition and the runtime's own calls; tests hold them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from constructs_lib.saga.cost.assumptions import Assumptions
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import (
    Purpose,
    Tally,
    Usage,
    express,
    front_door,
    look,
    run_inline,
    settle,
)
from constructs_lib.saga.cost.ways import Passed, entered, leads_around_pivots, ways_of
from constructs_lib.saga.description.description import SagaDescription, StepDescription

FUNCTION_KINDS: Final = frozenset({"atomic", "external", "read-only", "notify", "callback", "wait"})
"""Kinds of steps that run a function."""
_QUEUE_CALLS: Final = 3
TOKEN_UNITS: Final = 3
"""A token has up to 2,048 characters, and its row the rest."""
INDEX_UNITS: Final = 1
MOVED_INDEX_UNITS: Final = 2
"""An entry of an index whose key changes is deleted and put."""
_RECEIPT_READS: Final = 2


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
    """Usage of a direct operation: one request, one function, one transaction, and no transition."""
    known = inputs or Assumptions()
    tally = Tally(known)
    if known.api:
        tally.add(Meter.REST_REQUESTS, Purpose.API, "request", 1)
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
        _GROUPS[step.kind](tally, step, passed)


def _plain(tally: Tally, step: StepDescription) -> None:
    tally.state(step.name)
    if _runs_a_function(step):
        tally.add(Meter.TRANSITIONS, Purpose.ORCHESTRATION, step.name, tally.inputs.retries)
    tally.milliseconds += work(tally, step)


def work(tally: Tally, step: StepDescription, times: int = 1) -> int:
    """Work of a plain step, wherever its state is; returns the milliseconds that it takes once."""
    inputs = tally.inputs
    milliseconds = inputs.state_ms
    if _runs_a_function(step):
        own = inputs.duration_of(step)
        tally.call(step.name, step.function, own, times)
        milliseconds += own
    if counted := _WORK.get(step.kind):
        counted(tally, step, times)
    return milliseconds


def _runs_a_function(step: StepDescription) -> bool:
    return step.kind in FUNCTION_KINDS


def transaction(tally: Tally, step: StepDescription, times: int, by: str | None = None) -> None:
    """One TransactWriteItems with the log row in it: every unit counts twice.

    An item's first unit is the effect's, as a plain write would cost it; the second one is the log's.
    """
    inputs = tally.inputs
    items = inputs.items_written_by(step) * inputs.item_units
    name = by or step.name
    tally.write(Purpose.LOG, name, 2 * inputs.row_units * times)
    tally.write(Purpose.LOG, f"{name}, in a transaction", items * times)
    tally.write(Purpose.EFFECTS, name, items * times)


def _external(tally: Tally, step: StepDescription, times: int) -> None:
    """INTENT before the provider is called, DONE after it."""
    tally.write(Purpose.LOG, step.name, 2 * tally.inputs.row_units * times)


def _read_only(tally: Tally, step: StepDescription, times: int) -> None:
    if step.recorded:
        tally.read(Purpose.LOG, step.name, times)
        tally.write(Purpose.LOG, step.name, tally.inputs.row_units * times)


def _notify(tally: Tally, step: StepDescription, times: int) -> None:
    """The row is read, the message sent, the row written: in a transaction of its own."""
    tally.read(Purpose.LOG, step.name, times)
    tally.add(Meter.FIFO_REQUESTS, Purpose.EFFECTS, step.name, times)
    tally.write(Purpose.LOG, step.name, 2 * tally.inputs.row_units * times)


def _callback(tally: Tally, step: StepDescription, times: int) -> None:
    """A job goes through the queue, is dispatched, and its outcome arrives by a webhook."""
    # INTENT before the provider is called, and that it took the job on; has an answer come before?
    tally.read(Purpose.LOG, step.name, times)
    tally.write(Purpose.LOG, step.name, 2 * tally.inputs.row_units * times)
    _waiting(tally, step, times)


def _waiting(tally: Tally, step: StepDescription, times: int) -> None:
    """Sent, received and deleted; registered; one transaction of event, token and row; delivered."""
    name, row = step.name, tally.inputs.row_units
    tally.add(Meter.QUEUE_REQUESTS, Purpose.ORCHESTRATION, name, _QUEUE_CALLS * times)
    tally.add(Meter.REST_REQUESTS, Purpose.ORCHESTRATION, f"{name}, answer", times)
    tally.call(f"{name}, answer", None, tally.inputs.gatekeeper_ms, times)
    tally.write(Purpose.LOG, f"{name}, token", (TOKEN_UNITS + INDEX_UNITS) * times)
    tally.read(Purpose.LOG, f"{name}, answer", _RECEIPT_READS * times)
    tally.write(Purpose.LOG, f"{name}, answer", 2 * (1 + TOKEN_UNITS + row) * times)
    tally.write(Purpose.LOG, f"{name}, delivered", (TOKEN_UNITS + INDEX_UNITS) * times)
    tally.write(Purpose.LOG, f"{name}, answer, index", MOVED_INDEX_UNITS * times)


def _awaited(tally: Tally, step: StepDescription, times: int) -> None:
    """Nothing is written before; the row is read, and whether an outcome has arrived before."""
    tally.read(Purpose.LOG, step.name, 2 * times)
    _waiting(tally, step, times)


def _event(tally: Tally, step: StepDescription, times: int) -> None:
    tally.add(Meter.EVENTS, Purpose.EFFECTS, step.name, times)


def _express(tally: Tally, step: StepDescription, passed: Passed) -> None:
    """A task that calls it, and a choice for its outcome; inside, states cost time only."""
    tally.state(step.name, 2)
    milliseconds = 0
    for inner in entered(step.branches[0], passed, machine=True):
        milliseconds += tally.inputs.state_ms if inner is None else work(tally, inner)
    express(tally, step.name, milliseconds)
    tally.milliseconds += milliseconds + 2 * tally.inputs.state_ms


def _child(tally: Tally, step: StepDescription, passed: Passed) -> None:
    """A task that runs it, and a choice for its outcome; its steps are transitions of its own."""
    tally.state(step.name, 2)
    tally.milliseconds += 2 * tally.inputs.state_ms + _branch(tally, step.branches[0], passed, times=1, machine=True)


def _parallel(tally: Tally, step: StepDescription, passed: Passed) -> None:
    tally.state(step.name, 2)
    longest = max(_branch(tally, branch, passed, times=1) for branch in step.branches)
    tally.milliseconds += 2 * tally.inputs.state_ms + longest


def _map(tally: Tally, step: StepDescription, passed: Passed) -> None:
    """Every item enters every state of the map's steps."""
    tally.state(step.name, 2)
    items = items_of_map(tally.inputs, step)
    tally.milliseconds += 2 * tally.inputs.state_ms + _branch(tally, step.branches[0], passed, times=items)


def items_of_map(inputs: Assumptions, step: StepDescription) -> int:
    """Items that a map works on: as many as were asked for, and never more than it takes."""
    return min(inputs.map_items, step.max_items) if step.max_items else inputs.map_items


def _branch(
    tally: Tally, steps: Sequence[StepDescription], passed: Passed, *, times: int, machine: bool = False
) -> int:
    """States of a branch, of a child, or of a map; returns the milliseconds of one pass."""
    milliseconds = 0
    last: StepDescription | None = None
    for step in entered(steps, passed, machine=machine):
        tally.state(step.name if step else "choice", times)
        if step is None:
            milliseconds += tally.inputs.state_ms
            continue
        if _runs_a_function(step):
            tally.add(Meter.TRANSITIONS, Purpose.ORCHESTRATION, step.name, tally.inputs.retries * times)
        milliseconds += work(tally, step, times)
        last = step
    if last is None or last is not steps[-1] or last.kind == "dynamodb":
        # The last step's own state ends the branch, unless it is skipped, or cannot return the branch's result.
        tally.state("through", times)
    return milliseconds


def rows_of(steps: Iterable[StepDescription], inputs: Assumptions, passed: Passed = frozenset()) -> int:
    """Rows that these steps leave in the saga log."""
    rows = 0
    for step in steps:
        if step.name not in passed:
            items = items_of_map(inputs, step) if step.kind == "map" else 1
            rows += items * sum(1 for leaf in step.leaves if leaf.recorded and leaf.name not in passed)
    return rows


_WORK: Final[dict[str, Callable[[Tally, StepDescription, int], None]]] = {
    "atomic": transaction,
    "dynamodb": transaction,
    "external": _external,
    "read-only": _read_only,
    "notify": _notify,
    "event": _event,
    "callback": _callback,
    "wait": _awaited,
}
_GROUPS: Final[dict[str, Callable[[Tally, StepDescription, Passed], None]]] = {
    "express": _express,
    "child": _child,
    "parallel": _parallel,
    "map": _map,
}
