"""Decisions about a request record: after a refused reservation, and after a reconciler's check."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from saga_runtime.idempotency.identity import canonical_json, due_shard_of, parse_json
from saga_runtime.idempotency.record import Met, RequestRecord, reserve_put, what_was_met
from saga_runtime.protocol import RecordAttribute, RecordStatus
from saga_runtime.recovery.cancel import FAILURE
from saga_runtime.recovery.takeover import CERTAIN_AFTER_MS, Finding, Owner, recovery_name, take_over_update, what_to_do
from saga_runtime.shared.arns import execution_of, machine_of
from tests.unit.support.samples import DAY_MS, DUE_AFTER_MS, MACHINE_ARN, NOW_MS, SAGA_ID, reservation_of

ITEM: dict[str, Any] = reserve_put(reservation_of())["Item"]
RECORD = RequestRecord.from_item(ITEM)
LATER = NOW_MS + 1
DUE = NOW_MS + DUE_AFTER_MS
CANCELLED = json.dumps(FAILURE)


def record(**changes: Any) -> RequestRecord:
    """The sample's record, changed; a settled one has a response."""
    settled = "status" in changes and changes["status"] is not RecordStatus.IN_PROGRESS
    return dataclasses.replace(RECORD, body="{}" if settled else None, **changes)


def of_another_machine(**changes: Any) -> RequestRecord:
    """The same, reserved for another state machine: the operation's saga was replaced since."""
    reserved = reservation_of(machine_arn=f"{MACHINE_ARN}V1")
    return record(execution_arn=reserved.execution_arn, recovery_machine_arn=reserved.recovery_machine_arn, **changes)


@pytest.mark.parametrize(
    ("found", "now_ms", "met"),
    [
        pytest.param(record(), LATER, Met.RUNNING, id="running"),
        pytest.param(record(), DUE - 1, Met.RUNNING, id="just not due"),
        pytest.param(record(), DUE, Met.RUNNING_DUE, id="just due"),
        pytest.param(record(due_at=None), DUE, Met.RUNNING, id="not due"),
        pytest.param(record(parked_by="x"), DUE, Met.RUNNING, id="parked"),
        pytest.param(record(owner=f"{SAGA_ID}-r1"), DUE, Met.RUNNING, id="taken over"),
        pytest.param(record(failure=CANCELLED), DUE, Met.RUNNING, id="cancelled"),
        pytest.param(record(failure=CANCELLED), NOW_MS, Met.RUNNING, id="own, cancelled by now"),
        pytest.param(record(owner=f"{SAGA_ID}-r1"), NOW_MS, Met.RUNNING, id="own, taken over by now"),
        pytest.param(record(), NOW_MS + 29 * DAY_MS - 1, Met.RUNNING_DUE, id="name still taken"),
        pytest.param(record(), NOW_MS + 29 * DAY_MS, Met.RUNNING, id="name perhaps free"),
        pytest.param(record(), NOW_MS, Met.OWN, id="own"),
        pytest.param(record(status=RecordStatus.COMPLETED), LATER, Met.SETTLED, id="completed"),
        pytest.param(record(status=RecordStatus.FAILED), LATER, Met.SETTLED, id="failed"),
        pytest.param(record(status=RecordStatus.FAILED), NOW_MS, Met.SETTLED, id="own, settled by now"),
        pytest.param(of_another_machine(), NOW_MS, Met.RUNNING, id="another machine, in the same millisecond"),
        pytest.param(of_another_machine(), DUE, Met.RUNNING, id="another machine, due"),
        pytest.param(
            of_another_machine(status=RecordStatus.COMPLETED), DUE, Met.SETTLED, id="another machine, settled"
        ),
        pytest.param(record(fingerprint="x"), LATER, Met.OTHER_BODY, id="other body"),
        pytest.param(record(fingerprint="x"), NOW_MS, Met.OTHER_BODY, id="other body in the same millisecond"),
        pytest.param(
            record(fingerprint="x", status=RecordStatus.COMPLETED), LATER, Met.OTHER_BODY, id="other body, settled"
        ),
    ],
)
def test_a_refused_reservation_follows_from_the_record_that_it_met(found: RequestRecord, now_ms: int, met: Met) -> None:
    assert what_was_met(found, reservation_of(now_ms=now_ms)) is met


