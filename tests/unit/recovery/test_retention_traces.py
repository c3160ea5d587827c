"""The harm of retention that ends too early, for each rule of ``constructs_lib.saga.validation.retention``.

Also the cases without harm, which need no rule. Time passes and items expire as DynamoDB's TTL deletes them: by their
expiration.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from constructs_lib.saga.validation.retention import kept_after_the_end
from saga_runtime import Commit, NotApplied, StepCall, Write, atomic_step, compensation
from saga_runtime.callbacks import Receipt
from saga_runtime.callbacks.saga_writes import LATE_DAYS, SagaRecord
from saga_runtime.errors import ManualResolutionRequired, SagaFenced
from saga_runtime.idempotency.identity import request_id_of
from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.payloads.claim_check import PayloadLost
from saga_runtime.protocol import (
    LEAST_LOG_DAYS,
    REFERENCE_FIELD,
    CallField,
    Env,
    LedgerAttribute,
    LogAttribute,
    ReconciledField,
    RecordAttribute,
    ServedField,
    TokenAttribute,
    WaitField,
)
from saga_runtime.recovery.decisions import Found, Need, decide, kept_until, may_forget, rows_kept_update
from saga_runtime.recovery.late_effects import LateFinding, undo_late
from saga_runtime.recovery.reconciler import Reconciler
from saga_runtime.recovery.takeover import Finding, Owner, Recoverer, what_to_do
from saga_runtime.saga_log.rows import log_key
from saga_runtime.shared import aws
from tests.unit.support.client import remove_response
from tests.unit.support.gateway import GRACE_MS, IDEMPOTENT, LIFE_MS, Shop
from tests.unit.support.job_saga import HEARTBEAT_SECONDS, PARCEL, notified, operators_queue, served
from tests.unit.support.samples import DAY_MS, NOW_MS, SAGA_ID, SCOPE, reservation_of, step_event
from tests.unit.support.warehouse import Picking
from tests.unit.support.world import Context, World

LOG_DAYS: Final = 30
SHORT: Final[dict[str, Any]] = {CallField.LOG_DAYS: LOG_DAYS}
_KEYS: Final[dict[str, list[str]]] = {
    "requests": [RecordAttribute.ID],
    "log": [LogAttribute.SAGA_ID, LogAttribute.STEP],
    "tokens": [TokenAttribute.ID],
}
_COUNTER: Final[dict[str, dict[str, str]]] = {
    LedgerAttribute.PK: {"S": "counter"},
    LedgerAttribute.SK: {"S": "counter"},
}


def pass_days(world: World, days: float, *, expire: Iterable[str] = ("log", "tokens", "requests")) -> None:
    """Let time pass, and let DynamoDB delete what expired."""
    world.clock.ms += int(days * DAY_MS)
    client: Any = aws.dynamodb()
    for table in expire:
        for item in world.items(table):
            if "expiration" in item and int(item["expiration"]["N"]) * 1_000 <= world.clock.ms:
                client.delete_item(TableName=table, Key={name: item[name] for name in _KEYS[table]})


def _add(number: int) -> Commit:
    update: dict[str, Any] = {
        "TableName": "ledger",
        "Key": _COUNTER,
        "UpdateExpression": "ADD #n :n",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":n": {"N": str(number)}},
    }
    return Commit(writes=[Write(action={"Update": update})])


@atomic_step
def pay(call: StepCall) -> Commit:
    """An effect that nothing but its row keeps single."""
    return _add(1)


@compensation
def pay_back(call: StepCall, output: Any) -> Commit:
    """Its undo."""
    return _add(-1)


def run(handler: Any = pay) -> None:
    """Invoke a function of the step, as any execution does, a redriven one, too."""
    handler({**step_event(step="Pay"), **SHORT}, Context())


def paid() -> int:
    """Number of effects."""
    item = aws.dynamodb().get_item(TableName="ledger", Key=_COUNTER, ConsistentRead=True).get("Item", {})
    return int(item["n"]["N"]) if "n" in item else 0


@pytest.fixture
def picking(world: World, monkeypatch: pytest.MonkeyPatch) -> Picking:
    return Picking(world, monkeypatch)


def settle(picking: Picking, *, days: float = 7) -> None:
    """Let the saga's record be settled as a failure."""
    until = int(picking.world.clock.ms / 1_000 + days * 86_400)
    picking.job_saga.change_record(status="FAILED", expiration=until, response_expires_at=until)


