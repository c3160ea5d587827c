"""Writes of one entry are plain ones, and a repetition by the SDK finds that the first was this call's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from handlers import notifier
from saga_runtime import (
    Commit,
    DuplicatePosting,
    Ledger,
    Outcome,
    StepCall,
    VersionedItem,
    Write,
    atomic_step,
    commit_once,
    compensation,
)
from saga_runtime.callbacks.decisions import Receipt
from saga_runtime.errors import Conflict, ServiceRefused
from saga_runtime.protocol import OUTPUT_FIELD, CallField, Metric, RecordStatus, TokenStatus
from saga_runtime.shared import aws, writes
from saga_runtime.shared.backoff import PATIENT
from tests.unit.support.job_saga import JobSaga
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Moment
from tests.unit.support.world import Context, World

ROW = f"{SAGA_ID}#Only"
MARKER = VersionedItem(table="ledger", key={"pk": {"S": "op#1"}, "sk": {"S": "marker"}})
LEDGER = Ledger("ledger")


@atomic_step
def _decide(_: StepCall) -> Commit:
    return Commit(output={"approved": True})


@compensation
def _forget(_: StepCall, __: Any) -> Commit:
    return Commit()


def _event() -> dict[str, Any]:
    return step_event(step="Only")


def _decided() -> Any:
    return _decide(_event(), Context())[OUTPUT_FIELD]


def _forgotten() -> Any:
    return _forget(_event(), Context())[OUTPUT_FIELD]


def _notified() -> bool:
    queue = aws.sqs().create_queue(QueueName="told.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    answer = notifier.handler({**_event(), CallField.QUEUE_URL: queue, CallField.MESSAGE: "paid"}, Context())
    return bool(answer[OUTPUT_FIELD]["message_id"])


def _once() -> Outcome:
    return commit_once(lambda: Commit(output={"n": 1}), marker=MARKER, request={})


def _apply_first() -> None:
    _decided()


def _nothing_before() -> None:
    pass


WRITERS: dict[str, tuple[Callable[[], None], Callable[[], Any], str, Any, dict[str, str]]] = {
    "a step without writes": (_nothing_before, _decided, "PutItem", {"approved": True}, {ROW: "DONE"}),
    "a notification": (_nothing_before, _notified, "PutItem", True, {ROW: "DONE"}),
    "a fence": (_nothing_before, _forgotten, "PutItem", {}, {ROW: "TOMBSTONE"}),
    "a compensation without writes": (_apply_first, _forgotten, "UpdateItem", {}, {ROW: "COMPENSATED"}),
    "an operation without writes": (
        _nothing_before,
        _once,
        "PutItem",
        Outcome(output={"n": 1}, replayed=False),
        {},
    ),
}


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("name", WRITERS)
def test_lost_answers_change_neither_result_nor_count(world: World, name: str, lost: int) -> None:
    before, act, operation, answer, rows = WRITERS[name]
    before()
    world.wire.forget()
    if lost:
        world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=Moment.AFTER, times=lost))

    assert act() == answer

    assert len(world.wire.fired) == lost
    assert "TransactWriteItems" not in world.wire.sent
    assert world.rows() == rows
    assert world.telemetry.counts[Metric.STEP_REPLAYED] == 0


@pytest.mark.parametrize("name", ["a step without writes", "a notification"])
def test_another_invocation_replays(world: World, name: str) -> None:
    act = WRITERS[name][1]

    assert act() == act()

    assert world.telemetry.counts[Metric.STEP_REPLAYED] == 1


def test_another_operation_under_a_marker_is_replayed(world: World) -> None:
    first = _once()

    assert (first.replayed, _once().replayed) == (False, True)


@pytest.mark.parametrize("settled", [True, False])
def test_outcome_that_finds_no_task_is_late_whatever_answer_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    job_saga = JobSaga.open(world, monkeypatch)
    job_saga.register()
    job_saga.time_out()
    if settled:
        job_saga.change_record(status=RecordStatus.COMPLETED)
    operation, nth = ("UpdateItem", 1) if settled else ("TransactWriteItems", 2)
    world.wire.plan(Fault(operation=operation, action=Action.DROP, moment=Moment.AFTER, on=nth, times=SDK_ATTEMPTS))

    assert job_saga.reports("e1") is Receipt.UNDELIVERED

    assert world.wire.fired
    assert job_saga.token["status"] == TokenStatus.UNDELIVERED
    assert world.telemetry.counts[Metric.CALLBACK_LATE] == 1


def _opened() -> Sequence[Write]:
    """One write, whose item names no writer."""
    put = {
        "TableName": "ledger",
        "Item": {"pk": {"S": "one"}, "sk": {"S": "one"}},
        "ConditionExpression": "attribute_not_exists(pk)",
    }
    return [Write(action={"Put": put}, refusal=lambda _: DuplicatePosting("it exists"))]


def test_posting_whose_item_names_no_writer_keeps_its_token(world: World) -> None:
    world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, times=1))

    assert LEDGER.commit(_opened), "the SDK's repetition is not refused as another's posting"

    assert world.wire.fired
    with pytest.raises(DuplicatePosting):
        LEDGER.commit(_opened)


def test_check_alone_stays_a_transaction(world: World) -> None:
    key = {"pk": {"S": "none"}, "sk": {"S": "none"}}
    check = {"TableName": "ledger", "Key": key, "ConditionExpression": "attribute_not_exists(pk)"}

    assert world.calls_of(lambda: writes.transact([{"ConditionCheck": check}], retry=PATIENT)) == ["TransactWriteItems"]


@pytest.mark.parametrize(("action", "error"), [(Action.CONFLICT, Conflict), (Action.INVALID, ServiceRefused)])
def test_failures_are_those_of_a_transaction(world: World, action: Action, error: type[Exception]) -> None:
    world.wire.plan(Fault(operation="PutItem", action=action, times=100))

    with pytest.raises(error):
        _decided()

    assert world.rows() == {}
