"""The emulator's state machines take turns with everybody else at the tables."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ministack import app
from ministack.services import dynamodb, stepfunctions

from constructs_lib.testing.emulator.clock import EmulatorClock
from constructs_lib.testing.emulator.corrections import Emulator
from constructs_lib.testing.emulator.corrections.dynamodb import one_writer
from constructs_lib.testing.emulator.settings import EmulatorSettings


@pytest.fixture
def serving_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Thread]:
    """The thread of the loop that serves the emulator's requests."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    monkeypatch.setattr(app, "_MAIN_LOOP", loop)
    yield thread
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def writing_thread(monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """The thread in which a state machine's own write to a table happens."""
    seen: list[threading.Thread] = []

    def put_item(_data: object) -> tuple[int, dict[str, str], bytes]:
        seen.append(threading.current_thread())
        return 200, {}, b"{}"

    monkeypatch.setattr(dynamodb, "_put_item", put_item)
    stepfunctions._invoke_dynamodb("putItem", {})
    return seen[0]


def test_a_state_machine_writes_where_all_other_writes_happen(
    monkeypatch: pytest.MonkeyPatch, serving_thread: threading.Thread, tmp_path: Path
) -> None:
    monkeypatch.setattr(stepfunctions, "_invoke_dynamodb", stepfunctions._invoke_dynamodb)
    clock = EmulatorClock(base=time.time(), speed=1)
    one_writer(Emulator(settings=EmulatorSettings(run_folder=tmp_path), clock=clock))

    assert writing_thread(monkeypatch) is serving_thread


def test_without_the_correction_it_writes_concurrently(
    monkeypatch: pytest.MonkeyPatch, serving_thread: threading.Thread
) -> None:
    assert writing_thread(monkeypatch) is not serving_thread