def fence_and_settle(picking: Picking) -> None:
    """Let the warehouse report that the job is unknown, and the saga fence the job and settle."""
    picking.dispatch(picking.send(**SHORT))
    picking.pass_every_deadline()
    picking.warehouse.says = NotApplied()
    picking.cancel({**picking.event(), **SHORT}, Context())
    picking.warehouse.says = None
    assert picking.status == "TOMBSTONE"


# ---- rows, and executions that are redriven: cdk-sagas-retention-redrive -------------------------------------------


def test_an_execution_that_is_redriven_while_the_row_is_there_repeats_nothing(world: World) -> None:
    run()
    pass_days(world, LOG_DAYS - 0.01)

    run()

    assert paid() == 1


def test_an_execution_that_is_redriven_when_the_row_is_gone_pays_twice(world: World) -> None:
    run()
    pass_days(world, LOG_DAYS)

    run()

    assert paid() == 2


def test_an_execution_redriven_after_the_row_expired_pays_again(world: World) -> None:
    run()
    run(pay_back)
    with pytest.raises(SagaFenced):
        run()
    pass_days(world, LOG_DAYS)

    run()

    assert paid() == 1


def test_a_provider_is_called_once_more_after_the_row_expired(world: World) -> None:
    shop = Shop(world)
    shop.run(**SHORT)
    pass_days(world, LOG_DAYS - 0.01)
    shop.run(**SHORT)
    assert len(shop.gateway.charged) == 1
    pass_days(world, 0.01)

    shop.run(**SHORT)

    assert len(shop.gateway.charged) == 2


def test_a_provider_charges_twice_when_key_and_row_have_expired(world: World) -> None:
    shop = Shop(world, **IDEMPOTENT)
    shop.run(**SHORT)
    shop.gateway.idempotent = False  # its window is over long before the row's time
    pass_days(world, LOG_DAYS - 0.01)
    shop.run(**SHORT)
    assert len(shop.gateway.charged) == 1
    pass_days(world, 0.01)

    shop.run(**SHORT)

    assert len(shop.gateway.charged) == 2


def test_a_compensation_after_the_row_expired_fences_an_applied_step(
    world: World,
) -> None:
    run()
    pass_days(world, LOG_DAYS)

    run(pay_back)

    assert paid() == 1
    assert list(world.rows().values()) == ["TOMBSTONE"]


