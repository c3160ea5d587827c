"""Callbacks at their edges: waits, aliases, unknown jobs, operators, heartbeats, sweeps, direct invocation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers import callback_direct, callback_sweeper
from saga_runtime.callbacks import (
    Failed,
    Heartbeat,
    Receipt,
    Registration,
    Succeeded,
    adopt_alias,
    heartbeat,
    record_dispatch_error,
    send_directly,
    settle,
    sweeper,
)
from saga_runtime.callbacks import store as callback_store
from saga_runtime.callbacks import task_tokens as callback_sending
from saga_runtime.callbacks.decisions import CONTRADICTED, conflict_id_of
from saga_runtime.callbacks.notices import Notice
from saga_runtime.callbacks.rows import JobId, Outcome, alias_of
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.callbacks.task_tokens import nobody_waits
from saga_runtime.errors import Invalid, TransientError
from saga_runtime.protocol import (
    NOTICE_PREFIX,
    Env,
    LogAttribute,
    Metric,
    RecordAttribute,
    RecordStatus,
    Side,
    StepStatus,
    TokenAttribute,
    TokenStatus,
)
from saga_runtime.recovery.operators_queue import ConflictEntry
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support.job_saga import (
    DONE,
    HEARTBEAT_SECONDS,
    JOB_ID,
    PARCEL,
    REFUSED,
    STEP,
    TIMEOUT_SECONDS,
    JobSaga,
    acknowledge,
    entries_of,
    notified,
    operators_queue,
    served,
)
from tests.unit.support.retries import try_only
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.settling import park
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import Context, World

MINUTE_MS = 60_000


@pytest.fixture
def job_saga(world: World, monkeypatch: pytest.MonkeyPatch) -> JobSaga:
    """A saga in progress with a job."""
    return JobSaga.open(world, monkeypatch)


def test_a_waiting_task_receives_an_output_like_a_functions(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1")
    told = job_saga.outcome()

    assert told is not None
    assert json.loads(told["output"]) == {"output": PARCEL}
    assert job_saga.world.telemetry.counts[Metric.CALLBACK_RECEIVED] == 1


def test_a_refusal_is_delivered_with_its_name_and_its_message(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1", REFUSED)

    assert job_saga.outcome() == {"error": "OutOfStock", "cause": '{"errorMessage": "none left"}'}


def test_a_refusal_is_delivered_as_a_text_that_every_service_takes(job_saga: JobSaga) -> None:
    """SQS would refuse the notice of the saga's failure, which repeats it: the saga would never settle."""
    job_saga.register()
    job_saga.reports("e1", replace(REFUSED, detail="none left\uffff\x07"))

    assert job_saga.outcome() == {"error": "OutOfStock", "cause": '{"errorMessage": "none left??"}'}


def test_a_wait_is_kept_as_something_that_was_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=False)

    assert job_saga.register() is Registration.NEW
    assert job_saga.reports("e1") is Receipt.DELIVERED

    (item,) = world.items("log")
    assert item[LogAttribute.STATUS]["S"] == StepStatus.RECORDED
    assert item[LogAttribute.SIDE]["S"] == Side.BEFORE
    assert item[LogAttribute.OUTPUT]["S"] == '{"parcel":"p-1"}'
    assert item[LogAttribute.EXPIRATION]["N"] == str(NOW_MS // 1_000 + 400 * 86_400)


def test_an_early_outcome_is_stored_completely(job_saga: JobSaga) -> None:
    assert job_saga.reports("e1") is Receipt.EARLY
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE
    assert job_saga.world.telemetry.counts[Metric.CALLBACK_EARLY] == 1


def test_an_outcome_of_an_unknown_saga_is_kept_separately(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga = JobSaga.open(world, monkeypatch, record=False)

    assert job_saga.reports("e1") is Receipt.UNKNOWN

    assert job_saga.log is None
    assert job_saga.token == {}
    assert job_saga.token_row(alias_of("", JOB_ID))["status"] == "EARLY"
    assert world.telemetry.counts[Metric.CALLBACK_UNKNOWN] == 1
    assert job_saga.reports("e1") is Receipt.DUPLICATE


def test_of_conflicting_outcomes_under_an_unknown_id_the_success_wins(job_saga: JobSaga) -> None:
    job_saga.register()
    assert job_saga.reports("e1", REFUSED, job_id="their-1") is Receipt.UNKNOWN
    assert job_saga.reports("e2", DONE, job_id="their-1") is Receipt.UNKNOWN

    adopt_alias("their-1", JOB_ID)

    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE
    assert TokenAttribute.CONFLICT in job_saga.token
    assert TokenAttribute.CONFLICT not in job_saga.token_row(alias_of("", "their-1"))


@pytest.mark.parametrize("job_id", [JOB_ID, "their-1"])
def test_a_crash_of_an_adoption_leaves_no_outcome_behind(
    job_saga: JobSaga, world: World, monkeypatch: pytest.MonkeyPatch, job_id: str
) -> None:
    """The next message finds the job's row decided, so nothing reads the row of the provider's id again."""
    with monkeypatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        job_saga.reports("e1", REFUSED, job_id=job_id)
        job_saga.reports("e2", DONE, job_id=job_id)
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL, moment=Moment.AFTER, times=1))

    adopts: Callable[[], object] = job_saga.register
    if job_id != JOB_ID:
        job_saga.register()
        adopts = partial(adopt_alias, job_id, JOB_ID)

    with pytest.raises(Killed):
        adopts()

    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE
    assert Outcome.decode(job_saga.token[TokenAttribute.CONFLICT]) == Outcome.of(REFUSED)
    assert not {"conflict", "outcome", "due_at"} & job_saga.token_row(alias_of("", job_id)).keys()


