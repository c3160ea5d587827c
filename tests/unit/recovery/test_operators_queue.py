"""Entries of the operators' queue are deleted when their sagas are not parked any more, and never before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from handlers import reconciler as entry
from saga_runtime.callbacks.decisions import APPLIED_LATE, CONTRADICTED, OPERATOR_ERRORS, acknowledgement
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Env, LogAttribute, Look, LookField, RecordAttribute, RecordStatus, StepStatus
from saga_runtime.recovery.hold import HOLD_KEY
from saga_runtime.recovery.operators_queue import (
    HELD_SECONDS,
    ConflictEntry,
    LateEntry,
    OperatorsQueue,
    ParkEntry,
    acknowledged_in,
    undone_in,
)
from saga_runtime.recovery.repairs import clear
from saga_runtime.recovery.saga_reconciler import Served
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Audit
from tests.unit.support import settling
from tests.unit.support.checked_stack import create_hold_table
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.reconciled import Watch
from tests.unit.support.samples import REQUEST_ID, SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

SERVED = Served(machine="Transfers", requests="requests", shards=4, log="log", days=30, operators="operators")


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        yield made


@pytest.fixture
def url(operated: OperatedSaga) -> str:
    return str(aws.sqs().create_queue(QueueName="operators")["QueueUrl"])


def body(execution: Any = SAGA_ID, error: str = "ManualResolutionRequired", **more: Any) -> str:
    entry = {"saga_id": SAGA_ID, "request_id": REQUEST_ID, "execution": execution, "parked_reason": {"error": error}}
    return json.dumps(entry | more)


def send(url: str, *bodies: str) -> None:
    for one in bodies:
        aws.sqs().send_message(QueueUrl=url, MessageBody=one)


def queue(operated: OperatedSaga, url: str) -> OperatorsQueue:
    return OperatorsQueue(
        sqs=aws.sqs(),
        url=url,
        read=operated.recoverer.read,
        undone=partial(undone_in, [SERVED]),
        acknowledged=partial(acknowledged_in, ["requests"]),
    )


def bodies(url: str) -> list[str]:
    """Every message, which stays hidden."""
    found: list[str] = []
    while messages := aws.sqs().receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found += [message["Body"] for message in messages]
    return sorted(found)


def settle(operated: OperatedSaga) -> None:
    update: Any = settling.settle(
        request_id=REQUEST_ID, execution=operated.record.owner, status=RecordStatus.FAILED, now_ms=operated.now
    )
    aws.dynamodb().update_item(**update)


def forget(_: OperatedSaga) -> None:
    aws.dynamodb().delete_item(TableName="requests", Key={RecordAttribute.ID: {"S": REQUEST_ID}})


def resume(operated: OperatedSaga) -> None:
    operated.resolves("--resume")


@pytest.mark.parametrize("happens", [resume, settle])
def test_an_entry_of_a_saga_that_is_not_parked_any_more_is_deleted(
    operated: OperatedSaga, url: str, happens: Callable[[OperatedSaga], None]
) -> None:
    operated.park()
    send(url, body())
    happens(operated)

    cleared = queue(operated, url)
    cleared.clear()

    assert (cleared.deleted, cleared.left, bodies(url)) == (1, 0, [])


def test_an_entry_of_a_parked_saga_stays_and_is_visible(operated: OperatedSaga, url: str) -> None:
    operated.park()
    send(url, body())

    cleared = queue(operated, url)
    cleared.clear()

    assert (cleared.deleted, cleared.left, bodies(url)) == (0, 1, [body()])


def test_of_an_entry_that_was_sent_twice_one_stays(operated: OperatedSaga, url: str) -> None:
    operated.park()
    send(url, *[body()] * 12)

    cleared = queue(operated, url)
    cleared.clear()

    assert (cleared.deleted, cleared.left, bodies(url)) == (11, 1, [body()])


def test_a_queue_of_thousands_is_read_for_as_long_as_its_entries_are_hidden(operated: OperatedSaga) -> None:
    """The operators' function would be ended, and the first entries would come again."""
    operated.park()
    world, received, released = operated.world, list[str](), list[str]()

    class Endless:
        def receive_message(self, **_: Any) -> Any:
            world.clock.ms += 1_000
            assert len(received) < 1_000, "it is read without an end"
            names = [f"m{len(received) + number}" for number in range(10)]
            received.extend(names)
            return {"Messages": [{"MessageId": one, "ReceiptHandle": one, "Body": "{}"} for one in names]}

        def change_message_visibility_batch(self, *, Entries: Any, **_: Any) -> None:  # noqa: N803  # AWS's name
            released.extend(entry["ReceiptHandle"] for entry in Entries)

    client: Any = Endless()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws, "sqs", lambda: client)
        told = clear("operators", [SERVED])

    assert told == f"0 deleted, {len(received)} left, and there are more: repeat this"
    assert len(received) * 100 <= (HELD_SECONDS - 15) * 1_000
    assert released == received