@pytest.mark.parametrize("log_days", [30, 31, 400])
def test_whenever_a_saga_ends_half_of_its_rows_retention_is_left(log_days: int) -> None:
    record = RequestRecord.from_item(_reserved())
    step, end = 900_000, 3 * log_days * DAY_MS
    expiration, least = NOW_MS // 1_000 + log_days * 86_400, 10**12
    for now_ms in range(NOW_MS, NOW_MS + end, step):
        least = min(least, expiration - now_ms // 1_000)  # the saga may end right before this look
        before, until = kept_until(now_ms, log_days)
        if may_forget(record, now_ms):
            expiration = until if expiration < before else expiration
            record = dataclasses.replace(record, log_expires_at=_recorded(record, now_ms))

    unread = LEAST_LOG_DAYS * 86_400 // 2
    assert kept_after_the_end(log_days) - step // 1_000 <= least <= kept_after_the_end(log_days) + unread


def _recorded(record: RequestRecord, now_ms: int) -> int:
    values = rows_kept_update(record, now_ms)["ExpressionAttributeValues"]
    return int(values[":log_expires_at"]["N"])


def _reserved() -> dict[str, Any]:
    put: dict[str, Any] = reserve_put(reservation_of())
    item: dict[str, Any] = put["Item"]
    return item


# ---- rows, and messages: cdk-sagas-retention-messages --------------------------------------------------------------


def test_a_message_redelivered_while_the_row_exists_dispatches_nothing(picking: Picking) -> None:
    message = picking.send(**SHORT)
    picking.dispatch(message)
    picking.calls_back()
    settle(picking)
    pass_days(picking.world, LOG_DAYS - 0.01)
    assert picking.world.items("requests") == []

    assert picking.dispatch(message)

    assert len(picking.warehouse.begun) == 1


LONG: Final[dict[str, Any]] = {
    **SHORT,
    CallField.WAIT: {WaitField.HEARTBEAT: HEARTBEAT_SECONDS, WaitField.TIMEOUT: (LOG_DAYS + 1) * 86_400},
}
"""A step that may wait for longer than its row is kept."""


@pytest.mark.parametrize(("sent", "begun"), [(SHORT, 1), (LONG, 2)], ids=["its time is up", "its time is not up"])
def test_a_message_that_is_delivered_again_when_the_row_is_gone_hands_the_job_over_if_its_time_is_not_up(
    picking: Picking, sent: dict[str, Any], begun: int
) -> None:
    message = picking.send(**sent)
    picking.dispatch(message)
    picking.calls_back()
    settle(picking)
    pass_days(picking.world, LOG_DAYS)

    assert picking.dispatch(message)

    assert len(picking.warehouse.begun) == begun


@pytest.mark.parametrize(("sent", "begun"), [(SHORT, 0), (LONG, 1)], ids=["its time is up", "its time is not up"])
def test_a_message_redelivered_after_the_tombstone_expired_begins_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch, sent: dict[str, Any], begun: int
) -> None:
    picking = Picking(world, monkeypatch)
    message = picking.send(**sent)
    picking.cancel({**picking.event(), **sent}, Context())
    assert picking.dispatch(message)
    assert picking.warehouse.begun == []
    settle(picking)
    pass_days(world, LOG_DAYS)

    assert picking.dispatch(message)

    assert len(picking.warehouse.begun) == begun


def test_a_wait_whose_rows_expired_is_only_announced_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, job=False)
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([{**served(job=False), ServedField.DAYS: LOG_DAYS}]))
    message = picking.send(**SHORT)
    picking.dispatch(message)
    picking.calls_back()
    settle(picking)
    pass_days(world, LOG_DAYS)
    world.tasks.time_out(message.token)

    assert picking.dispatch(message)

    assert (picking.row, world.items("requests")) == (None, [])


# ---- rows, and late answers: cdk-sagas-retention-late --------------------------------------------------------------


def test_a_late_success_is_known_for_late_while_the_row_is_there(picking: Picking) -> None:
    fence_and_settle(picking)
    settle(picking, days=60)
    pass_days(picking.world, LOG_DAYS - 1)

    assert picking.calls_back() is Receipt.APPLIED_LATE
    assert picking.status == "APPLIED_LATE"


def test_a_late_success_after_the_row_expired_is_never_compensated(
    picking: Picking, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=url)]))
    fence_and_settle(picking)
    settle(picking, days=60)
    pass_days(picking.world, LOG_DAYS)

    assert picking.calls_back() is Receipt.EARLY

    assert picking.status == "DONE"
    assert RecordAttribute.DUE_SHARD not in picking.job_saga.token
    assert notified(url) == []
    picking.undo(late=True)
    assert (len(picking.warehouse.begun), picking.warehouse.cancelled) == (1, [])


def test_a_late_effect_of_a_rows_last_day_is_compensated(picking: Picking) -> None:
    """Its row is kept with the record from then on."""
    fence_and_settle(picking)
    settle(picking)
    pass_days(picking.world, LOG_DAYS - 1, expire=())  # the record has expired, and is still there
    assert picking.calls_back() is Receipt.APPLIED_LATE
    assert int(picking.job_saga.record()["expiration"]) * 1_000 == picking.world.clock.ms + LATE_DAYS * DAY_MS
    pass_days(picking.world, 1)

    picking.undo(late=True)

    assert picking.world.items("requests") != []
    assert len(picking.warehouse.begun) == len(picking.warehouse.cancelled) == 1


# ---- no rule: what the rows outlast does no harm -------------------------------------------------------------------


