"""Short histories of callbacks, each of which needs one condition to succeed.

The conditions:

* the token of the newest attempt is kept: a newer one replaces it, an older or equal one changes nothing;
* a known outcome, however far its delivery has come, is delivered to a newer attempt, which does not wait;
* marker, token row and log row are one transaction, each as it was read; a known event is delivered if it was not;
* LATE needs the token that was sent; a refused sender reads again, and delivers to the newer one;
* a success over a tombstone or a refusal is ``APPLIED_LATE``, and stays due; the task receives the log's outcome;
* an outcome of an unknown job meets its registration, before or after;
* a late outcome resumes a saga that is parked at that step, and no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from saga_runtime.callbacks import Receipt, Registration, register
from saga_runtime.callbacks.receipt import Subject
from saga_runtime.callbacks.rows import Callback, Marker, Outcome
from saga_runtime.callbacks.store import read_record, read_token, token_table
from saga_runtime.callbacks.subscriptions import served
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.callbacks.writes import marker_put, not_due_update, token_key
from saga_runtime.errors import SagaError
from saga_runtime.protocol import Env, RecordStatus, StepStatus, TokenAttribute
from saga_runtime.shared import aws
from saga_runtime.shared.writes import write
from tests.unit.support.job_saga import DONE, HEARTBEAT_SECONDS, JOB, JOB_ID, REFUSED, STEP, Attempt, JobSaga
from tests.unit.support.samples import NOW_MS, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed
from tests.unit.support.world import World

pytestmark = pytest.mark.exhaustive

ROWS = import_module("saga_runtime.callbacks.rows")
RECEIPT = import_module("saga_runtime.callbacks.receipt")
REGISTRATION = import_module("saga_runtime.callbacks.registration")
SWEEP = import_module("saga_runtime.callbacks.sweeper")
WRITES = import_module("saga_runtime.callbacks.writes")
LOG = import_module("saga_runtime.saga_log.rows")


def quietly(act: Any) -> None:
    """Do it, whether or not the process dies of it."""
    try:
        act()
    except (SagaError, Killed):
        return


def unsent(job_saga: JobSaga, outcome: Any = DONE) -> None:
    """A callback whose receiver dies before it delivers."""
    operation = "SendTaskSuccess" if outcome is DONE else "SendTaskFailure"
    job_saga.world.wire.plan(Fault(operation=operation, action=Action.KILL, times=1))
    quietly(lambda: job_saga.reports("e1", outcome))
    assert job_saga.token["status"] == "DELIVERING"


def retried(job_saga: JobSaga) -> Attempt:
    """The first attempt is registered and loses its heartbeat; the next one waits, and its message is under way."""
    job_saga.register()
    job_saga.time_out()
    return job_saga.enter()


def subject_of(job_saga: JobSaga) -> Subject:
    """A job, as it is now."""
    return Subject(job_id=JOB_ID, job=JOB, saga=served(STEP)[0], token=read_token(JOB_ID), log=job_saga.log)


def write_as(subject: Subject, event_id: str = "e9", *, ok: bool = True) -> Receipt | None:
    """Write a provider's outcome, under the conditions that were read."""
    marker = Marker(integration="", event_id=event_id, job_id=JOB_ID, ok=ok)
    outcome = Outcome.of(DONE if ok else REFUSED)
    return subject.write(outcome, event_id, marker_put(token_table(), marker, NOW_MS), marker)


def test_a_newer_attempt_receives_the_outcome(job_saga: JobSaga) -> None:
    """It replaces the previous one."""
    assert job_saga.dispatch(retried(job_saga)) is Registration.NEWER
    job_saga.reports("e1")
    assert job_saga.outcome(2)


def test_a_retry_in_the_same_entry_of_the_state_is_newer() -> None:
    """A retry keeps the time at which its state was entered."""
    task = {"started": "2026-11-21T08:00:00Z", "redriven": 0, "entered": "2026-11-21T08:00:01Z"}
    orders = [ROWS.order_of({**task, "retried": count}) for count in (0, 1, 2, 10)]
    assert orders == sorted(set(orders))


