"""Model: outcomes that contradict the kept one of a job, and an operator who acknowledges them one by one.

Receivers, several at once, read the job's row, send an entry to the operators' queue unless the row has this outcome,
and store the outcome, which replaces an earlier one. Each may die in between. An operator reads an entry, and
acknowledges its outcome later. A sweep receives an entry, reads the acknowledgements, and deletes later. Copies of an
entry are those of ``operators_entry``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional

COMMAND: Final = "constructs_lib/cli/callbacks/command.py"
DECISIONS: Final = "lambda_src/saga_runtime/callbacks/decisions.py"
QUEUE: Final = "lambda_src/saga_runtime/recovery/operators_queue.py"
RECEIPT: Final = "lambda_src/saga_runtime/callbacks/receipt.py"


class ConflictCondition(Condition):
    """Conditions of conflicting outcomes."""

    SENT_FIRST = Because(
        "who dies after the outcome is stored sends no entry: the event is a duplicate then",
        RECEIPT,
        "self._tell_operators(*notice, outcome) place = LogPlace(",
    )
    SAME_AS_STORED = Because(
        "another outcome than the stored one needs an entry of its own",
        RECEIPT,
        "conflict == outcome and decision.log is LogChange.NONE",
    )
    AS_SEEN = Because(
        "another outcome may have replaced the one that the operator read",
        COMMAND,
        "what = acknowledgement(job, outcome)",
    )
    SAME_OUTCOME = Because(
        "an acknowledgement is of one outcome, not of the job",
        DECISIONS,
        'return f"job {job_id}: conflicting outcome {conflict_id} acknowledged"',
    )
    DELETED_WHEN_OVER = Because("no operator has to delete it", QUEUE, "return self.acknowledged(entry)")


class ConflictPromise(StrEnum):
    """Promises of the model."""

    CONFLICT_UNTOLD = "CONFLICT_UNTOLD"
    ACKNOWLEDGED_UNSEEN = "ACKNOWLEDGED_UNSEEN"


C, P = ConflictCondition, ConflictPromise


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver of an outcome; 0: it is idle.

    Attributes:
        sends: whether it is about to send the entry.
        stores: whether it is about to store the outcome.
    """

    outcome: int = 0
    sends: bool = False
    stores: bool = False


IDLE: Final = Receiver()


@dataclass(frozen=True, slots=True)
class World:
    """The row, the queue, the record, and what everyone is about to do. Outcomes are numbers; 0: none.

    Attributes:
        stored: the outcome in the row.
        ever: outcomes that were stored.
        queue: outcomes that have an entry.
        acknowledged: by a decision in the record.
        read: the outcome of the entry that the operator has read.
        deletes: the outcome of the entry that a sweep is about to delete.
    """

    receivers: tuple[Receiver, ...]
    stored: int = 0
    ever: frozenset[int] = frozenset()
    queue: frozenset[int] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    read: int = 0
    deletes: int = 0


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictModel(Conditional):
    """The model.

    Attributes:
        receivers: at once.
        outcomes: how many different ones contradict.
    """

    receivers: int = 2
    outcomes: int = 2

    def initial(self) -> World:
        """A job with an outcome, which nothing contradicts yet."""
        return World(receivers=(IDLE,) * self.receivers)

    def at_rest(self, world: World) -> bool:
        """The queue is empty, and every outcome that was stored is acknowledged."""
        return not world.queue and world.ever <= world.acknowledged

    def broken(self, world: World) -> Iterator[str]:
        """An outcome is stored that is neither acknowledged nor has an entry, and no receiver will send one."""
        sent = {receiver.outcome for receiver in world.receivers if receiver.sends}
        if world.ever - world.acknowledged - world.queue - sent:
            yield P.CONFLICT_UNTOLD

    def moves(self, world: World) -> Moves:
        """One move of a receiver, of the operator, or of a sweep."""
        for number, receiver in enumerate(world.receivers):
            yield from self._receives(world, number, receiver)
        for outcome in world.queue:
            yield Move(f"the operator reads the entry of {outcome}", replace(world, read=outcome))
            over = outcome in world.acknowledged or (not self.holds(C.SAME_OUTCOME) and bool(world.acknowledged))
            if over and self.holds(C.DELETED_WHEN_OVER):
                yield Move(f"a sweep will delete the entry of {outcome}", replace(world, deletes=outcome))
        if world.read:
            outcome = world.read if self.holds(C.AS_SEEN) else world.stored
            if outcome:
                breaks = P.ACKNOWLEDGED_UNSEEN if outcome != world.read else None
                done = replace(world, read=0, acknowledged=world.acknowledged | {outcome})
                yield Move(f"the operator acknowledges {outcome}", done, breaks=breaks)
        if world.deletes:
            done = replace(world, deletes=0, queue=world.queue - {world.deletes})
            yield Move(f"a sweep deletes the entry of {world.deletes}", done)

    def _receives(self, world: World, number: int, receiver: Receiver) -> Moves:
        def now(receiver: Receiver, **changes: object) -> World:
            receivers = (*world.receivers[:number], receiver, *world.receivers[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, receivers=receivers, **changes)  # type: ignore[arg-type]

        if receiver == IDLE:
            for outcome in range(1, self.outcomes + 1):
                known = world.stored == outcome or (not self.holds(C.SAME_AS_STORED) and bool(world.stored))
                reads = Receiver(outcome, sends=not known, stores=True)
                yield Move(f"{number} receives {outcome}", now(reads), fault=True)
            return
        yield Move(f"{number} dies", now(IDLE), fault=True)
        outcome = receiver.outcome
        first = receiver.sends if self.holds(C.SENT_FIRST) else not receiver.stores
        if first:
            after = replace(receiver, sends=False) if receiver.stores else IDLE
            yield Move(f"{number} sends the entry of {outcome}", now(after, queue=world.queue | {outcome}))
        else:
            after = replace(receiver, stores=False) if receiver.sends else IDLE
            yield Move(f"{number} stores {outcome}", now(after, stored=outcome, ever=world.ever | {outcome}))
