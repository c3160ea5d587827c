"""Model: one effect that took place late, the executions that compensate it, and who starts them.

Executions fail until the cause is gone. The reconciler starts one after another, up to a limit, and records the last
one's number; operators, two at once, start the next one. Any of them dies, or is held for long, between two calls.
After its saga settled, the record may be replaced by that of another saga of the same key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

LATE: Final = "lambda_src/saga_runtime/recovery/late_effects.py"
RECONCILER: Final = "lambda_src/saga_runtime/recovery/saga_reconciler.py"


class LateCondition(Condition):
    """Conditions of what compensates late effects."""

    MOST_TRIES = Because("the reconciler starts a limited number of executions", LATE, "if died == MOST_TRIES:")
    OPERATOR_STARTS_NEXT = Because(
        "behind the number in the record only an operator starts the next execution",
        LATE,
        "(given_up and number == given_up + 1)",
    )
    NOTED_BEFORE_NEXT = Because(
        "an operator's command records which executions failed before it starts the next one",
        LATE,
        "if not recoverer.updated(give_up_update(record, undo.tried, at_ms=None, more=noted)):",
    )
    LIMIT_NOTED = Because(
        "the reconciler records which executions failed when it starts no more", RECONCILER, "give_up_update("
    )
    TRIES_GROW = Because(
        "the number in the record only grows", LATE, "(attribute_not_exists(#late_tried) OR #late_tried <= :tried)"
    )
    SAME_SAGA = Because(
        "a record of another saga of the same key keeps its own number", LATE, "#saga_id = :saga_id AND ("
    )
    NAME_BY_NUMBER = Because(
        "two that start the next execution start one", LATE, "name = late_name(record.saga_id, undo.tried + 1)"
    )


class LatePromise(StrEnum):
    """Promises of the model."""

    TRIED_WITHOUT_LIMIT = "TRIED_WITHOUT_LIMIT"
    TWO_AT_ONCE = "TWO_AT_ONCE"
    NUMBER_OF_ANOTHER_SAGA = "NUMBER_OF_ANOTHER_SAGA"


C, P = LateCondition, LatePromise
MOST: Final = 2
"""Executions that the reconciler starts without an operator; 20 in the code."""


class At(StrEnum):
    """Places of an execution."""

    NONE = "not started"
    RUNS = "runs"
    DIED = "failed"
    DONE = "succeeded"


@dataclass(frozen=True, slots=True)
class Actor:
    """The reconciler or an operator between two calls.

    Attributes:
        note: number to record; -1 for none.
        start: number of the execution to start; 0 for none.
    """

    note: int = -1
    start: int = 0


IDLE: Final = Actor()


@dataclass(frozen=True, slots=True)
class World:
    """The effect, the record and everyone who acts.

    Attributes:
        compensated: whether the effect was compensated.
        cause: whether executions fail.
        tried: number in the record; 0 for none.
        another: whether the record is that of another saga; ``foreign``: the number that it was given.
        executions: by number.
        started: executions that the reconciler started since an operator did.
    """

    compensated: bool = False
    cause: bool = True
    tried: int = 0
    another: bool = False
    foreign: int = 0
    executions: tuple[At, ...] = ()
    started: int = 0
    actors: tuple[Actor, ...] = ()


Moves = Iterator[Move[World]]
_RECONCILER: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LateModel(Conditional):
    """The model.

    Attributes:
        people: operators at once.
        most: executions that there are at most; the last one waits for the cause to go.
    """

    people: int = 2
    most: int = 6

    def initial(self) -> World:
        """The effect took place late, and nothing was started."""
        return World(executions=(At.NONE,) * self.most, actors=(IDLE,) * (1 + self.people))

    def at_rest(self, world: World) -> bool:
        """The effect is compensated, or its record is gone."""
        return world.compensated or world.another

    def broken(self, world: World) -> Iterator[str]:
        """Too many were started, or the number is in the wrong record."""
        if world.started > MOST:
            yield P.TRIED_WITHOUT_LIMIT
        if world.executions.count(At.RUNS) > 1:
            yield P.TWO_AT_ONCE
        if world.foreign:
            yield P.NUMBER_OF_ANOTHER_SAGA

    def moves(self, world: World) -> Moves:
        """One move of an execution, of an actor, or of the world."""
        if world.cause:
            yield Move("the cause is gone", replace(world, cause=False))
        if not world.another:
            yield Move("another saga has the record", replace(world, another=True), fault=True)
        for number, execution in enumerate(world.executions, 1):
            if execution is At.RUNS:
                yield from self._runs(world, number)
        for index, actor in enumerate(world.actors):
            for label, after, now, fault in self._acts(world, index, actor):
                actors = (*world.actors[:index], now, *world.actors[index + 1 :])
                yield Move(f"{'operator' if index else 'reconciler'}: {label}", replace(after, actors=actors), fault)

    def _runs(self, world: World, number: int) -> Moves:
        if world.compensated or not world.cause:
            done = replace(world, compensated=True)
            yield Move(f"{number} compensates", _ended(done, number, At.DONE))
        if world.cause and number < self.most:
            yield Move(f"{number} fails", _ended(world, number, At.DIED))

    def _acts(self, world: World, index: int, actor: Actor) -> Iterator[tuple[str, World, Actor, bool]]:
        if actor == IDLE:
            if not world.compensated and not world.another:
                yield from self._looks(world, index)
            return
        yield "dies", world, IDLE, True
        if actor.note >= 0:
            yield self._notes(world, actor)
            return
        number = actor.start
        if world.executions[number - 1] is At.NONE:
            started = 0 if index else min(world.started + 1, MOST + 1)
            yield f"starts {number}", replace(_ended(world, number, At.RUNS), started=started), IDLE, False
        else:
            yield f"finds {number} started", world, IDLE, False

    def _notes(self, world: World, actor: Actor) -> tuple[str, World, Actor, bool]:
        now = replace(actor, note=-1)
        if world.another:
            # The update names the saga: the record of another one refuses it.
            after = world if self.holds(C.SAME_SAGA) else replace(world, foreign=actor.note)
        elif world.tried <= actor.note or not self.holds(C.TRIES_GROW):
            after = replace(world, tried=actor.note)
        else:
            return "is refused", world, IDLE, False
        return f"records {actor.note}", after, now if now.start else IDLE, False

    def _looks(self, world: World, index: int) -> Iterator[tuple[str, World, Actor, bool]]:
        """One look: at every execution behind the number in the record, in order."""
        died, tried, number = 0, world.tried, world.tried + 1
        while number <= self.most:
            execution = world.executions[number - 1]
            if execution is At.RUNS:
                return
            if execution is At.NONE:
                if world.tried and number == world.tried + 1 and self.holds(C.OPERATOR_STARTS_NEXT):
                    break
                yield f"will start {number}", world, Actor(start=number), False
                return
            tried, died, number = number, died + 1, number + 1
            if died == MOST and self.holds(C.MOST_TRIES):
                break
        yield from self._exhausted(world, index, tried)

    def _exhausted(self, world: World, index: int, tried: int) -> Iterator[tuple[str, World, Actor, bool]]:
        if index == _RECONCILER:
            if tried != world.tried and self.holds(C.LIMIT_NOTED):
                yield f"will record {tried}", world, Actor(note=tried), False
            return
        number = tried + 1
        if not self.holds(C.NAME_BY_NUMBER):
            free = [n for n, execution in enumerate(world.executions, 1) if execution is At.NONE and n > tried]
            number = free[min(index, len(free)) - 1] if free else number
        if number <= self.most:
            note = tried if self.holds(C.NOTED_BEFORE_NEXT) else -1
            yield f"will start {number}", world, Actor(note=note, start=number), False


def _ended(world: World, number: int, at: At) -> World:
    executions = (*world.executions[: number - 1], at, *world.executions[number:])
    return replace(world, executions=executions)
