"""Model: one saga, and deployments of another definition while it is open.

Its step is A under release 1 and B under release 2: by other conditions ("ways") one of the two is taken, or the step
was renamed. The state machines are deployed one after the other. Executions die at any moment; functions that they
invoked, and a note that was sent, live on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

BEGIN: Final = "constructs_lib/saga/asl/begin.py"
RECOVERY: Final = "constructs_lib/saga/asl/recovery.py"
COMPATIBLE: Final = "constructs_lib/saga/asl/compatible.py"


class DefinitionCondition(Condition):
    """Conditions of a changed definition."""

    FIRST_NOTES = Because(
        "a saga that starts under a later definition than its reservation notes it",
        BEGIN,
        "beginning[NOTE_FIRST] = _note_first(plan, start)",
    )
    NOTED_BY_OWNER = Because(
        "an execution that no longer owns the record notes nothing, and begins nothing",
        BEGIN,
        '"Arguments": record_update( plan, "SET #definition = :definition, #updated_at = :now",',
    )
    RECOVERED_STOPS = Because(
        "the forward machine begins for a recovery only under the definition that the recovery has checked",
        BEGIN,
        '"Next": first}], "Default": OTHER_DEFINITION,',
    )
    ROWS_FIT = Because(
        "a row of a step that the definition does not have is not forgotten",
        COMPATIBLE,
        'f" $count($rows[{side} = {a.SIDE}.S]) = $count($rows))"',
    )
    OUTLIVE = Because(
        "functions of another definition's steps have ended before the rows are read",
        RECOVERY,
        '{"Condition": expression(f"{unread} and {other_names(plan)}"), "Next": OUTLIVE},',
    )
    RECOVERY_NOTES = Because(
        "the next recovery outlives this one's functions",
        RECOVERY,
        '{"Condition": expression(f"$compatible and {other_names(plan)}"), "Next": NOTE_DEFINITION},',
    )
    WAYS_STAY = Because(
        "a recovery notes its definition, and leaves the ways by which the saga goes",
        RECOVERY,
        "& $substring({RAN_UNDER}, {WAYS_AT})",
    )
    PHASE_STOPS = Because(
        "a phase begins only under the steps and conditions of the saga that calls it",
        BEGIN,
        """f'({GIVEN} = "{group.shape}")'""",
    )
    SAME_WAYS = Because(
        "a saga goes forward only by the conditions by which it began",
        RECOVERY,
        "FORWARD: direct(plan, Direction.FORWARD, SAME_WAYS),",
    )


class DefinitionPromise(StrEnum):
    """Promises of the model."""

    BOTH_WAYS_TAKEN = "BOTH_WAYS_TAKEN"
    FAILED_BUT_STANDS = "FAILED_BUT_STANDS"


C, P = DefinitionCondition, DefinitionPromise


class Change(StrEnum):
    """Parts of a definition that the deployment changes."""

    WAYS = "ways"
    NAMES = "names"
    BOTH = "ways, and the name of another step"


class Status(StrEnum):
    """The request record's."""

    OPEN = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PARKED = "PARKED"


class Row(StrEnum):
    """A step's row."""

    NONE = "none"
    DONE = "DONE"
    COMPENSATED = "COMPENSATED"


