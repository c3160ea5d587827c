"""Model: one saga whose state machines are deleted, and operators who move it to others, two at once.

It has one step; a recovery settles by its row. The forward machine is deleted, then perhaps the recovery machine.
Executions and operators die at any moment; an operator may be held for long between reading and writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

ADOPT: Final = "lambda_src/saga_runtime/recovery/adoption.py"


class AdoptCondition(Condition):
    """Conditions of ``cdk-sagas adopt``."""

    SAME_LOG = Because(
        "the other state machines write the same saga log: they see the saga's rows",
        ADOPT,
        "if log is not None and log != target.log:",
    )
    OWNER_ENDED = Because(
        "the owner's execution has ended, or the saga is parked",
        ADOPT,
        "if what_to_do(record, owner, now_ms, log_days=log_days) not in _ADOPTABLE:",
    )
    OWNER_AS_READ = Because(
        "no recovery has taken the saga over since the record was read",
        ADOPT,
        "AND #status = :status AND #owner = :was_owner",
    )
    STATUS_AS_READ = Because(
        "the saga has not settled since the record was read", ADOPT, "#saga_id = :saga_id AND #status = :status"
    )
    MACHINES_AS_READ = Because(
        "no other operator has moved the saga since the record was read",
        ADOPT,
        "AND #execution_arn = :was_execution_arn AND #recovery_machine_arn = :was_recovery_machine_arn",
    )
    PARKED_AS_READ = Because(
        "the saga was neither parked nor resumed since the record was read",
        ADOPT,
        "exists(#parked_by)",
    )
    NEW_OWNER = Because(
        "the saga has the next recovery as its owner, and the former one is fenced",
        ADOPT,
        'A.OWNER: {"S": recovery_name(record.saga_id, record.recoveries + 1)},',
    )
    REPEATED = Because(
        "an operator who repeats the command starts what an interrupted one did not",
        ADOPT,
        "return self._repeated(record, now_ms)",
    )


class AdoptPromise(StrEnum):
    """Promises of the model."""

    SETTLED_FAILED_WITH_EFFECT = "SETTLED_FAILED_WITH_EFFECT"
    SETTLED_COMPLETED_WITHOUT_EFFECT = "SETTLED_COMPLETED_WITHOUT_EFFECT"
    MOVED_WHILE_ITS_OWNER_RUNS = "MOVED_WHILE_ITS_OWNER_RUNS"
    MOVED_ALTHOUGH_SETTLED = "MOVED_ALTHOUGH_SETTLED"


C, P = AdoptCondition, AdoptPromise


class Machines(IntEnum):
    """A saga's two state machines, and the log that they write."""

    OLD = 0
    NEW = 1
    OTHER_LOG = 2


class Gone(IntEnum):
    """State machines of the saga that were deleted."""

    NONE = 0
    FORWARD = 1
    BOTH = 2


class Status(StrEnum):
    """Status of the request record."""

    OPEN = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Row(StrEnum):
    """Row of the step."""

    NONE = "none"
    DONE = "DONE"
    TOMBSTONE = "TOMBSTONE"


class At(StrEnum):
    """Places of an execution."""

    NONE = "not started"
    STEP = "about to do the step"
    LOOK = "about to read the row"
    COMPLETE = "about to settle COMPLETED"
    FAIL = "about to settle FAILED"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution, and on which machines it runs."""

    at: At = At.NONE
    machines: Machines = Machines.OLD


@dataclass(frozen=True, slots=True)
class Record:
    """The request record."""

    status: Status = Status.OPEN
    owner: int = 0
    recoveries: int = 0
    machines: Machines = Machines.OLD
    parked: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: the record as it was read, and whether the update was written."""

    read: Record | None = None
    target: Machines = Machines.NEW
    written: bool = False


IDLE: Final = Operator()
_NEVER: Final = Execution()