def test_of_two_entries_two_sweeps_that_slept_delete_the_same_one(operated: OperatedSaga) -> None:
    """Each has received one, and its hiding time has passed before it receives the other."""
    operated.park()
    for order in ("12", "21"):
        with Stubber(aws.sqs()) as sqs:
            for name in order:
                message = {"MessageId": name, "ReceiptHandle": f"{order}-{name}", "Body": body()}
                sqs.add_response("receive_message", {"Messages": [message]})
            sqs.add_response("delete_message", {}, {"QueueUrl": "operators", "ReceiptHandle": f"{order}-2"})
            sqs.add_response("receive_message", {})
            sqs.add_response("change_message_visibility_batch", {"Successful": [], "Failed": []})

            queue(operated, "operators").clear()

            sqs.assert_no_pending_responses()


def test_an_entry_of_a_saga_that_is_about_to_be_parked_stays(operated: OperatedSaga, url: str) -> None:
    """The entry is sent before the record is marked."""
    send(url, body())

    queue(operated, url).clear()

    assert bodies(url) == [body()]


def test_only_the_entry_of_the_latest_parking_stays(operated: OperatedSaga, url: str) -> None:
    operated.park()
    send(url, body())
    operated.resolves("--resume")
    again = body(execution=f"{SAGA_ID}-r1")
    send(url, again)

    queue(operated, url).clear()

    assert bodies(url) == [again]


@pytest.mark.parametrize(
    "other",
    [
        *(body(error=error) for error in sorted(OPERATOR_ERRORS)),
        "{}",
        "not JSON",
        "[]",
        body(saga_id="x"),
        body(execution=""),
        body(execution=7),
        body(execution=f"{SAGA_ID}-l1", error="Frozen", late=True),
    ],
)
def test_what_is_not_about_a_parked_saga_stays(operated: OperatedSaga, url: str, other: str) -> None:
    settle(operated)
    send(url, other)

    queue(operated, url).clear()

    assert bodies(url) == [other]


def test_a_long_queue_is_cleared_whole(operated: OperatedSaga, url: str) -> None:
    settle(operated)
    send(url, *[body()] * 23, *[body(error="CallbackContradicted")] * 14)

    cleared = queue(operated, url)
    cleared.clear()

    assert (cleared.deleted, cleared.left, len(bodies(url))) == (23, 14, 14)


@pytest.mark.parametrize("moment", Moment)
def test_a_run_that_dies_deletes_nothing_that_is_needed(operated: OperatedSaga, url: str, moment: Moment) -> None:
    operated.park()
    send(url, body(), body(execution=f"{SAGA_ID}-r0"))
    operated.world.wire.plan(Fault(operation="DeleteMessage", action=Action.KILL, moment=moment, times=1))

    with pytest.raises(Killed):
        queue(operated, url).clear()

    assert body() in bodies(url)


def test_an_entry_names_its_record() -> None:
    entry = ParkEntry.from_body(body())

    assert entry is not None
    assert entry.request_id == REQUEST_ID


def test_an_entry_of_another_stacks_saga_stays(operated: OperatedSaga, url: str) -> None:
    """Stacks that share a queue read only their own tables."""
    forget(operated)
    send(url, body())

    queue(operated, url).clear()

    assert bodies(url) == [body()]


def test_an_entry_of_another_saga_under_the_key_stays(operated: OperatedSaga) -> None:
    record: RequestRecord = operated.record
    entry = ParkEntry(saga_id=f"{REQUEST_ID}-zzzzzzzz", execution=record.owner)

    assert not entry.is_over(record)


# Late effects


def late_body(**more: Any) -> str:
    return body(**({"parked_reason": {"step": "Ship", "error": APPLIED_LATE}} | more))


LATE = late_body()


