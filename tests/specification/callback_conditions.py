"""Conditions and promises of the callback step: its dispatcher, its receivers, and what undoes it late."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tests.specification.conditions import Because, Condition

DISPATCH: Final = "lambda_src/saga_runtime/callbacks/dispatch.py"
CALL: Final = "lambda_src/saga_runtime/callbacks/message.py"
DECISIONS: Final = "lambda_src/saga_runtime/callbacks/decisions.py"
REGISTRATION: Final = "lambda_src/saga_runtime/callbacks/registration.py"
RECEIPT: Final = "lambda_src/saga_runtime/callbacks/receipt.py"
WRITES: Final = "lambda_src/saga_runtime/callbacks/writes.py"
SENDING: Final = "lambda_src/saga_runtime/callbacks/task_tokens.py"
SWEEP: Final = "lambda_src/saga_runtime/callbacks/sweeper.py"
LATE: Final = "lambda_src/saga_runtime/recovery/late_effects.py"
LOG: Final = "lambda_src/saga_runtime/saga_log/external_rows.py"
COMPENSATION: Final = "lambda_src/saga_runtime/steps/external_compensation.py"
SAGA_WRITES: Final = "lambda_src/saga_runtime/callbacks/saga_writes.py"
RECOVERY: Final = "lambda_src/saga_runtime/recovery/takeover.py"
ENDING: Final = "constructs_lib/saga/asl/ending.py"


class CallbackCondition(Condition):
    """Conditions of the token row, of the log row, and of who writes them."""

    # The dispatcher.
    ANSWERS_FROM_THE_ROW = Because(
        "the outcome of a decided job is read from its row, without a query",
        DISPATCH,
        "if row is not None and _replayed(waiting, row): return",
    )
    INTENT_FIRST = Because(
        "that a provider may be asked is written down before it is asked",
        DISPATCH,
        "result = write_row(invocation.holder.intent(clock.now_ms())",
    )
    REGISTER_FIRST = Because(
        "the token is there before anything can be answered", DISPATCH, "# Before the provider is asked:"
    )
    NEWER_REPLACES = Because(
        "the answer goes to who waits now: a newer token replaces an older one",
        DECISIONS,
        "return Entry.REPLACE if row.status is TokenStatus.WAITING",
    )
    OLDER_CHANGES_NOTHING = Because(
        "a message that comes late does not take the answer from who waits now",
        DECISIONS,
        "if row.order > order: return Entry.OLD",
    )
    REFUSAL_STAYS = Because(
        "a delivered refusal is delivered again, even if the job was done afterwards and was, or will be, compensated",
        DECISIONS,
        "if log.status is StepStatus.REFUSED or (log.error and log.status in TOOK_EFFECT_AND_FELL):",
    )
    EARLY_ANSWERS = Because(
        "an outcome that came before the token is delivered when the token comes",
        REGISTRATION,
        "if _answered_before(waiting, row, now_ms):",
    )
    OUTCOME_ANSWERS = Because(
        "an outcome that was delivered, or came too late, is delivered to a newer token, too",
        DECISIONS,
        "else Entry.ANSWER",
    )
    ALIVE_WAITS = Because(
        "a job is not dispatched again while an earlier attempt may be alive", LOG, "if now_ms < row.deadline:"
    )
    GRACE_WAITS = Because(
        "a provider that knows of nothing is believed only when nothing can still arrive",
        LOG,
        "return Entry.VERIFY if is_over(row, now_ms, provider) else Entry.WAIT",
    )
    TAKE_OVER_HELD = Because(
        "of several who take over from one attempt, one does",
        LOG,
        'TAKE_OVER: Final = "#status = :found AND #attempt_id = :held',
    )
    ACCEPTED_IS_NOT_CALLED = Because(
        "a job that the provider accepted is queried, not dispatched again",
        CALL,
        "if not row.accepted_at: return entry_of(",
    )
    PENDING_WAITS = Because(
        "a provider that is at work is waited for, not asked to work again",
        DISPATCH,
        "accepted = self.invocation.holder.accepted(clock.now_ms(), held=row.attempt)",
    )
    DECLARED_REFUSAL = Because(
        "an error of the function's own, raised after the provider accepted the job, is not a refusal",
        DISPATCH,
        "except PermanentError as refusal: require_refusal(refusal, self.invocation)",
    )
    REFUSAL_DECISIVE = Because(
        "a refusal counts only if no former request can still arrive",
        DISPATCH,
        "if not nobody_else: raise StepInDoubt(",
    )
    ALIAS_ABSENT = Because(
        "what came under the provider's own id is not covered by the alias",
        REGISTRATION,
        "refused = write(token_put(table, row_id, TokenStatus.ALIAS,",
    )
    ALIAS_HANDS_OVER = Because(
        "an outcome under the provider's own id is adopted when its job is known",
        REGISTRATION,
        "adopt(row, job_id)",
    )
    ALIAS_KEEPS_BOTH = Because(
        "of two contradicting outcomes under an unknown id, both are kept",
        WRITES,
        "opposite = next((one for one in others if one.ok != first.ok), None)",
    )
    SUCCESS_FIRST = Because(
        "of conflicting outcomes under one id the success counts: a refusal after it changes no row",
        RECEIPT,
        "if found.conflict is not None and found.conflict.ok: return found.conflict, found.outcome",
    )
    ADOPTED_TOGETHER = Because(
        "who dies between two outcomes under one id leaves the second one: the next message finds the job decided",
        RECEIPT,
        "subject.write(said, found.event_id, guard, refusal=refusal)",
    )
    ADOPTED_AS_READ = Because(
        "an outcome that is stored between the read of those before it and their adoption is adopted, too",
        WRITES,
        'return f"#status = :found AND {contradicts}", values',
    )
    PENDING_TELLS_ID = Because(
        "who asks learns under which id of its own the provider will answer",
        DISPATCH,
        "case Pending(job_id=own): self._know_as(own)",
    )
    # The receipt.
    ONE_RECEIPT = Because(
        "the event's marker and what follows from it are one transaction",
        RECEIPT,
        "transact([guard, token, log, *self._record_entry(record, now_ms, late=late), *notices], retry=PATIENT)",
    )
    MARKER_OF_OUTCOME = Because(
        "an event id that is met again for another job or outcome is not the same event",
        RECEIPT,
        "if marker is not None and not marker.is_in(refused.item): raise _Reused",
    )
    AS_READ = Because("a receipt is written only if both rows are as they were read", WRITES, "else _as_read(found)")
    EARLY_IS_KEPT = Because(
        "an outcome without a waiting task is kept for the next one", DECISIONS, "then = TokenChange.PUT_EARLY"
    )
    TOLD_BY_THE_ROW = Because(
        "a waiting task receives the outcome of the log row, not the one that was reported last",
        DECISIONS,
        "told = answer_of(log) or _fenced(log)",
    )
    DONE_STAYS = Because(
        "a failure behind a success takes nothing back",
        DECISIONS,
        "(StepStatus.DONE, False): _CONTRADICTED,",
    )
    UNDONE_STAYS = Because(
        "a success that was undone is not undone again",
        DECISIONS,
        "(StepStatus.COMPENSATED, True): _NOTHING,",
    )
    LATE_ON_TOMBSTONE = Because(
        "a job that is done although it was abandoned is kept as applied late",
        DECISIONS,
        "(StepStatus.TOMBSTONE, True): Transition(log=LogChange.APPLIED_LATE),",
    )
    LATE_ON_FAILED = Because(
        "a job that is done although it had failed is kept as applied late",
        DECISIONS,
        "(StepStatus.REFUSED, True): Transition(log=LogChange.APPLIED_LATE, contradicts=True),",
    )
    DUE_WITH_IT = Because(
        "that something is to be undone is written with it", RECEIPT, "changes |= late_change(self.job_id, now_ms)"
    )
    # Delivery.
    DUPLICATE_SENDS = Because(
        "a duplicate report finds out whether the first one was delivered",
        RECEIPT,
        "if row is not None and row.status is TokenStatus.DELIVERING:",
    )
    SWEEPER_SENDS = Because(
        "an undelivered outcome is delivered by the sweeper",
        SWEEP,
        "if row.status is TokenStatus.DELIVERING: telemetry.count(",
    )
    SETTLED_HELD = Because(
        "only the token that was used is marked as delivered",
        SENDING,
        "refused = transact([told_update(token_table(), row, status, now_ms), *look], retry=PATIENT)",
    )
    LATE_HELD = Because(
        "too late is only whose token was used",
        SENDING,
        "else TokenStatus.UNDELIVERED",
    )
    NEWER_IS_TOLD = Because(
        "a sender that finds a newer token delivers to that one", SENDING, "found = read_token(row.id)"
    )
    ANSWER_UNPARKS = Because(
        "the answer that a parked saga waited for makes it due", SENDING, "unpark=parked_over(record, job)"
    )
    DIRECT_ANSWER_UNPARKS = Because(
        "an outcome of the row that finds no waiting task makes the saga due, like any other",
        DISPATCH,
        "if not told: nobody_waits(waiting.job_id, waiting.request_table)",
    )
    LATE_AS_READ = Because(
        "an undelivered outcome changes the record only if the saga is parked, or not, as it was read",
        SAGA_WRITES,
        "if not self.parked_by: return self._update(table, NOT_PARKED, sets)",
    )
    PARK_UNLESS_ANSWERED = Because(
        "a saga is not parked over an undelivered outcome that has just decided its step",
        ENDING,
        'condition = f"{OWNED} AND attribute_not_exists(#{a.LATE_OUTCOME_AT})"',
    )
    TAKE_OVER_FORGETS = Because(
        "who takes a saga over knows the answer: from then on it can be parked again",
        RECOVERY,
        "removes=[RecordAttribute.LATE_OUTCOME_AT]",
    )
    # Compensation.
    BURY = Because("a job that was not dispatched never is", LOG, "if row is None: return UndoEntry.BURY")
    ASK_THE_LOG = Because(
        "FAILED is settled over a log without an applied effect, or not at all",
        ENDING,
        '{"Condition": expression("$nothing_stands"), "Next": told}',
    )
    CHAIN_AGAIN = Because(
        "what took effect while the saga was undone is undone by it, too",
        ENDING,
        '{"Condition": expression("$only_late"), "Next": again}',
    )
    CHAIN_AWAITS_LATE_UNDO = Because(
        "what is being undone when the saga asks its log is waited for by its chain, not by a person",
        ENDING,
        "for status in (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING))",
    )
    UNDO_LATE = Because(
        "what took effect behind the end of its saga is undone by an execution of its own",
        LATE,
        "recoverer.start(record.recovery_machine_arn, name, late_input(record.input))",
    )
    ONLY_LATE = Because(
        "that execution compensates nothing that the saga relies on",
        COMPENSATION,
        "if only_late and not is_late(row): return UndoEntry.NOTHING",
    )
    DUE_UNTIL_UNDONE = Because(
        "it stays due until its row is COMPENSATED",
        SWEEP,
        "return log.status in (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING)",
    )


class CallbackPromise(StrEnum):
    """Promises of the model."""

    EFFECT_TWICE = "EFFECT_TWICE"
    UNDONE_TWICE = "UNDONE_TWICE"
    UNDONE_WITHOUT_EFFECT = "UNDONE_WITHOUT_EFFECT"
    WENT_ON_WITHOUT_EFFECT = "WENT_ON_WITHOUT_EFFECT"
    """The saga continued from the step, and its effect does not exist, or was compensated."""
    OWNER_GAVE_UP = "OWNER_GAVE_UP"
    """The owner's execution ended without an interruption, and the saga is neither settled nor parked."""
