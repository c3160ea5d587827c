"""Model: an inline saga with a group: branches, or items of a map, that run at once in Express and in Standard.

A branch reports, and never fails: when all of them have reported, the execution decides. It may die, or delegate, while
calls of both branches travel: functions of a branch continue without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tests.specification.conditions import Because, Condition
from tests.specification.inline_saga import EXPRESS, InlineModel
from tests.specification.saga_world import Direction, Do, Landed, Machine, Row, State, World, owned
from tests.specification.states import replace
from tests.specification.whole_saga import Answer

GROUPS: Final = "constructs_lib/saga/asl/groups.py"
COMPENSATION: Final = "constructs_lib/saga/asl/compensation.py"
CHECKS: Final = "constructs_lib/saga/validation/inline.py"


class BranchCondition(Condition):
    """Conditions of a group in an inline saga."""

    GROUP_JOINS = Because(
        "an owner that finds a tombstone in a branch compensates: the execution that wrote it may be dead",
        GROUPS,
        '{"Condition": expression(f"$exists($phase.{PhaseField.FENCED})"), **fenced},',
    )
    CHAIN_EVERY_BRANCH = Because(
        "each step of each branch is compensated, also without a row: its function may still run",
        COMPENSATION,
        "return [step for step in node.leaves if step.compensated]",
    )
    UNDO_READS_NO_OUTPUT = Because(
        "a compensation reads no outputs of steps: another execution may apply these, and more, after the read",
        CHECKS,
        "undone_by = outputs_named(texts, [leaf.name for leaf in leaves_of(steps)])",
    )
    GROUP_DELEGATES = Because(
        "Express delegates a group in which a step is in doubt: Standard tries it for longer",
        GROUPS,
        "refused_only = f'$phase.{PhaseField.FAILURE}.kind = \"saga-refused\"'",
    )


C = BranchCondition


class Worst(IntEnum):
    """Reports of branches. When all of them have reported, the worst one decides, whichever branch it is of."""

    OK = 0
    REFUSED = 1
    DOUBT = 2
    FENCED = 3


@dataclass(frozen=True, slots=True, order=True)
class Group(State):
    """A group that runs.

    Attributes:
        left: by branch, how many of its steps are left; 0: it has reported.
        worst: the worst of the reports.
    """

    left: tuple[int, ...] = ()
    worst: Worst = Worst.OK

    @property
    def through(self) -> bool:
        """True if every branch has reported, and none is fenced: what follows does not depend on the record."""
        return not any(self.left) and self.worst is not Worst.FENCED


@dataclass(frozen=True, slots=True, order=True)
class Chain(State):
    """A compensation.

    Attributes:
        seen: whether the first step had an output when this execution read it.
    """

    seen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchModel(InlineModel):
    """The model.

    Attributes:
        group: branches of the group, each of its steps' numbers, in order.
        of: a step whose output names the items of the group, which is a map; None: they come from the request.
    """

    group: tuple[tuple[int, ...], ...]
    of: int | None = None

    # -- entering a group ------------------------------------------------------------------------------------------

    @property
    def _grouped(self) -> list[int]:
        return [step for branch in self.group for step in branch]

    def _entered(self, state: State) -> State:
        """The group in place of its first step."""
        if type(state) is State and state.do is Do.STEP and state.step in self._grouped:
            return Group(Do.STEP, min(self._grouped), tuple(len(branch) for branch in self.group))
        return state

    def _following(self, step: int, name: int) -> State:
        return self._entered(InlineModel._following(self, step, name))

    def _text(self, state: State) -> str:
        return "group" if isinstance(state, Group) else InlineModel._text(self, state)

    # -- the states ------------------------------------------------------------------------------------------------

    def _answers(self, world: World, machine: Machine, name: int, state: State) -> Iterator[Answer]:
        if isinstance(state, Group):
            answers = self._group(world, name, state)
        elif state.do is Do.READ_OUTPUTS and self.of is not None:
            seen = world.rows[self.of] is Row.DONE
            first = Chain(Do.UNDO, state.step, seen)
            answers = iter([("read", world, first, False, None)])
        else:
            answers = InlineModel._answers(self, world, machine, name, state)
        for label, after, following, fault, breaks in answers:
            then = self._entered(following)
            if isinstance(then, Group) and then.through:  # which depends on nothing else
                then = self._over(after, name, then)[2]
            yield label, after, self._chained(state, then), fault, breaks

    def _chained(self, state: State, following: State) -> State:
        """A chain of compensations begins with the read of an output that one of them names."""
        if self.of is None or following.do is not Do.UNDO or isinstance(following, Chain):
            return following
        if isinstance(state, Chain):
            return Chain(following.do, following.step, state.seen)
        return State(Do.READ_OUTPUTS, following.step)

    def _sent(self, world: World, state: State, name: int) -> World:
        if isinstance(state, Group) or state.do is Do.READ_OUTPUTS:
            return world  # calls of branches travel one by one
        if self._skips(world, state):
            return world
        return InlineModel._sent(self, world, State(state.do, state.step), name)

    def _land(self, world: World, state: State, name: int) -> Landed:
        if self._skips(world, state):
            return Landed(world)
        return InlineModel._land(self, world, state, name)

    def _skips(self, world: World, state: State) -> bool:
        """True if a step of the group is not compensated: it has no row, or is an item that is not known."""
        if state.do is not Do.UNDO or state.step not in self._grouped:
            return False
        unknown = isinstance(state, Chain) and not state.seen and not self.holds(C.UNDO_READS_NO_OUTPUT)
        return unknown or (world.rows[state.step] is Row.NONE and not self.holds(C.CHAIN_EVERY_BRANCH))

    # -- a group ---------------------------------------------------------------------------------------------------

    def _group(self, world: World, name: int, state: Group) -> Iterator[Answer]:
        if not any(state.left):
            yield self._over(world, name, state)
            return
        for branch, left in enumerate(state.left):
            if left:
                yield from self._branch(world, name, state, branch)

    def _branch(self, world: World, name: int, state: Group, branch: int) -> Iterator[Answer]:
        step = self.group[branch][-state.left[branch]]
        call, text = State(Do.STEP, step), self.steps[step].name
        landed = self._land(world, call, name)

        def reported(worst: Worst) -> Group:
            return _moved(state, branch, 0, worst)

        if landed.written or world.rows[step] is Row.DONE:
            label = "takes effect" if landed.written else "replays"
            yield f"{text} {label}", landed.world, _moved(state, branch, state.left[branch] - 1), False, landed.breaks
        else:
            yield f"{text} is fenced", world, reported(Worst.FENCED), False, None
        doubt = Worst.DOUBT if name == EXPRESS and self.holds(C.GROUP_DELEGATES) else Worst.REFUSED
        if world.rows[step] is Row.NONE:
            yield f"{text} is refused for good", world, reported(Worst.REFUSED), True, None
        travels = InlineModel._sent(self, world, call, max(name, 0))
        yield f"{text} travels, and is in doubt", travels, reported(doubt), True, None
        if travels != world:
            yield f"{text} travels; it is sent again", travels, state, True, None

    def _over(self, world: World, name: int, state: Group) -> Answer:
        """Every branch has reported."""
        if state.worst is Worst.FENCED:
            return self._fenced_in_group(world, name, state)
        if state.worst is Worst.DOUBT:
            return "in doubt", world, State(Do.PARK), False, None
        if state.worst is Worst.REFUSED:
            return "failed", world, self._give_up(state.step), False, None
        return "is through", world, self._following(max(self._grouped), name), False, None

    def _fenced_in_group(self, world: World, name: int, state: Group) -> Answer:
        if not (owned(world.record, max(name, 0)) and self.holds(C.GROUP_JOINS)):
            return self._fenced(world, name)
        if world.record.direction is Direction.OPEN:
            return "compensates, too", world, self._give_up(state.step), False, None
        back = world.record.direction is Direction.COMPENSATE
        following = self._chain_from(len(self.steps) - 1, name) if back else State(Do.PARK)
        return "compensates, too", world, following, False, None


def _moved(state: Group, branch: int, left: int, worst: Worst = Worst.OK) -> Group:
    steps = (*state.left[:branch], left, *state.left[branch + 1 :])
    return replace(state, left=steps, worst=max(state.worst, worst))