def row(status: StepStatus, name: str = "Ship") -> None:
    item: Any = {**log_key(SAGA_ID, name), LogAttribute.STATUS: {"S": status}}
    aws.dynamodb().put_item(TableName="log", Item=item)


OVER = {StepStatus.COMPENSATED, StepStatus.DONE}


@pytest.mark.parametrize("status", sorted(OVER))
def test_an_entry_of_a_decided_late_effect_is_deleted(operated: OperatedSaga, url: str, status: StepStatus) -> None:
    """It is compensated, or its saga, which only goes forward, continues with it."""
    row(status)
    send(url, LATE)

    queue(operated, url).clear()

    assert bodies(url) == []


@pytest.mark.parametrize("status", sorted({None, *StepStatus} - OVER, key=str))
def test_an_entry_stays_while_its_late_effect_is_not_decided(
    operated: OperatedSaga, url: str, status: StepStatus | None
) -> None:
    """The entry is sent before the row is written, so every earlier status, and no row, keeps it."""
    settle(operated)
    row(StepStatus.COMPENSATED, "Pay")
    if status is not None:
        row(status)
    send(url, LATE)

    queue(operated, url).clear()

    assert bodies(url) == [LATE]


@pytest.mark.parametrize(
    "other",
    [
        late_body(parked_reason={"step": "Ship", "error": CONTRADICTED}),
        late_body(parked_reason={"error": APPLIED_LATE}),
        late_body(parked_reason={"step": "", "error": APPLIED_LATE}),
        late_body(saga_id="x"),
        late_body(parked_reason={"step": "Ship", "error": "Frozen"}, late="true"),
        late_body(parked_reason="Ship"),
        "[]",
        "not JSON",
    ],
)
def test_a_message_without_a_late_effects_row_is_not_a_late_entry(other: str) -> None:
    assert LateEntry.from_body(other) is None


NOT_UNDONE = body(execution=f"{SAGA_ID}-l1", error="Frozen", late=True)


def test_entry_of_an_execution_that_could_not_undo_stays_until_nothing_is_left(
    operated: OperatedSaga, url: str
) -> None:
    """It names no row; a second execution's entry about the same saga is a copy."""
    send(url, NOT_UNDONE, NOT_UNDONE.replace("-l1", "-l2"))
    row(StepStatus.COMPENSATED, "Pay")
    for status in (StepStatus.APPLIED_LATE, StepStatus.COMPENSATING):
        row(status)
        queue(operated, url).clear()
        (left,) = aws.sqs().receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)["Messages"]
        assert "-l" in left["Body"]

    row(StepStatus.COMPENSATED)
    queue(operated, url).clear()

    assert bodies(url) == []


def test_late_effect_on_a_later_page_of_the_log_keeps_the_entry(operated: OperatedSaga, url: str) -> None:
    for number in range(4):
        item: Any = {
            **log_key(SAGA_ID, f"Pay{number}"),
            LogAttribute.STATUS: {"S": StepStatus.COMPENSATED},
            LogAttribute.OUTPUT: {"S": "x" * 350_000},
        }
        aws.dynamodb().put_item(TableName="log", Item=item)
    row(StepStatus.APPLIED_LATE)
    send(url, NOT_UNDONE)

    queue(operated, url).clear()

    assert bodies(url) == [NOT_UNDONE]


@pytest.mark.parametrize("status", [None, StepStatus.TOMBSTONE, StepStatus.DONE])
def test_entry_of_an_execution_stays_if_nothing_is_compensated(
    operated: OperatedSaga, url: str, status: StepStatus | None
) -> None:
    if status is not None:
        row(status)
    send(url, NOT_UNDONE)

    queue(operated, url).clear()

    assert bodies(url) == [NOT_UNDONE]


def test_entry_of_an_execution_stays_once_rows_may_have_expired(operated: OperatedSaga, url: str) -> None:
    row(StepStatus.COMPENSATED, "Pay")
    send(url, NOT_UNDONE)
    operated.world.clock.ms += SERVED.days * 86_400_000

    queue(operated, url).clear()

    assert bodies(url) == [NOT_UNDONE]


@pytest.mark.parametrize("forgets", [forget, None])
def test_entry_of_an_execution_stays_without_its_sagas_record(
    operated: OperatedSaga, url: str, forgets: Callable[[OperatedSaga], None] | None
) -> None:
    entry = LateEntry(saga_id=SAGA_ID if forgets else f"{REQUEST_ID}-zzzzzzzz", row_name=None)
    item: Any = {**log_key(entry.saga_id, "Pay"), LogAttribute.STATUS: {"S": StepStatus.COMPENSATED}}
    aws.dynamodb().put_item(TableName="log", Item=item)
    if forgets is not None:
        forgets(operated)

    assert not undone_in([SERVED], entry)