class At(StrEnum):
    """Places of an execution."""

    NONE = "not started"
    BEGIN = "begins"
    STEP = "about to invoke"
    CALLED = "invoked"
    SETTLE = "about to settle"
    READ = "about to read the rows"
    NOTE = "about to note its definition"
    DIRECT = "about to decide the direction"
    UNDO = "about to undo"
    GO = "about to start the forward machine"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Definition:
    """Parts of a fingerprint: names of steps, and conditions."""

    names: int = 1
    ways: int = 1


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution.

    Attributes:
        at: where it is.
        release: which definition it runs under, from its start to its end.
        given: the definition in its input.
        ways: the ways that the record named when a recovery read it.
        step: what it invoked: 0 for A, 1 for B.
    """

    at: At = At.NONE
    release: int = 1
    given: Definition = Definition()
    ways: int = 1
    step: int = 0


NEVER: Final = Execution()


@dataclass(frozen=True, slots=True)
class World:
    """A saga, and what is deployed.

    Attributes:
        target: the release that is being deployed; the machines follow, each in its time.
        forward, phase, recovery: the release of each machine.
        left: deployments that may still begin.
        noted: the definition in the record.
        owner: number of the owner's execution: 0 for the first, then one per recovery.
        rows, calls: of the steps A and B: the row, and how many functions are at work.
        executions: by owner: the forward machine's, and the recovery machine's.
        travels: a note whose sender died: owner, and definition.
    """

    target: int = 1
    forward: int = 1
    phase: int = 1
    recovery: int = 1
    left: int = 2
    status: Status = Status.OPEN
    noted: Definition = Definition()
    owner: int = 0
    rows: tuple[Row, Row] = (Row.NONE, Row.NONE)
    calls: tuple[int, int] = (0, 0)
    executions: tuple[tuple[Execution, Execution], ...] = ()
    travels: tuple[int, Definition] | None = None


Moves = Iterator[Move[World]]
T = TypeVar("T")
_CALLS_AT_MOST: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionModel(Conditional):
    """The model.

    Attributes:
        change: what the second release changes.
        only_forward: whether the pivot has passed: a recovery goes forward, else it compensates.
        owners: how many there are; the last one's name is used again.
        deployments: how many may begin.
        phases: whether the step runs in a phase, a state machine of its own.
    """

    change: Change
    only_forward: bool
    owners: int = 3
    deployments: int = 2
    phases: bool = False

    def initial(self) -> World:
        """Reserved under release 1, and not started."""
        return World(left=self.deployments, executions=((NEVER, NEVER),) * self.owners)

    def at_rest(self, world: World) -> bool:
        """Settled or parked, and nothing is at work."""
        return world.status is not Status.OPEN and world.calls == (0, 0)

    def broken(self, world: World) -> Iterator[str]:
        """Both steps, or one that remains after a failure."""
        if world.rows == (Row.DONE, Row.DONE):
            yield P.BOTH_WAYS_TAKEN
        if world.status is Status.FAILED and Row.DONE in world.rows:
            yield P.FAILED_BUT_STANDS

    def moves(self, world: World) -> Moves:
        """One move of a deployment, a starter, an execution, a function, or the reconciler."""
        yield from self._deployments(world)
        if world.travels is not None:
            owner, definition = world.travels
            lands = (world.owner == owner and world.status is Status.OPEN) or not self.holds(C.NOTED_BY_OWNER)
            landed = replace(world, noted=definition if lands else world.noted, travels=None)
            yield Move(f"the note of {owner} {'lands' if lands else 'is refused'}", landed)
        yield from self._functions(world)
        if world.executions[0][0].at is At.NONE:
            first = Execution(At.BEGIN, world.forward)
            yield Move("the saga is started", self._with(world, 0, forward=first))
        for owner, (forward, recovery) in enumerate(world.executions):
            if forward.at not in (At.NONE, At.ENDED):
                for label, after, now in self._forward(world, owner, forward):
                    yield Move(f"{owner} forward: {label}", self._with(after, owner, forward=now))
                if self.phases and forward.at is At.CALLED:
                    again = replace(forward, at=At.STEP)
                    yield Move(
                        f"{owner} forward: the answer is lost", self._with(world, owner, forward=again), fault=True
                    )
                dead = replace(forward, at=At.ENDED)
                yield Move(f"{owner} forward: dies", self._with(world, owner, forward=dead), fault=True)
                if forward.at is At.BEGIN and owner == 0 and self.holds(C.FIRST_NOTES):
                    sent = replace(world, travels=(0, self._definition(forward.release)))
                    yield Move(
                        f"{owner} forward: dies, its note travels", self._with(sent, 0, forward=dead), fault=True
                    )
            if recovery.at not in (At.NONE, At.ENDED):
                yield from self._recovery(world, owner, recovery)
                dead = replace(recovery, at=At.ENDED)
                yield Move(f"{owner} recovery: dies", self._with(world, owner, recovery=dead), fault=True)
        yield from self._reconciler(world)

    def _definition(self, release: int) -> Definition:
        names = 1 if self.change is Change.WAYS else release
        return Definition(names, ways=1 if self.change is Change.NAMES else release)

    def _deployments(self, world: World) -> Moves:
        behind = [name for name in self._machines if getattr(world, name) != world.target]
        if not behind and world.left:
            yield Move("a deployment begins", replace(world, target=3 - world.target, left=world.left - 1))
        for name in behind:
            yield Move(f"the {name} machine is updated", _deployed(world, name))

    @property
    def _machines(self) -> tuple[str, ...]:
        return ("forward", "recovery", "phase") if self.phases else ("forward", "recovery")

    def _functions(self, world: World) -> Moves:
        for step in (0, 1):
            if world.calls[step]:
                name = "AB"[step]
                ended = replace(world, calls=_set(world.calls, step, world.calls[step] - 1))
                if world.rows[step] is Row.NONE:
                    done = replace(ended, rows=_set(world.rows, step, Row.DONE))
                    yield Move(f"{name}'s function has its effect", done)
                    yield Move(f"{name}'s function dies", ended, fault=True)
                else:
                    yield Move(f"{name}'s function finds its row", ended)

    def _forward(self, world: World, owner: int, mine: Execution) -> Iterator[tuple[str, World, Execution]]:
        step = mine.step
        owns = world.owner == owner and world.status is Status.OPEN
        match mine.at:
            case At.BEGIN:
                yield self._begin(world, owner, mine)
            case At.STEP:
                yield from self._invoke(world, mine)
            case At.CALLED:
                if world.rows[step] is Row.DONE:
                    yield "is answered", world, replace(mine, at=At.SETTLE)
                elif world.rows[step] is Row.COMPENSATED:
                    yield "is fenced", world, replace(mine, at=At.ENDED)
                elif not world.calls[step]:
                    yield "tries again", world, replace(mine, at=At.STEP)
            case At.SETTLE:
                settled = replace(world, status=Status.COMPLETED) if owns else world
                yield "settles" if owns else "is fenced", settled, replace(mine, at=At.ENDED)
            case At.UNDO if not owns:
                yield "is fenced", world, replace(mine, at=At.ENDED)
            case At.UNDO if self.only_forward:
                yield "parks", replace(world, status=Status.PARKED), replace(mine, at=At.ENDED)
            case At.UNDO:
                yield "undoes, and settles", self._undone(world, mine.release), replace(mine, at=At.ENDED)

    def _invoke(self, world: World, mine: Execution) -> Iterator[tuple[str, World, Execution]]:
        release = world.phase if self.phases else mine.release
        if self._definition(release) != self._definition(mine.release) and self.holds(C.PHASE_STOPS):
            yield "its phase stops: another definition", world, replace(mine, at=At.UNDO)
            return
        step = release - 1
        if world.calls[step] < _CALLS_AT_MOST:
            invoked = replace(world, calls=_set(world.calls, step, world.calls[step] + 1))
            yield f"invokes {'AB'[step]}", invoked, replace(mine, at=At.CALLED, step=step)

    def _begin(self, world: World, owner: int, mine: Execution) -> tuple[str, World, Execution]:
        here = self._definition(mine.release)
        go, stop = replace(mine, at=At.STEP), replace(mine, at=At.ENDED)
        if mine.given == here:
            return "begins", world, go
        if owner > 0:
            held = self.holds(C.RECOVERED_STOPS)
            return ("stops: another definition", world, stop) if held else ("begins", world, go)
        if not self.holds(C.FIRST_NOTES):
            return "begins", world, go
        owns = world.owner == 0 and world.status is Status.OPEN
        if owns or not self.holds(C.NOTED_BY_OWNER):
            return "notes its definition, and begins", replace(world, noted=here), go
        return "is fenced", world, stop

    def _recovery(self, world: World, owner: int, mine: Execution) -> Moves:
        for label, after, now in self._ways_back(world, owner, mine):
            yield Move(f"{owner} recovery: {label}", self._with(after, owner, recovery=now))

    def _ways_back(self, world: World, owner: int, mine: Execution) -> Iterator[tuple[str, World, Execution]]:
        ended = replace(mine, at=At.ENDED)
        if world.owner != owner or world.status is not Status.OPEN:
            yield "is fenced", world, ended
        elif mine.at is At.UNDO:
            yield "undoes, and settles", self._undone(world, mine.release), ended
        elif mine.at is At.GO:
            given = Definition(self._definition(mine.release).names, mine.ways)
            if world.executions[owner][0].at is At.NONE:
                started = Execution(At.BEGIN, world.forward, given)
                yield "starts the forward machine", self._with(world, owner, forward=started), ended
            else:
                yield "finds it started", world, ended
        else:
            yield from self._checks(world, mine, replace(world, status=Status.PARKED), ended)

    def _checks(
        self, world: World, mine: Execution, parked: World, ended: Execution
    ) -> Iterator[tuple[str, World, Execution]]:
        """Checks of a recovery before it acts."""
        here = self._definition(mine.release)
        other = world.noted.names != here.names
        match mine.at:
            case At.BEGIN:
                # Only its owner changes the record: it is read here once.
                if not other or world.calls == (0, 0) or not self.holds(C.OUTLIVE):
                    yield "reads the record", world, replace(mine, at=At.READ, ways=world.noted.ways)
            case At.READ if self.holds(C.ROWS_FIT) and self._has_strange_rows(world, mine.release):
                yield "parks: a row fits no step", parked, ended
            case At.READ:
                yield "reads the rows", world, replace(mine, at=At.NOTE if other else At.DIRECT)
            case At.NOTE:
                ways = mine.ways if self.holds(C.WAYS_STAY) else here.ways
                noted = replace(world, noted=Definition(here.names, ways)) if self.holds(C.RECOVERY_NOTES) else world
                yield "notes its definition", noted, replace(mine, at=At.DIRECT, ways=ways)
            case At.DIRECT if not self.only_forward:
                yield "compensates", world, replace(mine, at=At.UNDO)
            case At.DIRECT if mine.ways != here.ways and self.holds(C.SAME_WAYS):
                yield "parks: other ways", parked, ended
            case _:
                yield "goes forward", world, replace(mine, at=At.GO)

    def _has_strange_rows(self, world: World, release: int) -> bool:
        return any(row is Row.DONE and not self._has(step, release) for step, row in enumerate(world.rows))

    def _undone(self, world: World, release: int) -> World:
        """Every step that the definition has is undone, or will be refused."""
        a, b = (Row.COMPENSATED if self._has(step, release) else row for step, row in enumerate(world.rows))
        return replace(world, rows=(a, b), status=Status.FAILED)

    def _has(self, step: int, release: int) -> bool:
        """True if a definition has a step. Conditions choose among steps of both."""
        return self.change is not Change.NAMES or step == release - 1

    def _reconciler(self, world: World) -> Moves:
        if world.status is not Status.OPEN:
            return
        forward, recovery = world.executions[world.owner]
        begun = forward.at is not At.NONE or recovery.at is not At.NONE
        if begun and forward.at in (At.NONE, At.ENDED) and recovery.at in (At.NONE, At.ENDED):
            owner = min(world.owner + 1, self.owners - 1)
            new = Execution(At.BEGIN, world.recovery)
            taken = self._with(replace(world, owner=owner), owner, forward=NEVER, recovery=new)
            yield Move(f"the reconciler starts recovery {owner}", taken)

    @staticmethod
    def _with(
        world: World, owner: int, *, forward: Execution | None = None, recovery: Execution | None = None
    ) -> World:
        before = world.executions[owner]
        pair = (forward or before[0], recovery or before[1])
        return replace(world, executions=(*world.executions[:owner], pair, *world.executions[owner + 1 :]))


def _deployed(world: World, machine: str) -> World:
    match machine:
        case "forward":
            return replace(world, forward=world.target)
        case "recovery":
            return replace(world, recovery=world.target)
        case _:
            return replace(world, phase=world.target)


def _set(pair: tuple[T, T], index: int, value: T) -> tuple[T, T]:
    return (value, pair[1]) if index == 0 else (pair[0], value)