@pytest.mark.parametrize(("first", "second"), [(DONE, REFUSED), (REFUSED, DONE)])
def test_an_outcome_that_is_stored_during_an_adoption_is_adopted(
    job_saga: JobSaga, world: World, first: Succeeded | Failed, second: Succeeded | Failed
) -> None:
    job_saga.register()
    job_saga.reports("e1", first, job_id="their-1")
    before(world.wire, "BatchGetItem", lambda: job_saga.reports("e2", second, job_id="their-1"))

    adopt_alias("their-1", JOB_ID)

    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE
    assert Outcome.decode(job_saga.token[TokenAttribute.CONFLICT]) == Outcome.of(REFUSED)


def test_a_delivered_refusal_is_delivered_again_whatever_the_jobs_outcome(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1", REFUSED)
    assert job_saga.reports("e2", DONE) is Receipt.APPLIED_LATE

    job_saga.register()

    told = job_saga.outcome(2)
    assert told is not None
    assert told["error"] == "OutOfStock"


def test_an_undelivered_outcome_prevents_parking(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.time_out()
    job_saga.reports("e1")

    assert RecordAttribute.LATE_OUTCOME_AT in job_saga.record()
    parked = park(request_id=REQUEST_ID, execution=SAGA_ID, now_ms=job_saga.world.clock.ms, waits=True)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        aws.dynamodb().update_item(**parked)


def test_a_delivered_outcome_overrides_an_undelivered_one(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga.register()
    others: list[Receipt | None] = []

    def told_twice(token: str, outcome: Outcome) -> bool:
        told = send_directly(token, outcome)
        if told:
            others.append(settle(JOB_ID))
        return told

    monkeypatch.setattr(callback_sending, "send_directly", told_twice)

    assert (job_saga.reports("e1"), others) == (Receipt.DELIVERED, [Receipt.UNDELIVERED])
    assert job_saga.token["status"] == TokenStatus.DELIVERED


def test_a_saga_parked_during_a_failed_delivery_is_detected(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga.register()
    job_saga.time_out()
    read, parked = callback_store.read_record, False

    def parks_after(table: str, saga_id: str) -> Any:
        nonlocal parked
        found = read(table, saga_id)
        if not parked:
            parked = True
            job_saga.change_record(parked_by=SAGA_ID, parked_reason='{"step": "Pick"}')
        return found

    monkeypatch.setattr(callback_sending, "read_record", parks_after)

    assert job_saga.reports("e1") is Receipt.UNDELIVERED
    assert RecordAttribute.PARKED_BY not in job_saga.record()


def test_a_saga_parked_over_a_known_outcome_resumes_with_its_message(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1")
    attempt = job_saga.enter()
    job_saga.time_out()
    job_saga.change_record(parked_by=SAGA_ID, parked_reason='{"step": "Pick"}')

    nobody_waits(JOB_ID, "requests")

    assert attempt.token
    assert RecordAttribute.PARKED_BY not in job_saga.record()
    assert RecordAttribute.LATE_OUTCOME_AT in job_saga.record()


def test_two_providers_may_use_the_same_ids(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga.register()
    monkeypatch.setenv(Env.INTEGRATION, "Shop/Carrier")
    assert job_saga.reports("1", DONE, job_id="7") is Receipt.UNKNOWN
    monkeypatch.setenv(Env.INTEGRATION, "Shop/Warehouse")

    adopt_alias("7", JOB_ID)

    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.INTENT
    assert job_saga.reports("1", DONE, job_id="7") is Receipt.DELIVERED


def test_the_saga_is_the_one_that_has_the_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga = JobSaga.open(world, monkeypatch)
    other = served(requests="ledger", job=False) | {"log": "ledger"}
    monkeypatch.setattr("saga_runtime.callbacks.receipt.read_record", _record_in("requests"))
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([other, served()]))

    assert job_saga.reports("e1") is Receipt.EARLY

    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE


@pytest.mark.parametrize("job", [True, False])
@pytest.mark.parametrize("place", [0, 1])
def test_of_two_sagas_with_one_request_table_the_one_that_registers_gets_an_early_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch, job: bool, place: int
) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=job)
    both = [served(job=job) | {"log": "ledger"}]
    both.insert(place, served(job=job))
    monkeypatch.setenv(Env.CALLBACKS, json.dumps(both))

    assert job_saga.reports("e1") is Receipt.UNKNOWN
    assert job_saga.log is None
    assert world.items("ledger") == []

    job_saga.register()

    assert list(world.tasks.woken) == ["token-1"]


@pytest.mark.parametrize("job", [True, False])
@pytest.mark.parametrize("outcomes", [[DONE], [REFUSED], [REFUSED, DONE], [DONE, REFUSED]])
def test_an_outcome_that_another_sagas_log_has_is_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch, job: bool, outcomes: list[Succeeded | Failed]
) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=job)
    for number, outcome in enumerate(outcomes):
        job_saga.reports(f"e{number}", outcome)
    job_saga.misplace()

    assert job_saga.register() is Registration.ANSWERED

    told = job_saga.outcome()
    assert told is not None
    assert ("output" in told) is (DONE in outcomes)
    assert job_saga.log is not None
    assert job_saga.log.output == ('{"parcel":"p-1"}' if DONE in outcomes else None)


@pytest.mark.parametrize("unknown", [[DONE], [REFUSED], [REFUSED, DONE], [DONE, REFUSED]])
@pytest.mark.parametrize("outcomes", [[DONE], [REFUSED], [REFUSED, DONE], [DONE, REFUSED]])
def test_outcomes_that_came_before_and_after_another_saga_was_served_are_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch, unknown: list[Succeeded | Failed], outcomes: list[Succeeded | Failed]
) -> None:
    job_saga = JobSaga.open(world, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        for number, outcome in enumerate(unknown):
            assert job_saga.reports(f"u{number}", outcome) is Receipt.UNKNOWN
    for number, outcome in enumerate(outcomes):
        job_saga.reports(f"e{number}", outcome)
    job_saga.misplace()

    assert job_saga.register() is Registration.ANSWERED

    told = job_saga.outcome()
    assert told is not None
    assert ("output" in told) is (DONE in unknown + outcomes)
    assert (TokenAttribute.CONFLICT in job_saga.token) is (DONE in unknown + outcomes and REFUSED in unknown + outcomes)
    assert job_saga.token_row(alias_of("", JOB_ID))["status"] == TokenStatus.ALIAS


@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_outcome_of_a_job_whose_rows_are_gone_is_kept_with_its_adopted_ones(
    world: World, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    job_saga = JobSaga.open(world, monkeypatch, record=elsewhere)
    with monkeypatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        job_saga.reports("u1", REFUSED)
    job_saga.register()
    aws.dynamodb().delete_item(TableName="tokens", Key={TokenAttribute.ID: {"S": JOB_ID}})
    aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, STEP))

    assert job_saga.reports("e1") is (Receipt.EARLY if elsewhere else Receipt.UNKNOWN)
    if elsewhere:
        job_saga.misplace()

    assert job_saga.register() is Registration.ANSWERED
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE


