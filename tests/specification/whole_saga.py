"""Model: the whole saga. The forward machine, the recovery machine, and the components around them.

Every call of a machine is one move, in which it is applied and returns. Its possible failures are moves, too: its
response is lost, and it is sent again; it stays in transit, and arrives when no execution waits for it any more; the
machine dies before or after it. (A call that arrives while its sender still waits is the same as one that was sent just
then.) The log row of a step and its effect are one thing here: that is what the model of the atomic step is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.saga_conditions import SagaCondition, SagaPromise
from tests.specification.saga_people import Around, called
from tests.specification.saga_world import (
    ENDED,
    SUCCEEDED,
    Direction,
    Do,
    Execution,
    Landed,
    Letter,
    Machine,
    Person,
    Record,
    Row,
    State,
    Status,
    StepSpec,
    World,
    land,
    owned,
)
from tests.specification.states import replace

Moves = Iterator[Move[World]]
Answer = tuple[str, World, State, bool, str | None]
"""What a machine's state can lead to: label, world, next state, whether that is a fault, broken promise."""

_ABOUT_A_STEP = frozenset(
    {
        Do.STEP,
        Do.FENCE,
        Do.PASS_OVER,
        Do.TO_COMPENSATE,
        Do.TO_FORWARD,
        Do.STUCK_FORWARD,
        Do.ONLY_FORWARD,
        Do.UNDO,
    }
)
_SILENT = frozenset({Do.ASK_THE_LOG, Do.LOOK, Do.READ_DIRECTION})
"""States that only read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaModel(Conditional):
    """The model.

    Attributes:
        steps: the saga's steps.
        recoveries: how often it can be taken over.
        people: how many run ``cdk-sagas recover`` or ``resolve``, in any order and at once.
        letters: how many calls can be travelling at once.
        redrive: whether a person redrives executions that died, from the state in which they did.
        aging: whether 90 days can pass, after which Step Functions forgets the names of executions that ended.
        resumes: whether people resume what is parked.
        restores: whether record and log are restored, once, after the saga has settled, and its effects are not.
        rolls_back: whether the last recovery runs under the definition that the saga began with, the others not. A
            start of the forward machine is not under way then when its recovery is taken over: time sees to that, and
            no condition.
    """

    steps: tuple[StepSpec, ...]
    recoveries: int = 1
    people: int = 1
    letters: int = 1
    redrive: bool = True
    aging: bool = False
    resumes: bool = False
    restores: bool = False
    rolls_back: bool = False

    def initial(self) -> World:
        """Reserved and started."""
        names = range(self.recoveries + 1)
        forward = tuple(Execution(self._following(-1, 0)) if name == 0 else Execution() for name in names)
        return World(
            rows=(Row.NONE,) * len(self.steps),
            record=Record(),
            forward=forward,
            recovery=tuple(Execution() for _ in names),
            people=(Person(),) * self.people,
        )

    def at_rest(self, world: World) -> bool:
        """True if the saga is settled or parked."""
        record = world.record
        running = world.forward[record.owner].runs or world.recovery[record.owner].runs
        # A recovery more than the model covers, or one of a saga so old that it needs an operator.
        beyond = (record.owner == self.recoveries or world.old) and not running
        return record.status is not Status.IN_PROGRESS or record.parked or beyond

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the record and the log break."""
        rows = list(zip(self.steps, world.rows, strict=True))
        if world.record.status is Status.COMPLETED and any(
            step.on_the_way and step.old and step.new and row is not Row.DONE and not _passed_over(step, row)
            for step, row in rows
        ):
            yield SagaPromise.COMPLETED_BUT_NOT_ALL_APPLIED
        if world.record.status is Status.FAILED and (Row.DONE in world.rows or world.restored):
            yield SagaPromise.FAILED_BUT_AN_EFFECT_STANDS
        renamed = [step for step, row in rows if row is Row.DONE and not (step.old and step.new)]
        if any(step.old for step in renamed) and any(step.new for step in renamed):
            yield SagaPromise.EFFECT_UNDER_TWO_NAMES
        final = [step.pivot or index > self._last_pivot for index, step in enumerate(self.steps)]
        if Row.COMPENSATED in world.rows and any(
            is_final and row is Row.DONE for is_final, (_, row) in zip(final, rows, strict=True)
        ):
            yield SagaPromise.UNDONE_BEHIND_A_STANDING_PIVOT

    def moves(self, world: World) -> Moves:
        """Whatever may happen next; letters that can change nothing any more are forgotten."""
        for move in self._moves(world):
            kept = frozenset(letter for letter in move.state.letters if self._matters(move.state, letter))
            if kept == move.state.letters:
                yield move
            else:
                yield replace(move, state=replace(move.state, letters=kept))

    def _matters(self, world: World, letter: Letter) -> bool:
        """True if a letter can ever change anything: what is refused once is refused for ever, if rows and direction
        are as they should be."""
        if not (self.holds(SagaCondition.STEP_NO_ROW) and self.holds(SagaCondition.DIRECTION_ONCE)):
            return True
        if letter.state.do is Do.START:
            return world.forward[letter.name].state.do is Do.ABSENT
        return self._land(world, letter.state, letter.name).world != world

    def _land(self, world: World, state: State, name: int) -> Landed:
        """Result of the call of a state when it arrives."""
        return land(world, state, name, self.off)

    def _moves(self, world: World) -> Moves:
        for machine, executions in ((Machine.FORWARD, world.forward), (Machine.RECOVERY, world.recovery)):
            for name, execution in enumerate(executions):
                if execution.runs:
                    yield from self._execution(world, machine, name, execution.state)
                elif execution.dead and self.redrive:
                    alive = world.with_execution(machine, name, Execution(execution.state))
                    yield Move(f"a person redrives the {called(machine, name)}", alive, fault=True)
        for letter in sorted(world.letters):
            yield from self._letter(world, letter)
        for index, person in enumerate(world.people):
            if person not in world.people[:index]:
                yield from self._around.recover(world, index, person)
        if self.aging:
            yield from self._around.age(world)
        if self.restores:
            yield from self._around.restore(world)

    @property
    def _around(self) -> Around:
        return Around(
            off=self.off, recoveries=self.recoveries, first=lambda name: self._following(-1, name), resumes=self.resumes
        )

    # -- executions -------------------------------------------------------------------------------------------------

    def _text(self, state: State) -> str:
        if state.do is Do.STEP:
            return self.steps[state.step].name
        return f"{state.do} {self.steps[state.step].name}" if state.do in _ABOUT_A_STEP else str(state.do)

    def _execution(self, world: World, machine: Machine, name: int, state: State) -> Moves:
        who, what = called(machine, name), self._text(state)
        for label, after, following, fault, breaks in self._answers(world, machine, name, state):
            moved = after.with_execution(machine, name, Execution(following))
            yield Move(f"{who}: {what}: {label}", moved, fault=fault, breaks=breaks)
            if after is not world and after != world:
                lost = after.with_execution(machine, name, Execution(state))
                yield Move(f"{who}: {what}: {label}, but the answer is lost", lost, fault=True, breaks=breaks)
        corpse = Execution(state, dead=True) if self.redrive else Execution(ENDED)
        yield Move(f"{who} dies at: {what}", world.with_execution(machine, name, corpse), fault=True)
        if state.do in _SILENT:
            return
        travelling = self._sent(world, state, name)
        if travelling != world:
            yield Move(f"{who}: {what}: travels; it is sent again", travelling, fault=True)
            dead = travelling.with_execution(machine, name, corpse)
            yield Move(f"{who} dies at: {what}; what it sent travels", dead, fault=True)
        for following in self._exhausted(machine, state):
            given_up = travelling.with_execution(machine, name, Execution(following))
            yield Move(f"{who}: {what}: travels, and is abandoned", given_up, fault=True)

    def _sent(self, world: World, state: State, name: int) -> World:
        sent = State(Do.START) if state.do is Do.HAND_OVER else state
        if len(world.letters) >= self.letters or (sent.do is Do.START and self.rolls_back):
            return world
        return replace(world, letters=world.letters | {Letter(sent, name)})

    def _exhausted(self, machine: Machine, state: State) -> list[State]:
        """States to which a state's Catch leads when all retries are used up."""
        if state.do is Do.STEP:
            return [self._give_up(state.step)]
        return [State(Do.PARK)] if state.do is Do.UNDO else []

    def _answers(self, world: World, machine: Machine, name: int, state: State) -> Iterator[Answer]:
        if state.do is Do.STEP:
            yield from self._step(world, name, state)
        elif state.do in {Do.FENCE, Do.PASS_OVER}:
            yield from self._fence(world, machine, name, state)
        elif state.do is Do.LOOK:
            yield self._look(world, name)
        elif state.do is Do.ASK_THE_LOG:
            kept = (row for step, row in zip(self.steps, world.rows, strict=True) if step.row)
            stands = Row.DONE in kept and self.holds(SagaCondition.ASK_THE_LOG)
            following = State(Do.PARK) if stands else State(Do.SETTLE_FAILED)
            yield "an effect remains" if stands else "no effect remains", world, following, False, None
        elif state.do is Do.READ_DIRECTION:
            if not self._waits(world, name):
                yield self._read_direction(world, name)
        elif state.do is Do.HAND_OVER:
            yield (
                "starts the forward machine",
                self._around.started(world, Machine.FORWARD, name),
                SUCCEEDED,
                False,
                None,
            )
        else:
            landed = self._land(world, state, name)
            if landed.written:
                following = self._behind(machine, state, name)
                yield "written", landed.world, following, False, landed.breaks
            elif state.do is Do.PARK:
                yield self._fenced(world, name)
            else:
                yield "refused", world, State(Do.LOOK), False, None

    def _waits(self, world: World, name: int) -> bool:
        """True if a function that the last owner invoked under another definition may still be at work."""
        if world.record.new == self._new(name) or not self.holds(SagaCondition.OUTLIVE_EARLIER_FUNCTIONS):
            return False
        called = [letter.state.step for letter in world.letters if letter.state.do is Do.STEP]
        return not all(self._known(name, step) for step in called)

    def _step(self, world: World, name: int, state: State) -> Iterator[Answer]:
        step, row = state.step, world.rows[state.step]
        landed = self._land(world, state, name)
        following = self._following(step, name)
        if landed.written:
            yield "takes effect", landed.world, following, False, None
            if row is Row.NONE:
                yield "is refused for good", world, self._give_up(step), True, None
                if self.steps[step].goes_on:
                    yield "is refused, and may be skipped", world, State(Do.PASS_OVER, step), True, None
        elif row is Row.DONE:
            yield "replays", world, following, False, None
        elif row is Row.PASSED and self.holds(SagaCondition.PASSED_OVER_REPLAYS):
            yield "replays the substitute output", world, following, False, None
        elif self.holds(SagaCondition.FENCED_ENDS):
            yield self._fenced(world, name)
        else:
            yield f"meets {row}, fails", world, self._give_up(step), False, None

    def _give_up(self, step: int) -> State:
        """State to which a step's Catch leads."""
        spec = self.steps[step]
        if step > self._last_pivot:
            return State(Do.PARK)
        passed = any(other.pivot and other.on_the_way for other in self.steps[:step])
        if passed and self.holds(SagaCondition.NO_WAY_BACK):
            return State(Do.STUCK_FORWARD, step)
        if spec.pivot and self.holds(SagaCondition.FENCE_BEFORE_GIVING_UP):
            return State(Do.FENCE, step)
        return State(Do.TO_COMPENSATE, step)

    def _fence(self, world: World, machine: Machine, name: int, state: State) -> Iterator[Answer]:
        """The tombstone's put, and the read of the row when it was refused: rows never revert, so both are one."""
        landed = self._land(world, state, name)
        stands = not landed.written and world.rows[state.step] is Row.DONE
        label = "stands" if stands else "buried"
        if state.do is Do.PASS_OVER:
            following = self._following(state.step, name)
        elif machine is Machine.FORWARD:
            following = State(Do.TO_FORWARD if stands else Do.TO_COMPENSATE, state.step)
        elif stands:
            following = State(Do.TO_FORWARD, state.step)
        else:
            following = self._next_fence(state.step)
        yield label, landed.world, following, False, landed.breaks

    def _look(self, world: World, name: int) -> Answer:
        if world.record.status is not Status.IN_PROGRESS:
            return "settled already", world, SUCCEEDED, False, None
        if owned(world.record, name):
            return "it is mine", world, State(Do.PARK), False, None
        return self._fenced(world, name)

    def _fenced(self, world: World, name: int) -> Answer:
        """End fenced: another component must be responsible for the saga."""
        both = (world.forward[name], world.recovery[name])
        alone = sum(execution.runs for execution in both) == 1
        abandoned = alone and owned(world.record, name) and not world.record.parked
        return "ends fenced", world, ENDED, False, SagaPromise.OWNER_GAVE_UP if abandoned else None

    def _behind(self, machine: Machine, state: State, name: int) -> State:
        """The state that follows a write."""
        if state.do is Do.TO_FORWARD:
            return State(Do.HAND_OVER) if machine is Machine.RECOVERY else self._following(state.step, name)
        if state.do is Do.STUCK_FORWARD:
            return State(Do.PARK)
        if state.do is Do.ONLY_FORWARD:
            return State(Do.STEP, state.step)
        if state.do is Do.TO_COMPENSATE:
            return self._chain_from(state.step, name)
        if state.do is Do.UNDO:
            return self._chain_from(state.step - 1, name)
        if state.do is Do.NOTE_DEFINITION:
            return State(Do.READ_DIRECTION)
        return ENDED if state.do is Do.PARK else SUCCEEDED

    def _known(self, name: int, step: int) -> bool:
        """True if an execution's definition has a step."""
        return self.steps[step].new if self._new(name) else self.steps[step].old

    def _new(self, name: int) -> bool:
        """True if an execution runs under the definition that was deployed after the saga had begun."""
        return name > 0 and not (self.rolls_back and name == self.recoveries)

    def _following(self, step: int, name: int) -> State:
        behind = (index for index in range(step + 1, len(self.steps)) if self._known(name, index))
        ahead = (index for index in behind if self.steps[index].on_the_way)
        index = next(ahead, None)
        if index is None:
            return State(Do.SETTLE_COMPLETED)
        ran = step >= 0 and self.steps[step].pivot
        around = step < self._last_pivot < index and not ran
        if around and self.holds(SagaCondition.FORWARD_AROUND_PIVOTS):
            return State(Do.ONLY_FORWARD, index)
        return State(Do.STEP, index)

    @property
    def _last_pivot(self) -> int:
        return max(index for index, step in enumerate(self.steps) if step.pivot)

    def _chain_from(self, step: int, name: int) -> State:
        back = (index for index in range(step, -1, -1) if self.steps[index].undo and self._known(name, index))
        index = next(back, None)
        return State(Do.ASK_THE_LOG) if index is None else State(Do.UNDO, index)

    # -- the recovery machine ---------------------------------------------------------------------------------------

    def _last(self) -> int:
        """Index of the step at which a recovery's chain begins."""
        if self.holds(SagaCondition.CHAIN_FROM_LAST):
            return len(self.steps) - 1
        return next(index for index, step in enumerate(self.steps) if step.pivot) - 1

    def _read_direction(self, world: World, name: int) -> Answer:
        if not owned(world.record, name) and self.holds(SagaCondition.READ_MINE):
            return self._fenced(world, name)
        stand = [step for step, row in enumerate(world.rows) if row is Row.DONE]
        if self.holds(SagaCondition.ROWS_FIT) and not all(self._known(name, step) for step in stand):
            return "rows do not fit the definition", world, State(Do.PARK), False, None
        if world.record.new != self._new(name) and self.holds(SagaCondition.NOTE_DEFINITION):
            return "rows fit the definition", world, State(Do.NOTE_DEFINITION, self._new(name)), False, None
        direction = world.record.direction
        if direction is Direction.OPEN and not self.holds(SagaCondition.FENCE_IN_RECOVERY):
            done = [index for index, spec in enumerate(self.steps) if spec.pivot and world.rows[index] is Row.DONE]
            decided = State(Do.TO_FORWARD, done[0]) if done else State(Do.TO_COMPENSATE, self._last())
            return "decides by what it reads of the pivots", world, decided, False, None
        if direction is Direction.OPEN or not self.holds(SagaCondition.READ_DIRECTION):
            return "goes to the fences", world, self._next_fence(-1), False, None
        forward = direction is Direction.FORWARD
        following = State(Do.HAND_OVER) if forward else self._chain_from(self._last(), name)
        return f"it is {direction}", world, following, False, None

    def _next_fence(self, step: int) -> State:
        pivots = [index for index, spec in enumerate(self.steps) if spec.pivot]
        if not self.holds(SagaCondition.FENCE_EVERY_PIVOT):
            pivots = pivots[:1]
        ahead = [index for index in pivots if index > step]
        return State(Do.FENCE, ahead[0]) if ahead else State(Do.TO_COMPENSATE, self._last())

    # -- what travels -----------------------------------------------------------------------------------------------

    def _letter(self, world: World, letter: Letter) -> Moves:
        opened = replace(world, letters=world.letters - {letter})
        sender = f" of r{letter.name}" if letter.name else ""
        what = f"the travelling {self._text(letter.state)}{sender}"
        yield Move(f"{what} is lost", opened)
        if letter.state.do is Do.START:
            yield Move(f"{what} arrives", self._around.started(opened, Machine.FORWARD, letter.name))
            return
        landed = self._land(opened, letter.state, letter.name)
        if landed.written and landed.world != opened:
            yield Move(f"{what} arrives late", landed.world, breaks=landed.breaks)


def _passed_over(step: StepSpec, row: Row) -> bool:
    return step.goes_on and row in {Row.PASSED, Row.REROUTED, Row.TOMBSTONE}
