"""An operator's answers about a step of a parked saga, and their writes. Pure: data in, data out.

::

    INTENT  --it happened-->        DONE
            --it did not-->         TOMBSTONE; where the saga only goes forward: (no row), and it is called again
    COMPENSATING --its undo happened-->  COMPENSATED
            --it did not-->         DONE, or APPLIED_LATE as it was, and it is compensated again
    DONE    --undone by hand-->     COMPENSATED        in a saga that compensates
    REFUSED --done by hand-->       DONE          where the saga only goes forward
            --fixed-->              (no row)      likewise
    APPLIED_LATE --undone by hand-->  COMPENSATED      in any saga, a settled one included
            --it happened-->        DONE          where the saga only goes forward, and has not gone on without it
    (no row) --never shall-->       TOMBSTONE
             --it happened-->       DONE          at a provider

Every one of these writes has the condition that the row is as it was when it was read. A statement that the row
contradicts changes nothing, and one that the row has already needs no write. ``resolver`` makes the calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from saga_runtime.idempotency.identity import row_name_of
from saga_runtime.idempotency.record import OWNED, RequestRecord
from saga_runtime.protocol import Direction, LogAttribute, RecordAttribute, Side, StepStatus
from saga_runtime.recovery.audit import NOTHING, Appended
from saga_runtime.recovery.takeover import recovery_update
from saga_runtime.saga_log.rows import LogRow, done_put, log_key, tombstone_put
from saga_runtime.shared.clock import moment
from saga_runtime.shared.expressions import update, when

if TYPE_CHECKING:
    from saga_runtime.recovery.hold import Held
    from saga_runtime.shared.decisions import Decision

AS_READ: Final = "#status = :found AND #attempt_id = :held"
"""The row is still in the state, and still of the attempt, about which the person spoke."""
PARKED: Final = f"{OWNED} AND attribute_exists(#parked_by)"
"""The record is still parked, and still owned by the execution that was read: two people start one recovery."""
PARKED_THEN: Final = "#parked_at = :parked_then"
"""And it was not resumed by an outcome, and parked again by the same execution."""
_ROW: Final = re.compile(r"^([^\[\]]+)(?:\[([^\[\]]+)\])?$")
ANSWERED: Final = "resolve-"
"""With it the attempts begin that are operators' answers."""
LONGEST_GRACE_MS: Final = 3_600_000
"""The longest grace that a provider can be declared with: what counts where the declared one is not known."""


class CannotResolve(Exception):
    """The answer cannot be applied, and nothing was written; the message has the reason and the remedy."""


