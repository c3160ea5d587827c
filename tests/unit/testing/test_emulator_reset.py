"""A reset of the emulator and the event sources of its functions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from ministack.services import lambda_svc

from constructs_lib.testing.emulator import reset


def _followed(monkeypatch: pytest.MonkeyPatch, poll: Callable[[], bool]) -> threading.Thread:
    """A thread that asks the event sources once, as this function does."""
    monkeypatch.setattr(lambda_svc, "_poll_sqs", poll)
    for name in ("_poll_kinesis", "_poll_dynamodb_streams"):
        monkeypatch.setattr(lambda_svc, name, getattr(lambda_svc, name))
    reset.follow_event_sources()
    return threading.Thread(target=lambda_svc._poll_sqs)


def test_a_reset_ends_when_no_function_is_called_with_a_batch_that_was_received_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lambda_svc, "_esm_inflight", {})
    received, dispatch, called, finish = (threading.Event() for _ in range(4))
    order: list[str] = []

    def call() -> None:
        called.set()
        finish.wait()
        order.append("function")

    def poll() -> bool:
        received.set()
        dispatch.wait()
        lambda_svc._dispatch_esm_batch("esm", call)
        return True

    def empty() -> None:
        reset.reset()
        order.append("reset")

    polling, emptying = _followed(monkeypatch, poll), threading.Thread(target=empty)
    polling.start()
    assert received.wait(10)
    resets = reset.count()
    emptying.start()
    while reset.count() == resets:
        pass
    dispatch.set()
    assert called.wait(10)
    emptying.join(0.1)
    finish.set()
    polling.join(10)
    emptying.join(10)

    assert order == ["function", "reset"]


def test_no_event_source_is_asked_during_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    asked_meanwhile: list[bool] = []

    def poll() -> bool:
        asked.set()
        return False

    def empty() -> None:
        polling.start()
        asked_meanwhile.append(asked.wait(0.1))

    polling = _followed(monkeypatch, poll)
    monkeypatch.setattr(reset, "_empty_states", empty)

    reset.reset()
    polling.join(10)

    assert asked_meanwhile == [False]
    assert asked.is_set()
