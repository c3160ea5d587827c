"""Model of the whole saga: components that start executions, recoveries, and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.saga_conditions import SagaCondition, SagaPromise
from tests.specification.saga_world import (
    ABSENT,
    SUCCEEDED,
    At,
    Do,
    Execution,
    Machine,
    Person,
    Record,
    Row,
    State,
    Status,
    World,
    land,
    owned,
)
from tests.specification.states import replace

NOBODY: Final = Person()
Moves = Iterator[Move[World]]


def called(machine: Machine, name: int) -> str:
    """An execution, in words."""
    return f"{machine} execution" + (f" r{name}" if name else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Around(Conditional):
    """Moves around the machines.

    Attributes:
        recoveries: maximum number of takeovers of the saga.
        first: the forward machine's first state, by the execution's name.
        resumes: whether operators resume parked sagas.
    """

    recoveries: int
    first: Callable[[int], State]
    resumes: bool = False

    def started(self, world: World, machine: Machine, name: int) -> World:
        """StartExecution is idempotent by name, as long as the name is remembered."""
        if world.execution(machine, name).state != ABSENT:
            return world
        state = self.first(name) if machine is Machine.FORWARD else State(Do.READ_DIRECTION)
        return world.with_execution(machine, name, Execution(state))

    def recover(self, world: World, index: int, person: Person) -> Moves:
        """``cdk-sagas recover``: read the record, describe its owner's executions, and act on them."""
        if person.at is At.IDLE:
            # Reading and looking are one move: what else may happen in between shows in the moves behind.
            left_alone = world.record.parked and self.holds(SagaCondition.WHAT_TO_DO_PARKED)
            if world.record.status is Status.IN_PROGRESS and not left_alone:
                yield self._look(world, index, Person(owner=world.record.owner), self._first(world.record.owner))
            if self.resumes and world.record.parked and world.record.status is Status.IN_PROGRESS:
                owner = world.record.owner
                yield Move(f"a person finds r{owner} parked", _become(world, index, Person(At.RESUME, owner)))
            return
        yield Move("recover is abandoned", _become(world, index), fault=True)
        if person.at is At.RESUME:
            yield self._resume(world, index, person.owner)
        elif person.at is At.TAKE_OVER:
            yield self._take_over(world, index, person.owner)
        elif person.at is At.START:
            machine = Machine.RECOVERY if person.owner else Machine.FORWARD
            started = self.started(world, machine, person.owner)
            wrong = _wrongly_started(world, person.owner) if started != world else None
            yield Move(f"recover starts the {called(machine, person.owner)}", _become(started, index), breaks=wrong)
        elif person.at is At.PARK:
            yield self._park(world, index, person.owner)
        else:
            first = self._first(person.owner)
            other = Machine.FORWARD if first is Machine.RECOVERY else Machine.RECOVERY
            yield self._look(world, index, person, other)

    def _first(self, owner: int) -> Machine:
        """Machine that is queried first for an execution of a name."""
        recovery = owner and self.holds(SagaCondition.LOOK_RECOVERY_FIRST)
        return Machine.RECOVERY if recovery else Machine.FORWARD

    def _look(self, world: World, index: int, person: Person, machine: Machine) -> Move[World]:
        owner, execution, which = person.owner, world.execution(machine, person.owner), called(machine, person.owner)
        if execution.runs:
            return Move(f"recover finds the {which} running", _become(world, index))
        found = person.found
        if execution.state == SUCCEEDED:
            found = Do.SUCCEEDED
        elif execution.state != ABSENT:
            found = Do.ENDED
        label = f"recover finds the {which} {execution.state.do}"
        decided = machine is Machine.FORWARD and found is not Do.ABSENT
        first = person.at is At.IDLE and owner > 0
        if first and not (decided and not self.holds(SagaCondition.LOOK_RECOVERY_FIRST)):
            return Move(label, _become(world, index, Person(At.LOOK_AGAIN, owner, found)))
        if found is Do.SUCCEEDED and self.holds(SagaCondition.WHAT_TO_DO_SUCCEEDED):
            return Move(label, _become(world, index, Person(At.PARK, owner)))
        if found is not Do.ABSENT:
            return Move(label, _become(world, index, Person(At.TAKE_OVER, owner)))
        if world.old and self.holds(SagaCondition.WHAT_TO_DO_YOUNG):
            return Move(f"{label}, and the saga is old: parked for an operator", _become(world, index))
        return Move(label, _become(world, index, Person(At.START, owner)))

    def _park(self, world: World, index: int, owner: int) -> Move[World]:
        """A reconciler parks a saga whose owner succeeded; ``recover`` reports it, and writes nothing."""
        parked = land(world, State(Do.PARK), owner, self.off)
        runs = any(world.execution(machine, owner).runs for machine in Machine)
        wrong = SagaPromise.PARKED_WHILE_ITS_OWNER_RUNS if parked.written and runs else parked.breaks
        return Move("the reconciler parks it: its owner succeeded", _become(parked.world, index), breaks=wrong)

    def _take_over(self, world: World, index: int, owner: int) -> Move[World]:
        record = world.record
        mine = owned(record, owner) or not self.holds(SagaCondition.TAKE_OVER_OWNED)
        waits = record.parked and self.holds(SagaCondition.TAKE_OVER_NOT_PARKED)
        if not mine or waits or owner == self.recoveries:
            return Move(f"recover is refused, or cannot take over once more, from r{owner}", _become(world, index))
        breaks = None
        if record.status is not Status.IN_PROGRESS:
            breaks = SagaPromise.TAKEN_OVER_ALTHOUGH_SETTLED
        elif record.parked:
            breaks = SagaPromise.TAKEN_OVER_ALTHOUGH_PARKED
        elif record.owner > owner:
            breaks = SagaPromise.TAKEN_OVER_FROM_A_FORMER_OWNER
        taken = replace(world, record=replace(record, owner=owner + 1))
        after = _become(taken, index, Person(At.START, owner + 1))
        return Move(f"recover takes over: owner is r{owner + 1}", after, breaks=breaks)

    def _resume(self, world: World, index: int, owner: int) -> Move[World]:
        """``cdk-sagas resolve``, once the rows agree with the finding: from parked to the next recovery's name."""
        record = world.record
        as_read = owned(record, owner) and record.parked
        if owner == self.recoveries or not (as_read or not self.holds(SagaCondition.RESOLVE_UNPARKS_ONCE)):
            return Move(f"resolve is refused, or cannot resume once more, from r{owner}", _become(world, index))
        breaks = None
        if record.status is not Status.IN_PROGRESS:
            breaks = SagaPromise.TAKEN_OVER_ALTHOUGH_SETTLED
        elif record.owner > owner:
            breaks = SagaPromise.TAKEN_OVER_FROM_A_FORMER_OWNER
        resumed = replace(world, record=replace(record, owner=owner + 1, parked=False))
        after = _become(resumed, index, Person(At.START, owner + 1))
        return Move(f"resolve resumes: owner is r{owner + 1}", after, breaks=breaks)

    def age(self, world: World) -> Moves:
        """90 days: names are forgotten, nothing travels any more, and duplicates still come."""
        if not world.old:
            forward = tuple(execution if execution.runs else Execution() for execution in world.forward)
            recovery = tuple(execution if execution.runs else Execution() for execution in world.recovery)
            people = (NOBODY,) * len(world.people)
            aged = World(world.rows, world.record, forward, recovery, people, old=True)
            yield Move("90 days pass: names of executions that ended are forgotten", aged, fault=True)
        elif self._may_start(world) and world.forward[0].state == ABSENT:
            again = self.started(world, Machine.FORWARD, 0)
            label = "a duplicate finds the saga due, and starts it by its name"
            yield Move(label, again, fault=True, breaks=_wrongly_started(world, 0))

    def restore(self, world: World) -> Moves:
        """Record and rows are restored to a moment before, and other effects of the steps are not.

        Nothing runs, and the execution that settled the record has succeeded. One that was stopped right after its
        settle, before it could succeed, cannot be distinguished from one that never settled, and is not modelled.
        """
        owner = world.record.owner
        runs = any(execution.runs for execution in (*world.forward, *world.recovery))
        settled = world.forward[owner].state == SUCCEEDED
        if world.restored is None and world.record.status is Status.COMPLETED and settled and not runs:
            stand = tuple(index for index, row in enumerate(world.rows) if row is Row.DONE)
            rows, people = (Row.NONE,) * len(world.rows), (NOBODY,) * len(world.people)
            before = World(rows, Record(), world.forward, world.recovery, people, restored=stand)
            yield Move("record and log are restored to a moment before", before, fault=True)

    def _may_start(self, world: World) -> bool:
        """Decision of a duplicate for the record that refused its reservation."""
        record = world.record
        return (
            record.status is Status.IN_PROGRESS
            and not self.holds(SagaCondition.RESTART_YOUNG)
            and not (record.parked and self.holds(SagaCondition.RESTART_NOT_PARKED))
            and not (record.owner and self.holds(SagaCondition.RESTART_FIRST_OWNER))
        )


def _wrongly_started(world: World, name: int) -> str | None:
    """An execution that starts although the record forbids it."""
    if world.record.owner > name and world.old:
        return SagaPromise.STARTED_ALTHOUGH_TAKEN_OVER
    return SagaPromise.STARTED_ALTHOUGH_PARKED if world.record.parked else None


def _become(world: World, index: int, then: Person = NOBODY) -> World:
    return replace(world, people=tuple(sorted((*world.people[:index], then, *world.people[index + 1 :]))))