@pytest.mark.parametrize("registered", [True, False])
def test_an_outcome_is_not_taken_over_once_it_was_resolved(
    world: World, monkeypatch: pytest.MonkeyPatch, registered: bool
) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=False)
    if registered:
        job_saga.register()
    job_saga.reports("e1", REFUSED)
    if registered:
        job_saga.misplace()
    else:
        aws.dynamodb().delete_item(TableName="log", Key=log_key(SAGA_ID, STEP))

    assert job_saga.register() is Registration.NEWER

    assert job_saga.outcome(len(job_saga.attempts)) is None


@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_outcome_that_its_own_log_has_meanwhile_is_delivered(
    world: World, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=False)
    job_saga.reports("e1", REFUSED)
    row = aws.dynamodb().get_item(TableName="log", Key=log_key(SAGA_ID, STEP))["Item"]
    row |= {LogAttribute.STATUS: {"S": StepStatus.DONE}, LogAttribute.OUTPUT: {"S": '{"parcel":"p-2"}'}}
    job_saga.misplace()
    if not elsewhere:
        job_saga.change_token(**{TokenAttribute.LOG_TABLE: "log"})
    before(world.wire, "TransactWriteItems", lambda: aws.dynamodb().put_item(TableName="log", Item=row))

    assert job_saga.register() is Registration.ANSWERED

    assert job_saga.outcome() == {"output": '{"output":{"parcel":"p-2"}}'}
    assert TokenAttribute.CONFLICT not in job_saga.token
    assert job_saga.token_row(alias_of("", JOB_ID)) == {}


def test_sagas_with_a_step_of_one_name_have_each_its_own_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga = JobSaga.open(world, monkeypatch)
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(job=False) | {"log": "ledger"}, served()]))
    job_saga.register()
    world.wire.forget()

    assert job_saga.reports("e1") is Receipt.DELIVERED

    assert world.wire.sent[:3] == ["GetItem", "GetItem", "TransactWriteItems"], "no row of another saga's log is read"
    assert job_saga.log is not None
    assert job_saga.log.status is StepStatus.DONE