@dataclass(frozen=True, slots=True)
class World:
    """The saga, its rows in either log, and everyone who acts on it.

    Attributes:
        executions: the first one, then one per recovery.
        travels: a write of the first execution, which has died: it settles, or parks.
    """

    record: Record = Record()
    gone: Gone = Gone.NONE
    effect: bool = False
    rows: tuple[Row, Row] = (Row.NONE, Row.NONE)
    executions: tuple[Execution, ...] = ()
    operators: tuple[Operator, ...] = ()
    travels: str = ""


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptModel(Conditional):
    """The model.

    Attributes:
        people: operators at once.
        owners: executions that there are at most; the last two do not die.
    """

    people: int = 2
    owners: int = 4

    def initial(self) -> World:
        """The saga has started."""
        executions = (Execution(At.STEP), *(_NEVER for _ in range(self.owners - 1)))
        return World(executions=executions, operators=(IDLE,) * self.people)

    def at_rest(self, world: World) -> bool:
        """The saga is settled, or parked."""
        return world.record.status is not Status.OPEN or world.record.parked

    def broken(self, world: World) -> Iterator[str]:
        """The answer is not so."""
        if world.record.status is Status.FAILED and world.effect:
            yield P.SETTLED_FAILED_WITH_EFFECT
        if world.record.status is Status.COMPLETED and not world.effect:
            yield P.SETTLED_COMPLETED_WITHOUT_EFFECT

    def moves(self, world: World) -> Moves:
        """One move of an execution, of the reconciler, or of an operator."""
        if world.gone < Gone.BOTH:
            yield Move("a state machine is deleted", replace(world, gone=Gone(world.gone + 1)), fault=True)
        if world.travels:
            landed = self._written(world, 0, world.travels)
            yield Move(f"the late write lands: {world.travels}", replace(landed, travels=""))
        for number, execution in enumerate(world.executions):
            if execution.at not in (At.NONE, At.ENDED):
                yield from self._runs(world, number, execution)
        yield from self._reconciler(world)
        for number, operator in enumerate(world.operators):
            for label, after, now, fault, breaks in self._operates(world, operator):
                operators = (*world.operators[:number], now, *world.operators[number + 1 :])
                yield Move(f"operator {number}: {label}", replace(after, operators=operators), fault, breaks)

    def _runs(self, world: World, number: int, execution: Execution) -> Moves:
        mine = world.record.owner == number and world.record.status is Status.OPEN
        log = int(execution.machines is Machines.OTHER_LOG)
        row = world.rows[log]

        def to(at: At, after: World = world) -> World:
            return _executing(after, number, replace(execution, at=at))

        if not number or number + 2 < self.owners:
            yield Move(f"{number} dies", to(At.ENDED), fault=True)
        match execution.at:
            case At.STEP if row is Row.TOMBSTONE:
                yield Move(f"{number} is fenced", to(At.ENDED))
            case At.STEP:
                done = replace(world, effect=True, rows=_set(world.rows, log, Row.DONE))
                yield Move(f"{number} does the step", to(At.COMPLETE, done))
                yield Move(f"{number} parks", to(At.ENDED, self._written(world, number, "park")))
                yield Move(
                    f"{number} dies, its write travels", to(At.ENDED, replace(world, travels="park")), fault=True
                )
            case At.LOOK if not mine:
                yield Move(f"{number} is fenced", to(At.ENDED))
            case At.LOOK if row is Row.DONE:
                yield Move(f"{number} finds the row", to(At.COMPLETE))
            case At.LOOK:
                buried = replace(world, rows=_set(world.rows, log, Row.TOMBSTONE))
                yield Move(f"{number} writes a tombstone", to(At.FAIL, buried))
            case At.COMPLETE if number and execution.machines is Machines.OLD and world.gone:
                yield Move(f"{number} cannot go forward: the machine is gone", to(At.ENDED))
            case At.COMPLETE:
                yield Move(f"{number} settles", to(At.ENDED, self._written(world, number, "complete")))
                if number == 0:
                    travels = replace(world, travels="complete")
                    yield Move("0 dies, its write travels", to(At.ENDED, travels), fault=True)
            case _:
                yield Move(f"{number} settles", to(At.ENDED, self._written(world, number, "fail")))

    @staticmethod
    def _written(world: World, number: int, what: str) -> World:
        record = world.record
        if record.owner != number or record.status is not Status.OPEN:
            return world
        settled = {"complete": Status.COMPLETED, "fail": Status.FAILED}
        after = replace(record, parked=True) if what == "park" else replace(record, status=settled[what])
        return replace(world, record=after)

    def _reconciler(self, world: World) -> Moves:
        record = world.record
        if record.status is not Status.OPEN or record.parked:
            return
        gone = record.machines is Machines.OLD and world.gone is Gone.BOTH
        at = world.executions[record.owner].at
        if at is At.NONE and not gone and self.holds(C.REPEATED):
            yield Move("the owner's execution is started", self._started(world, record.owner, record.machines))
        kept = 1 if world.gone else 0  # the last one is for the operators
        if at is At.ENDED and not gone and record.recoveries + 1 + kept < self.owners:
            number = record.recoveries + 1
            taken = replace(world, record=replace(record, owner=number, recoveries=number))
            yield Move(f"the reconciler starts recovery {number}", self._started(taken, number, record.machines))

    @staticmethod
    def _started(world: World, number: int, machines: Machines) -> World:
        if world.executions[number].at is not At.NONE:
            return world
        return _executing(world, number, Execution(At.LOOK, machines))

    def _operates(self, world: World, operator: Operator) -> Iterator[tuple[str, World, Operator, bool, str | None]]:
        record, read = world.record, operator.read
        if read is None:
            if world.gone and record.machines is Machines.OLD and self._movable(world):
                yield "reads the record", world, Operator(record), False, None
                if not self.holds(C.SAME_LOG):
                    yield "reads the record", world, Operator(record, Machines.OTHER_LOG), False, None
            return
        yield "dies", world, IDLE, True, None
        number = read.recoveries + 1
        if operator.written:
            # A settled saga is moved, too, and nothing is started.
            yield "starts the recovery", self._started(world, number, operator.target), IDLE, False, None
            return
        if not self._as_read(record, read):
            yield "is refused", world, IDLE, False, None
            return
        breaks = None
        if world.executions[record.owner].at not in (At.NONE, At.ENDED):
            breaks = P.MOVED_WHILE_ITS_OWNER_RUNS
        elif record.status is not Status.OPEN:
            breaks = P.MOVED_ALTHOUGH_SETTLED
        owner = number if self.holds(C.NEW_OWNER) else record.owner
        moved = replace(record, owner=owner, recoveries=number, machines=operator.target, parked=False)
        yield "moves it", replace(world, record=moved), replace(operator, written=True), False, breaks

    def _movable(self, world: World) -> bool:
        record = world.record
        if record.status is not Status.OPEN or record.recoveries + 1 >= self.owners:
            return False
        ended = world.executions[record.owner].at in (At.NONE, At.ENDED)
        return record.parked or ended or not self.holds(C.OWNER_ENDED)

    def _as_read(self, record: Record, read: Record) -> bool:
        compared = {
            C.OWNER_AS_READ: record.owner == read.owner,
            C.STATUS_AS_READ: record.status is read.status,
            C.MACHINES_AS_READ: record.machines is read.machines,
            C.PARKED_AS_READ: record.parked is read.parked,
        }
        return all(same for condition, same in compared.items() if self.holds(condition))


def _executing(world: World, number: int, execution: Execution) -> World:
    executions = (*world.executions[:number], execution, *world.executions[number + 1 :])
    return replace(world, executions=executions)


def _set(rows: tuple[Row, Row], log: int, row: Row) -> tuple[Row, Row]:
    return (row, rows[1]) if log == 0 else (rows[0], row)
