"""Conditions and promises of the external step, its compensation, and queries of its outcome."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tests.specification.conditions import Because, Condition

SAGA_LOG: Final = "lambda_src/saga_runtime/saga_log/rows.py"
ROW_WRITE: Final = "lambda_src/saga_runtime/saga_log/row_write.py"
LOG: Final = "lambda_src/saga_runtime/saga_log/external_rows.py"
CALL: Final = "lambda_src/saga_runtime/steps/external_call.py"
STEP: Final = "lambda_src/saga_runtime/steps/external.py"
COMPENSATION: Final = "lambda_src/saga_runtime/steps/external_compensation.py"
PROVIDER: Final = "lambda_src/saga_runtime/saga_log/provider.py"


class ExternalCondition(Condition):
    """Conditions of the row, of what is sent to the provider, and of what its answers are taken for."""

    TRAVEL_ENDS = Because(
        "no request arrives later than its sender's deadline plus the grace",
        PROVIDER,
        "how long a request can still travel when its sender is dead",
    )
    DEAD_AT_DEADLINE = Because(
        "past its deadline an invocation sends nothing: it ends after its threads, and its timeout ends both",
        CALL,
        "while started := [thread for thread in threading.enumerate() if thread not in before]:",
    )
    DEADLINES_GROW = Because(
        "an attempt that is past a row's deadline is past the deadlines of all earlier holders of the row",
        LOG,
        "AND #deadline < :deadline",
    )
    ONE_CALL = Because(
        "an invocation calls once: with a second call the outcome of the first could not be determined",
        STEP,
        "output = _kept(invocation, call_out(self.function, invocation, self.given(invocation)))",
    )
    INTENT_FIRST = Because(
        "that a provider may be asked is written down before it is asked",
        STEP,
        "result = write_row(mine.intent(clock.now_ms()), remaining_ms=invocation.remaining_ms)",
    )
    INTENT_NO_ROW = Because(
        "a step begins only if it never did, and was never compensated",
        SAGA_LOG,
        "when(NO_ROW)",
    )
    OWN_INTENT = Because(
        "an attempt that is refused by a row that it wrote itself continues",
        ROW_WRITE,
        "return Committed() if (row.status, row.attempt) == (status, attempt) else RowRefused(row=row)",
    )
    REPLAYS = Because(
        "an applied step returns its output without a query",
        LOG,
        "case StepStatus.DONE: return Entry.REPLAY",
    )
    REFUSAL_STAYS = Because(
        "a refused step is refused again without a query",
        LOG,
        "case StepStatus.REFUSED: return Entry.REFUSED",
    )
    FENCED = Because(
        "a step that meets a tombstone or its own undo stops",
        LOG,
        "case StepStatus.TOMBSTONE | StepStatus.COMPENSATING | StepStatus.COMPENSATED | StepStatus.APPLIED_LATE: "
        "return Entry.FENCED if row.answer is None",
    )
    CALL_AFTER_DEADLINE = Because(
        "a call is repeated only when who made it is certainly dead",
        LOG,
        "if now_ms < row.deadline: return Entry.WAIT",
    )
    CALL_AFTER_GRACE = Because(
        "a provider that knows of nothing is believed only when nothing can still arrive",
        LOG,
        "return Entry.VERIFY if is_over(row, now_ms, provider) else Entry.WAIT",
    )
    CLEAR_NO = Because("neither pending nor unknown is a no", CALL, "case Pending(): raise StepInDoubt(")
    WINDOW_OPEN = Because(
        "a call is repeated under its key only as long as the provider knows the key",
        LOG,
        "<= row.first_attempt_at + window_ms",
    )
    WINDOW_COVERS_CALL = Because(
        "it must still know the key when the repeated call arrives at the latest",
        LOG,
        "mine.deadline + provider.grace_ms <=",
    )
    TAKE_OVER_FIRST = Because(
        "the row contains the caller, and its deadline, before every further call",
        STEP,
        "result = self._take_over(invocation, row) if isinstance(result, Committed):",
    )
    TAKE_OVER_HELD = Because(
        "of several who take over from one attempt, one does",
        LOG,
        'TAKE_OVER: Final = "#status = :found AND #attempt_id = :held',
    )
    DONE_INTENT = Because(
        "only what is in doubt becomes DONE: what was undone stays undone",
        LOG,
        "return self._update(StepStatus.INTENT, StepStatus.DONE, HELD_BY,",
    )
    DONE_HELD = Because(
        "DONE is written about the attempt that called, or that was verified",
        LOG,
        "held=held or self.attempt)",
    )
    CLEAR_REFUSAL = Because(
        "a timeout or a broken connection is not a refusal",
        STEP,
        "except PermanentError as refusal:",
    )
    DECLARED_REFUSAL = Because(
        "an error of the function's own, raised after the provider acted, is not a refusal",
        STEP,
        "except PermanentError as refusal: require_refusal(refusal, invocation)",
    )
    REFUSAL_AFTER_GRACE = Because(
        "a refusal counts only if no former request can still arrive and be granted",
        STEP,
        "if not nobody_else: raise StepInDoubt(",
    )
    REFUSAL_HELD = Because(
        "only the holder of the row writes that it was refused: a successor may have been granted",
        LOG,
        "return self._update(StepStatus.INTENT, StepStatus.REFUSED, HELD_BY, now_ms, sets, held=self.attempt)",
    )
    BURY = Because(
        "a step that has not begun is fenced: an attempt that comes later must not begin",
        LOG,
        "if row is None: return UndoEntry.BURY",
    )
    BURY_NO_ROW = Because(
        "such a tombstone never covers a step that has begun",
        SAGA_LOG,
        "return row_put(table, saga_id, step, StepStatus.TOMBSTONE,",
    )
    BURY_AFTER_GRACE = Because(
        "a compensation asks or repeats only when nothing can still arrive: then the answer counts",
        LOG,
        "if not is_over(row, now_ms, provider): return UndoEntry.WAIT",
    )
    BURY_HELD = Because(
        "a step in doubt is not fenced if it was taken over since it was read",
        LOG,
        "StepStatus.TOMBSTONE, HELD_BY, now_ms, {}, held=found.attempt)",
    )
    UNDOING_FIRST = Because(
        "that a provider may be asked to undo is written down before it is asked",
        COMPENSATION,
        "held = mine.undoing(now_ms, found=row.status) if entry is UndoEntry.UNDO",
    )
    UNDOING_DONE = Because(
        "an applied effect is compensated once",
        LOG,
        "return self._update(found, StepStatus.COMPENSATING, STILL, now_ms, sets)",
    )
    UNDO_OWN_KEY = Because(
        "under the step's key an idempotent provider would return the outcome of the step",
        COMPENSATION,
        "call_out(self.function, invocation, self.of.given(invocation, undo=True), output)",
    )
    UNDO_AFTER_DEADLINE = Because(
        "an undo is repeated only when who made it is certainly dead",
        LOG,
        "if now_ms < row.deadline: return UndoEntry.WAIT",
    )
    UNDO_AFTER_GRACE = Because(
        "a provider that knows of no undo is believed only when none can still arrive",
        COMPENSATION,
        "if not is_over(row, call.now_ms, invocation.provider): raise still_in_doubt(call, row)",
    )
    UNDO_TAKE_OVER_FIRST = Because(
        "the row contains the compensating attempt, and its deadline, before every further compensation",
        COMPENSATION,
        "else mine.take_over(row, now_ms)",
    )
    UNDO_TAKE_OVER_HELD = Because(
        "of several who take an undo over from one attempt, one does",
        LOG,
        "return self._update(found.status, found.status, TAKE_OVER,",
    )
    UNDECIDED_PARKS = Because(
        "an unknowable outcome needs an operator, not another retry",
        LOG,
        "return UndoEntry.VERIFY_UNDO if provider.verify_undo else UndoEntry.UNDECIDED",
    )
    UNDONE_UNDOING = Because(
        "only what is being undone becomes COMPENSATED",
        LOG,
        "return self._update(StepStatus.COMPENSATING, StepStatus.COMPENSATED, STILL, now_ms, {})",
    )
    ASK_BURIES = Because(
        "a pivot that has not begun is decided by a tombstone, not by a read",
        STEP,
        "row = read_row(call) if row is None: write_row(mine.bury(",
    )
    ASK_WRITES = Because(
        "the provider's response is written into the row before it is acted on",
        STEP,
        "elif row.status is StepStatus.INTENT: self.learn(invocation, row)",
    )


class ExternalPromise(StrEnum):
    """Promises of the model."""

    EFFECT_TWICE = "EFFECT_TWICE"
    UNDONE_TWICE = "UNDONE_TWICE"
    UNDONE_WITHOUT_EFFECT = "UNDONE_WITHOUT_EFFECT"
    EFFECT_STANDS_AFTER_COMPENSATION = "EFFECT_STANDS_AFTER_COMPENSATION"
    ANSWERED_DONE_WITHOUT_EFFECT = "ANSWERED_DONE_WITHOUT_EFFECT"
    REFUSED_ALTHOUGH_DONE = "REFUSED_ALTHOUGH_DONE"
    WENT_FORWARD_WITHOUT_EFFECT = "WENT_FORWARD_WITHOUT_EFFECT"
    WENT_BACK_BUT_THE_EFFECT_STANDS = "WENT_BACK_BUT_THE_EFFECT_STANDS"
