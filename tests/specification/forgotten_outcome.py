"""Model: what a provider reported of an unknown job, and operators who forget it after they have seen it.

Operators list the row, and forget later what they have seen; their command reads the row, and writes, perhaps twice,
because the first answer was lost. Meanwhile receivers read the row, and store an outcome that contradicts the first
one. A registration reads the row, and adopts its outcomes. Each may die in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

COMMAND: Final = "constructs_lib/cli/callbacks/forget.py"
RECEIPT: Final = "lambda_src/saga_runtime/callbacks/receipt.py"
WRITES: Final = "lambda_src/saga_runtime/callbacks/writes.py"


class ForgetCondition(Condition):
    """Conditions of forgetting."""

    STILL_UNKNOWN = Because(
        "a saga may have registered the job: its row is not the operators' any more",
        WRITES,
        'values: dict[str, Any] = {"found": {"S": TokenStatus.EARLY}',
    )
    AS_SEEN = Because(
        "another outcome may have been reported since the listing", COMMAND, "if reported not in (None, outcome):"
    )
    AS_READ = Because(
        "another outcome may be stored between the command's read and its write",
        WRITES,
        'contradicts = "#conflict = :contradicts"',
    )
    DECIDED_ONCE = Because(
        "a write that is sent again, or by a second operator, is one decision",
        WRITES,
        'before = "#decisions = :before"',
    )
    OUTCOME_STAYS = Because(
        "the job may be registered at the same moment, or later",
        WRITES,
        "change = update(condition, sets, removes=(a.DUE_AT, a.DUE_SHARD))",
    )
    LISTED_AGAIN = Because(
        "an outcome that no operator has seen must be listed",
        WRITES,
        "changes = {**contradicts, **listed, **kept_change(found, now_ms, UNKNOWN_DAYS), a.FORGOTTEN_AT: None}",
    )


class ForgetPromise(StrEnum):
    """Promises of the model."""

    OUTCOME_LOST = "OUTCOME_LOST"
    FORGOTTEN_UNSEEN = "FORGOTTEN_UNSEEN"
    FORGOTTEN_TWICE = "FORGOTTEN_TWICE"
    FORGOTTEN_ALTHOUGH_KNOWN = "FORGOTTEN_ALTHOUGH_KNOWN"


C, P = ForgetCondition, ForgetPromise
NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator. Contradicting outcomes are numbers; 0: none; ``NOTHING``: not read yet.

    Attributes:
        seen: the contradicting outcome that the listing showed.
        read: the one that the command has read.
        decisions: number of decisions that it has read.
    """

    seen: int = NOTHING
    read: int = NOTHING
    decisions: int = 0


IDLE: Final = Operator()


@dataclass(frozen=True, slots=True)
class World:
    """The row, and what everyone is about to do.

    Attributes:
        receivers: contradicting outcomes that they are about to store; 0: idle.
        stored: whether the first outcome is there.
        conflict: the contradicting outcome.
        listed: whether the row is in the index.
        known: whether a saga has registered the job.
        registering: whether a registration has read the row.
        shown: contradicting outcomes that an operator has seen.
        decisions: how often it was forgotten.
    """

    operators: tuple[Operator, ...]
    receivers: tuple[int, ...]
    stored: bool = True
    conflict: int = 0
    listed: bool = True
    known: bool = False
    registering: bool = False
    shown: frozenset[int] = frozenset()
    decisions: int = 0


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetModel(Conditional):
    """The model.

    Attributes:
        operators, receivers: at once.
        outcomes: how many different ones contradict the first one.
        most: decisions.
    """

    operators: int = 2
    receivers: int = 1
    outcomes: int = 2
    most: int = 3

    def initial(self) -> World:
        """An outcome of an unknown job is stored."""
        return World(operators=(IDLE,) * self.operators, receivers=(0,) * self.receivers)

    def at_rest(self, world: World) -> bool:
        """The job is known, or an operator has forgotten it."""
        return world.known or not world.listed or world.decisions >= self.most

    def broken(self, world: World) -> Iterator[str]:
        """No operator has seen an outcome that is not listed."""
        if not (world.known or world.listed) and world.conflict not in world.shown:
            yield P.FORGOTTEN_UNSEEN

    def moves(self, world: World) -> Moves:
        """One move of an operator, a receiver or a registration."""
        for number, operator in enumerate(world.operators):
            yield from self._forgets(world, number, operator)
        for number, outcome in enumerate(world.receivers):
            yield from self._receives(world, number, outcome)
        if not world.known and not world.registering:
            yield Move("a registration reads the row", replace(world, registering=True), fault=True)
        if world.registering:
            yield Move("the registration dies", replace(world, registering=False), fault=True)
        if world.registering and not world.known:
            done = replace(world, known=True, registering=False, listed=False)
            yield Move("the registration adopts", done, breaks=None if world.stored else P.OUTCOME_LOST)

    def _forgets(self, world: World, number: int, operator: Operator) -> Moves:
        def now(operator: Operator, **changes: object) -> World:
            operators = (*world.operators[:number], operator, *world.operators[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, operators=operators, **changes)  # type: ignore[arg-type]

        if world.listed and not world.known:
            shown = now(Operator(seen=world.conflict), shown=world.shown | {world.conflict})
            yield Move(f"operator {number} lists", shown)
        if operator == IDLE:
            return
        yield Move(f"operator {number} dies", now(IDLE), fault=True)
        if operator.read == NOTHING:
            same = operator.seen == world.conflict or not self.holds(C.AS_SEEN)
            if world.known or not world.listed or not same or world.decisions >= self.most:
                yield Move(f"the command of {number} is refused", now(IDLE))
            else:
                read = replace(operator, read=world.conflict, decisions=world.decisions)
                yield Move(f"the command of {number} reads", now(read))
            return
        if (
            (world.known and self.holds(C.STILL_UNKNOWN))
            or (operator.read != world.conflict and self.holds(C.AS_READ))
            or (operator.decisions != world.decisions and self.holds(C.DECIDED_ONCE))
        ):
            yield Move(f"the write of {number} is refused", now(IDLE))
            return
        breaks = None
        if world.known:
            breaks = P.FORGOTTEN_ALTHOUGH_KNOWN
        elif not world.listed:
            breaks = P.FORGOTTEN_TWICE
        stored = world.stored and self.holds(C.OUTCOME_STAYS)
        changes = {"listed": False, "stored": stored, "decisions": min(world.decisions + 1, self.most)}
        yield Move(f"{number} forgets it", now(IDLE, **changes), breaks=breaks)
        yield Move(f"{number} forgets it, and gets no answer", now(operator, **changes), breaks=breaks, fault=True)

    def _receives(self, world: World, number: int, outcome: int) -> Moves:
        def now(outcome: int, **changes: object) -> World:
            receivers = (*world.receivers[:number], outcome, *world.receivers[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, receivers=receivers, **changes)  # type: ignore[arg-type]

        if not outcome:
            for other in range(1, self.outcomes + 1):
                if not world.known and other != world.conflict:
                    yield Move(f"{number} receives {other}", now(other), fault=True)
            return
        yield Move(f"receiver {number} dies", now(0), fault=True)
        if world.known:
            yield Move(f"the write of receiver {number} is refused", now(0))
        else:
            listed = world.listed or self.holds(C.LISTED_AGAIN)
            yield Move(f"{number} stores {outcome}", now(0, conflict=outcome, listed=listed))