def test_a_receipt_reads_keys_again_that_were_left_unprocessed(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_saga.register()
    client, asked = aws.dynamodb(), list[int]()
    whole = client.batch_get_item

    def one_by_one(*, RequestItems: Any) -> Any:  # noqa: N803
        first, *others = RequestItems
        asked.append(len(RequestItems))
        answer: Any = whole(RequestItems={first: RequestItems[first]})
        answer["UnprocessedKeys"] = {table: RequestItems[table] for table in others}
        return answer

    monkeypatch.setattr(client, "batch_get_item", one_by_one)

    assert job_saga.reports("e1") is Receipt.DELIVERED
    assert asked == [2, 1]


def _record_in(table: str) -> Any:
    return lambda name, saga_id: callback_store.read_record(name, saga_id) if name == table else None


def test_an_unserved_waiting_saga_loses_no_outcome(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga.register()
    monkeypatch.setenv(Env.CALLBACKS, "[]")

    with pytest.raises(TransientError, match="does not serve"):
        job_saga.reports("e1")

    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served()]))
    assert job_saga.reports("e1") is Receipt.DELIVERED


def test_a_provider_may_speak_under_its_own_id(job_saga: JobSaga) -> None:
    job_saga.register()
    adopt_alias("their-1", JOB_ID)
    adopt_alias("their-1", JOB_ID)

    assert job_saga.reports("e0", Heartbeat(), job_id="their-1") is Receipt.HEARTBEAT
    assert job_saga.reports("e1", job_id="their-1") is Receipt.DELIVERED
    assert job_saga.reports("e1", job_id=JOB_ID) is Receipt.DUPLICATE


def test_operators_are_notified_of_a_contradiction_once(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue)]))
    job_saga.register()
    job_saga.reports("e1")

    assert job_saga.reports("e2", Failed("OutOfStock", "secret of a provider")) is Receipt.CONFLICT
    assert job_saga.reports("e2", Failed("OutOfStock", "secret of a provider")) is Receipt.DUPLICATE

    (entry,) = notified(queue)
    assert entry["saga_id"] == SAGA_ID
    assert entry["parked_reason"]["step"] == "Pick"
    assert entry["parked_reason"]["error"] == "CallbackContradicted"
    told = Outcome.failure("OutOfStock", "secret of a provider")
    assert entry["conflict"] == {"job": JOB_ID, "outcome": conflict_id_of(JOB_ID, told)}
    assert ConflictEntry.from_body(json.dumps(entry)) == ConflictEntry(
        job_id=JOB_ID, conflict_id=conflict_id_of(JOB_ID, told)
    )
    assert "token-1" not in json.dumps(entry)
    assert job_saga.world.telemetry.counts[Metric.CALLBACK_CONFLICT] == 1


@pytest.mark.parametrize(("undo", "told"), [(True, 0), (False, 1)])
def test_operators_are_notified_of_an_effect_without_compensation(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch, undo: bool, told: int
) -> None:
    queue = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue, undo=undo)]))
    job_saga.compensate()

    assert job_saga.reports("e1") is Receipt.APPLIED_LATE

    entries = notified(queue)
    assert [entry["parked_reason"]["error"] for entry in entries] == ["LateEffectRecorded"] * told
    assert all("conflict" not in entry for entry in entries)
    assert job_saga.world.telemetry.counts[Metric.CALLBACK_APPLIED_LATE] == 1


@pytest.mark.parametrize(("applied", "receipt"), [(True, Receipt.APPLIED_LATE), (False, Receipt.CONFLICT)])
def test_an_outcome_is_stored_while_the_operators_queue_does_not_respond(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch, applied: bool, receipt: Receipt
) -> None:
    queue = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue)]))
    job_saga.register()
    job_saga.reports("e1", REFUSED if applied else DONE)
    job_saga.world.wire.plan(Fault(operation="SendMessage", action=Action.DROP, moment=Moment.BEFORE, times=10))

    assert job_saga.reports("e2", DONE if applied else REFUSED) is receipt

    job_saga.world.clock.ms += 90_000
    swept = sweep(remaining_ms=lambda: 60_000)
    assert (swept.failed, swept.oldest_seconds, swept.notices) == (1, 90, 0)
    job_saga.world.wire.forget()
    swept = sweep(remaining_ms=lambda: 60_000)
    assert (swept.failed, swept.notices, len(entries_of(queue))) == (0, 1, 1)
    assert sweep(remaining_ms=lambda: 60_000).notices == 0


def test_each_outcome_that_contradicts_is_notified_once(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue)]))
    job_saga.register()
    job_saga.reports("e1")
    other = Failed("Lost", "in the warehouse")
    for number, failure in enumerate((REFUSED, REFUSED, other, other, REFUSED)):
        job_saga.reports(f"e-{number}", failure)

    outcomes = {entry["conflict"]["outcome"] for entry in notified(queue)}

    assert outcomes == {conflict_id_of(JOB_ID, Outcome.of(failure)) for failure in (REFUSED, other)}
    job_saga.reports("e-9", REFUSED)
    assert notified(queue) == []


