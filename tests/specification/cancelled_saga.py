"""Model: one saga that operators cancel, two at once, while it runs; and the reconciler.

It has a step that is compensated, perhaps a callback step that waits, and a pivot. A cancellation writes a reason into
the record, and stops the first execution; a recovery then decides by the pivot's row. A saga that was never started is
not started any more: a recovery takes it over. An Express execution may run alongside, which nothing can stop.
Executions and operators die at any moment; calls of starts, pivots, marks and stops arrive late; the key is reserved
for another saga after the first one has settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

CANCEL: Final = "lambda_src/saga_runtime/recovery/cancel.py"


class CancelCondition(Condition):
    """Conditions of ``cdk-sagas cancel``."""

    IN_PROGRESS = Because(
        "the saga has not settled since the record was read",
        "lambda_src/saga_runtime/idempotency/record.py",
        "attribute_exists(#id) AND #status = :in_progress",
    )
    FIRST_OWNER = Because(
        "the saga's first execution owns it: no recovery has read the record, and no other saga has the key",
        CANCEL,
        "owned(record.saga_id, CANCELLABLE)",
    )
    NOT_PARKED = Because("the saga is not parked", CANCEL, "attribute_not_exists(#parked_by)")
    UNDIRECTED = Because("no direction is written", CANCEL, "attribute_not_exists(#direction)")
    ONCE = Because(
        "no other operator has cancelled it, nor this one by a call that was sent again",
        CANCEL,
        "attribute_not_exists(#failure)",
    )
    NO_DIRECTION = Because(
        "a cancellation writes a reason, and no direction: a recovery fences the pivot first",
        CANCEL,
        '{a.FAILURE: {"S": json.dumps(FAILURE)}, a.DUE_AT: now, a.UPDATED_AT: now, **noted}',
    )
    MARK_FIRST = Because(
        "an execution is stopped only if the record that was read has the mark",
        "lambda_src/saga_runtime/recovery/takeover.py",
        "if record.cancelled and owner.status in _RUNNING:",
    )
    NEVER_STARTED = Because(
        "neither a reconciler nor a command starts the first execution of a saga whose record has the mark",
        "lambda_src/saga_runtime/recovery/decisions.py",
        "case Finding.RUNNING | Finding.NOT_STARTED if record.cancelled:",
    )
    NO_DUPLICATE_STARTS = Because(
        "nor does a duplicate of the request, also one that is answered after its own reservation",
        "lambda_src/saga_runtime/idempotency/record.py",
        "return record.owner == record.saga_id and not record.cancelled",
    )
    EXPRESS_ENDED = Because(
        "a saga that was never started is taken over when no Express execution of it can run",
        "lambda_src/saga_runtime/recovery/decisions.py",
        "if express_ms := express_ends_in(record, now_ms):",
    )
    RECONCILER_STOPS = Because(
        "the reconciler stops the execution if the operator's command did not",
        "lambda_src/saga_runtime/recovery/decisions.py",
        "return Decision(need=Need.STOP, after_ms=LOOK_MS)",
    )


class CancelPromise(StrEnum):
    """Promises of the model."""

    FAILED_BUT_AN_EFFECT_STANDS = "FAILED_BUT_AN_EFFECT_STANDS"
    COMPLETED_BUT_NOT_ALL_APPLIED = "COMPLETED_BUT_NOT_ALL_APPLIED"
    CANCELLED_ALTHOUGH_SETTLED = "CANCELLED_ALTHOUGH_SETTLED"
    CANCELLED_ALTHOUGH_PARKED = "CANCELLED_ALTHOUGH_PARKED"
    CANCELLED_ALTHOUGH_DECIDED = "CANCELLED_ALTHOUGH_DECIDED"
    CANCELLED_ANOTHER_SAGA = "CANCELLED_ANOTHER_SAGA"
    CANCELLED_TWICE = "CANCELLED_TWICE"
    CANCELLATION_FORGOTTEN = "CANCELLATION_FORGOTTEN"
    STOPPED_WITHOUT_A_DECISION = "STOPPED_WITHOUT_A_DECISION"
    STARTED_ALTHOUGH_CANCELLED = "STARTED_ALTHOUGH_CANCELLED"
    RECOVERED_WHILE_EXPRESS_RUNS = "RECOVERED_WHILE_EXPRESS_RUNS"


C, P = CancelCondition, CancelPromise


class Status(StrEnum):
    """Status of the request record."""

    OPEN = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Direction(StrEnum):
    """Directions of the saga."""

    OPEN = "open"
    FORWARD = "forward"
    COMPENSATE = "compensate"


class Reason(StrEnum):
    """Why the saga compensates."""

    NONE = "none"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class Row(StrEnum):
    """Row of a step."""

    NONE = "none"
    DONE = "DONE"
    TOMBSTONE = "TOMBSTONE"
    COMPENSATED = "COMPENSATED"


class At(StrEnum):
    """Places of an execution."""

    NONE = "not started"
    READ = "about to read the record"
    DEBIT = "about to debit"
    WAIT = "waiting for an outcome"
    PIVOT = "about to run the pivot"
    FENCE = "about to fence the pivot"
    COMPENSATE = "about to write the direction compensate"
    FORWARD = "about to write the direction forward"
    UNDO = "about to compensate the debit"
    FAIL = "about to settle FAILED"
    COMPLETE = "about to settle COMPLETED"
    PARK = "about to park"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution, and the reason with which it would settle the saga as failed."""

    at: At = At.NONE
    reason: Reason = Reason.NONE

    @property
    def runs(self) -> bool:
        """True if it is running."""
        return self.at not in (At.NONE, At.ENDED)


