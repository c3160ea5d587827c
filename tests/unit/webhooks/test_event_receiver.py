"""EventBridge events as callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from saga_runtime import Callback, Invalid, Succeeded, TransientError, event_receiver
from saga_runtime.errors import ProtocolMismatch
from saga_runtime.protocol import PROTOCOL_VERSION, Env, Metric, StepStatus
from tests.unit.support.receiving import JOB_ID, Reception, open_reception
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

module = import_module("saga_runtime.webhooks.receiver")


@event_receiver
def from_carrier(event: Mapping[str, Any]) -> Callback | None:
    """Reads what a carrier publishes."""
    scan = event["detail"]
    if scan["kind"] != "picked up":
        return None
    return Callback(job_id=scan["parcel"], event_id=event["id"], outcome=Succeeded({"depot": scan["depot"]}))


@pytest.fixture
def reception(world: World, monkeypatch: pytest.MonkeyPatch) -> Reception:
    """The receivers' surroundings."""
    return open_reception(world, monkeypatch)


def scan(kind: str = "picked up", *, event_id: str = "7bf73129-1428-4cd3-a780-95db273d1602") -> dict[str, Any]:
    """An event in EventBridge's form."""
    return {
        "version": "0",
        "id": event_id,
        "source": "carrier",
        "detail-type": "scan",
        "time": "2026-11-21T08:00:00Z",
        "detail": {"kind": kind, "parcel": JOB_ID, "depot": "BER"},
    }


def test_a_published_event_reaches_the_waiting_task(reception: Reception) -> None:
    reception.wait()

    assert from_carrier(scan(), None) == {"received": True}
    assert reception.outcome == {"depot": "BER"}
    assert reception.world.rows() == {JOB_ID: StepStatus.DONE}


def test_an_event_that_is_not_of_interest_leaves_no_trace(reception: Reception) -> None:
    assert from_carrier(scan("seen"), None) == {"received": True}
    assert reception.written() == []


def test_a_duplicate_event_is_applied_once(reception: Reception) -> None:
    reception.wait()
    from_carrier(scan(), None)
    written = reception.written()

    assert from_carrier(scan(), None) == {"received": True}
    assert reception.written() == written
    assert reception.world.telemetry.counts[Metric.CALLBACK_DUPLICATE] == 1


@pytest.mark.parametrize("error", [KeyError("secret"), Invalid("secret"), RuntimeError("secret")])
def test_a_failing_function_is_retried_and_only_the_errors_name_is_logged(
    reception: Reception, error: Exception
) -> None:
    def fail(_: Mapping[str, Any]) -> None:
        raise error

    with pytest.raises(TransientError, match=type(error).__name__) as caught:
        event_receiver(fail)(scan(), None)
    (name, told), (metric, _) = reception.world.telemetry.events
    assert (name, told["receiver"], told["error"]) == ("receiver_failed", "event", type(error).__name__)
    assert any(place.startswith("test_event_receiver.py:") for place in told["places"])
    assert metric == Metric.CALLBACK_REFUSED
    assert "secret" not in repr((caught.value, reception.world.telemetry.events))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_function_that_returns_something_else_has_failed(reception: Reception) -> None:
    handler: Any = event_receiver(lambda event: event)  # type: ignore[arg-type, return-value]  # that is the point

    with pytest.raises(TransientError, match="TypeError"):
        handler(scan(), None)


@pytest.mark.parametrize("action", [Action.THROTTLE, Action.DROP])
def test_an_outage_is_an_error_and_the_next_delivery_counts(reception: Reception, action: Action) -> None:
    reception.wait()
    reception.world.wire.plan(Fault(operation="TransactWriteItems", action=action, times=60))
    with pytest.raises(TransientError):
        from_carrier(scan(), None)
    assert reception.written() == []

    reception.world.wire.forget()
    from_carrier(scan(), None)
    assert reception.outcome == {"depot": "BER"}


@pytest.mark.parametrize("operation", ["TransactWriteItems", "SendTaskSuccess", "UpdateItem"])
@pytest.mark.parametrize("moment", Moment)
def test_a_receiver_that_dies_at_any_call_is_finished_by_the_next_delivery(
    reception: Reception, operation: str, moment: Moment
) -> None:
    reception.wait()
    reception.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=moment))
    with pytest.raises(Killed):
        from_carrier(scan(), None)

    reception.world.wire.forget()
    from_carrier(scan(), None)
    assert reception.outcome == {"depot": "BER"}


def test_a_function_of_another_release_rejects_every_event(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.PROTOCOL, str(PROTOCOL_VERSION + 1))

    with pytest.raises(ProtocolMismatch):
        from_carrier(scan(), None)


def test_failures_are_redelivered() -> None:
    failed = False
    try:
        module.EventReceiver(from_carrier.function)({"id": "x"}, None)
    except TransientError:
        failed = True
    assert failed