def test_a_late_success_without_a_record_notifies_the_operators(
    picking: Picking, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=url)]))
    fence_and_settle(picking)
    settle(picking)
    pass_days(picking.world, 8)
    assert picking.world.items("requests") == []

    assert picking.calls_back() is Receipt.APPLIED_LATE

    (entry,) = notified(url)
    assert "the saga's record is gone" in entry["parked_reason"]["detail"]


def test_a_late_success_of_a_tombstone_notifies_the_operators(
    picking: Picking, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = operators_queue()
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=url)]))
    fence_and_settle(picking)
    settle(picking)
    picking.world.clock.ms += 8 * DAY_MS
    remove_response(picking.world)
    before = picking.world.items("requests")

    assert picking.calls_back() is Receipt.APPLIED_LATE

    (entry,) = notified(url)
    assert "the saga's record is gone" in entry["parked_reason"]["detail"]
    assert picking.world.items("requests") == before
    recoverer = Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())
    assert undo_late(recoverer, RequestRecord.from_item(before[0]), "log", NOW_MS).finding is LateFinding.EXHAUSTED


def test_response_is_not_removed_while_a_late_effect_is_to_be_compensated(picking: Picking) -> None:
    fence_and_settle(picking)
    settle(picking)
    picking.world.clock.ms += 7 * DAY_MS

    assert picking.calls_back() is Receipt.APPLIED_LATE

    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        remove_response(picking.world)
    picking.world.clock.ms += LATE_DAYS * DAY_MS
    remove_response(picking.world)


def test_record_that_became_a_tombstone_since_it_was_read_is_not_kept(picking: Picking) -> None:
    fence_and_settle(picking)
    settle(picking)
    picking.world.clock.ms += 8 * DAY_MS
    read = SagaRecord.from_item(picking.world.items("requests")[0])
    assert read is not None
    kept = read.kept("requests", picking.world.clock.ms)
    assert kept is not None
    remove_response(picking.world)

    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        aws.dynamodb().update_item(**kept["Update"])


def test_an_event_repeated_after_its_marker_expired_changes_nothing(picking: Picking) -> None:
    picking.dispatch(picking.send())
    picking.calls_back("event-1")
    before = (picking.row, picking.job_saga.token["status"], dict(picking.world.tasks.woken))
    for item in picking.world.items("tokens"):
        if item[TokenAttribute.STATUS]["S"] == "EVENT":
            key: Any = {TokenAttribute.ID: item[TokenAttribute.ID]}
            aws.dynamodb().delete_item(TableName="tokens", Key=key)

    assert picking.calls_back("event-1") is Receipt.DUPLICATE

    assert (picking.row, picking.job_saga.token["status"], dict(picking.world.tasks.woken)) == before


def test_an_outcome_whose_token_row_expired_is_kept_for_the_next_attempt(picking: Picking) -> None:
    picking.dispatch(picking.send())
    for item in picking.world.items("tokens"):
        aws.dynamodb().delete_item(TableName="tokens", Key={"id": item["id"]})

    assert picking.calls_back() is Receipt.EARLY
    assert picking.outcome() is None

    assert picking.dispatch(picking.send_again())
    assert picking.outcome(2) == PARCEL
    assert len(picking.warehouse.begun) == 1