def test_a_redrive_is_newer() -> None:
    """A person redrives an execution; whatever waited before does not wait any more."""
    task = {"started": "2026-11-21T08:00:00Z", "entered": "2026-11-21T08:00:01Z", "retried": 0}
    orders = [ROWS.order_of({**task, "redriven": count}) for count in (0, 1, 2, 10)]
    assert orders == sorted(set(orders))


def test_an_older_attempt_changes_nothing(job_saga: JobSaga) -> None:
    """Its message comes after that of its successor."""
    first = job_saga.enter()
    job_saga.time_out()
    job_saga.dispatch(job_saga.enter())
    assert job_saga.dispatch(first) is Registration.OLD
    job_saga.reports("e1")
    assert job_saga.outcome(2)


def test_a_newer_attempt_receives_an_outcome_that_arrived_before(job_saga: JobSaga) -> None:
    """Its dispatcher had read the log before the outcome arrived."""
    second = retried(job_saga)
    unsent(job_saga)
    assert register(job_saga.waiting(second)) is Registration.ANSWERED
    assert job_saga.outcome(2)


def test_a_newer_attempt_receives_a_late_outcome(job_saga: JobSaga) -> None:
    """The previous attempt did not wait any more."""
    second = retried(job_saga)
    assert job_saga.reports("e1") is Receipt.UNDELIVERED
    assert register(job_saga.waiting(second)) is Registration.ANSWERED
    assert job_saga.outcome(2)


def test_a_refusal_that_an_operator_removed_is_waited_for_again(job_saga: JobSaga) -> None:
    """The delivered refusal is ignored: its row was deleted."""
    job_saga.register()
    job_saga.reports("e1", REFUSED)
    key: Any = {"saga_id": {"S": SAGA_ID}, "step": {"S": STEP}}
    RECEIPT.aws.dynamodb().delete_item(TableName="log", Key=key)
    assert job_saga.register() is Registration.NEWER
    job_saga.reports("e2")
    assert job_saga.outcome(2) == {"output": '{"output":{"parcel":"p-1"}}'}


def test_a_known_event_is_delivered_again(job_saga: JobSaga) -> None:
    """Its receiver died before it delivered."""
    job_saga.register()
    unsent(job_saga)
    assert job_saga.reports("e1") is Receipt.DUPLICATE
    assert job_saga.outcome()


def test_a_pending_outcome_is_delivered_by_the_sweeper(job_saga: JobSaga) -> None:
    """Its receiver died, and the provider does not retry."""
    job_saga.register()
    unsent(job_saga)
    job_saga.world.clock.ms += 60_000
    assert sweep(remaining_ms=lambda: 60_000).told == 1
    assert job_saga.outcome()


def test_a_receipt_is_whole_or_not_at_all(job_saga: JobSaga) -> None:
    """Its receiver dies at each of its writes in turn; then the event comes again."""
    job_saga.register()
    for nth in (2, 1):
        job_saga.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL, on=nth, times=1))
        quietly(lambda: job_saga.reports("e1"))
    job_saga.reports("e1")
    job_saga.reports("e1")
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE
    assert job_saga.outcome()


def test_only_the_token_that_was_sent_is_marked_late(job_saga: JobSaga) -> None:
    """A newer attempt registers, and its dispatcher dies, while the older one's token has no task."""
    second = retried(job_saga)

    def takes_over() -> None:
        row = read_token(JOB_ID)
        assert row is not None
        assert write(job_saga.waiting(second).answer("tokens", row, Outcome.of(DONE), NOW_MS)) is None

    job_saga.world.tasks.afterwards = takes_over
    assert job_saga.reports("e1") is Receipt.DELIVERED
    assert job_saga.outcome(2)
    assert job_saga.token["status"] == "DELIVERED"


def test_a_newer_attempt_is_not_lost_after_a_delivery(job_saga: JobSaga) -> None:
    """The same, while the older one's token still has a task."""
    job_saga.register()
    second = Attempt(2, job_saga.world.tasks.wait("token-2"), f"{job_saga.attempts[0].order}9")
    job_saga.attempts.append(second)

    def takes_over() -> None:
        row = read_token(JOB_ID)
        assert row is not None
        assert write(job_saga.waiting(second).answer("tokens", row, Outcome.of(DONE), NOW_MS)) is None

    job_saga.world.tasks.afterwards = takes_over
    job_saga.reports("e1")
    assert job_saga.outcome(2)


