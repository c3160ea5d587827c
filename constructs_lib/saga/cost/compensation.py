"""Usage of a saga that compensates: the last step that can refuse does so, and everything before is compensated.

Tried for every step up to the pivot, on every path; the most expensive is the longest compensation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from constructs_lib.saga.cost.assumptions import Assumptions, read_units
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally, Usage, front_door, look, run_inline, settle
from constructs_lib.saga.cost.usage import check_names, forward, rows_of, times_of
from constructs_lib.saga.cost.ways import PIVOT, Passed, entered, exclude, ways_of
from constructs_lib.saga.cost.work import write_transaction
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.description.kind import Machine, Mutation, group_kind, plain_kind

_AFTER: Final = "after"
CANCELED_RETRIES: Final = 3
"""How often the state machine repeats a transaction of its own that was canceled."""


def longest_compensation(saga: SagaDescription, inputs: Assumptions | None = None) -> Usage | None:
    """Usage of the most expensive compensation, the path to it included; None if no step can be refused.

    Counted: the refused step's own writes as if they had been sent, the fence or the direction, every compensation
    (that of the refused step and of steps on another way, too: the row decides, not the state machine), the question
    to the log, the notice, the settling. Not counted: a compensation that is retried.
    """
    known = inputs or Assumptions()
    check_names(saga, known)
    refused = [
        _refused_at(saga, known, passed, refuser)
        for passed in ways_of(saga, known.skip)
        for refuser in _refusers(saga, passed)
    ]
    return max(refused, key=lambda usage: usage.dollars(), default=None)


def _refusers(saga: SagaDescription, passed: Passed) -> list[StepDescription]:
    return [step for step in entered(saga.steps, passed) if step is not None and _last_leaf(step).side != _AFTER]


def _last_leaf(step: StepDescription) -> StepDescription:
    """The last of a group's steps that can still be refused."""
    leaves = list(step.leaves)
    return next((leaf for leaf in reversed(leaves) if leaf.side != _AFTER), leaves[-1])


def _refused_at(saga: SagaDescription, inputs: Assumptions, passed: Passed, refuser: StepDescription) -> Usage:
    tally = Tally(inputs)
    front_door(tally)
    for step in entered(saga.steps, passed, machine=True):
        forward(tally, step, passed)
        if step is refuser:
            break
    _give_up(tally, saga, refuser)
    index = saga.steps.index(refuser)
    for step in reversed(saga.steps[: index + 1]):
        _undo(tally, step, passed, _last_leaf(refuser))
    _settle_failed(tally, saga, saga.steps[: index + 1])
    if saga.inline:
        run_inline(tally)
    return tally.usage(f"{_last_leaf(refuser).name} refuses")


def _enter(tally: Tally, by: str, times: int = 1) -> None:
    tally.state(by, times)
    tally.milliseconds += tally.inputs.state_ms


def _give_up(tally: Tally, saga: SagaDescription, refuser: StepDescription) -> None:
    """The pivot is fenced by a tombstone; then the direction is written, whichever step was refused."""
    leaf = _last_leaf(refuser)
    kind = plain_kind(leaf.kind)
    if kind.commits:
        # An earlier attempt may have succeeded: the row is read before the refusal is accepted.
        tally.read(Purpose.LOG, leaf.name, 1)
    if kind.mutation is Mutation.BY_MACHINE:
        # A canceled transaction may have been a conflict: it is retried a few times, then the row is read.
        _enter(tally, f"{leaf.name}, again", CANCELED_RETRIES)
        write_transaction(tally, leaf, CANCELED_RETRIES)
        _enter(tally, f"{leaf.name} - read row")
        _enter(tally, f"{leaf.name} - applied?")
    elif refuser.branches and group_kind(refuser.kind).machine is not Machine.EXPRESS:
        _enter(tally, f"{refuser.name} - failed")
    if _a_pivot_may_stand(saga, refuser):
        _enter(tally, "give up?")
    if leaf.side == PIVOT:
        _enter(tally, "fence")
        tally.write(Purpose.LOG, "fence", tally.inputs.row_units)
        if kind.mutation is Mutation.OUTSIDE:
            # Its row is FAILED already: the tombstone is refused, and the row is read.
            _enter(tally, "fence - read row")
            _enter(tally, "fence - applied?")
            tally.read(Purpose.LOG, "fence", 1)
    _enter(tally, "direction")
    tally.write(Purpose.LOG, "direction", tally.inputs.record_units)


