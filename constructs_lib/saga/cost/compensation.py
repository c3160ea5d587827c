"""What a saga uses that goes back: the last step that can refuse does so, and everything before it is undone.

Tried for every step up to the pivot, on every way; the dearest one is the longest compensation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from constructs_lib.saga.cost.assumptions import Assumptions, read_units
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally, Usage, front_door, look, settle
from constructs_lib.saga.cost.usage import check_names, forward, items_of_map, rows_of, transaction
from constructs_lib.saga.cost.ways import Passed, entered, exclude, ways_of
from constructs_lib.saga.description import SagaDescription, StepDescription

_AFTER: Final = "after"
_PIVOT: Final = "pivot"


def longest_compensation(saga: SagaDescription, inputs: Assumptions | None = None) -> Usage | None:
    """What the dearest compensation uses, the way to it included; None if nothing of the saga can be refused.

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
    for step in entered(saga.steps, passed):
        forward(tally, step, passed)
        if step is refuser:
            break
    _give_up(tally, saga, refuser)
    index = saga.steps.index(refuser)
    for step in reversed(saga.steps[: index + 1]):
        _undo(tally, step, passed, _last_leaf(refuser))
    _settle_failed(tally, saga, saga.steps[: index + 1])
    return tally.usage(f"{_last_leaf(refuser).name} refuses")


def _enter(tally: Tally, by: str, times: int = 1) -> None:
    tally.state(by, times)
    tally.milliseconds += tally.inputs.state_ms


def _give_up(tally: Tally, saga: SagaDescription, refuser: StepDescription) -> None:
    """The pivot is fenced by a tombstone; then the direction is written, whoever was refused."""
    leaf = _last_leaf(refuser)
    if leaf.kind == "atomic":
        # An earlier attempt may have succeeded: the function looks at its row before it answers with the refusal.
        tally.read(Purpose.LOG, leaf.name, 1)
    if _a_pivot_may_stand(saga, refuser):
        _enter(tally, "give up?")
    if leaf.side == _PIVOT:
        _enter(tally, "fence")
        tally.write(Purpose.LOG, "fence", tally.inputs.row_units)
        if leaf.kind == "external":
            # Its row says FAILED already: the tombstone is refused, and the row is looked at.
            _enter(tally, "fence: look")
            _enter(tally, "fence: stands?")
            tally.read(Purpose.LOG, "fence", 1)
    _enter(tally, "direction")
    tally.write(Purpose.LOG, "direction", tally.inputs.record_units)


def _a_pivot_may_stand(saga: SagaDescription, refuser: StepDescription) -> bool:
    """Of several pivots one may lie behind the refused step: the state machine has to look."""
    before = saga.steps[: saga.steps.index(refuser)]
    return any(leaf.side == _PIVOT and not exclude(step.when, refuser.when) for step in before for leaf in step.leaves)


def _undo(tally: Tally, step: StepDescription, passed: Passed, refused: StepDescription) -> None:
    """Compensations of one entry of the saga's list, last one first."""
    compensated = [leaf for leaf in step.leaves if leaf.compensated]
    if not compensated:
        return
    items = 1
    if step.kind == "map":
        items = items_of_map(tally.inputs, step)
        _enter(tally, f"undo {step.name}")
        _enter(tally, f"undo {step.name}, outcome")
    for leaf in reversed(compensated):
        ran = not {step.name, leaf.name} & passed and leaf is not refused
        _enter(tally, f"undo {leaf.name}", items)
        if leaf.kind != "dynamodb":
            milliseconds = tally.inputs.duration_of(leaf)
            tally.call(f"undo {leaf.name}", leaf.compensation, milliseconds, items)
            tally.read(Purpose.LOG, f"undo {leaf.name}", items)
            tally.milliseconds += milliseconds
        if ran:
            _UNDOES.get(leaf.kind, transaction)(tally, leaf, items)
        elif leaf.kind != "external":
            # A tombstone, in a transaction of its own. An external step that refused says FAILED, and is left alone.
            tally.write(Purpose.LOG, f"undo {leaf.name}", 2 * tally.inputs.row_units * items)
        elif leaf is not refused:
            tally.write(Purpose.LOG, f"undo {leaf.name}", tally.inputs.row_units * items)


def _undo_external(tally: Tally, step: StepDescription, times: int) -> None:
    """UNDOING before the provider is called, UNDONE after it."""
    tally.write(Purpose.LOG, f"undo {step.name}", 2 * tally.inputs.row_units * times)


def _settle_failed(tally: Tally, saga: SagaDescription, steps: Sequence[StepDescription]) -> None:
    """The log is asked whether anything stands; somebody is told; the record is settled."""
    rows = rows_of(steps, tally.inputs)
    _enter(tally, "ask the log")
    tally.read(Purpose.LOG, "ask the log", read_units(rows * tally.inputs.row_bytes))
    _enter(tally, "nothing stands?")
    routed = any("notify" in leaf.routes.values() for leaf in saga.leaves)
    if routed:
        _enter(tally, "whom to tell?")
    if routed or saga.tells_of_failure:
        _enter(tally, "tell")
        tally.add(Meter.FIFO_REQUESTS, Purpose.EFFECTS, "tell", 1)
    _enter(tally, "settle")
    settle(tally)
    look(tally, rows=rows)


_UNDOES: Final[dict[str, Callable[[Tally, StepDescription, int], None]]] = {"external": _undo_external}
