"""Model: outcomes that contradict the kept one of a job, and an operator who acknowledges them one by one.

Receivers, several at once, read the job's row, and store the outcome, which replaces an earlier one, together with a
notice, unless the row has this outcome. Senders, several at once, find a notice, send its entry to the operators'
queue, and record that in the notice. Each may die in between. The notice stays, since the queue may forget the entry,
until a sender finds the acknowledgement and deletes it. An operator reads an entry or a notice, and acknowledges its
outcome later. A sweep of the queue receives an entry, reads the acknowledgements, and deletes later. Copies of an entry
are those of ``operators_entry``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

COMMAND: Final = "constructs_lib/cli/callbacks/command.py"
DECISIONS: Final = "lambda_src/saga_runtime/callbacks/decisions.py"
QUEUE: Final = "lambda_src/saga_runtime/recovery/operators_queue.py"
RECEIPT: Final = "lambda_src/saga_runtime/callbacks/receipt.py"
SWEEPER: Final = "lambda_src/saga_runtime/callbacks/sweeper.py"
WRITES: Final = "lambda_src/saga_runtime/callbacks/writes.py"


class ConflictCondition(Condition):
    """Conditions of conflicting outcomes."""

    STORED_TOGETHER = Because(
        "who dies after the outcome is stored stores no notice: the event is a duplicate then",
        RECEIPT,
        "[guard, token, log, *self._record_entry(record, now_ms, late=late), *notices]",
    )
    SENT_FIRST = Because(
        "who dies after that is recorded sends no entry",
        SWEEPER,
        "queues.send(row.queue_url, row.entry, row.job_id) stays =",
    )
    STAYS = Because(
        "the queue may forget the entry before an operator reads it",
        SWEEPER,
        "token_update(token_table(), row, TokenStatus.NOTIFIED, now_ms, {}) if stays else None",
    )
    RECORDED_AS_READ = Because(
        "another sender may have deleted the notice: no row without its attributes may come into being",
        WRITES,
        'NOBODY_YET: Final = "#status = :found AND attribute_not_exists(#attempt_order)"',
    )
    ONLY_ACKNOWLEDGED = Because("the notice is what stays", SWEEPER, "if _is_acknowledged(row):")
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
    CONFLICT_FORGOTTEN = "CONFLICT_FORGOTTEN"
    ROW_OF_NOTHING = "ROW_OF_NOTHING"
    ACKNOWLEDGED_UNSEEN = "ACKNOWLEDGED_UNSEEN"


C, P = ConflictCondition, ConflictPromise


@dataclass(frozen=True, slots=True)
class Process:
    """A receiver of an outcome, or a sender of its entry; 0: it is idle.

    Attributes:
        notifies: whether it is about to store the notice, or to send the entry.
        ends: whether it is about to store the outcome, or to record in the notice that the entry is sent.
        over: whether it is about to delete the notice.
    """

    outcome: int = 0
    notifies: bool = False
    ends: bool = False
    over: bool = False


IDLE: Final = Process()


@dataclass(frozen=True, slots=True)
class World:
    """The row, the queue, the record, and what everyone is about to do. Outcomes are numbers; 0: none.

    Attributes:
        stored: the outcome in the row.
        ever: outcomes that were stored.
        notices: outcomes that have a notice whose entry is to be sent.
        notified: outcomes that have a notice whose entry is sent.
        sent: outcomes whose entry was sent.
        queue: outcomes that have an entry.
        acknowledged: by a decision in the record.
        read: the outcome of the entry or notice that the operator has read.
        deletes: the outcome of the entry that a sweep is about to delete.
    """

    receivers: tuple[Process, ...]
    senders: tuple[Process, ...]
    stored: int = 0
    ever: frozenset[int] = frozenset()
    notices: frozenset[int] = frozenset()
    notified: frozenset[int] = frozenset()
    sent: frozenset[int] = frozenset()
    queue: frozenset[int] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    read: int = 0
    deletes: int = 0


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictModel(Conditional):
    """The model.

    Attributes:
        receivers, senders: at once.
        outcomes: how many different ones contradict.
    """

    receivers: int = 2
    senders: int = 2
    outcomes: int = 2

    def initial(self) -> World:
        """A job with an outcome, which nothing contradicts yet."""
        return World(receivers=(IDLE,) * self.receivers, senders=(IDLE,) * self.senders)

    def at_rest(self, world: World) -> bool:
        """No notice and no entry is left, and every outcome that was stored is acknowledged."""
        return not (world.notices or world.notified or world.queue) and world.ever <= world.acknowledged

    def broken(self, world: World) -> Iterator[str]:
        """An outcome is stored, not acknowledged, and has had no entry, or has no notice; no process makes one."""
        notified = {process.outcome for process in (*world.receivers, *world.senders) if process.notifies}
        open_ones = world.ever - world.acknowledged - world.notices
        if open_ones - world.sent - notified:
            yield P.CONFLICT_UNTOLD
        if open_ones - world.notified - {process.outcome for process in world.receivers if process.notifies}:
            yield P.CONFLICT_FORGOTTEN

    def moves(self, world: World) -> Moves:
        """One move of a receiver, of a sender, of the operator, or of a sweep."""
        for number, receiver in enumerate(world.receivers):
            yield from self._receives(world, number, receiver)
        for number, sender in enumerate(world.senders):
            yield from self._sends(world, number, sender)
        for outcome in world.notified:
            yield Move(f"the operator reads the notice of {outcome}", replace(world, read=outcome))
        for outcome in world.queue:
            yield Move(f"the operator reads the entry of {outcome}", replace(world, read=outcome))
            yield Move(f"the queue forgets {outcome}", replace(world, queue=world.queue - {outcome}), fault=True)
            if self._is_over(world, outcome) and self.holds(C.DELETED_WHEN_OVER):
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

    def _receives(self, world: World, number: int, receiver: Process) -> Moves:
        def now(receiver: Process, **changes: object) -> World:
            receivers = (*world.receivers[:number], receiver, *world.receivers[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, receivers=receivers, **changes)  # type: ignore[arg-type]

        if receiver == IDLE:
            for outcome in range(1, self.outcomes + 1):
                known = world.stored == outcome or (not self.holds(C.SAME_AS_STORED) and bool(world.stored))
                reads = Process(outcome, notifies=not known, ends=True)
                yield Move(f"{number} receives {outcome}", now(reads), fault=True)
            return
        yield Move(f"{number} dies", now(IDLE), fault=True)
        outcome = receiver.outcome
        notices = world.notices | ({outcome} - world.notified)
        if not receiver.ends:
            yield Move(f"{number} stores the notice of {outcome}", now(IDLE, notices=notices))
        elif receiver.notifies and self.holds(C.STORED_TOGETHER):
            both = now(IDLE, stored=outcome, ever=world.ever | {outcome}, notices=notices)
            yield Move(f"{number} stores {outcome} and its notice", both)
        else:
            after = replace(receiver, ends=False) if receiver.notifies else IDLE
            yield Move(f"{number} stores {outcome}", now(after, stored=outcome, ever=world.ever | {outcome}))

    def _sends(self, world: World, number: int, sender: Process) -> Moves:
        def now(sender: Process, **changes: object) -> World:
            senders = (*world.senders[:number], sender, *world.senders[number + 1 :])
            # Each change is of the attribute's own type.
            return replace(world, senders=senders, **changes)  # type: ignore[arg-type]

        if sender == IDLE:
            for outcome in world.notices:
                yield Move(f"sender {number} finds {outcome}", now(Process(outcome, notifies=True, ends=True)))
            for outcome in world.notified:
                if self._is_over(world, outcome) or not self.holds(C.ONLY_ACKNOWLEDGED):
                    yield Move(f"sender {number} finds that {outcome} is over", now(Process(outcome, over=True)))
            return
        yield Move(f"sender {number} dies", now(IDLE), fault=True)
        outcome = sender.outcome
        notices, left = world.notices - {outcome}, world.notified - {outcome}
        first = sender.notifies if self.holds(C.SENT_FIRST) else not sender.ends
        after = replace(sender, ends=False) if sender.notifies else IDLE
        if sender.over:
            yield Move(f"sender {number} deletes the notice of {outcome}", now(IDLE, notices=notices, notified=left))
        elif first:
            after = replace(sender, notifies=False) if sender.ends else IDLE
            sent = now(after, queue=world.queue | {outcome}, sent=world.sent | {outcome})
            yield Move(f"sender {number} sends the entry of {outcome}", sent)
        elif not self.holds(C.STAYS):
            yield Move(f"sender {number} deletes the notice of {outcome}", now(after, notices=notices, notified=left))
        elif outcome in world.notices:
            recorded = now(after, notices=notices, notified=world.notified | {outcome})
            yield Move(f"sender {number} records that the entry of {outcome} is sent", recorded)
        elif self.holds(C.RECORDED_AS_READ):
            yield Move(f"sender {number} is refused", now(after))
        else:
            breaks = None if outcome in world.notified else P.ROW_OF_NOTHING
            yield Move(f"sender {number} records it in a notice that is not there", now(after), breaks=breaks)

    def _is_over(self, world: World, outcome: int) -> bool:
        return outcome in world.acknowledged or (not self.holds(C.SAME_OUTCOME) and bool(world.acknowledged))
