"""Model: one external step, its compensation, and queries of its outcome (the pivot's fence).

Each is invoked any number of times, at any time, several at once, by executions of which none knows of another. A
provider's effect and the row cannot be one transaction: an invocation may die between them, its request and its writes
stay in transit, and the next one finds a row in doubt. The row, its deadline and the grace determine the next action.
Nothing here depends on the order of queries, or on a state machine that waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.specification.checker import Move
from tests.specification.conditions import Conditional
from tests.specification.external_conditions import ExternalPromise
from tests.specification.external_people import Functions
from tests.specification.external_provider import Offers, Outside
from tests.specification.external_world import (
    IDLE,
    IN_DOUBT,
    At,
    Books,
    Key,
    Role,
    Row,
    Status,
    World,
    tidy,
)
from tests.specification.states import replace

Moves = Iterator[Move[World]]


@cache
def _roles(steps: int, undos: int, asks: int) -> tuple[Role, ...]:
    return (Role.STEP,) * steps + (Role.UNDO,) * undos + (Role.ASK,) * asks


@cache
def _names(roles: tuple[Role, ...]) -> tuple[str, ...]:
    return tuple(f"{role} {'ABCDEF'[roles[:index].count(role)]}" for index, role in enumerate(roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalStepModel(Conditional):
    """The model.

    Attributes:
        offers: capabilities of the provider.
        steps: number of concurrent invocations of the step.
        undos: number of those of its compensation.
        asks: number of those that only query the outcome.
        done: whether the step was applied long ago, and only its compensation is checked.
    """

    offers: Offers
    steps: int = 2
    undos: int = 1
    asks: int = 0
    done: bool = False

    def initial(self) -> World:
        """Nothing has run, or only the step has."""
        row, books = (Row(Status.DONE), Books(applied=1)) if self.done else (Row(), Books())
        return World(row, (IDLE,) * (self.steps + self.undos + self.asks), books)

    def at_rest(self, world: World) -> bool:
        """True if no invocation works, nothing is in transit, and the row is decided, or needs an operator."""
        quiet = all(other.at in {At.IDLE, At.OVER} and not other.sent for other in world.invocations)
        # One compensation more than the model covers would take the compensation over.
        beyond = world.row.status is Status.COMPENSATING and IDLE not in world.invocations[self.steps :][: self.undos]
        return quiet and (world.row.status not in IN_DOUBT or beyond or self._undecidable(world))

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the provider's books, the row and the responses break."""
        books, status = world.books, world.row.status
        if books.applied > 1:
            yield ExternalPromise.EFFECT_TWICE
        if books.undone > 1:
            yield ExternalPromise.UNDONE_TWICE
        if books.undone > books.applied:
            yield ExternalPromise.UNDONE_WITHOUT_EFFECT
        if books.stands:
            if world.compensated or status in {Status.TOMBSTONE, Status.COMPENSATED}:
                yield ExternalPromise.EFFECT_STANDS_AFTER_COMPENSATION
            if status is Status.FAILED:
                yield ExternalPromise.REFUSED_ALTHOUGH_DONE
            if world.went_back and status is not Status.COMPENSATING:
                yield ExternalPromise.WENT_BACK_BUT_THE_EFFECT_STANDS

    def moves(self, world: World) -> Moves:
        """Whatever may happen next."""
        for move in self._moves(world):
            state = tidy(move.state)
            yield move if state is move.state else replace(move, state=state)

    def _moves(self, world: World) -> Moves:
        begun: set[Role] = set()
        for index, invocation in enumerate(world.invocations):
            if invocation != IDLE:
                yield from self._outside.requests(world, index, self._names[index])
                if invocation.alive:
                    yield self._outside.deadline(world, index, self._names[index])
                yield from self._functions.at_work(world, index)
            elif self._roles[index] not in begun:
                # Invocations of a role are alike: one that has not begun represents all.
                begun.add(self._roles[index])
                yield from self._functions.enters(world, index)
        yield from self._outside.time(world, self._names)

    @property
    def _roles(self) -> tuple[Role, ...]:
        return _roles(self.steps, self.undos, self.asks)

    @property
    def _names(self) -> tuple[str, ...]:
        return _names(self._roles)

    @property
    def _functions(self) -> Functions:
        return Functions(off=self.off, offers=self.offers, roles=self._roles, names=self._names)

    @property
    def _outside(self) -> Outside:
        return Outside(off=self.off, offers=self.offers)

    def _undecidable(self, world: World) -> bool:
        """True if neither a repeated call nor a query would determine the outcome."""
        key = Key.STEP if world.row.status is Status.INTENT else Key.UNDO
        return not self.offers.knows(key, world) and not self.offers.can_be_asked(key)
