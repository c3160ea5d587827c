"""Model: a command that several processes start in one period, and that is to run once (``cdk-sagas once``).

Each process puts the period's item under an id of its own, runs the command, and notes its end. Its answers may be
lost, what it sent may travel and arrive late, and it may die anywhere. Operators let another process run a command that
failed, or whose process they have checked to be gone (``--again``): two operators may do so at once. Of a run whose
success was not noted, an operator records it (``--done``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

ONCE = "constructs_lib/cli/once.py"


class PeriodCondition(Condition):
    """Conditions of a job that runs once in a period."""

    NO_RUN = Because("of several starts, one runs", ONCE, '**when("attribute_not_exists(#id)")')
    OWNER_AS_MET = Because("of two operators, one takes the place of a run", ONCE, 'when("#owner = :met AND')
    STATE_AS_MET = Because("a run that was done meanwhile is not run again", ONCE, 'AND #state = :state"')
    DONE_AS_SEEN = Because("an operator records the end of the run that was seen", ONCE, 'when("#owner = :run AND')
    OWN_END = Because("a process notes the end of its own run", ONCE, 'when("#owner = :owner", owner=')


class PeriodPromise(StrEnum):
    """Promises that must never be broken."""

    RUN_AT_ONCE = "RUN_AT_ONCE"
    RUN_AFTER_DONE = "RUN_AFTER_DONE"
    ANOTHERS_END = "ANOTHERS_END"


C, P = PeriodCondition, PeriodPromise


class At(StrEnum):
    """Place of a process in its work."""

    START = "about to start"
    TAKE = "about to take the place of the run that it met"
    RUN = "running the command"
    END = "about to note the end"
    OVER = "over"


class State(StrEnum):
    """States of the noted run."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Noted:
    """The period's item."""

    owner: int
    state: State = State.RUNNING


