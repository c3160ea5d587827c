"""Model: an inline saga with a group: branches, or items of a map, that run at once in Express and in Standard.

A branch reports, and never fails: when all of them have reported, the execution decides. It may die, or delegate, while
calls of both branches travel: functions of a branch continue without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tests.specification.conditions import Because, Condition
from tests.specification.inline_saga import EXPRESS, InlineModel
from tests.specification.saga_world import Direction, Do, Landed, Machine, Row, State, World, owned
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


class Branch(StrEnum):
    """Reports of a branch."""

    RUNS = "runs"
    OK = "ok"
    REFUSED = "refused"
    DOUBT = "in doubt"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, order=True)
class Group(State):
    """A group that runs.

    Attributes:
        at: by branch, the number of its steps that are done.
        reports: by branch, what it has reported.
    """

    at: tuple[int, ...] = ()
    reports: tuple[Branch, ...] = ()


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
            branches = len(self.group)
            return Group(Do.STEP, min(self._grouped), (0,) * branches, (Branch.RUNS,) * branches)
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
            yield label, after, self._chained(state, self._entered(following)), fault, breaks

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
        if Branch.RUNS not in state.reports:
            yield self._over(world, name, state)
            return
        for branch, report in enumerate(state.reports):
            if report is Branch.RUNS:
                yield from self._branch(world, name, state, branch)

    def _branch(self, world: World, name: int, state: Group, branch: int) -> Iterator[Answer]:
        step = self.group[branch][state.at[branch]]
        call, text = State(Do.STEP, step), self.steps[step].name
        landed = self._land(world, call, name)
        if landed.written or world.rows[step] is Row.DONE:
            label = "takes effect" if landed.written else "replays"
            yield f"{text} {label}", landed.world, self._done(state, branch), False, landed.breaks
        else:
            yield f"{text} is fenced", world, _reported(state, branch, Branch.FENCED), False, None
        if world.rows[step] is Row.NONE:
            yield f"{text} is refused for good", world, _reported(state, branch, Branch.REFUSED), True, None
        travels = InlineModel._sent(self, world, call, max(name, 0))
        yield f"{text} travels, and is in doubt", travels, _reported(state, branch, Branch.DOUBT), True, None
        if travels != world:
            yield f"{text} travels; it is sent again", travels, state, True, None

    def _done(self, state: Group, branch: int) -> Group:
        at = state.at[branch] + 1
        moved = replace(state, at=(*state.at[:branch], at, *state.at[branch + 1 :]))
        return moved if at < len(self.group[branch]) else _reported(moved, branch, Branch.OK)

    def _over(self, world: World, name: int, state: Group) -> Answer:
        """Every branch has reported."""
        if Branch.FENCED in state.reports:
            return self._fenced_in_group(world, name, state)
        if Branch.DOUBT in state.reports and name == EXPRESS and self.holds(C.GROUP_DELEGATES):
            return "in doubt", world, State(Do.PARK), False, None
        if {Branch.DOUBT, Branch.REFUSED} & set(state.reports):
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


def _reported(state: Group, branch: int, report: Branch) -> Group:
    return replace(state, reports=(*state.reports[:branch], report, *state.reports[branch + 1 :]))