def test_a_fenced_job_that_was_done_is_a_late_effect(job_saga: JobSaga) -> None:
    """The provider had reported that the job was unknown."""
    job_saga.register()
    job_saga.time_out()
    job_saga.compensate()
    assert job_saga.reports("e1") is Receipt.APPLIED_LATE
    assert job_saga.log is not None
    assert (job_saga.log.status, job_saga.log.output) == (StepStatus.APPLIED_LATE, '{"parcel":"p-1"}')


def test_a_refused_job_that_was_done_is_late(job_saga: JobSaga) -> None:
    """The provider changed its mind."""
    job_saga.register()
    job_saga.reports("e1", REFUSED)
    assert job_saga.reports("e2") is Receipt.APPLIED_LATE
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.APPLIED_LATE
    assert TokenAttribute.CONFLICT in job_saga.token


def test_a_failure_does_not_revoke_a_success(job_saga: JobSaga) -> None:
    """The saga continued with it."""
    job_saga.register()
    job_saga.reports("e1")
    assert job_saga.reports("e2", REFUSED) is Receipt.CONFLICT
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE
    assert job_saga.token[TokenAttribute.CONFLICT] == Outcome.of(REFUSED).encode()


def test_a_compensated_job_is_not_compensated_again(job_saga: JobSaga) -> None:
    """The same effect is reported again."""
    job_saga.register()
    job_saga.reports("e1")
    job_saga.compensate()
    assert job_saga.reports("e2") is Receipt.DUPLICATE
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.COMPENSATED


def test_a_task_that_waits_for_a_fenced_job_is_fenced(job_saga: JobSaga) -> None:
    """A redriven execution waits, and another one has compensated."""
    job_saga.register()
    job_saga.compensate()
    job_saga.reports("e1")
    told = job_saga.outcome()
    assert told is not None
    assert told.get("error") == "SagaFenced"


def test_a_late_effect_stays_due(job_saga: JobSaga) -> None:
    """It stays due until it is compensated, delivered or not."""
    test_a_fenced_job_that_was_done_is_a_late_effect(job_saga)
    assert int(job_saga.token[TokenAttribute.DUE_AT]) == job_saga.world.clock.ms
    assert sweep(remaining_ms=lambda: 60_000).late == 1
    assert TokenAttribute.DUE_AT in job_saga.token


def test_a_late_effect_during_a_delivery_stays_due(job_saga: JobSaga) -> None:
    """The provider changes its outcome while its refusal is being delivered."""
    job_saga.register()

    def changes_its_mind() -> None:
        job_saga.world.wire.plan(Fault(operation="SendTaskFailure", action=Action.KILL, times=1))
        quietly(lambda: job_saga.reports("e2"))

    job_saga.world.tasks.afterwards = changes_its_mind
    job_saga.reports("e1", REFUSED)
    assert TokenAttribute.APPLIED_LATE_AT in job_saga.token
    assert TokenAttribute.DUE_AT in job_saga.token


def test_a_late_effect_makes_its_saga_due(job_saga: JobSaga) -> None:
    """The saga is still in progress, and no task ever waited."""
    job_saga.change_record(due_at=NOW_MS + 3_600_000)
    job_saga.compensate()
    assert job_saga.reports("e1") is Receipt.APPLIED_LATE
    assert int(job_saga.record()["due_at"]) == job_saga.world.clock.ms


def test_a_parked_saga_is_due_after_a_late_effect(job_saga: JobSaga) -> None:
    """The record has no reason for it."""
    job_saga.change_record(parked_by=SAGA_ID, due_at=NOW_MS + 3_600_000)
    job_saga.compensate()
    assert job_saga.reports("e1") is Receipt.APPLIED_LATE
    assert int(job_saga.record()["due_at"]) == job_saga.world.clock.ms