@pytest.mark.parametrize(
    ("found", "owner", "now_ms", "finding"),
    [
        (record(status=RecordStatus.COMPLETED), "FAILED", LATER, Finding.SETTLED),
        (record(status=RecordStatus.FAILED, parked_by="x"), None, LATER, Finding.SETTLED),
        (record(parked_by="x"), None, LATER, Finding.PARKED),
        (record(parked_by="x"), "FAILED", LATER, Finding.PARKED),
        (record(), None, LATER, Finding.NOT_STARTED),
        (record(), None, NOW_MS + 89 * DAY_MS - 1, Finding.NOT_STARTED),
        (record(), None, NOW_MS + 89 * DAY_MS, Finding.NAME_EXPIRED),
        (record(), "RUNNING", LATER, Finding.RUNNING),
        (record(), "PENDING_REDRIVE", LATER, Finding.RUNNING),
        (record(), "TIMED_OUT", LATER, Finding.DEAD),
        (record(), "ABORTED", LATER, Finding.DEAD),
        (record(), "FAILED", LATER, Finding.DEAD),
        (record(), ("SUCCEEDED", LATER - CERTAIN_AFTER_MS), LATER, Finding.OWNER_SUCCEEDED),
        (record(), ("SUCCEEDED", LATER - CERTAIN_AFTER_MS + 1), LATER, Finding.RUNNING),
        (record(), ("SUCCEEDED", NOW_MS), NOW_MS + 89 * DAY_MS, Finding.OWNER_SUCCEEDED),
        (record(parked_by="x"), ("SUCCEEDED", NOW_MS), LATER, Finding.PARKED),
        (record(status=RecordStatus.COMPLETED), ("SUCCEEDED", NOW_MS), LATER, Finding.SETTLED),
    ],
)
def test_a_check_of_a_saga_leads_to_one_action(
    found: RequestRecord, owner: str | tuple[str, int] | None, now_ms: int, finding: Finding
) -> None:
    described = Owner(*owner) if isinstance(owner, tuple) else Owner(owner)

    assert what_to_do(found, described, now_ms) is finding


def test_an_unknown_status_of_an_execution_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="'PAUSED'"):
        what_to_do(RECORD, Owner("PAUSED"), LATER)


def test_each_take_over_names_the_next_recovery() -> None:
    values = take_over_update(record(recoveries=2, owner=f"{SAGA_ID}-r2"), LATER, DUE_AFTER_MS)[
        "ExpressionAttributeValues"
    ]

    assert values[":owner"] == {"S": f"{SAGA_ID}-r2"}
    assert values[":new_owner"] == {"S": f"{SAGA_ID}-r3"}
    assert values[":recoveries"] == {"N": "3"}


def test_recoveries_are_numbered_from_one() -> None:
    with pytest.raises(ValueError, match="got 0"):
        recovery_name(SAGA_ID, 0)


def test_a_machine_and_its_executions_lead_to_each_other() -> None:
    assert machine_of(execution_of(MACHINE_ARN, SAGA_ID)) == MACHINE_ARN
    with pytest.raises(ValueError, match="not the ARN of an execution"):
        machine_of(MACHINE_ARN)


def test_a_reserved_record_reads_back() -> None:
    reservation = reservation_of()

    assert RECORD.saga_id == RECORD.owner == reservation.saga_id
    assert (RECORD.input, RECORD.fingerprint, RECORD.scope) == (
        reservation.start_input,
        reservation.fingerprint,
        reservation.scope,
    )
    assert (RECORD.created_at, RECORD.due_at, RECORD.expiration) == (NOW_MS, DUE, None)
    assert (RECORD.recoveries, RECORD.parked_by, RECORD.direction, RECORD.settled) == (0, None, None, False)


def test_a_request_travels_without_characters_that_a_queue_refuses() -> None:
    """It is a part of jobs, whatever texts a client sends."""
    body = '{"\uffff":"\\\\\ufffe\\u0000\u00e4"}'
    reservation = reservation_of(body=body)

    request = json.loads(reservation.start_input)["request"]
    assert not {"\ufffe", "\uffff", "\x00"} & set(request)
    assert "\u00e4" in request
    assert canonical_json(parse_json(request)) == reservation.request


REQUIRED = ("id", "status", "fingerprint", "scope", "input", "saga_id", "owner", "created_at")


@pytest.mark.parametrize("missing", REQUIRED)
def test_an_invalid_request_record_is_refused(missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        RequestRecord.from_item({name: value for name, value in ITEM.items() if name != missing})


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="INPROGRESS"):
        RequestRecord.from_item({**ITEM, RecordAttribute.STATUS: {"S": "INPROGRESS"}})


@pytest.mark.parametrize("shards", [0, -1, 101])
def test_the_number_of_shards_has_limits(shards: int) -> None:
    with pytest.raises(ValueError, match=str(shards)):
        due_shard_of("r", shards)


def test_due_records_are_spread_over_all_shards() -> None:
    shards = {due_shard_of(reservation_of(key=f"key-{number}").request_id, 16) for number in range(200)}

    assert shards == {f"{shard:02d}" for shard in range(16)}