def _contradicted(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> str:
    """Contradict a success, whose operators have not been notified yet; the URL of their queue."""
    queue = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue)]))
    job_saga.register()
    job_saga.reports("e1")
    job_saga.reports("e2", REFUSED)
    return queue


def test_an_entry_whose_notice_is_not_deleted_is_sent_again(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _contradicted(job_saga, monkeypatch)
    job_saga.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, moment=Moment.BEFORE, times=1))
    with pytest.raises(Killed):
        sweep(remaining_ms=lambda: 60_000)

    assert len(notified(queue)) == 2


def _notices(job_saga: JobSaga) -> list[str]:
    """States of the notices."""
    return [row["status"]["S"] for row in job_saga.world.items("tokens") if row["id"]["S"].startswith(NOTICE_PREFIX)]


def test_notice_of_a_contradicting_outcome_stays_until_that_is_acknowledged(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = _contradicted(job_saga, monkeypatch)
    assert len(notified(queue)) == 1
    aws.sqs().purge_queue(QueueUrl=queue)  # as after fourteen days

    swept = [sweep(remaining_ms=lambda: 60_000) for _ in range(3)]

    assert [(one.contradicted, one.notices, one.oldest_seconds) for one in swept] == [(1, 0, 0)] * 3
    assert _notices(job_saga) == [TokenStatus.NOTIFIED]
    assert job_saga.world.telemetry.measured[Metric.CONTRADICTIONS] == 1
    for outcome, left in (("0" * 16, 1), (conflict_id_of(JOB_ID, Outcome.of(REFUSED)), 0)):
        acknowledge(outcome)
        assert sweep(remaining_ms=lambda: 60_000).contradicted == left
    assert _notices(job_saga) == []
    job_saga.reports("e3", REFUSED)
    assert (_notices(job_saga), entries_of(queue)) == ([], [])


def _late(job_saga: JobSaga, **record: str | int) -> int:
    """A job was fenced, and is applied late; an hour later, what the gauge has."""
    job_saga.register()
    job_saga.time_out()
    job_saga.compensate()
    assert job_saga.reports("e1") is Receipt.APPLIED_LATE
    job_saga.change_record(**record)
    job_saga.world.clock.ms += 3_600_000
    return _late_effects(job_saga)


def _late_effects(job_saga: JobSaga) -> int:
    sweep(remaining_ms=lambda: 60_000)
    return int(job_saga.world.telemetry.measured[Metric.LATE_OPEN])


def test_an_undecided_late_effect_of_a_settled_saga_is_measured_until_it_is_decided(job_saga: JobSaga) -> None:
    assert _late(job_saga, status=RecordStatus.FAILED) == 1
    job_saga.world.clock.ms += 30 * 86_400_000  # the entry for operators is gone
    assert _late_effects(job_saga) == 1
    job_saga.change_log(status=StepStatus.COMPENSATING)
    assert _late_effects(job_saga) == 1, "an undo that hangs"

    job_saga.change_log(status=StepStatus.COMPENSATED)

    assert _late_effects(job_saga) == 0


def test_a_late_effect_is_not_measured_within_its_first_hour(job_saga: JobSaga) -> None:
    _late(job_saga, status=RecordStatus.FAILED)
    job_saga.world.clock.ms -= 1

    assert _late_effects(job_saga) == 0


def test_a_late_effect_of_a_saga_in_progress_is_left_to_it(job_saga: JobSaga) -> None:
    assert _late(job_saga) == 0


@pytest.mark.parametrize("of", ["tombstone", "another saga", "no saga"])
def test_a_late_effect_is_measured_while_its_record_can_keep_a_decision(job_saga: JobSaga, of: str) -> None:
    _late(job_saga, status=RecordStatus.FAILED)
    change = {"tombstone": "REMOVE #input", "another saga": "SET saga_id = :other"}.get(of)
    if change is None:
        aws.dynamodb().delete_item(TableName="requests", Key={"id": {"S": REQUEST_ID}})
    else:
        values: Any = {":other": {"S": f"{REQUEST_ID}-aaaaaaaa"}} if ":" in change else {}
        aws.dynamodb().update_item(
            TableName="requests",
            Key={"id": {"S": REQUEST_ID}},
            UpdateExpression=change,
            **({"ExpressionAttributeValues": values} if values else {"ExpressionAttributeNames": {"#input": "input"}}),
        )

    assert _late_effects(job_saga) == (1 if of == "tombstone" else 0)


@pytest.mark.parametrize("other", [False, True], ids=["expired", "another saga's"])
def test_a_contradiction_of_a_saga_without_a_record_is_over_once_its_entry_is_sent(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch, *, other: bool
) -> None:
    queue = _contradicted(job_saga, monkeypatch)
    if other:
        aws.dynamodb().update_item(
            TableName="requests",
            Key={"id": {"S": REQUEST_ID}},
            UpdateExpression="SET saga_id = :other",
            ExpressionAttributeValues={":other": {"S": f"{REQUEST_ID}-aaaaaaaa"}},
        )
    else:
        aws.dynamodb().delete_item(TableName="requests", Key={"id": {"S": REQUEST_ID}})

    assert len(notified(queue)) == 1
    assert sweep(remaining_ms=lambda: 60_000).contradicted == 0
    assert _notices(job_saga) == []


def test_a_notice_of_a_late_effect_ends_with_its_entry(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue)]))
    job_saga.register()
    job_saga.reports("e1", REFUSED)
    job_saga.reports("e2", DONE)

    assert len(notified(queue)) == 1
    assert _notices(job_saga) == []