def test_a_settled_record_outlives_a_late_effect(job_saga: JobSaga) -> None:
    """Its response, and its key, have nearly expired."""
    soon = NOW_MS // 1_000 + 60
    job_saga.change_record(status=RecordStatus.FAILED, expiration=soon, response_expires_at=soon)
    test_a_fenced_job_that_was_done_is_a_late_effect(job_saga)
    for name in ("expiration", "response_expires_at"):
        assert int(job_saga.record()[name]) == job_saga.world.clock.ms // 1_000 + 7 * 86_400


def test_a_receipt_requires_the_token_row_that_it_read(job_saga: JobSaga) -> None:
    """A task began to wait in between; it would never receive the outcome."""
    subject = subject_of(job_saga)
    job_saga.register()
    assert write_as(Subject(**{**_fields(subject), "log": job_saga.log})) is None


def test_a_receipt_requires_the_attempt_that_it_read(job_saga: JobSaga) -> None:
    """A newer attempt began to wait in between; the older one's token would be sent."""
    second = retried(job_saga)
    subject = subject_of(job_saga)
    job_saga.dispatch(second)
    assert write_as(subject) is None


def test_a_receipt_requires_the_log_row_that_it_read(job_saga: JobSaga) -> None:
    """The job was fenced in between; it would be recorded as done, and never compensated."""
    job_saga.register()
    subject = subject_of(job_saga)
    job_saga.compensate()
    assert write_as(subject) is None


def test_a_receipt_requires_the_absence_of_a_log_row(job_saga: JobSaga) -> None:
    """The job was fenced before it began."""
    subject = subject_of(job_saga)
    job_saga.compensate()
    assert write_as(subject) is None


def test_a_waiting_task_receives_the_current_outcome_of_the_log(job_saga: JobSaga) -> None:
    """The log was decided without it, and is compensated between the receipt's read and its write."""
    job_saga.register()
    job_saga.write(job_saga.holder("verified").done("{}", NOW_MS, held="dispatch-1"))
    subject = subject_of(job_saga)
    job_saga.compensate()
    assert write_as(subject) is None


def test_an_outcome_of_an_unknown_job_is_kept_for_it(job_saga: JobSaga) -> None:
    """The receiver had not heard of the saga when the provider answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        assert job_saga.reports("e1") is Receipt.UNKNOWN
    assert job_saga.register() is Registration.ANSWERED
    assert job_saga.outcome()


def test_a_registration_meets_an_outcome_of_an_unknown_job(job_saga: JobSaga) -> None:
    """The task registers between the receipt's read and its write, and has already read early outcomes."""
    callback = Callback(job_id=JOB_ID, event_id="e1", outcome=DONE)
    job_saga.register()
    marker = Marker(integration="", event_id="e1", job_id=JOB_ID, ok=True)
    assert RECEIPT._receive_unknown(callback, Outcome.of(DONE), marker, None) is None


def test_a_late_outcome_resumes_a_parked_saga(job_saga: JobSaga) -> None:
    """It is parked at this step."""
    _parked(job_saga, STEP)
    record = job_saga.record()
    assert "parked_by" not in record
    assert "parked_reason" not in record
    assert int(record["due_at"]) == job_saga.world.clock.ms


def test_a_late_outcome_does_not_resume_a_saga_parked_at_another_step(job_saga: JobSaga) -> None:
    """The operator has to resolve another step."""
    _parked(job_saga, "Ship")
    assert job_saga.record()["parked_by"] == SAGA_ID


def test_an_outcome_resumes_a_saga_whose_task_was_never_registered(job_saga: JobSaga) -> None:
    """It waited for its dispatcher until its time was up."""
    _parked(job_saga, STEP, registered=False)
    record = job_saga.record()
    assert "parked_by" not in record
    assert "late_outcome_at" in record
    assert int(record["due_at"]) == job_saga.world.clock.ms


def test_an_early_outcome_does_not_resume_a_saga_parked_at_another_step(job_saga: JobSaga) -> None:
    """It has not come to this step yet."""
    _parked(job_saga, "Ship", registered=False)
    record = job_saga.record()
    assert record["parked_by"] == SAGA_ID
    assert int(record["due_at"]) == NOW_MS + 3_600_000


