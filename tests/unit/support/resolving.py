"""Operators' actions on parked sagas, as histories: each passes, and fails without the condition that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Direction, LogAttribute, RecordStatus, Side
from saga_runtime.recovery.resolution import CannotResolve, Statement, Subject, decide, row_write, unpark_update
from saga_runtime.saga_log.rows import LogRow
from saga_runtime.shared import aws, writes
from tests.unit.support import settling
from tests.unit.support.gateway import GRACE_MS, LIFE_MS
from tests.unit.support.operated_saga import OperatedSaga
from tests.unit.support.samples import DUE_AFTER_MS, REQUEST_ID, SAGA_ID

HAPPENED = Statement(applied=True, output='{"payment":"seen at the provider"}')
DID_NOT = Statement(applied=False)
UNDO_HAPPENED = Statement(applied=True, undo=True)
UNDO_DID_NOT = Statement(applied=False, undo=True)


def subject_of(operated: OperatedSaga) -> Subject:
    """The step's row, as an operator reads it now."""
    (item,) = operated.world.items("log")
    side = Side(item[LogAttribute.SIDE]["S"])
    row = LogRow.from_item(item)
    return Subject(name=row.step, row=row, side=side, declared=operated.charge, direction=operated.record.direction)


def write_of(operated: OperatedSaga, statement: Statement, subject: Subject, attempt: str) -> Any:
    """The write of an operator who read this, sent sooner or later."""
    change = decide(subject, statement, operated.now)
    return row_write(subject, change, table="log", saga_id=SAGA_ID, attempt=attempt, now_ms=operated.now)


def two_operators_who_read_the_same_do_not_both_decide(operated: OperatedSaga) -> None:
    """The first finding is written; the second operator is refused."""
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    read = subject_of(operated)
    happened, did_not = write_of(operated, HAPPENED, read, "alice"), write_of(operated, DID_NOT, read, "bob")

    assert writes.write(happened) is None
    assert writes.write(did_not) is not None
    assert operated.shop.status == "DONE"


def a_step_that_was_taken_over_meanwhile_is_not_resolved(operated: OperatedSaga) -> None:
    """The finding was true: the effect was not applied. Then a new attempt called."""
    operated.never_sent()
    operated.park()
    operated.shop.pass_every_deadline()
    too_late = write_of(operated, DID_NOT, subject_of(operated), "alice")
    operated.cut_off()

    assert writes.write(too_late) is not None
    assert operated.shop.status == "INTENT"
    operated.shop.check()


def an_outcome_that_was_written_meanwhile_stays(operated: OperatedSaga) -> None:
    """A compensation that is out of date begins to undo the step; its row is of another state, but of no other hand."""
    operated.shop.run()
    operated.undo_cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    read = subject_of(operated)
    row = read.row
    assert row is not None
    did_not, happened = (
        write_of(operated, UNDO_DID_NOT, read, row.attempt),
        write_of(operated, UNDO_HAPPENED, read, row.attempt),
    )

    assert writes.write(happened) is None
    assert writes.write(did_not) is not None
    assert operated.shop.status == "COMPENSATED"


def a_no_counts_only_when_nothing_can_arrive_any_more(operated: OperatedSaga) -> None:
    """The sender is dead; what it sent travels."""
    operated.never_sent()
    operated.park()
    operated.shop.passes(LIFE_MS + GRACE_MS - 1)
    with pytest.raises(CannotResolve, match="wait"):
        decide(subject_of(operated), DID_NOT, operated.now)
    operated.shop.passes(1)
    assert decide(subject_of(operated), DID_NOT, operated.now).to == "TOMBSTONE"


def a_no_about_an_undo_counts_only_when_nothing_can_arrive_any_more(operated: OperatedSaga) -> None:
    """Likewise: it would be undone twice."""
    operated.shop.run()
    operated.undo_cut_off()
    operated.park()
    operated.shop.passes(LIFE_MS + GRACE_MS - 1)
    with pytest.raises(CannotResolve, match="wait"):
        decide(subject_of(operated), UNDO_DID_NOT, operated.now)
    operated.shop.passes(1)
    assert decide(subject_of(operated), UNDO_DID_NOT, operated.now).to == "DONE"


def a_finding_waits_until_the_attempt_is_dead(operated: OperatedSaga) -> None:
    """A living attempt may still record the provider's response."""
    operated.cut_off()
    operated.park()
    operated.shop.passes(LIFE_MS - 1)
    with pytest.raises(CannotResolve, match="wait"):
        decide(subject_of(operated), HAPPENED, operated.now)
    operated.shop.passes(1)
    assert decide(subject_of(operated), HAPPENED, operated.now).to == "DONE"


def where_a_saga_only_goes_forward_a_step_is_called_anew(operated: OperatedSaga) -> None:
    """A tombstone would stop it for ever."""
    operated.never_sent(side="after")
    operated.park(Direction.FORWARD)
    operated.shop.pass_every_deadline()
    operated.resolves("Charge", "--not-applied")

    operated.shop.run(side="after")
    assert operated.shop.status == "DONE"
    operated.shop.check()


def a_step_of_a_compensating_saga_never_runs_again(operated: OperatedSaga) -> None:
    """A late attempt finds the tombstone."""
    operated.never_sent()
    operated.park()
    operated.shop.pass_every_deadline()
    operated.resolves("Charge", "--not-applied")

    operated.shop.to_the_end(operated.shop.run)
    operated.shop.to_the_end(operated.shop.undo)
    assert operated.shop.gateway.charged == []
    assert operated.shop.status == "TOMBSTONE"


def a_finding_about_an_older_attempt_is_refused(operated: OperatedSaga) -> None:
    """The finding is of an earlier time: since then the saga continued, called again, and was parked again."""
    operated.never_sent()
    operated.shop.pass_every_deadline()
    seen = str(operated.shop.row[LogAttribute.ATTEMPT_ID])
    operated.cut_off()
    operated.park()
    operated.shop.pass_every_deadline()
    with pytest.raises(CannotResolve, match="you saw attempt"):
        decide(subject_of(operated), Statement(applied=False, attempt=seen), operated.now)


def _resumed(operated: OperatedSaga, read: RequestRecord) -> bool:
    update: Any = unpark_update(read, operated.now, DUE_AFTER_MS)
    return writes.write({"Update": {"TableName": "requests", **update}}) is None


def two_operators_resume_a_saga_once(operated: OperatedSaga) -> None:
    """The recovery that the first operator started was parked again: the second one has not seen why."""
    operated.park()
    read = operated.record
    assert _resumed(operated, read)
    operated.world.executions.start(f"{SAGA_ID}-r1", read.input)
    operated.park(None, owner=f"{SAGA_ID}-r1")

    assert not _resumed(operated, read)
    assert operated.owner == (f"{SAGA_ID}-r1", True)


def a_saga_that_settled_meanwhile_is_not_resumed(operated: OperatedSaga) -> None:
    """A settle of the execution that parked was still travelling."""
    operated.park()
    read = operated.record
    settled: Any = settling.settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.FAILED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**settled)

    assert not _resumed(operated, read)
    assert operated.record.owner == SAGA_ID


def a_saga_that_is_not_parked_is_not_resumed(operated: OperatedSaga) -> None:
    """Its parking mark was removed by hand, and its owner is redriven."""
    operated.park()
    read = operated.record
    aws.dynamodb().update_item(
        TableName="requests",
        Key={"id": {"S": REQUEST_ID}},
        UpdateExpression="REMOVE parked_by",
    )

    assert not _resumed(operated, read)
    assert operated.owner == (SAGA_ID, False)