def _a_pivot_may_stand(saga: SagaDescription, refuser: StepDescription) -> bool:
    """With several pivots one may precede the refused step: the state machine has to check."""
    before = saga.steps[: saga.steps.index(refuser)]
    return any(
        leaf.side == PIVOT and not exclude(step.when or leaf.when, refuser.when)
        for step in before
        for leaf in step.leaves
    )


def _undo(tally: Tally, step: StepDescription, passed: Passed, refused: StepDescription) -> None:
    """Compensations of one entry of the saga's list, last one first."""
    compensated = [leaf for leaf in step.leaves if leaf.compensated]
    if not compensated:
        return
    items = times_of(step, tally.inputs)
    if step.branches and group_kind(step.kind).per_item:
        _enter(tally, f"undo {step.name}")
        _enter(tally, f"undo {step.name}, item over", items)
        _enter(tally, f"undo {step.name}, outcome")
    for leaf in reversed(compensated):
        # Of a map's items one is refused, the others have run to their end.
        ran = 0 if {step.name, leaf.name} & passed else items - (leaf is refused)
        undo = _undo_writes if plain_kind(leaf.kind).mutation is Mutation.BY_MACHINE else _undo_by_function
        undo(tally, leaf, ran=ran, idle=items - ran, refused=leaf is refused)


def _undo_by_function(tally: Tally, step: StepDescription, *, ran: int, idle: int, refused: bool) -> None:
    """A function that reads the row first; a step that was not applied gets a tombstone."""
    name, row = f"undo {step.name}", tally.inputs.row_units
    outside = plain_kind(step.kind).mutation is Mutation.OUTSIDE
    _enter(tally, name, ran + idle)
    milliseconds = tally.inputs.duration_of(step)
    tally.call(name, step.compensation, milliseconds, ran + idle)
    tally.milliseconds += milliseconds
    tally.read(Purpose.LOG, name, ran + idle)
    if outside:
        # COMPENSATING before the provider is called, COMPENSATED after it.
        tally.write(Purpose.LOG, name, 2 * row * ran)
    elif ran:
        write_transaction(tally, step, ran, name)
    says_so_already = refused and (outside or step.side == PIVOT)
    if not says_so_already:
        tally.write(Purpose.LOG, name, row * idle)


def _undo_writes(tally: Tally, step: StepDescription, *, ran: int, idle: int, refused: bool) -> None:
    """The state machine writes a tombstone; if refused, it reads the row, and compensates together with it."""
    name = f"undo {step.name}"
    _enter(tally, name, ran + idle)
    tally.write(Purpose.LOG, name, tally.inputs.row_units * (ran + idle))
    buried_by_fence = idle if refused and step.side == PIVOT else 0
    _enter(tally, f"{name} - read row", ran + buried_by_fence)
    _enter(tally, f"{name} - applied?", ran + buried_by_fence)
    tally.read(Purpose.LOG, name, ran + buried_by_fence)
    _enter(tally, f"{name} - write", ran)
    if ran:
        write_transaction(tally, step, ran, name)


def _settle_failed(tally: Tally, saga: SagaDescription, steps: Sequence[StepDescription]) -> None:
    """The log is queried for remaining effects; a notification is sent; the record is settled."""
    rows = rows_of(steps, tally.inputs)
    _enter(tally, "ask the log")
    tally.read(Purpose.LOG, "ask the log", read_units(rows * tally.inputs.row_bytes))
    _enter(tally, "all compensated?")
    routed = any("notify" in leaf.routes.values() for leaf in saga.leaves)
    if routed:
        _enter(tally, "select notification")
    if routed or saga.tells_of_failure:
        _enter(tally, "tell")
        tally.add(Meter.FIFO_REQUESTS, Purpose.EFFECTS, "tell", 1)
    _enter(tally, "settle")
    settle(tally)
    look(tally, rows=rows)
