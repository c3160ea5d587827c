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
from tests.unit.support.desk import Desk
from tests.unit.support.gateway import GRACE_MS, LIFE_MS
from tests.unit.support.samples import DUE_AFTER_MS, REQUEST_ID, SAGA_ID

HAPPENED = Statement(applied=True, output='{"payment":"seen at the provider"}')
DID_NOT = Statement(applied=False)
UNDO_HAPPENED = Statement(applied=True, undo=True)
UNDO_DID_NOT = Statement(applied=False, undo=True)


def subject_of(desk: Desk) -> Subject:
    """The step's row, as an operator reads it now."""
    (item,) = desk.world.items("log")
    side = Side(item[LogAttribute.SIDE]["S"])
    row = LogRow.from_item(item)
    return Subject(name=row.step, row=row, side=side, declared=desk.charge, direction=desk.record.direction)


def write_of(desk: Desk, statement: Statement, subject: Subject, attempt: str) -> Any:
    """The write of an operator who read this, sent sooner or later."""
    change = decide(subject, statement, desk.now)
    return row_write(subject, change, table="log", saga_id=SAGA_ID, attempt=attempt, now_ms=desk.now)


def two_operators_who_read_the_same_do_not_both_decide(desk: Desk) -> None:
    """The first finding is written; the second operator is refused."""
    desk.cut_off()
    desk.park()
    desk.shop.everybody_dies()
    read = subject_of(desk)
    happened, did_not = write_of(desk, HAPPENED, read, "alice"), write_of(desk, DID_NOT, read, "bob")

    assert writes.write(happened) is None
    assert writes.write(did_not) is not None
    assert desk.shop.status == "DONE"


def a_step_that_was_taken_over_meanwhile_is_not_resolved(desk: Desk) -> None:
    """The finding was true: the effect was not applied. Then a new attempt called."""
    desk.never_sent()
    desk.park()
    desk.shop.everybody_dies()
    too_late = write_of(desk, DID_NOT, subject_of(desk), "alice")
    desk.cut_off()

    assert writes.write(too_late) is not None
    assert desk.shop.status == "INTENT"
    desk.shop.check()


def an_outcome_that_was_written_meanwhile_stays(desk: Desk) -> None:
    """A compensation that is out of date begins to undo the step; its row is of another state, but of no other hand."""
    desk.shop.run()
    desk.undo_cut_off()
    desk.park()
    desk.shop.everybody_dies()
    read = subject_of(desk)
    row = read.row
    assert row is not None
    did_not, happened = (
        write_of(desk, UNDO_DID_NOT, read, row.attempt),
        write_of(desk, UNDO_HAPPENED, read, row.attempt),
    )

    assert writes.write(happened) is None
    assert writes.write(did_not) is not None
    assert desk.shop.status == "UNDONE"


def a_no_counts_only_when_nothing_can_arrive_any_more(desk: Desk) -> None:
    """The sender is dead; what it sent travels."""
    desk.never_sent()
    desk.park()
    desk.shop.passes(LIFE_MS + GRACE_MS - 1)
    with pytest.raises(CannotResolve, match="wait"):
        decide(subject_of(desk), DID_NOT, desk.now)
    desk.shop.passes(1)
    assert decide(subject_of(desk), DID_NOT, desk.now).to == "TOMBSTONE"


def a_no_about_an_undo_counts_only_when_nothing_can_arrive_any_more(desk: Desk) -> None:
    """Likewise: it would be undone twice."""
    desk.shop.run()
    desk.undo_cut_off()
    desk.park()
    desk.shop.passes(LIFE_MS + GRACE_MS - 1)
    with pytest.raises(CannotResolve, match="wait"):
        decide(subject_of(desk), UNDO_DID_NOT, desk.now)
    desk.shop.passes(1)
    assert decide(subject_of(desk), UNDO_DID_NOT, desk.now).to == "DONE"


def a_finding_waits_until_the_attempt_is_dead(desk: Desk) -> None:
    """A living attempt may still record the provider's response."""
    desk.cut_off()
    desk.park()
    desk.shop.passes(LIFE_MS - 1)
    with pytest.raises(CannotResolve, match="wait"):
        decide(subject_of(desk), HAPPENED, desk.now)
    desk.shop.passes(1)
    assert decide(subject_of(desk), HAPPENED, desk.now).to == "DONE"


def where_a_saga_only_goes_forward_a_step_is_called_anew(desk: Desk) -> None:
    """A tombstone would stop it for ever."""
    desk.never_sent(side="after")
    desk.park(Direction.FORWARD)
    desk.shop.everybody_dies()
    desk.resolves("Charge", "--not-applied")

    desk.shop.run(side="after")
    assert desk.shop.status == "DONE"
    desk.shop.check()


def a_step_of_a_compensating_saga_never_runs_again(desk: Desk) -> None:
    """A late attempt finds the tombstone."""
    desk.never_sent()
    desk.park()
    desk.shop.everybody_dies()
    desk.resolves("Charge", "--not-applied")

    desk.shop.to_the_end(desk.shop.run)
    desk.shop.to_the_end(desk.shop.undo)
    assert desk.shop.gateway.charged == []
    assert desk.shop.status == "TOMBSTONE"


def a_finding_about_an_older_attempt_is_refused(desk: Desk) -> None:
    """The finding is of an earlier time: since then the saga continued, called again, and was parked again."""
    desk.never_sent()
    desk.shop.everybody_dies()
    seen = str(desk.shop.row[LogAttribute.ATTEMPT])
    desk.cut_off()
    desk.park()
    desk.shop.everybody_dies()
    with pytest.raises(CannotResolve, match="you saw attempt"):
        decide(subject_of(desk), Statement(applied=False, attempt=seen), desk.now)


def _resumed(desk: Desk, read: RequestRecord) -> bool:
    update: Any = unpark_update(read, desk.now, DUE_AFTER_MS)
    return writes.write({"Update": {"TableName": "requests", **update}}) is None


def two_operators_resume_a_saga_once(desk: Desk) -> None:
    """The recovery that the first operator started was parked again: the second one has not seen why."""
    desk.park()
    read = desk.record
    assert _resumed(desk, read)
    desk.world.executions.start(f"{SAGA_ID}-r1", read.input)
    desk.park(None, owner=f"{SAGA_ID}-r1")

    assert not _resumed(desk, read)
    assert desk.owner == (f"{SAGA_ID}-r1", True)


def a_saga_that_settled_meanwhile_is_not_resumed(desk: Desk) -> None:
    """A settle of the execution that parked was still travelling."""
    desk.park()
    read = desk.record
    settled: Any = settling.settle(
        request_id=REQUEST_ID, execution=SAGA_ID, status=RecordStatus.FAILED, now_ms=desk.now
    )
    aws.dynamodb().update_item(**settled)

    assert not _resumed(desk, read)
    assert desk.record.owner == SAGA_ID


def a_saga_that_is_not_parked_is_not_resumed(desk: Desk) -> None:
    """Its parking mark was removed by hand, and its owner is redriven."""
    desk.park()
    read = desk.record
    aws.dynamodb().update_item(
        TableName="requests",
        Key={"id": {"S": REQUEST_ID}},
        UpdateExpression="REMOVE parked",
    )

    assert not _resumed(desk, read)
    assert desk.owner == (SAGA_ID, False)
