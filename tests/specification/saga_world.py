"""Model of the whole saga: what there is, and what every write does to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.conditions import Condition
from tests.specification.saga_conditions import SagaCondition, SagaPromise
from tests.specification.states import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """A declared step.

    Attributes:
        name: its name.
        pivot: whether the saga only goes forward after it.
        undo: whether it has a compensation.
        on_the_way: value of its condition for the request at hand.
        goes_on: whether a refusal of it may be skipped.
        old: whether the definition that the saga began with has it.
        new: whether the one that is deployed then has it. A step that was renamed is two.
        row: whether it leaves a row in the log. Without one it happens again in every run, like an event.
    """

    name: str
    pivot: bool = False
    undo: bool = False
    on_the_way: bool = True
    goes_on: bool = False
    row: bool = True
    old: bool = True
    new: bool = True


class Row(StrEnum):
    """A step's log row; of a step that leaves none, whether it happened."""

    NONE = "no row"
    DONE = "DONE"
    TOMBSTONE = "TOMBSTONE"
    PASSED = "TOMBSTONE, skipped"
    REROUTED = "TOMBSTONE, skipped by another route"
    COMPENSATED = "COMPENSATED"


class Status(StrEnum):
    """States of the record."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Direction(StrEnum):
    """Directions of the saga."""

    OPEN = "open"
    FORWARD = "forward"
    COMPENSATE = "compensate"


class Do(StrEnum):
    """States of both machines, and what travels."""

    ABSENT = "absent"
    ENDED = "ended"
    SUCCEEDED = "succeeded"
    STEP = "step"
    FENCE = "Fence"
    PASS_OVER = "Skip"
    TO_COMPENSATE = "Begin compensation at"
    TO_FORWARD = "Continue forward at"
    STUCK_FORWARD = "Pivot applied before"
    ONLY_FORWARD = "Only forward to"
    UNDO = "Undo"
    READ_OUTPUTS = "Read outputs"
    ASK_THE_LOG = "Query saga log"
    SETTLE_COMPLETED = "Settle completed"
    SETTLE_FAILED = "Settle failed"
    LOOK = "Read record"
    PARK = "Park saga"
    READ_DIRECTION = "Read direction"
    NOTE_DEFINITION = "Note definition"
    HAND_OVER = "Start forward execution"
    START = "start"


class Machine(StrEnum):
    """Machines of an execution."""

    FORWARD = "forward"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True, order=True)
class State:
    """A state of a machine: what it does, and to which step; of a definition that is noted, whether it is new."""

    do: Do
    step: int = 0


ABSENT: Final = State(Do.ABSENT)
ENDED: Final = State(Do.ENDED)
"""Fenced, parked, or dead: Step Functions calls it FAILED, TIMED_OUT or ABORTED."""
SUCCEEDED: Final = State(Do.SUCCEEDED)
"""After its record was settled, or after it started its successor under the same name."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution. A dead one can be redriven from the state in which it died."""

    state: State = ABSENT
    dead: bool = False

    @property
    def runs(self) -> bool:
        """True if it is running."""
        return not self.dead and self.state.do not in {Do.ABSENT, Do.ENDED, Do.SUCCEEDED}


@dataclass(frozen=True, slots=True, order=True)
class Letter:
    """A call that was sent by an execution of a name, and has not arrived. START: an execution of that name."""

    state: State
    name: int


@dataclass(frozen=True, slots=True)
class Record:
    """The request record. The owner is the number of the recovery, 0 for the first execution.

    Attributes:
        new: whether the definition that it names is the new one.
    """

    status: Status = Status.IN_PROGRESS
    owner: int = 0
    direction: Direction = Direction.OPEN
    parked: bool = False
    new: bool = False


class At(StrEnum):
    """States of a recovering component."""

    IDLE = "idle"
    LOOK_AGAIN = "about to look for the other execution of that name"
    PARK = "about to park"
    TAKE_OVER = "about to take over"
    RESUME = "about to resume"
    START = "about to start"


@dataclass(frozen=True, slots=True, order=True)
class Person:
    """``cdk-sagas recover`` or ``cdk-sagas resolve``, and the owner that was read.

    A reconciler recovers, too, and parks what it may not decide.

    Attributes:
        found: of the first of two executions: whether it is absent, has ended, or has succeeded.
    """

    at: At = At.IDLE
    owner: int = 0
    found: Do = Do.ABSENT