# Conflicting outcomes

JOB_ID = f"{SAGA_ID}#Ship"
OUTCOME = "0123456789abcdef"


def contradicted_body(job: Any = JOB_ID, outcome: Any = OUTCOME, error: str = CONTRADICTED) -> str:
    return body(error=error, conflict={"job": job, "outcome": outcome})


def acknowledge(operated: OperatedSaga, job: str = JOB_ID, outcome: str = OUTCOME) -> None:
    record = operated.recoverer.read(REQUEST_ID)
    assert record is not None
    audit = Audit(who="arn:aws:iam::123456789012:user/alice", why="corrected by hand")
    assert operated.recoverer.keeps(audit, acknowledgement(job, outcome), record, 1)


@pytest.mark.parametrize("settles", [False, True])
def test_an_entry_of_an_acknowledged_outcome_is_deleted(operated: OperatedSaga, url: str, settles: bool) -> None:
    if settles:
        settle(operated)
    send(url, contradicted_body())
    queue(operated, url).clear()
    assert bodies(url) == [contradicted_body()]
    send(url, contradicted_body())

    acknowledge(operated)
    queue(operated, url).clear()

    assert bodies(url) == []


@pytest.mark.parametrize(("job", "outcome"), [(f"{SAGA_ID}#Pay", OUTCOME), (JOB_ID, "f" * 16)])
def test_an_entry_of_another_outcome_stays(operated: OperatedSaga, url: str, job: str, outcome: str) -> None:
    acknowledge(operated)
    send(url, contradicted_body(job, outcome))

    queue(operated, url).clear()

    assert bodies(url) == [contradicted_body(job, outcome)]


@pytest.mark.parametrize(
    "other",
    [
        contradicted_body(error=APPLIED_LATE),
        contradicted_body(job="their-77"),
        contradicted_body(job=None),
        contradicted_body(outcome=None),
        body(error=CONTRADICTED),
        body(error=CONTRADICTED, conflict="Ship"),
        body(parked_reason="Ship"),
        "[]",
        "not JSON",
    ],
)
def test_a_message_without_a_conflicting_outcome_is_not_such_an_entry(other: str) -> None:
    assert ConflictEntry.from_body(other) is None


# The reconciler's


def test_reconciler_deletes_entries_of_compensated_late_effects(watch: Watch) -> None:
    send(watch.queue, LATE)
    row(StepStatus.APPLIED_LATE)
    measured(watch)
    assert len(aws.sqs().receive_message(QueueUrl=watch.queue, MaxNumberOfMessages=10, VisibilityTimeout=0)["Messages"])

    row(StepStatus.COMPENSATED)
    measured(watch)

    assert bodies(watch.queue) == []


def test_reconciler_deletes_entries_that_are_over(watch: Watch) -> None:
    watch.operated.park()
    send(watch.queue, body(), body(error="CallbackContradicted"))
    cleared = ("operators_queue_cleared", {"deleted": 1})
    measured(watch)
    assert cleared not in watch.world.telemetry.events

    watch.operated.resolves("--resume")
    measured(watch)

    assert cleared in watch.world.telemetry.events
    assert bodies(watch.queue) == [body(error="CallbackContradicted")]


def test_held_reconciler_deletes_no_entry(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    create_hold_table()
    monkeypatch.setenv(Env.HOLD_TABLE, "hold")
    aws.dynamodb().put_item(TableName="hold", Item=HOLD_KEY)
    settle(watch.operated)
    send(watch.queue, body())

    measured(watch)

    assert bodies(watch.queue) == [body()]


def test_queue_that_cannot_be_read_is_left_to_the_next_run(watch: Watch) -> None:
    settle(watch.operated)
    send(watch.queue, body())
    watch.world.wire.plan(Fault(operation="ReceiveMessage", action=Action.DENY, times=1))

    assert measured(watch)["sagas"] == 0

    assert bodies(watch.queue) == [body()]


def measured(watch: Watch) -> dict[str, Any]:
    return entry.handler({LookField.LOOK: Look.IN_FLIGHT}, Context(remaining_ms=60_000))
