"""Model: an external step in doubt, and an operator who queries the provider and records the finding.

Extends the model of the external step: its functions continue, for an operator neither stops them nor knows of them.
Between the operator's query and the write, anything may happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.external_provider import Offers
from tests.specification.external_step import ExternalStepModel
from tests.specification.external_world import IN_DOUBT, Life, Row, Status
from tests.specification.external_world import World as StepWorld
from tests.specification.states import replace

RESOLUTION = "lambda_src/saga_runtime/recovery/resolution.py"


class ResolutionCondition(Condition):
    """Conditions of what a person writes into a row."""

    RESOLVE_ROW_ATTEMPT = Because(
        "an operator's finding is about the attempt that was seen: a new holder of the row has called again",
        RESOLUTION,
        'AS_READ: Final = "#status = :found AND #attempt_id = :held"',
    )
    RESOLVE_AFTER_GRACE = Because(
        'a "no" counts only when nothing can arrive any more, of the step and of its undo',
        RESOLUTION,
        "_require_over(subject, row, now_ms, grace_ms=0 if statement.applied else subject.grace_ms)",
    )
    RESOLVE_AFTER_DEADLINE = Because(
        'a "yes" waits until the caller is dead, too', RESOLUTION, "left = row.deadline + grace_ms - now_ms"
    )


class Way(StrEnum):
    """Directions of the saga, which decide about a step that was not applied."""

    BACK = "back"
    FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Heard:
    """An operator's information about a row in doubt.

    Attributes:
        status: the row's, when it was read.
        happened: the provider's report.
        current: whether the row is still that of the same attempt. Attempts are unique: it never is again.
    """

    status: Status
    happened: bool
    current: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """The step, and the person."""

    step: StepWorld
    heard: Heard | None = None


@dataclass(frozen=True, kw_only=True)
class ResolvedStepModel(Conditional):
    """The model.

    Attributes:
        offers: the provider's capabilities for the functions. It always answers the operator.
        way: direction of the saga.
        steps: number of concurrent invocations of the step.
        undos: number of those of its compensation.
        done: whether the step was applied long ago, and only its compensation is checked.
    """

    offers: Offers
    way: Way
    steps: int = 2
    undos: int = 1
    done: bool = False

    def initial(self) -> World:
        """Nothing has run."""
        return World(self._functions.initial())

    def at_rest(self, world: World) -> bool:
        """True if the step is at rest, and the operator has no finding left."""
        return self._functions.at_rest(world.step) and world.heard is None

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the provider's books, the row and the responses break."""
        yield from self._functions.broken(world.step)

    def moves(self, world: World) -> Iterator[Move[World]]:
        """Moves of the functions and of the operator."""
        for move in self._functions.moves(world.step):
            heard = world.heard
            if heard is not None and move.state.row != world.step.row:
                heard = replace(heard, current=False)
            yield Move(move.label, World(move.state, heard), fault=move.fault, breaks=move.breaks)
        if world.heard is None:
            yield from self._asks(world.step)
        else:
            yield from self._says(world.step, world.heard)

    @cached_property
    def _functions(self) -> ExternalStepModel:
        return ExternalStepModel(offers=self.offers, steps=self.steps, undos=self.undos, done=self.done)

    def _asks(self, step: StepWorld) -> Iterator[Move[World]]:
        row, c = step.row, ResolutionCondition
        if row.status not in IN_DOUBT:
            return
        happened = bool(step.books.applied if row.status is Status.INTENT else step.books.undone)
        life = step.life_of(row.attempt)
        over = life is Life.GONE or (life is Life.DEAD and (happened or not self.holds(c.RESOLVE_AFTER_GRACE)))
        if over or (happened and not self.holds(c.RESOLVE_AFTER_DEADLINE)):
            told = "it happened" if happened else "it did not happen"
            yield Move(f"a person sees {row.status}, and hears that {told}", World(step, Heard(row.status, happened)))

    def _says(self, step: StepWorld, heard: Heard) -> Iterator[Move[World]]:
        yield Move("the operator records nothing", World(step), fault=True)
        by_status_alone = not self.holds(ResolutionCondition.RESOLVE_ROW_ATTEMPT) and step.row.status is heard.status
        if not (heard.current or by_status_alone):
            yield Move("the person is refused", World(step))
            return
        status = self._becomes(heard)
        yield Move(f"the person's word makes it {status}", World(replace(step, row=Row(status))))

    def _becomes(self, heard: Heard) -> Status:
        if heard.status is Status.COMPENSATING:
            return Status.COMPENSATED if heard.happened else Status.DONE
        if heard.happened:
            return Status.DONE
        return Status.NONE if self.way is Way.FORWARD else Status.TOMBSTONE