@dataclass(frozen=True, slots=True)
class Process:
    """A process: the run that it met, the end that it has to note, and what of it travels."""

    at: At = At.START
    met: Noted | None = None
    end: State | None = None
    start_travels: bool = False
    end_travels: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Everything."""

    processes: tuple[Process, ...]
    noted: Noted | None = None
    ends: tuple[State | None, ...] = ()
    after_done: bool = False


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodModel(Conditional):
    """The model.

    Attributes:
        processes: how many there are.
        operators: how many of them, the last ones, are started with ``--again``.
    """

    processes: int = 3
    operators: int = 2

    def initial(self) -> World:
        """Nothing is noted."""
        return World((Process(),) * self.processes, ends=(None,) * self.processes)

    def at_rest(self, world: World) -> bool:
        """Every process is over, or has not begun."""
        return all(process.at in {At.START, At.OVER} for process in world.processes)

    def broken(self, world: World) -> Iterator[str]:
        """One command at a time, none after one that is noted as done, and each end is the end of its own run."""
        if sum(process.at is At.RUN for process in world.processes) > 1:
            yield P.RUN_AT_ONCE
        if world.after_done:
            yield P.RUN_AFTER_DONE
        noted = world.noted
        if noted is not None and noted.state is not State.RUNNING and world.ends[noted.owner] is not noted.state:
            yield P.ANOTHERS_END

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for index, process in enumerate(world.processes):
            if process.start_travels:
                arrived = _with(world, index, replace(process, start_travels=False))
                put = replace(arrived, noted=Noted(index)) if self._is_free(world) else arrived
                yield Move(f"the start of {index} arrives late", put)
            if process.end_travels and process.end is not None:
                arrived = _with(world, index, replace(process, end_travels=False))
                yield Move(f"the end of {index} arrives late", self._ended(arrived, index, process.end))
            yield from self._recorded(world, index, process)
            yield from self._of(world, index, process)

    def _recorded(self, world: World, index: int, process: Process) -> Moves:
        """An operator knows that a run succeeded whose process is gone."""
        noted = world.noted
        if noted is None or process.at is not At.OVER or world.ends[index] is not State.DONE:
            return
        same = noted.owner == index or not self.holds(C.DONE_AS_SEEN)
        if same and noted.state is State.RUNNING:
            yield Move(
                f"an operator records that {index} is done", replace(world, noted=replace(noted, state=State.DONE))
            )

    def _of(self, world: World, index: int, process: Process) -> Moves:
        match process.at:
            case At.START:
                yield from self._start(world, index, process)
            case At.TAKE:
                yield from self._take(world, index, process)
            case At.RUN:
                for end in (State.DONE, State.FAILED):
                    ends = tuple(end if other == index else old for other, old in enumerate(world.ends))
                    ended = _with(replace(world, ends=ends), index, replace(process, at=At.END, end=end))
                    yield Move(f"the command of {index} is {end}", ended)
                yield _dies(world, index, process)
            case At.END if process.end is not None:
                noted = self._ended(_with(world, index, replace(process, at=At.OVER)), index, process.end)
                yield Move(f"{index} notes {process.end}", noted)
                travels = replace(process, at=At.OVER, end_travels=True)
                sends = f"{index} sends {process.end}, which travels, and dies"
                yield Move(sends, _with(world, index, travels), fault=True)
                yield _dies(world, index, process)
            case _:
                pass

    def _start(self, world: World, index: int, process: Process) -> Moves:
        if self._is_free(world):
            begun = _running(replace(world, noted=Noted(index)), index, process)
            yield Move(f"{index} starts", begun)
            travels = replace(process, at=At.OVER, start_travels=True)
            yield Move(f"{index} sends its start, which travels, and dies", _with(world, index, travels), fault=True)
            # A second try is refused by its own first one, which it recognizes by its id.
            yield Move(f"{index} starts at the second try", begun, fault=True)
            return
        noted = world.noted
        if noted is None:
            return
        again = index >= self.processes - self.operators
        if again and noted.state is not State.DONE and self._is_gone(world, noted):
            met = replace(process, at=At.TAKE, met=noted)
            yield Move(f"{index} meets run {noted.owner}, whose process is gone", _with(world, index, met))
        over = _with(world, index, replace(process, at=At.OVER))
        yield Move(f"{index} meets run {noted.owner}, {noted.state}", over)

    def _take(self, world: World, index: int, process: Process) -> Moves:
        noted, met = world.noted, process.met
        if noted is None or met is None:
            return
        owner = noted.owner == met.owner or not self.holds(C.OWNER_AS_MET)
        state = noted.state is met.state or not self.holds(C.STATE_AS_MET)
        if owner and state:
            late = replace(world, noted=Noted(index), after_done=world.after_done or noted.state is State.DONE)
            yield Move(f"{index} takes the place of {noted.owner}", _running(late, index, process))
        else:
            yield Move(f"{index} is refused", _with(world, index, replace(process, at=At.OVER)))
        yield _dies(world, index, process)

    def _is_free(self, world: World) -> bool:
        return world.noted is None or not self.holds(C.NO_RUN)

    @staticmethod
    def _is_gone(world: World, noted: Noted) -> bool:
        return world.processes[noted.owner].at is At.OVER

    def _ended(self, world: World, index: int, end: State) -> World:
        noted = world.noted
        if noted is None or (noted.owner != index and self.holds(C.OWN_END)):
            return world
        return replace(world, noted=replace(noted, state=end))


def _running(world: World, index: int, process: Process) -> World:
    return _with(world, index, replace(process, at=At.RUN, met=None))


def _dies(world: World, index: int, process: Process) -> Move[World]:
    return Move(f"{index} dies", _with(world, index, replace(process, at=At.OVER)), fault=True)


def _with(world: World, index: int, process: Process) -> World:
    processes = tuple(process if other == index else old for other, old in enumerate(world.processes))
    return replace(world, processes=processes)