def require_own(held: Held | None, saga_id: str, who: str) -> None:
    """Refuse a decision about a saga that another operator holds.

    Args:
        held: the hold of the saga, or of all.
        saga_id: the saga.
        who: ARN of the operator who decides.

    Raises:
        CannotResolve: naming the hold.
    """
    if held is not None and held.who != who:
        raise CannotResolve(
            f"saga {saga_id} must not be held by another operator, got a hold of {held.who or 'an unknown one'} since "
            f"{moment(held.since_ms)}: {held.reason}; agree with that operator, and repeat this with --although-held"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An operator's answer about a step.

    Attributes:
        applied: whether it was applied.
        undo: whether the answer is about the step's compensation.
        output: canonical JSON of what the step would have returned; None without one.
        attempt: the attempt that the person saw; None for the one that is found.
        rowless: whether the person saw that there is no row.
    """

    applied: bool
    undo: bool = False
    output: str | None = None
    attempt: str | None = None
    rowless: bool = False

    @property
    def text(self) -> str:
        """The answer in a few words."""
        return f"{'its compensation was ' if self.undo else ''}{'' if self.applied else 'not '}applied"


_STATEMENTS: Final = [Statement(applied=applied, undo=undo) for applied in (True, False) for undo in (True, False)]
_WRONG: Final = "docs/how-to/resolve-a-parked-saga.md#the-answer-was-wrong"


def contradiction(decisions: Sequence[Decision], step: str, statement: Statement) -> str:
    """The end of a refusal: the last decision about the step, if it contradicts the refused answer; or nothing.

    Args:
        decisions: about the saga, the earliest first.
        step: sort key of the row.
        statement: the refused answer.
    """
    stated = {f"{step}: {one.text}": one for one in _STATEMENTS}
    last = next((one for one in reversed(decisions) if one.what in stated), None)
    if last is None or not _contradict(stated[last.what], statement):
        return ""
    about = f"{last.who} at {moment(last.at_ms)}: {last.what}; why: {last.why}"
    return f"; the last decision about {step} contradicts this: {about}; see {_WRONG}"


def _contradict(one: Statement, other: Statement) -> bool:
    """Test whether two answers about a step cannot both be true; what is compensated was applied."""
    if one.undo is other.undo:
        return one.applied is not other.applied
    return not (other if one.undo else one).applied


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStep:
    """Properties of a step in the saga's definition.

    Attributes:
        side: its position in its saga.
        external: whether its effect is at a provider, so that it can exist without a row.
        grace_ms: how long a request to its provider can still travel when its sender is dead.
        log_days: how long a row is kept.
        skipped_by: refusals by which a saga skips it, and continues with a substitute output.
    """

    side: Side
    external: bool
    grace_ms: int
    log_days: int
    skipped_by: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedStep:
    """A step, as the deployed definition has it.

    Attributes:
        name: its name.
        in_map: whether it runs once per item, and has a row for each.
        declared: what a person's statement about it depends on; None for a step without a function.
    """

    name: str
    in_map: bool
    declared: DeclaredStep | None


def declared_in(steps: Mapping[str, DeployedStep], name: str) -> DeclaredStep | None:
    """The step that a row's name names; None if the definition does not have it, or could not be read.

    Raises:
        CannotResolve: if it has not the form of one, or names an item of a step that has none.
    """
    match = _ROW.match(name)
    step, item = match.groups() if match else (name, None)
    try:
        row_name_of(step, item)
    except ValueError as error:
        raise CannotResolve(str(error)) from None
    there = steps.get(step)
    if there is None:
        return None
    if there.in_map and item is None:
        raise CannotResolve(f"step {step} runs once per item; name one of them: '{step}[ITEM KEY]'")
    if item is not None and not there.in_map:
        raise CannotResolve(f"step {step} runs once, not per item; name it without [{item}]")
    return there.declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The row in question, and its context.

    Attributes:
        name: the row's sort key: the step's name, with the item's key in a map.
        row: the row; None if it does not exist.
        side: the step's position in its row; None if it has none.
        declared: the step in the saga's definition; None if it is not there.
        direction: the saga's.
        settled: whether the saga has ended: what is still to be compensated is a late effect.
        same_ways: whether the saga goes its way by what ``declared`` is of. Otherwise refusals may have skipped the
            step of which the definition does not have that.
        beyond_a_pivot: whether a pivot of the saga is applied; of several, another one may be ahead.
    """

    name: str
    row: LogRow | None
    side: Side | None
    declared: DeclaredStep | None
    direction: Direction | None
    settled: bool = False
    same_ways: bool = True
    beyond_a_pivot: bool = False

    @property
    def must_happen(self) -> bool:
        """True if the saga only goes forward here: a tombstone would end it nowhere."""
        side = self.side or (self.declared.side if self.declared else None)
        ahead = side is Side.AFTER or self.beyond_a_pivot
        return self.direction is Direction.FORWARD or (self.direction is None and ahead)

    @property
    def is_skipped(self) -> bool:
        """True if the saga continued without the step; unless it goes its way by other conditions."""
        row = self.row
        if row is None or row.instead is not None:
            return row is not None
        return self.declared is not None and row.error in self.declared.skipped_by

    @property
    def needs_it(self) -> bool:
        """True if the saga continues, and cannot without the step."""
        return self.must_happen and not self.is_skipped and not self.settled

    @property
    def grace_ms(self) -> int:
        """Grace period of "not applied" after the deadline."""
        return self.declared.grace_ms if self.declared is not None else LONGEST_GRACE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of a row by an answer.

    Attributes:
        to: the row's state afterwards; None: there is no row, and the step is called again.
        written: whether the row has to be written for that; otherwise it has that state already.
        output: output to write.
    """

    to: StepStatus | None
    written: bool
    output: str | None = None


def decide(subject: Subject, statement: Statement, now_ms: int) -> Change:
    """Decide the change of a row.

    "It did not happen" counts only when no request can still be on its way: behind the deadline and the grace. Where
    the saga only goes forward, such a step is called again: its row is deleted, since a tombstone would stop it for
    ever. Anywhere else a tombstone keeps it from ever happening.

    Raises:
        CannotResolve: if there is nothing to decide, the row contradicts, or it is too early.
    """
    change = _decide_undo(subject, statement, now_ms) if statement.undo else _decide_step(subject, statement, now_ms)
    if not is_answered(subject, statement, change):
        _require_seen(subject, statement)
    return change


def is_answered(subject: Subject, statement: Statement, change: Change) -> bool:
    """Test whether the row agrees, by an operator's answer: perhaps by this very command, whose response was lost.

    What did not happen may be stated of any row that agrees. What did is another effect, if it was done by hand.
    """
    row = subject.row
    answered = not statement.applied or (row is not None and row.attempt.startswith(ANSWERED))
    return not change.written and answered


def _require_seen(subject: Subject, statement: Statement) -> None:
    row, seen = subject.row, statement.attempt
    if statement.rowless and row is not None:
        raise CannotResolve(f"{subject.name} has a row by now, and you saw none; inspect the saga")
    if seen is not None and (row is None or row.attempt != seen):
        now = f"is {row.status} of attempt {row.attempt}" if row is not None else "has no row any more"
        raise CannotResolve(
            f"{subject.name} {now}, and you saw attempt {seen}; inspect the saga, and ask the provider again: if you "
            "did it by hand, too, there are two effects"
        )


def _decide_step(subject: Subject, statement: Statement, now_ms: int) -> Change:
    row = subject.row
    if row is None:
        return _decide_without_row(subject, statement)
    match row.status:
        case StepStatus.INTENT:
            _require_over(subject, row, now_ms, grace_ms=0 if statement.applied else subject.grace_ms)
            return _decided(subject, statement)
        case StepStatus.REFUSED if subject.is_skipped:
            raise CannotResolve(
                f"{subject.name} was skipped by its refusal {row.error}, and its saga continued without it; to "
                "continue, use --resume"
            )
        case StepStatus.REFUSED if subject.must_happen:
            _require_same_ways(subject)
            # The refusal would be repeated forever: the step was done by hand, or its cause was fixed.
            return _decided(subject, statement)
        case StepStatus.APPLIED_LATE if statement.applied and subject.needs_it:
            # Fenced, it would keep the saga from ever settling. Its compensation, if it has one, finds it in force.
            _require_same_ways(subject)
            if statement.output not in (None, row.output):
                raise CannotResolve(
                    f"{subject.name} was applied late, and its provider reported {row.output}: to continue with that, "
                    "leave --output out; if you did it by hand, too, there are two effects: have one undone first"
                )
            return Change(to=StepStatus.DONE, written=True)
        case StepStatus.DONE if statement.applied and statement.output in (None, row.output):
            return Change(to=StepStatus.DONE, written=False)
        case StepStatus.DONE if statement.applied:
            raise CannotResolve(f"{subject.name} is DONE with another output: {row.output}; it stays")
        case StepStatus.TOMBSTONE | StepStatus.REFUSED if not statement.applied:
            return Change(to=row.status, written=False)
        case StepStatus.COMPENSATING | StepStatus.COMPENSATED | StepStatus.APPLIED_LATE:
            raise CannotResolve(
                f"{subject.name} happened, and is {row.status}; what is left to answer is whether its undo happened: "
                "--compensation --applied or --compensation --not-applied"
            )
        case _:
            raise CannotResolve(f"{subject.name} is {row.status}, which is decided: {_MEANING[row.status]}")


def _require_same_ways(subject: Subject) -> None:
    if not subject.same_ways:
        raise CannotResolve(
            f"{subject.name} was refused under other conditions than those of the deployed definition: whether its "
            "saga continued without it is not known; deploy the definition that it ran under, and inspect it again"
        )


_MEANING: Final = {
    StepStatus.DONE: "it is applied, and a compensation undoes it; to continue, use --resume",
    StepStatus.TOMBSTONE: "it was declared never to happen; what happened nevertheless is undone at the provider",
    StepStatus.REFUSED: "the provider clearly refused; what happened nevertheless is undone at the provider",
    StepStatus.RECORDED: "it only read; to continue, use --resume",
    StepStatus.INTENT: "the step itself is in doubt; use --applied or --not-applied without --compensation",
    StepStatus.COMPENSATED: "it was undone; to continue, use --resume",
    StepStatus.COMPENSATING: "its undo is in doubt; use --applied or --not-applied with --compensation",
    StepStatus.APPLIED_LATE: "it was applied late; inspect shows what can be done about it",
}


def _decided(subject: Subject, statement: Statement) -> Change:
    if statement.applied:
        return Change(to=StepStatus.DONE, written=True, output=statement.output or "{}")
    return Change(to=None if subject.must_happen else StepStatus.TOMBSTONE, written=True)


def _decide_without_row(subject: Subject, statement: Statement) -> Change:
    if subject.declared is None:
        raise CannotResolve(
            f"{subject.name} has no row, and no function that would write it; to continue, use --resume"
        )
    if not statement.applied and subject.must_happen:
        return Change(to=None, written=False)
    if not statement.applied:
        return Change(to=StepStatus.TOMBSTONE, written=True)
    if not subject.declared.external:
        raise CannotResolve(
            f"{subject.name} has no row, so it did not happen: its effect and its row are written together"
        )
    if statement.output is None:
        raise CannotResolve(f"{subject.name} was never begun; if it happened nevertheless, give its output: --output")
    return Change(to=StepStatus.DONE, written=True, output=statement.output)


def _decide_undo(subject: Subject, statement: Statement, now_ms: int) -> Change:
    row = subject.row
    if statement.output is not None:
        raise CannotResolve("an undo has no output; leave --output out")
    if row is None:
        raise CannotResolve(f"{subject.name} has no row, so there is nothing to undo")
    match row.status:
        case StepStatus.COMPENSATING:
            _require_over(subject, row, now_ms, grace_ms=0 if statement.applied else subject.grace_ms)
            return Change(to=StepStatus.COMPENSATED if statement.applied else _before_undo(subject, row), written=True)
        case StepStatus.COMPENSATED if statement.applied:
            return Change(to=StepStatus.COMPENSATED, written=False)
        case StepStatus.APPLIED_LATE if statement.applied and subject.needs_it:
            raise CannotResolve(
                f"{subject.name} was applied late, and its saga only goes forward: undone, it would keep the saga from "
                "ever settling; to continue with it, use --applied without --compensation"
            )
        case StepStatus.APPLIED_LATE if statement.applied:
            # Whatever its saga does, it does not rely on the effect.
            return Change(to=StepStatus.COMPENSATED, written=True)
        case StepStatus.DONE | StepStatus.APPLIED_LATE if not statement.applied:
            return Change(to=row.status, written=False)
        case StepStatus.DONE if subject.direction is Direction.COMPENSATE:
            # Undone by hand, because nothing else can undo it.
            return Change(to=StepStatus.COMPENSATED, written=True)
        case StepStatus.DONE:
            raise CannotResolve(f"{subject.name} is applied, and its saga does not compensate; it may not be undone")
        case _:
            raise CannotResolve(f"{subject.name} is {row.status}, not being undone: {_MEANING[row.status]}")


def _before_undo(subject: Subject, row: LogRow) -> StepStatus:
    """Earlier state of a row whose compensation was not applied: it must be compensated again by the same actor.

    A row with a substitute, or with a refusal, is one that its saga does not rely on.
    """
    late = subject.settled or row.instead is not None or bool(row.error)
    return StepStatus.APPLIED_LATE if late else StepStatus.DONE


def _require_over(subject: Subject, row: LogRow, now_ms: int, *, grace_ms: int) -> None:
    left = row.deadline + grace_ms - now_ms
    if left > 0:
        raise CannotResolve(
            f"{subject.name} may still change automatically, or a request may still be on its way, for "
            f"{-(-left // 1000)} s; wait, ask the provider again, then repeat"
        )


def row_write(subject: Subject, change: Change, *, table: str, saga_id: str, attempt: str, now_ms: int) -> Any:
    """The ONE conditional write that makes a change: ``{"Put" | "Update" | "Delete": …}``."""
    row, declared = subject.row, subject.declared
    if row is None:
        if declared is None:
            raise ValueError("a new row needs the step's declaration")
        new: dict[str, Any] = {
            "table": table,
            "saga_id": saga_id,
            "step": subject.name,
            "side": declared.side,
            "attempt": attempt,
            "now_ms": now_ms,
            "keep_days": declared.log_days,
        }
        return (
            tombstone_put(**new) if change.to is StepStatus.TOMBSTONE else done_put(**new, output=change.output or "{}")
        )
    a = LogAttribute
    place: dict[str, Any] = {"TableName": table, "Key": log_key(saga_id, subject.name)}
    as_read = when(AS_READ, found={"S": row.status}, held={"S": row.attempt})
    if change.to is None:
        return {"Delete": place | as_read}
    sets: dict[str, Any] = {
        a.STATUS: {"S": change.to},
        a.ATTEMPT_ID: {"S": attempt},
        a.UPDATED_AT: {"N": str(now_ms)},
    }
    if change.output is not None:
        sets[a.OUTPUT] = {"S": change.output}
    # What was refused and then done by hand keeps its refusal: a success of its provider would contradict that.
    reported = row.status is StepStatus.APPLIED_LATE and change.to is StepStatus.DONE
    removes = [name for name, value in ((a.ERROR, row.error), (a.DETAIL, row.detail)) if reported and value]
    return {"Update": place | update(as_read, sets, removes=removes)}


def unpark_update(
    record: RequestRecord, now_ms: int, due_after_ms: int, more: Appended = NOTHING, parked_at: int | None = None
) -> dict[str, Any]:
    """Arguments of the ONE conditional update that starts a parked saga's next recovery; ``more`` as of a takeover.

    Args:
        record: as it was read.
        now_ms: the time.
        due_after_ms: when it is checked again.
        more: what else is assigned, and its values.
        parked_at: when it was parked, about which two people decided; None: they decided about no time.
    """
    a = RecordAttribute
    removes = (a.PARKED_BY, a.PARKED_AT, a.PARKED_REASON, a.LATE_OUTCOME_AT)
    condition = PARKED
    if parked_at is not None:
        condition, more = f"{PARKED} AND {PARKED_THEN}", (more[0], {**more[1], "parked_then": {"N": str(parked_at)}})
    return recovery_update(record, condition, now_ms, due_after_ms, removes=removes, more=more)