def test_a_step_with_a_lost_output_is_neither_compensated_nor_repeated(world: World) -> None:
    shop = Shop(world)
    shop.run()
    aws.s3().create_bucket(Bucket="payloads", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    lost = json.dumps({REFERENCE_FIELD: f"{SAGA_ID}/{'0' * 64}"})
    aws.dynamodb().update_item(
        TableName="log",
        Key=log_key(SAGA_ID, "Charge"),
        UpdateExpression="SET #output = :lost",
        ExpressionAttributeNames={"#output": LogAttribute.OUTPUT},
        ExpressionAttributeValues={":lost": {"S": lost}},
    )

    with pytest.raises(PayloadLost):
        shop.undo(**{CallField.PAYLOADS: "payloads"})
    shop.run(**{CallField.PAYLOADS: "payloads"})

    assert (len(shop.gateway.charged), len(shop.gateway.refunded), shop.status) == (1, 0, "DONE")


def test_a_status_event_of_an_expired_or_replaced_saga_does_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = ReconciledField
    about = {f.MACHINE: "Transfers", f.REQUESTS: "requests", f.SHARDS: 16, f.LOG: "log", f.DAYS: LOG_DAYS}
    monkeypatch.setenv(Env.RECONCILED, json.dumps([{**about, f.OPERATORS: "q", f.TOKENS: {}}]))
    monkeypatch.setenv(Env.RECOVERIES_LIMIT, "20")
    monkeypatch.setenv(Env.LONGEST_LOOK, "900")
    reconciler = Reconciler.from_env(lambda: 50_000)

    assert world.calls_of(lambda: reconciler.execution_ended(SAGA_ID)) == ["GetItem"]

    anew = reservation_of(now_ms=NOW_MS + 8 * DAY_MS)
    assert anew.request_id == request_id_of(SCOPE, "key-1")
    aws.dynamodb().put_item(TableName="requests", **reserve_put(anew))
    assert world.calls_of(lambda: reconciler.execution_ended(SAGA_ID)) == ["GetItem"]


# ---- rows, and recoveries by hand: cdk-sagas-retention-recovery ----------------------------------------------------


def test_an_operator_may_take_over_a_saga_that_outlived_its_rows(world: World) -> None:
    run()
    pass_days(world, LOG_DAYS)
    record = RequestRecord.from_item(_reserved())

    assert what_to_do(record, Owner("TIMED_OUT"), world.clock.ms) is Finding.DEAD

    run()
    assert paid() == 2


# ---- names: cdk-sagas-retention-execution-names ----------------------------------------


@pytest.mark.parametrize(("days", "need"), [(88.99, Need.START), (89, Need.PARK)])
def test_a_recovery_that_was_decided_and_not_started_is_parked_from_the_day_on_that_names_may_be_free(
    days: float, need: Need
) -> None:
    item = {**_reserved(), RecordAttribute.OWNER: {"S": f"{SAGA_ID}-r1"}}
    found = Found(record=RequestRecord.from_item(item))
    now_ms = NOW_MS + int(days * DAY_MS)

    decision = decide(found, what_to_do(found.record, Owner(), now_ms), now_ms=now_ms, limit=20)

    assert decision.need is need


# ---- windows of providers: cdk-sagas-retention-window, cdk-sagas-retention-undo ------------------------------------


@pytest.mark.parametrize(("later_ms", "known"), [(0, True), (1, False)])
def test_a_step_in_doubt_is_repeated_until_its_key_expires_and_then_parked(
    world: World, later_ms: int, known: bool
) -> None:
    window = 3_600
    shop = Shop(world, window=window, verify=False)
    shop.gateway.broken["charge"] = ConnectionError("cut off")
    with pytest.raises(ConnectionError):
        shop.run()
    shop.passes(window * 1_000 - LIFE_MS - GRACE_MS + later_ms)

    if known:
        shop.ask()
    else:
        with pytest.raises(ManualResolutionRequired):
            shop.ask()

    assert len(shop.gateway.charged) == 1


@pytest.mark.parametrize(("window", "repeated"), [(70, True), (69, False)])
def test_a_compensation_is_repeated_only_if_its_key_outlasts_two_calls(
    world: World, window: int, repeated: bool
) -> None:
    # Twice 15 s for the function and 5 s for the clocks, and 30 s of grace.
    assert 2 * LIFE_MS + GRACE_MS == 70_000
    shop = Shop(world, undo_window=window, verify_undo=False)
    shop.run()
    shop.gateway.broken["refund"] = ConnectionError("cut off")
    with pytest.raises(ConnectionError):
        shop.undo()
    shop.passes(LIFE_MS)  # not a moment later: the best that can be

    if repeated:
        shop.undo()
    else:
        with pytest.raises(ManualResolutionRequired):
            shop.undo()

    assert shop.status == ("COMPENSATED" if repeated else "COMPENSATING")
    assert len(shop.gateway.refunded) == 1
