"""Model: an inline saga with a step that is skipped by one of two routes, and a step on each of them.

A function may refuse one execution for another reason than the other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.specification.inline_saga import InlineCondition, InlineModel, InlinePromise
from tests.specification.saga_conditions import SagaPromise
from tests.specification.saga_world import Do, Landed, Machine, Row, State, Status, StepSpec, World
from tests.specification.whole_saga import Answer, SagaModel

PAY, LIMIT, REVIEW = range(3)
ROUTED: Final = (
    StepSpec(name="Pay", goes_on=True, undo=True),
    StepSpec(name="Limit", undo=True, on_the_way=False),
    StepSpec(name="Review", undo=True, on_the_way=False),
)
"""The steps: ``Limit`` and ``Review`` are on the way only where ``Pay`` was skipped, each by its route."""
_ON_THE_WAY: Final = {Row.PASSED: LIMIT, Row.REROUTED: REVIEW}


@dataclass(frozen=True, slots=True)
class Skip(State):
    """The tombstone of a skipped step.

    Attributes:
        route: what it keeps.
    """

    route: Row = Row.PASSED


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedModel(InlineModel):
    """The model. Its first three steps are ``ROUTED``."""

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the record and the log break."""
        yield from SagaModel.broken(self, world)
        if world.rows[LIMIT] is Row.DONE and world.rows[REVIEW] is Row.DONE:
            yield InlinePromise.BOTH_WAYS_TAKEN
        way = _ON_THE_WAY.get(world.rows[PAY])
        if world.record.status is Status.COMPLETED and way is not None and world.rows[way] is not Row.DONE:
            yield SagaPromise.COMPLETED_BUT_NOT_ALL_APPLIED

    def _step(self, world: World, name: int, state: State) -> Iterator[Answer]:
        route = world.rows[state.step]
        if state.step == PAY and route in _ON_THE_WAY:
            yield "replays the substitute output", world, State(Do.STEP, _ON_THE_WAY[route]), False, None
            return
        for label, after, following, fault, breaks in InlineModel._step(self, world, name, state):
            if following.do is not Do.PASS_OVER:
                yield label, after, following, fault, breaks
                continue
            for each in _ON_THE_WAY:
                yield f"{label}: {each}", after, Skip(Do.PASS_OVER, following.step, each), fault, breaks

    def _fence(self, world: World, machine: Machine, name: int, state: State) -> Iterator[Answer]:
        if not isinstance(state, Skip):
            yield from InlineModel._fence(self, world, machine, name, state)
            return
        landed = self._land(world, state, name)
        found = landed.world.rows[state.step]
        kept = found in _ON_THE_WAY and self.holds(InlineCondition.KEEPS_ROUTE)
        following = State(Do.STEP, _ON_THE_WAY[found if kept else state.route])
        if found is Row.DONE:
            following = self._following(state.step, name)
        yield str(found), landed.world, following, False, landed.breaks

    def _land(self, world: World, state: State, name: int) -> Landed:
        landed = InlineModel._land(self, world, state, name)
        if isinstance(state, Skip) and landed.written:
            return Landed(landed.world.with_row(state.step, state.route), breaks=landed.breaks)
        return landed

    def _sent(self, world: World, state: State, name: int) -> World:
        if isinstance(state, Skip):
            return SagaModel._sent(self, world, state, max(name, 0))
        return InlineModel._sent(self, world, state, name)