@dataclass(frozen=True, slots=True)
class World:
    """Everything at one moment.

    Attributes:
        old: names of executions that ended are forgotten.
        restored: record and rows were restored to a moment before; effects of these steps exist without rows.
    """

    rows: tuple[Row, ...]
    record: Record
    forward: tuple[Execution, ...]
    recovery: tuple[Execution, ...]
    people: tuple[Person, ...]
    letters: frozenset[Letter] = frozenset()
    old: bool = False
    restored: tuple[int, ...] | None = None

    def execution(self, machine: Machine, name: int) -> Execution:
        """The execution of a name in a machine."""
        return (self.forward if machine is Machine.FORWARD else self.recovery)[name]

    def with_execution(self, machine: Machine, name: int, execution: Execution) -> World:
        """The world with an execution changed."""
        if machine is Machine.FORWARD:
            return replace(self, forward=(*self.forward[:name], execution, *self.forward[name + 1 :]))
        return replace(self, recovery=(*self.recovery[:name], execution, *self.recovery[name + 1 :]))

    def with_row(self, step: int, row: Row) -> World:
        """The world with a row changed."""
        return replace(self, rows=(*self.rows[:step], row, *self.rows[step + 1 :]))


@dataclass(frozen=True, slots=True)
class Landed:
    """Result of a write.

    Attributes:
        world: the world after it.
        written: whether its condition was met.
        breaks: the promise that it broke.
    """

    world: World
    written: bool = True
    breaks: str | None = None


def land(world: World, state: State, name: int, off: frozenset[Condition]) -> Landed:
    """Effect of the call of a machine's state when it arrives, sent by an execution of this name.

    An execution that waits for a response and one that has died are alike here: the conditions see no difference.
    """
    if state.do is Do.STEP:
        return _step(world, state.step, off)
    if state.do in {Do.FENCE, Do.PASS_OVER}:
        row = Row.TOMBSTONE if state.do is Do.FENCE else Row.PASSED
        if world.rows[state.step] is not Row.NONE and SagaCondition.FENCE_NO_ROW not in off:
            return Landed(world, written=False)
        covered = SagaPromise.EFFECT_FORGOTTEN if world.rows[state.step] is Row.DONE else None
        return Landed(world.with_row(state.step, row), breaks=covered)
    if state.do is Do.UNDO:
        becomes = {Row.NONE: Row.TOMBSTONE, Row.DONE: Row.COMPENSATED}
        row = world.rows[state.step]
        return Landed(world.with_row(state.step, becomes.get(row, row)))
    if state.do in {Do.TO_COMPENSATE, Do.TO_FORWARD, Do.STUCK_FORWARD, Do.ONLY_FORWARD}:
        return _direct(world, state.do, name, off)
    if state.do in {Do.SETTLE_COMPLETED, Do.SETTLE_FAILED}:
        return _settle(world, state.do, name, off)
    if state.do is Do.PARK:
        return _park(world, name, off)
    if state.do is Do.NOTE_DEFINITION:
        return _note(world, state, name)
    return Landed(world)


def owned(record: Record, name: int) -> bool:
    """The condition ``OWNED``."""
    return record.status is Status.IN_PROGRESS and record.owner == name


def _step(world: World, step: int, off: frozenset[Condition]) -> Landed:
    row = world.rows[step]
    if row is Row.NONE or (SagaCondition.STEP_NO_ROW in off and row is not Row.DONE):
        return Landed(world.with_row(step, Row.DONE))
    return Landed(world, written=False)


def _direct(world: World, do: Do, name: int, off: frozenset[Condition]) -> Landed:
    record = world.record
    wanted = Direction.COMPENSATE if do is Do.TO_COMPENSATE else Direction.FORWARD
    mine = owned(record, name) or SagaCondition.DIRECTION_OWNED in off
    free = record.direction in {Direction.OPEN, wanted}
    if not mine or not (free or SagaCondition.DIRECTION_ONCE in off):
        return Landed(world, written=False)
    breaks = None if free else SagaPromise.DIRECTION_CHANGED
    return Landed(replace(world, record=replace(record, direction=wanted)), breaks=breaks)


def _settle(world: World, do: Do, name: int, off: frozenset[Condition]) -> Landed:
    record = world.record
    verdict = Status.COMPLETED if do is Do.SETTLE_COMPLETED else Status.FAILED
    if not owned(record, name) and SagaCondition.SETTLE_OWNED not in off:
        return Landed(world, written=False)
    changed = record.status not in {Status.IN_PROGRESS, verdict}
    settled = replace(world, record=replace(record, status=verdict))
    return Landed(settled, breaks=SagaPromise.ANSWER_CHANGED if changed else None)


def _park(world: World, name: int, off: frozenset[Condition]) -> Landed:
    record = world.record
    if not owned(record, name) and SagaCondition.PARK_OWNED not in off:
        return Landed(world, written=False)
    late = SagaPromise.PARKED_ALTHOUGH_SETTLED if record.status is not Status.IN_PROGRESS else None
    return Landed(replace(world, record=replace(record, parked=True)), breaks=late)


def _note(world: World, state: State, name: int) -> Landed:
    if not owned(world.record, name):
        return Landed(world, written=False)
    return Landed(replace(world, record=replace(world.record, new=bool(state.step))))