@dataclass(frozen=True, slots=True)
class Record:
    """The request record.

    Attributes:
        saga: which saga of the key it belongs to.
        owner: 0 is the first execution, 1 its recovery.
        failure: the stored reason.
        answer: the reason in the response.
        decisions: cancellations in its list.
    """

    saga: int = 1
    status: Status = Status.OPEN
    owner: int = 0
    direction: Direction = Direction.OPEN
    parked: bool = False
    failure: Reason = Reason.NONE
    answer: Reason = Reason.NONE
    decisions: int = 0


class Operator(StrEnum):
    """Places of an operator."""

    IDLE = "idle"
    READ = "has read the record"
    MARKED = "has cancelled the saga"
    REFUSED = "was refused"
    GONE = "gone"


STANDARD, EXPRESS, RECOVERY = range(3)
_NAMES: Final = ("Standard", "Express", "the recovery")


@dataclass(frozen=True, slots=True)
class World:
    """The saga, its rows, its executions, and everyone who acts on it.

    Attributes:
        debit, pivot: rows.
        travels: calls whose senders died.
    """

    record: Record
    executions: tuple[Execution, ...]
    operators: tuple[Operator, ...]
    debit: Row = Row.NONE
    pivot: Row = Row.NONE
    travels: frozenset[str] = frozenset()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelModel(Conditional):
    """The model.

    Attributes:
        people: operators at once; each acts once.
        express: whether an Express execution runs alongside.
        waits: whether a callback step waits before the pivot, for ever unless its outcome arrives.
        reused: whether the key is reserved for another saga after the first one settled.
    """

    people: int = 2
    express: bool = False
    waits: bool = False
    reused: bool = False

    def initial(self) -> World:
        """Reserved; the start may have been lost."""
        express = Execution(At.DEBIT if self.express else At.ENDED)
        return World(Record(), (Execution(), express, Execution()), (Operator.IDLE,) * self.people)

    def at_rest(self, world: World) -> bool:
        """Settled or parked, or waiting for an outcome without a cancellation."""
        record = world.record
        waits = not record.decisions and any(execution.at is At.WAIT for execution in world.executions)
        return record.status is not Status.OPEN or record.parked or record.saga != 1 or waits

    def broken(self, world: World) -> Iterator[str]:
        """Promises that record and rows break."""
        record = world.record
        if record.saga != 1:
            return
        if record.status is Status.FAILED and Row.DONE in (world.debit, world.pivot):
            yield P.FAILED_BUT_AN_EFFECT_STANDS
        if record.status is Status.COMPLETED and {world.debit, world.pivot} != {Row.DONE}:
            yield P.COMPLETED_BUT_NOT_ALL_APPLIED
        if record.status is Status.FAILED and record.decisions and record.answer is Reason.INTERRUPTED:
            yield P.CANCELLATION_FORGOTTEN

    def moves(self, world: World) -> Moves:
        """One move of an execution, the reconciler, an operator, or a call that travels."""
        for number, execution in enumerate(world.executions):
            if execution.runs:
                yield from self._runs(world, number, execution)
        yield from self._reconciles(world)
        for number, operator in enumerate(world.operators):
            yield from self._operates(world, number, operator)
        for call in world.travels:
            landed = replace(world, travels=world.travels - {call})
            if call == "pivot":
                done = replace(landed, pivot=Row.DONE) if landed.pivot is Row.NONE else landed
                yield Move("a dead function's pivot commits", done)
            elif call == "mark":
                after, _, breaks = self._marked(landed)
                yield Move("a dead command's cancellation arrives", after, breaks=breaks)
            elif call == "start":
                yield Move("a start arrives that was sent before", self._started(landed))
            else:
                yield Move("a dead command's stop arrives", self._stopped(landed))
        if self.reused and world.record.saga == 1 and world.record.status is not Status.OPEN:
            other = replace(world, record=Record(saga=2))
            yield Move("the key expires, and is reserved for another saga", other)

    def _runs(self, world: World, number: int, execution: Execution) -> Moves:
        record, name = world.record, _NAMES[number]
        owner = int(number == RECOVERY)
        mine = record.saga == 1 and record.status is Status.OPEN and record.owner == owner

        def to(at: At, after: World = world, reason: Reason = execution.reason) -> World:
            return _executing(after, number, Execution(at, reason))

        def owned(at: At, **changes: object) -> World:
            if not mine:
                return to(At.ENDED)
            return to(at, replace(world, record=replace(record, **changes)))  # type: ignore[arg-type]

        if number != RECOVERY:
            yield Move(f"{name} dies", to(At.ENDED), fault=True)
        match execution.at:
            case At.READ:
                reason = Reason.INTERRUPTED if record.failure is Reason.NONE else record.failure
                decided = {Direction.COMPENSATE: At.UNDO, Direction.FORWARD: At.DEBIT, Direction.OPEN: At.FENCE}
                yield Move(
                    f"{name} reads the record", to(decided[record.direction] if mine else At.ENDED, reason=reason)
                )
            case At.DEBIT | At.PIVOT:
                yield from self._steps(world, number, execution)
            case At.WAIT:
                yield Move("the outcome arrives", to(At.PIVOT), fault=True)
            case At.FENCE:
                stands = world.pivot is Row.DONE
                fenced = world if stands else replace(world, pivot=Row.TOMBSTONE)
                yield Move(f"{name} fences the pivot", to(At.FORWARD if stands else At.COMPENSATE, fenced))
                if number == STANDARD:
                    yield Move(f"{name} cannot find out about the pivot", to(At.PARK))
            case At.PARK:
                yield Move(f"{name} parks the saga", owned(At.ENDED, parked=True))
            case At.COMPENSATE | At.FORWARD:
                wanted = Direction.COMPENSATE if execution.at is At.COMPENSATE else Direction.FORWARD
                free = record.direction in (Direction.OPEN, wanted)
                failure = record.failure
                if wanted is Direction.COMPENSATE and failure is Reason.NONE:
                    failure = execution.reason
                then = At.UNDO if wanted is Direction.COMPENSATE else At.DEBIT
                after = owned(then, direction=wanted, failure=failure) if free else to(At.ENDED)
                yield Move(f"{name} writes the direction {wanted}", after)
            case At.UNDO:
                undone = {Row.NONE: Row.TOMBSTONE, Row.DONE: Row.COMPENSATED}.get(world.debit, world.debit)
                yield Move(f"{name} compensates the debit", to(At.FAIL, replace(world, debit=undone)))
            case At.FAIL:
                yield Move(f"{name} settles FAILED", owned(At.ENDED, status=Status.FAILED, answer=execution.reason))
            case At.COMPLETE:
                # Of executions alongside each other, the one that completes asks for the direction.
                back = record.direction is Direction.COMPENSATE
                after = to(At.ENDED) if back else owned(At.ENDED, status=Status.COMPLETED)
                yield Move(f"{name} settles COMPLETED", after)

    def _steps(self, world: World, number: int, execution: Execution) -> Moves:
        debits = execution.at is At.DEBIT
        row, name = world.debit if debits else world.pivot, _NAMES[number]
        following = (At.WAIT if self.waits and number != RECOVERY else At.PIVOT) if debits else At.COMPLETE

        def to(at: At, after: World = world, reason: Reason = execution.reason) -> World:
            return _executing(after, number, Execution(at, reason))

        if row in (Row.TOMBSTONE, Row.COMPENSATED):
            yield Move(f"{name} is fenced", to(At.ENDED))
            return
        done = replace(world, debit=Row.DONE) if debits else replace(world, pivot=Row.DONE)
        yield Move(f"{name} applies {'the debit' if debits else 'the pivot'}", to(following, done))
        if number == RECOVERY or row is Row.DONE:
            return
        yield Move(f"{name} is refused", to(At.FENCE, reason=Reason.REFUSED))
        if not debits:
            travels = replace(world, travels=world.travels | {"pivot"})
            yield Move(f"{name} dies, and its function runs", to(At.ENDED, travels), fault=True)

    def _reconciles(self, world: World) -> Moves:
        record, first = world.record, world.executions[STANDARD]
        if record.saga != 1 or record.status is not Status.OPEN or record.parked or record.owner:
            return
        if first.at is At.NONE:
            yield from self._starts(world)
        elif first.at is At.ENDED:
            yield Move("a recovery takes over", self._taken_over(world))
        elif record.decisions and self.holds(C.RECONCILER_STOPS):
            yield Move("the reconciler stops Standard", self._stopped(world))

    def _starts(self, world: World) -> Moves:
        """Start the first execution, unless the record has the mark: then a recovery takes the saga over."""
        cancelled = bool(world.record.decisions)
        express = world.executions[EXPRESS].runs
        starters = (("the reconciler", C.NEVER_STARTED), ("a duplicate", C.NO_DUPLICATE_STARTS))
        for who, condition in starters:
            if not cancelled or not self.holds(condition):
                breaks = P.STARTED_ALTHOUGH_CANCELLED if cancelled else None
                yield Move(f"{who} starts the saga", self._started(world), breaks=breaks)
        if not cancelled:
            travels = replace(world, travels=world.travels | {"start"})
            yield Move("a start is sent, and travels", travels, fault=True)
        elif not express or not self.holds(C.EXPRESS_ENDED):
            breaks = P.RECOVERED_WHILE_EXPRESS_RUNS if express else None
            yield Move("a recovery takes over what was never started", self._taken_over(world), breaks=breaks)

    def _operates(self, world: World, number: int, operator: Operator) -> Moves:
        def to(then: Operator, after: World = world) -> World:
            return replace(after, operators=(*after.operators[:number], then, *after.operators[number + 1 :]))

        record, name = world.record, f"operator {number}"
        match operator:
            case Operator.IDLE if record.saga == 1 and record.status is Status.OPEN:
                yield Move(f"{name} reads the record", to(Operator.READ), fault=True)
            case Operator.READ:
                after, written, breaks = self._marked(world)
                then = Operator.MARKED if written else Operator.REFUSED
                yield Move(f"{name} cancels the saga", to(then, after), breaks=breaks)
                again, _, twice = self._marked(after)
                label = f"{name} cancels the saga; the answer is lost, and the call is sent again"
                yield Move(label, to(Operator.REFUSED, again), fault=True, breaks=breaks or twice)
                travels = replace(world, travels=world.travels | {"mark"})
                yield Move(f"{name} dies while cancelling", to(Operator.GONE, travels), fault=True)
            case Operator.MARKED | Operator.REFUSED:
                yield Move(f"{name} dies", to(Operator.GONE), fault=True)
                # After a refusal the record is read again.
                if record.saga == 1 and (record.decisions or not self.holds(C.MARK_FIRST)):
                    runs = world.executions[STANDARD].runs and record.status is Status.OPEN
                    without = P.STOPPED_WITHOUT_A_DECISION if runs and not record.decisions else None
                    yield Move(f"{name} stops Standard", to(Operator.GONE, self._stopped(world)), breaks=without)
                    travels = replace(world, travels=world.travels | {"stop"})
                    yield Move(f"{name} dies while stopping", to(Operator.GONE, travels), fault=True)

    def _marked(self, world: World) -> tuple[World, bool, str | None]:
        """The cancellation's conditional write: the world, whether it was written, and the promise that it broke."""
        record = world.record
        asked = {
            C.IN_PROGRESS: record.status is Status.OPEN,
            C.FIRST_OWNER: record.saga == 1 and record.owner == 0,
            C.NOT_PARKED: not record.parked,
            C.UNDIRECTED: record.direction is Direction.OPEN,
            C.ONCE: record.failure is Reason.NONE,
        }
        if not all(met for condition, met in asked.items() if self.holds(condition)):
            return world, False, None
        breaks: str | None = None
        if record.saga != 1:
            breaks = P.CANCELLED_ANOTHER_SAGA
        elif record.status is not Status.OPEN:
            breaks = P.CANCELLED_ALTHOUGH_SETTLED
        elif record.parked:
            breaks = P.CANCELLED_ALTHOUGH_PARKED
        elif record.direction is not Direction.OPEN:
            breaks = P.CANCELLED_ALTHOUGH_DECIDED
        elif record.decisions:
            breaks = P.CANCELLED_TWICE
        marked = replace(record, failure=Reason.CANCELLED, decisions=min(2, record.decisions + 1))
        if not self.holds(C.NO_DIRECTION):
            marked = replace(marked, direction=Direction.COMPENSATE)
        return replace(world, record=marked), True, breaks

    @staticmethod
    def _started(world: World) -> World:
        """A start names the first execution: it begins once, whatever the record has become."""
        if world.executions[STANDARD].at is not At.NONE:
            return world
        return _executing(world, STANDARD, Execution(At.DEBIT))

    @staticmethod
    def _taken_over(world: World) -> World:
        taken = replace(world, record=replace(world.record, owner=1))
        return _executing(taken, RECOVERY, Execution(At.READ))

    @staticmethod
    def _stopped(world: World) -> World:
        """A stop names the first execution: one that has ended stays so, and no other one is stopped."""
        if not world.executions[STANDARD].runs:
            return world
        return _executing(world, STANDARD, Execution(At.ENDED))


def _executing(world: World, number: int, execution: Execution) -> World:
    executions = (*world.executions[:number], execution, *world.executions[number + 1 :])
    return replace(world, executions=executions)
