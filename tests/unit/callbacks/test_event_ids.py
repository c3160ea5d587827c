"""Ids of events: what is known again, what an id that was used for something else does, and what has no id."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from saga_runtime import Callback, Failed, Heartbeat, Invalid, Succeeded, WebhookEvent, event_receiver, webhook
from saga_runtime.callbacks import Receipt, adopt_alias, receive
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import Metric, SchemeKind, StepStatus, TokenStatus
from tests.unit.support.receiving import (
    JOB_ID,
    SECRET,
    WAIT_ID,
    Reception,
    open_reception,
    rest_event,
    sign_by,
    stripe_header,
)
from tests.unit.support.samples import NOW_MS, SAGA_ID
from tests.unit.support.world import World

DONE, REFUSED = Succeeded({"parcel": "p-1"}), Failed("OutOfStock", "none left")
REUSED = Metric.EVENT_ID_REUSED


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """The receivers' surroundings."""
    return open_reception(world, monkeypatch)


def says(job_id: str, outcome: Succeeded | Failed | Heartbeat = DONE, event_id: str | None = "evt_1") -> Receipt:
    """Report an outcome, always with the same event id."""
    return receive(Callback(job_id=job_id, event_id=event_id, outcome=outcome))


def _status(reception: Reception, job_id: str) -> TokenStatus:
    row = reception.row(job_id)
    assert row is not None
    return row.status


def test_an_event_id_that_was_used_for_another_job_is_taken_counted_and_known_again(reception: Reception) -> None:
    reception.wait(JOB_ID, token="token-1")
    reception.wait(WAIT_ID, token="token-2")
    counts = reception.world.telemetry.counts

    assert (says(JOB_ID), counts[REUSED]) == (Receipt.DELIVERED, 0)
    assert (says(WAIT_ID), counts[REUSED]) == (Receipt.DELIVERED, 1)

    assert (_status(reception, JOB_ID), _status(reception, WAIT_ID)) == (TokenStatus.DELIVERED, TokenStatus.DELIVERED)
    assert set(reception.world.tasks.woken) == {"token-1", "token-2"}
    written = reception.written()
    assert [says(JOB_ID), says(WAIT_ID)] == [Receipt.DUPLICATE] * 2
    assert reception.written() == written


def test_a_success_under_the_event_id_of_a_failure_is_never_lost(reception: Reception) -> None:
    reception.wait()
    assert says(JOB_ID, REFUSED) is Receipt.DELIVERED

    assert says(JOB_ID, DONE) is Receipt.APPLIED_LATE

    row = reception.row()
    assert row is not None
    assert row.conflict is not None
    assert row.conflict.ok
    assert reception.world.rows() == {JOB_ID: StepStatus.APPLIED_LATE}
    assert reception.world.telemetry.counts[REUSED] == 1
    assert [says(JOB_ID, REFUSED), says(JOB_ID, DONE)] == [Receipt.DUPLICATE] * 2


def test_a_failure_under_the_event_id_of_a_success_is_kept_as_a_conflict(reception: Reception) -> None:
    reception.wait()
    says(JOB_ID, DONE)

    assert says(JOB_ID, REFUSED) is Receipt.CONFLICT

    row = reception.row()
    assert row is not None
    assert row.conflict is not None
    assert not row.conflict.ok


def test_the_same_event_with_another_output_is_the_same_event(reception: Reception) -> None:
    """The first output counts, whatever a function makes of a redelivery."""
    reception.wait()
    says(JOB_ID, DONE)

    assert says(JOB_ID, Succeeded({"parcel": "p-2"})) is Receipt.DUPLICATE
    assert reception.outcome == {"parcel": "p-1"}
    assert reception.world.telemetry.counts[REUSED] == 0


def test_an_id_that_was_used_for_another_unknown_job_loses_nothing(reception: Reception) -> None:
    assert [says("their-1"), says("their-2")] == [Receipt.UNKNOWN] * 2
    assert says("their-2", REFUSED) is Receipt.UNKNOWN
    assert [says("their-1"), says("their-2"), says("their-2", REFUSED)] == [Receipt.DUPLICATE] * 3

    reception.wait()
    adopt_alias("their-2", JOB_ID)

    assert reception.outcome == {"parcel": "p-1"}
    row = reception.row()
    assert row is not None
    assert row.conflict is not None


def test_an_event_under_a_providers_own_id_is_known_again_when_its_job_is_known(reception: Reception) -> None:
    assert says("their-1") is Receipt.UNKNOWN
    reception.wait()
    adopt_alias("their-1", JOB_ID)

    assert says("their-1") is Receipt.DUPLICATE
    assert reception.world.telemetry.counts[REUSED] == 0


def test_two_receivers_that_meet_over_one_used_id_write_it_once(reception: Reception) -> None:
    reception.wait(JOB_ID, token="token-1")
    reception.wait(WAIT_ID, token="token-2")
    says(JOB_ID)
    reception.world.tasks.afterwards = lambda: says(WAIT_ID)

    assert says(WAIT_ID) in (Receipt.DELIVERED, Receipt.UNDELIVERED)
    assert reception.world.rows() == {JOB_ID: StepStatus.DONE, WAIT_ID: StepStatus.RECORDED}
    ids = [item["id"]["S"] for item in reception.world.items("tokens")]
    assert sum(row_id.startswith("event#") for row_id in ids) == 2


def test_an_outcome_without_an_event_id_is_refused(reception: Reception) -> None:
    with pytest.raises(Invalid, match="event_id must be set, got None"):
        says(JOB_ID, event_id=None)
    assert reception.written() == []


def test_a_heartbeat_needs_no_event_id(reception: Reception) -> None:
    reception.wait()

    assert says(JOB_ID, Heartbeat(), event_id=None) is Receipt.HEARTBEAT


@webhook
def from_depot(event: WebhookEvent) -> Callback:
    """Reads events that have no id."""
    told = event.json
    return Callback(job_id=told["job"], outcome=DONE if told["ok"] else REFUSED)


def _signed(**told: Any) -> dict[str, Any]:
    body = json.dumps(told).encode()
    return rest_event(body, {"Stripe-Signature": stripe_header(body, at=NOW_MS // 1_000)})


def test_a_webhooks_event_without_an_id_is_known_again_by_its_bytes(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_by(monkeypatch, SchemeKind.STRIPE, reception.put_secret("hook", SECRET))
    reception.wait()
    event = _signed(job=JOB_ID, ok=True)

    assert [from_depot(event, None)["statusCode"] for _ in range(2)] == [200, 200]

    counts = reception.world.telemetry.counts
    assert (counts[Metric.CALLBACK_RECEIVED], counts[Metric.CALLBACK_DUPLICATE]) == (1, 1)
    row = reception.row()
    assert row is not None
    assert row.event_id == f"sha256:{hashlib.sha256(event['body'].encode()).hexdigest()}"
    assert from_depot(_signed(job=JOB_ID, ok=True, again=1), None)["statusCode"] == 200
    assert counts[Metric.CALLBACK_RECEIVED] == 2


def test_a_published_event_without_an_id_of_its_own_is_known_again_by_eventbridges(reception: Reception) -> None:
    receiver = event_receiver(lambda event: Callback(job_id=event["detail"]["job"], outcome=DONE))
    reception.wait()
    event = {"id": "7bf73129-1428", "detail": {"job": step_key_of(SAGA_ID, "Pick")}}

    receiver(event, None)
    receiver(event, None)

    row = reception.row()
    assert row is not None
    assert row.event_id == "7bf73129-1428"
    assert reception.world.telemetry.counts[Metric.CALLBACK_DUPLICATE] == 1