@pytest.mark.parametrize("left", [(23_999,), (60_000, 11_999)], ids=["at once", "before the notices"])
def test_a_sweep_that_runs_out_of_time_reports_how_long_what_it_leaves_is_due(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch, left: tuple[int, ...]
) -> None:
    _contradicted(job_saga, monkeypatch)
    job_saga.world.clock.ms += 7_200_000
    times = iter(left)

    swept = sweep(remaining_ms=lambda: next(times))

    assert (swept.complete, swept.notices, swept.oldest_seconds) == (False, 0, 7_200)
    assert job_saga.world.telemetry.measured[Metric.OLDEST_WAITING] == 7_200


def test_a_queue_that_refuses_an_entry_keeps_its_notice(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _contradicted(job_saga, monkeypatch)
    refusal = ClientError({"Error": {"Code": "AccessDenied", "Message": "-"}}, "SendMessage")
    with monkeypatch.context() as patch:
        patch.setattr(aws.sqs(), "send_message", _raising(refusal))
        swept = sweep(remaining_ms=lambda: 60_000)
    assert (swept.failed, swept.notices, entries_of(queue)) == (1, 0, [])

    assert [entry["execution"] for entry in notified(queue)] == [SAGA_ID]


def _raising(error: Exception) -> Callable[..., Any]:
    def send(**_: Any) -> Any:
        raise error

    return send


def test_a_queue_that_does_not_respond_delays_no_outcome(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called once in a sweep, and last."""
    table, queue = callback_store.token_table(), operators_queue()
    job_saga.register()
    job_saga.world.wire.plan(Fault(operation="SendTaskSuccess", action=Action.KILL, times=1))
    with pytest.raises(Killed):
        job_saga.reports("e1")
    job_saga.world.clock.ms += 90_000
    job = JobId.parse(JOB_ID)
    assert job is not None
    for number in range(20):
        outcome = Outcome.failure("Lost", str(number))
        notice = Notice(
            job_id=JOB_ID, job=job, error=CONTRADICTED, detail="-", outcome=outcome, requests="requests", execution=""
        )
        aws.dynamodb().update_item(**notice.store(table, queue, 1, 400)["Update"])
    job_saga.world.wire.forget()
    job_saga.world.wire.plan(Fault(operation="SendMessage", action=Action.DROP, moment=Moment.BEFORE, times=10))

    swept = sweep(remaining_ms=lambda: 60_000)

    assert (swept.told, swept.failed, swept.notices, swept.complete) == (1, 20, 0, True)
    sent = job_saga.world.wire.sent
    assert sent.index("SendTaskSuccess") < sent.index("SendMessage")
    assert sent.count("SendMessage") <= 3  # the SDK's own retries of one call
    left = iter((60_000,) * 15 + (11_999,) * 99)
    assert not sweep(remaining_ms=lambda: next(left)).complete


def test_backlog_of_other_rows_leaves_time_for_notices(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _contradicted(job_saga, monkeypatch)
    (notice,) = (row["id"]["S"] for row in job_saga.world.items("tokens") if row["status"]["S"] == TokenStatus.NOTICE)
    due = [(notice, 1), *((f"gone-{number}", 2) for number in range(99))]
    monkeypatch.setattr(sweeper, "_due", lambda shard, _: due if shard == "00" else [])
    left = iter((60_000,) * 20 + (23_999,) * 9)

    swept = sweep(remaining_ms=lambda: next(left))

    assert (swept.notices, swept.complete) == (1, False)
    assert len(entries_of(queue)) == 1


def test_a_report_that_comes_again_leaves_its_notice_as_old_as_it_is(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, created = operators_queue(), job_saga.world.clock.ms
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=queue)]))
    job_saga.register()
    job_saga.reports("e1")
    for number in range(6):
        job_saga.reports(f"r-{number}", Failed("Lost", str(number % 2)))
        job_saga.world.clock.ms += 600_000

    rows = [row for row in job_saga.world.items("tokens") if row["status"]["S"] == TokenStatus.NOTICE]

    times = [(int(row["created_at"]["N"]), int(row["due_at"]["N"])) for row in rows]
    assert sorted(times) == [(created + wait, created + wait) for wait in (0, 600_000)]
    assert {int(row["expiration"]["N"]) // 86_400 - row_day for row, row_day in _days(rows)} == {400}
    assert {row["queue_url"]["S"] for row in rows} == {queue}


def _days(rows: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    return ((row, int(row["created_at"]["N"]) // 86_400_000) for row in rows)


def test_without_operators_nothing_is_stored_for_them(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators="")]))
    job_saga.register()
    job_saga.reports("e1")

    assert job_saga.reports("e2", REFUSED) is Receipt.CONFLICT

    assert TokenStatus.NOTICE not in {row["status"]["S"] for row in job_saga.world.items("tokens")}


def test_a_notice_for_a_queue_that_is_gone_is_in_the_log(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = _contradicted(job_saga, monkeypatch)
    aws.sqs().delete_queue(QueueUrl=queue)

    swept = [sweep(remaining_ms=lambda: 60_000) for _ in range(2)]

    assert [(one.failed, one.notices) for one in swept] == [(0, 1), (0, 0)]
    assert ("operators_queue_missing", {"job_id": JOB_ID}) in job_saga.world.telemetry.events


def test_a_late_effect_of_a_skipped_step_is_kept(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.time_out()
    job_saga.compensate()
    job_saga.change_log(output='{"instead":true}')

    assert job_saga.reports("e1") is Receipt.APPLIED_LATE

    assert job_saga.log is not None
    assert (job_saga.log.output, job_saga.log.instead) == ('{"parcel":"p-1"}', '{"instead":true}')
    assert job_saga.register() is None
    told = job_saga.outcome(2)
    assert told is not None
    assert json.loads(told["output"]) == {"output": {"instead": True}}


def test_a_heartbeat_postpones_the_expected_time(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.world.clock.ms += MINUTE_MS

    assert heartbeat(JOB_ID) is Receipt.HEARTBEAT
    job_saga.world.clock.ms += MINUTE_MS
    assert heartbeat(JOB_ID) is Receipt.HEARTBEAT

    assert job_saga.world.tasks.heartbeats == ["token-1"] * 2
    assert int(job_saga.token["expected_at"]) == NOW_MS + 2 * MINUTE_MS + HEARTBEAT_SECONDS * 1_000
    assert job_saga.token["due_at"] == job_saga.token["expected_at"]


@pytest.mark.parametrize("name", ["by its own id", "by the provider's"])
def test_a_heartbeat_of_another_integrations_job_is_refused(
    job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They share a table; one integration must not keep another's job alive."""
    job_saga.register()
    job_id = JOB_ID if name == "by its own id" else "their-1"
    adopt_alias("their-1", JOB_ID)
    monkeypatch.setenv(Env.CALLBACKS, "[]")

    for outcome in (Heartbeat(), DONE):
        with pytest.raises(TransientError, match="does not serve step Pick"):
            job_saga.reports("e1", outcome, job_id)
    assert (job_saga.world.tasks.heartbeats, job_saga.token["status"]) == ([], "WAITING")


def test_a_heartbeat_of_an_unknown_or_ended_job_is_reported(job_saga: JobSaga) -> None:
    assert heartbeat("their-1") is Receipt.UNKNOWN
    assert heartbeat(JOB_ID) is Receipt.UNKNOWN
    job_saga.register()
    job_saga.time_out()
    assert heartbeat(JOB_ID) is Receipt.UNDELIVERED
    job_saga.reports("e1")
    assert heartbeat(JOB_ID) is Receipt.DUPLICATE


def test_a_sweep_redelivers_and_measures_overdue_waits(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.world.clock.ms += HEARTBEAT_SECONDS * 1_000 - 1
    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["oldest_seconds"] == 0

    job_saga.world.clock.ms += MINUTE_MS
    found = callback_sweeper.handler({}, Context(remaining_ms=60_000))

    assert (found["waiting"], found["complete"], found["failed"]) == (1, True, 0)
    assert job_saga.world.telemetry.measured[Metric.OLDEST_WAITING] == HEARTBEAT_SECONDS + 59
    job_saga.change_record(status=RecordStatus.FAILED)
    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["waiting"] == 0
    assert TokenAttribute.DUE_AT not in job_saga.token


def test_a_wait_is_overdue_only_while_a_task_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga = JobSaga.open(world, monkeypatch, job=False)
    job_saga.register()
    world.clock.ms += TIMEOUT_SECONDS * 1_000 - 1
    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["waiting"] == 1

    world.clock.ms += 1

    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["waiting"] == 0
    assert TokenAttribute.DUE_AT not in job_saga.token
    job_saga.time_out()
    assert job_saga.reports("e1") is Receipt.UNDELIVERED, "what happens nevertheless is written down"


def test_a_permanently_refused_outcome_lets_the_age_grow(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.world.wire.plan(Fault(operation="SendTaskSuccess", action=Action.DENY, times=10**6))
    assert job_saga.reports("e1") is Receipt.RECEIVED

    ages = []
    for _ in range(3):
        job_saga.world.clock.ms += 120_000
        found = sweep(remaining_ms=lambda: 60_000)
        ages.append((found.failed, found.oldest_seconds, job_saga.world.telemetry.measured[Metric.OLDEST_WAITING]))

    assert ages == [(1, 60, 60), (1, 180, 180), (1, 300, 300)]
    job_saga.world.wire.forget()
    assert (sweep(remaining_ms=lambda: 60_000).told, job_saga.token["status"]) == (1, "DELIVERED")


def test_a_row_that_cannot_be_read_makes_the_age_grow(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.world.clock.ms += HEARTBEAT_SECONDS * 1_000 + 90_000
    _change_token(status="NONSENSE")

    assert (swept := sweep(remaining_ms=lambda: 60_000)).failed == 1
    assert swept.oldest_seconds == 90


def _change_token(**values: str) -> None:
    key = {"id": {"S": JOB_ID}}
    for name, value in values.items():
        aws.dynamodb().update_item(
            TableName="tokens",
            Key=key,
            UpdateExpression="SET #n = :v",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues={":v": {"S": value}},
        )


def test_a_sweep_clears_a_late_effect_once_it_is_compensated(job_saga: JobSaga) -> None:
    job_saga.compensate()
    job_saga.reports("e1")
    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["late"] == 1
    job_saga.change_log(status=StepStatus.COMPENSATED)

    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["late"] == 0

    assert {TokenAttribute.DUE_AT, TokenAttribute.APPLIED_LATE_AT}.isdisjoint(job_saga.token)


def test_a_sweep_ends_before_its_function_does_and_one_bad_row_does_not_end_it(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.world.wire.plan(Fault(operation="SendTaskSuccess", action=Action.DROP, moment=Moment.BEFORE, times=6))
    assert job_saga.reports("e1") is Receipt.RECEIVED
    job_saga.world.clock.ms += MINUTE_MS

    assert callback_sweeper.handler({}, Context(remaining_ms=4_000))["complete"] is False
    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["failed"] == 1
    assert callback_sweeper.handler({}, Context(remaining_ms=60_000))["told"] == 1
    assert job_saga.outcome()
    assert settle(JOB_ID) is None


def test_a_callback_is_received_by_direct_invocation(job_saga: JobSaga) -> None:
    job_saga.register()
    event = {"job_id": JOB_ID, "event_id": "e1", "outcome": {"ok": True, "output": PARCEL}}

    assert callback_direct.handler(event, None) == {"receipt": "DELIVERED"}
    assert callback_direct.handler(event, None) == {"receipt": "DUPLICATE"}
    with pytest.raises(Invalid):
        callback_direct.handler({"job_id": JOB_ID}, None)


def test_a_direct_outcome_is_delivered_once(job_saga: JobSaga) -> None:
    job_saga.enter()

    assert send_directly("token-1", Outcome.success("{}"))
    assert not send_directly("token-1", Outcome.success("{}"))
    assert not send_directly("never a token", Outcome.failure("SagaFenced", "no"))


def test_a_failed_dispatch_is_recorded_in_the_waiting_row(job_saga: JobSaga) -> None:
    record_dispatch_error(JOB_ID, "no task is registered")
    assert job_saga.token == {}
    job_saga.register()
    record_dispatch_error(JOB_ID, "ConnectionError")
    record_dispatch_error(JOB_ID, "StepInDoubt: an earlier one may be alive", in_doubt=True)
    assert job_saga.token["dispatch_error"] == "ConnectionError"
    record_dispatch_error(JOB_ID, "x" * 2_000)

    assert (job_saga.token["failed_dispatches"], len(job_saga.token["dispatch_error"])) == ("3", 1_000)
    assert job_saga.token["status"] == "WAITING"


@pytest.mark.parametrize("action", [Action.THROTTLE, Action.CONFLICT, Action.DROP])
def test_a_transient_error_is_retried(job_saga: JobSaga, action: Action) -> None:
    job_saga.register()
    job_saga.world.wire.plan(Fault(operation="TransactWriteItems", action=action, times=4))

    assert job_saga.reports("e1") is Receipt.DELIVERED
    assert job_saga.world.naps


def test_a_persistent_error_is_reported_as_unconfirmed(job_saga: JobSaga, monkeypatch: pytest.MonkeyPatch) -> None:
    job_saga.register()
    try_only(monkeypatch, 2)
    job_saga.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=99))

    with pytest.raises(TransientError):
        job_saga.reports("e1")

    job_saga.world.wire.forget()
    assert job_saga.reports("e1") is Receipt.DELIVERED


def test_no_token_is_logged(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1")
    job_saga.reports("e2", REFUSED)

    assert "token-1" not in str(job_saga.world.telemetry.events)