def test_an_early_outcome_that_is_known_does_not_resume_a_saga(job_saga: JobSaga) -> None:
    """It is parked because of that very refusal, and its token row has expired."""
    job_saga.reports("e1", REFUSED)
    aws.dynamodb().delete_item(TableName="tokens", Key=token_key(JOB_ID))
    job_saga.change_record(parked_by=SAGA_ID, parked_reason=f'{{"step":"{STEP}","error":"OutOfStock"}}')
    assert job_saga.reports("e2", REFUSED) is Receipt.EARLY
    assert job_saga.record()["parked_by"] == SAGA_ID


def test_an_early_outcome_does_not_resume_a_saga_that_has_settled(job_saga: JobSaga) -> None:
    job_saga.change_record(status=RecordStatus.FAILED)
    _parked(job_saga, STEP, registered=False)
    assert job_saga.record()["parked_by"] == SAGA_ID


def _parked(job_saga: JobSaga, step: str, *, registered: bool = True) -> None:
    if registered:
        job_saga.register()
        job_saga.time_out()
    job_saga.change_record(
        parked_by=SAGA_ID, parked_reason=f'{{"step":"{step}","error":"x"}}', due_at=NOW_MS + 3_600_000
    )
    assert job_saga.reports("e1") is (Receipt.UNDELIVERED if registered else Receipt.EARLY)


def test_a_saga_that_was_parked_again_stays_parked(job_saga: JobSaga) -> None:
    """An operator resumed it, and it was parked at another step in between."""
    job_saga.change_record(parked_by=SAGA_ID, parked_reason='{"step":"Pick"}')
    record = read_record("requests", SAGA_ID)
    assert record is not None
    job_saga.change_record(parked_reason='{"step":"Compensate Pick"}')
    assert write(record.due("requests", NOW_MS, unpark=True)) is not None


def test_a_record_of_another_saga_is_left_alone(job_saga: JobSaga) -> None:
    """The key was reserved again in between."""
    record = read_record("requests", SAGA_ID)
    assert record is not None
    job_saga.change_record(saga_id=f"{SAGA_ID}0")
    assert write(record.due("requests", NOW_MS)) is not None


def test_a_provider_speaks_of_a_job_under_its_own_id(job_saga: JobSaga) -> None:
    """It answers before the dispatcher has written down the id."""
    job_saga.register()
    assert job_saga.reports("e1", job_id="their-1") is Receipt.UNKNOWN
    REGISTRATION.adopt_alias("their-1", JOB_ID)
    assert job_saga.outcome()
    assert job_saga.token_row("alias##their-1")["status"] == "ALIAS"


def test_an_id_belongs_to_one_job(job_saga: JobSaga) -> None:
    """A provider uses it for two."""
    job_saga.register()
    REGISTRATION.adopt_alias("their-1", JOB_ID)
    with pytest.raises(SagaError, match="two jobs"):
        REGISTRATION.adopt_alias("their-1", f"{SAGA_ID}#Other")


def test_an_abandoned_attempt_is_not_overdue(job_saga: JobSaga) -> None:
    """The saga compensated; the row of the unused token is not swept forever."""
    job_saga.register()
    job_saga.time_out()
    job_saga.compensate()
    job_saga.world.clock.ms += HEARTBEAT_SECONDS * 1_000
    assert sweep(remaining_ms=lambda: 60_000).waiting == 0
    assert TokenAttribute.DUE_AT not in job_saga.token


def test_a_heartbeat_belongs_to_the_attempt_that_was_read(job_saga: JobSaga) -> None:
    """A newer attempt's row has more recent data."""
    job_saga.register()
    stale = read_token(JOB_ID)
    assert stale is not None
    job_saga.time_out()
    job_saga.dispatch(job_saga.enter())
    assert write(not_due_update("tokens", stale, NOW_MS)) is not None


def _fields(subject: Subject) -> dict[str, Any]:
    return {name: getattr(subject, name) for name in ("job_id", "job", "saga", "token", "log")}


@pytest.fixture
def job_saga(world: World, monkeypatch: pytest.MonkeyPatch) -> JobSaga:
    """A saga in progress with a job."""
    return JobSaga.open(world, monkeypatch)
