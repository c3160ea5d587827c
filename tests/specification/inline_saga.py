"""Model: a saga that runs inline. Express executions of the forward machine run alongside the Standard one.

All of them have the saga's name, and own the record. An Express execution dies at any moment, sleeps for any time, and
starts the Standard one at any moment: it delegates. A reconciler or a duplicate does so, too, also while it lives.
Only a changed definition has a time: an Express execution of the earlier one has an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition
from tests.specification.saga_conditions import SagaCondition
from tests.specification.saga_people import Around
from tests.specification.saga_world import (
    ENDED,
    SUCCEEDED,
    Direction,
    Do,
    Execution,
    Landed,
    Machine,
    Person,
    Record,
    Row,
    State,
    Status,
    World,
    owned,
)
from tests.specification.states import replace
from tests.specification.whole_saga import Answer, Moves, SagaModel

_SILENT: Final = frozenset({Do.ASK_THE_LOG, Do.LOOK, Do.READ_DIRECTION})


DIRECTION: Final = "constructs_lib/saga/asl/direction.py"
ENDING: Final = "constructs_lib/saga/asl/ending.py"
BEGIN: Final = "constructs_lib/saga/asl/begin.py"
INLINE: Final = "constructs_lib/saga/asl/inline.py"
CHECKS: Final = "constructs_lib/saga/validation/inline.py"
FENCE: Final = "constructs_lib/saga/asl/fence.py"
RECORD: Final = "lambda_src/saga_runtime/idempotency/record.py"


class InlineCondition(Condition):
    """Conditions of both machines of an inline saga."""

    FENCE_PIVOTS_AHEAD = Because(
        "an execution whose step fails fences every pivot ahead: another execution may have reached it",
        DIRECTION,
        'f"Fence {following.name}" if following is not None else COMPENSATE,',
    )
    CHAIN_FROM_LAST = Because(
        "its compensations begin at the last step: another execution may have run steps ahead",
        DIRECTION,
        "read_outputs(plan, plan.named_to_undo, chain_from(plan, len(plan.steps) - 1))",
    )
    AGAIN_WHEN_AHEAD = Because(
        "if a pivot ahead is applied, the failed step runs again: the result needs its output",
        DIRECTION,
        "FORWARD: direct(plan, Direction.FORWARD, TRY_AGAIN",
    )
    SETTLE_DIRECTION = Because(
        "a saga that compensates is never settled as completed",
        ENDING,
        '" AND (attribute_not_exists(#direction) OR #direction = :forward)"',
    )
    JOINS = Because(
        "an owner that finds a tombstone compensates: the execution that wrote it may be dead",
        INLINE,
        '{"Condition": expression(f"{undecided} and $again in',
    )
    JOINS_AT_SETTLE = Because(
        "an owner whose settle is refused by the direction compensates; it does not park",
        INLINE,
        '{"Condition": expression(compensates), "Next": back},',
    )
    DELEGATES_BY_NAME = Because(
        "an Express execution starts Standard by the saga's name",
        ENDING,
        '"Name": expression(SAGA_ID), "Input": expression(f"$string({INPUT})"),',
    )
    WAYS_AGREE = Because(
        "a condition has the same value in each execution: it reads no time, no chance, and no unrecorded output",
        CHECKS,
        "if (found := _DIFFERS.search(when)) is not None:",
    )
    COMPARES = Because(
        "the Standard execution compares its definition with the reservation's before its first step",
        BEGIN,
        '_guard(start, states, fits, {"Next": WHOSE_START}, asks=asks)',
    )
    OUTLIVE_EXPRESS = Because(
        "under another definition it waits until Express executions and functions of the earlier one have ended",
        BEGIN,
        '"Seconds": OUTLIVE_EXPRESS_SECONDS, "Next": READ_FIRST',
    )
    ROWS_FIT = Because(
        "then it continues only over rows of steps that it knows",
        BEGIN,
        'f"$fresh or ($compatible and {same_ways(plan)})"',
    )
    EXPECTED = Because(
        "a Standard machine that does not expect Express executions begins no saga for which they are started",
        BEGIN,
        'begins = f"{EXECUTION} = {SAGA_ID}" + ("" if plan.alongside else f" and $not({of_express})")',
    )
    KEEPS_ROUTE = Because(
        "an execution continues with the route that a skipped step's row keeps, and not with its own refusal's",
        FENCE,
        "kept = f'{status} = \"{StepStatus.TOMBSTONE}\" and $exists(${flow.row}.{LogAttribute.OUTPUT}.S)'",
    )
    OWNER_IS_THE_SAGAS = Because(
        "the owner's name has the saga's id: a later saga under the key has another owner",
        RECORD,
        'a.OWNER: {"S": reservation.saga_id},',
    )


C, F = InlineCondition, SagaCondition


class InlinePromise(StrEnum):
    """Promises of the model, in addition to those of the whole saga."""

    RESULT_WITHOUT_AN_OUTPUT = "RESULT_WITHOUT_AN_OUTPUT"
    """The stored result was made without the output of an applied step."""
    BOTH_WAYS_TAKEN = "BOTH_WAYS_TAKEN"
    """Steps of two routes of one step are applied."""
    LATER_SAGA_CHANGED = "LATER_SAGA_CHANGED"
    """An execution wrote to the record of the next saga under its key."""


EXPRESS: Final = -1
"""In the place of an execution's number: an Express one, whose name is the first Standard execution's."""
_LATER_OWNER: Final = -2


@dataclass(frozen=True, slots=True)
class Back(State):
    """A state behind a failed step.

    Attributes:
        given_up: the step.
    """

    given_up: int = 0


@dataclass(frozen=True, slots=True)
class InlineWorld(World):
    """The world with Express executions.

    Attributes:
        express: Express executions. They cannot be redriven.
        later: whether the key is a later saga's.
    """

    express: tuple[Execution, ...] = ()
    later: bool = False


def _inline(world: World) -> InlineWorld:
    if not isinstance(world, InlineWorld):
        raise TypeError("an inline saga's world has Express executions")
    return world


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineModel(SagaModel):
    """The model.

    Attributes:
        drivers: how many Express executions there are: an asynchronous one may be started twice.
        changed: whether a definition in which a step is renamed is deployed after Express began, and before Standard
            does.
        reused: whether the key can be forgotten, and reserved for another saga, while executions of this one sleep.
        old_way_back: whether it compensates like a saga that does not run inline.
        unprepared: names under which the Standard machine runs a definition that does not expect Express: it was
            switched on, or off, without ``Run.PREPARED`` between.
    """

    drivers: int = 1
    changed: bool = False
    reused: bool = False
    old_way_back: bool = False
    unprepared: frozenset[int] = frozenset()

    def initial(self) -> InlineWorld:
        """Reserved; Express began, and Standard did not."""
        names = range(self.recoveries + 1)
        return InlineWorld(
            rows=(Row.NONE,) * len(self.steps),
            record=Record(),
            forward=tuple(Execution() for _ in names),
            recovery=tuple(Execution() for _ in names),
            people=(Person(),) * self.people,
            express=(Execution(self._following(-1, EXPRESS)),) * self.drivers,
        )

    def at_rest(self, world: World) -> bool:
        """Settled, parked, or the key is a later saga's."""
        return _inline(world).later or SagaModel.at_rest(self, world)

    def moves(self, world: World) -> Moves:
        """Every move; Express executions are alike, so that their order means nothing."""
        for move in SagaModel.moves(self, world):
            after = move.state
            if not isinstance(after, InlineWorld):  # 90 days
                ended = (Execution(ENDED),) * self.drivers
                executions = (after.forward, after.recovery, after.people)
                after = InlineWorld(
                    after.rows, after.record, *executions, after.letters, after.old, after.restored, express=ended
                )
            yield replace(move, state=replace(after, express=tuple(sorted(after.express, key=repr))))

    def _moves(self, world: World) -> Moves:
        here = _inline(world)
        yield from SagaModel._moves(self, replace(here, people=()) if here.later else here)
        for index, execution in enumerate(here.express):
            if execution.runs and execution not in here.express[:index]:
                yield from self._express(here, index, execution.state)
        if self.reused and not here.later and here.record.status is not Status.IN_PROGRESS:
            owner = _LATER_OWNER if self.holds(C.OWNER_IS_THE_SAGAS) else 0
            later = replace(here, record=Record(owner=owner), later=True, people=())
            yield Move("the key is forgotten, and reserved for another saga", later)

    @property
    def _around(self) -> Around:
        return Around(off=self.off, recoveries=self.recoveries, first=self._first, resumes=self.resumes)

    def _first(self, name: int) -> State:
        """Standard's first state: only under another definition than the reservation's it reads the record."""
        if name == 0 and name in self.unprepared and self.holds(C.EXPECTED):
            return ENDED
        other = self.changed and name == 0 and self.holds(C.COMPARES)
        return State(Do.READ_DIRECTION) if other else self._following(-1, name)

    # -- Express ----------------------------------------------------------------------------------------------------

    def _express(self, world: InlineWorld, index: int, state: State) -> Moves:
        who = "Express" if self.drivers == 1 else f"Express {index}"
        what = self._text(state)

        def at(after: World, following: State) -> InlineWorld:
            here = _inline(after)
            return replace(here, express=(*here.express[:index], Execution(following), *here.express[index + 1 :]))

        over = State(Do.HAND_OVER)
        yield Move(f"{who} dies at: {what}", at(world, ENDED), fault=True)
        if state.do is Do.HAND_OVER:
            name = 0 if self.holds(C.DELEGATES_BY_NAME) else 1
            yield Move(f"{who} starts Standard", at(self._around.started(world, Machine.FORWARD, name), SUCCEEDED))
            sent = self._sent(world, state, name)
            yield Move(f"{who} starts Standard: that travels", at(sent, SUCCEEDED), fault=True)
            return
        yield Move(f"{who} delegates at: {what}", at(world, over), fault=True)
        for label, after, following, fault, breaks in self._answers(world, Machine.FORWARD, EXPRESS, state):
            then = over if following.do is Do.PARK else following
            yield Move(f"{who}: {what}: {label}", at(after, then), fault=fault, breaks=breaks)
            if after is not world and after != world:
                lost = at(after, state)
                yield Move(f"{who}: {what}: {label}, but the answer is lost", lost, fault=True, breaks=breaks)
        if state.do in _SILENT:
            return
        sent = self._sent(world, state, 0)
        if sent != world:
            yield Move(f"{who}: {what}: travels; it is sent again", sent, fault=True)
            yield Move(f"{who} dies at: {what}; what it sent travels", at(sent, ENDED), fault=True)
            yield Move(f"{who}: {what}: travels, and is delegated", at(sent, over), fault=True)

    @property
    def _not_expecting(self) -> InlineModel:
        """The rules of a Standard machine that does not expect Express."""
        expecting = {C.JOINS, C.JOINS_AT_SETTLE, C.SETTLE_DIRECTION}
        return replace(self, old_way_back=True, unprepared=frozenset(), off=self.off | expecting)

    def _execution(self, world: World, machine: Machine, name: int, state: State) -> Moves:
        rules = self._not_expecting if machine is Machine.FORWARD and name in self.unprepared else self
        yield from SagaModel._execution(rules, world, machine, name, state)

    # -- both machines ----------------------------------------------------------------------------------------------

    def _land(self, world: World, state: State, name: int) -> Landed:
        refused = state.do is Do.SETTLE_COMPLETED and self.holds(C.SETTLE_DIRECTION)
        if refused and world.record.direction is Direction.COMPENSATE:
            return Landed(world, written=False)
        landed = SagaModel._land(self, world, state, max(name, 0))
        if _inline(world).later and landed.world.record != world.record:
            return replace(landed, breaks=InlinePromise.LATER_SAGA_CHANGED)
        return landed

    def _sent(self, world: World, state: State, name: int) -> World:
        return SagaModel._sent(self, world, State(state.do, state.step), max(name, 0))

    def _new(self, name: int) -> bool:
        return name > 0 or (self.changed and name == 0)

    def _following(self, step: int, name: int) -> State:
        skips = name == EXPRESS and step == 0 and not self.holds(C.WAYS_AGREE)
        return SagaModel._following(self, step + 1 if skips else step, name)

    @property
    def _last_pivot(self) -> int:
        return max(self._pivots, default=len(self.steps))

    @property
    def _pivots(self) -> list[int]:
        return [index for index, step in enumerate(self.steps) if step.pivot]

    def _answers(self, world: World, machine: Machine, name: int, state: State) -> Iterator[Answer]:
        if machine is Machine.FORWARD and state.do is Do.READ_DIRECTION:
            yield from self._begin(world, name)
        elif machine is Machine.FORWARD and state.do is Do.LOOK:
            yield self._look_from(world, name, state)
        else:
            for label, after, following, fault, breaks in SagaModel._answers(self, world, machine, name, state):
                wrong = breaks or self._without_output(world, state, following)
                looks = isinstance(state, Back) and following.do is Do.LOOK
                then = Back(Do.LOOK, 0, state.given_up) if looks and isinstance(state, Back) else following
                yield label, after, then, fault, wrong

    def _step(self, world: World, name: int, state: State) -> Iterator[Answer]:
        for answer in SagaModel._step(self, world, name, state):
            joins = answer[2] == ENDED and owned(world.record, max(name, 0)) and self.holds(C.JOINS)
            if not joins:
                yield answer
            elif world.record.direction is Direction.OPEN:
                yield "compensates, too", world, self._give_up(state.step), False, None
            else:
                back = world.record.direction is Direction.COMPENSATE
                following = self._chain_from(len(self.steps) - 1, name) if back else State(Do.PARK)
                yield "compensates, too", world, following, False, None

    def _fenced(self, world: World, name: int) -> Answer:
        if name == EXPRESS:  # it is found due, or was delegated
            return "ends fenced", world, ENDED, False, None
        return SagaModel._fenced(self, world, name)

    # -- compensation by both machines ------------------------------------------------------------------------------

    def _give_up(self, step: int) -> State:
        if self.old_way_back:
            return SagaModel._give_up(self, step)
        if self._pivots and step > self._last_pivot:
            return State(Do.PARK)
        passed = any(other.pivot and other.on_the_way for other in self.steps[:step])
        return State(Do.STUCK_FORWARD, step) if passed else self._fence_from(step, step)

    def _fence_from(self, first: int, given_up: int) -> State:
        ahead = [pivot for pivot in self._pivots if pivot >= first]
        if not self.holds(C.FENCE_PIVOTS_AHEAD):
            ahead = [pivot for pivot in ahead if pivot == given_up]
        if ahead:
            return Back(Do.FENCE, ahead[0], given_up)
        last = len(self.steps) - 1 if self.holds(C.CHAIN_FROM_LAST) else given_up
        return Back(Do.TO_COMPENSATE, last, given_up)

    def _fence(self, world: World, machine: Machine, name: int, state: State) -> Iterator[Answer]:
        for label, after, following, fault, breaks in SagaModel._fence(self, world, machine, name, state):
            then = following
            if isinstance(state, Back):
                stands = following.do is Do.TO_FORWARD
                decided = Back(Do.TO_FORWARD, state.step, state.given_up)
                then = decided if stands else self._fence_from(state.step + 1, state.given_up)
            yield label, after, then, fault, breaks

    def _behind(self, machine: Machine, state: State, name: int) -> State:
        again = state.do is Do.TO_FORWARD and isinstance(state, Back) and self.holds(C.AGAIN_WHEN_AHEAD)
        if again and isinstance(state, Back):
            return State(Do.STEP, state.given_up)
        return SagaModel._behind(self, machine, state, name)

    def _without_output(self, world: World, state: State, following: State) -> str | None:
        """An execution that continues behind a pivot without the outputs of the steps before it."""
        if not (isinstance(state, Back) and state.do is Do.TO_FORWARD) or following == State(Do.STEP, state.given_up):
            return None
        missed = Row.DONE in world.rows[state.given_up : state.step] and following.do is not Do.LOOK
        return InlinePromise.RESULT_WITHOUT_AN_OUTPUT if missed else None

    def _look_from(self, world: World, name: int, state: State) -> Answer:
        """Behind a refused write: by its record, an owner compensates, or runs the step again."""
        record = world.record
        if owned(record, max(name, 0)):
            if record.direction is Direction.COMPENSATE and self.holds(C.JOINS_AT_SETTLE):
                return "it compensates", world, self._chain_from(len(self.steps) - 1, name), False, None
            if record.direction is Direction.FORWARD and isinstance(state, Back):
                return "it only goes forward", world, State(Do.STEP, state.given_up), False, None
        return self._look(world, max(name, 0)) if name != EXPRESS else self._express_looks(world)

    def _express_looks(self, world: World) -> Answer:
        if world.record.status is not Status.IN_PROGRESS:
            return "settled already", world, SUCCEEDED, False, None
        following = State(Do.PARK) if owned(world.record, 0) else ENDED
        return "delegates, or is fenced", world, following, False, None

    # -- the first state of Standard --------------------------------------------------------------------------------

    def _begin(self, world: World, name: int) -> Iterator[Answer]:
        record = world.record
        if not owned(record, name):
            yield self._fenced(world, name)
            return
        if record.new != self._new(name):
            if self._waits(world, name):
                return
            stand = [step for step, row in enumerate(world.rows) if row is Row.DONE]
            if self.holds(C.ROWS_FIT) and not all(self._known(name, step) for step in stand):
                yield "rows do not fit the definition", world, State(Do.PARK), False, None
            else:
                yield "rows fit the definition", world, State(Do.NOTE_DEFINITION, self._new(name)), False, None
        elif record.direction is Direction.COMPENSATE:
            yield "it compensates", world, self._chain_from(len(self.steps) - 1, name), False, None
        else:
            yield "begins", world, self._following(-1, name), False, None

    def _waits(self, world: World, name: int) -> bool:
        if not self.holds(C.OUTLIVE_EXPRESS):
            return False
        other = self.changed and world.record.new != self._new(name)
        return (other and any(one.runs for one in _inline(world).express)) or SagaModel._waits(self, world, name)
