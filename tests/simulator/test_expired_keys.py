"""Clients that return after their response has expired are refused, and nothing moves, despite other faults."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from constructs_lib.testing.simulator import simulate
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.outside.clients import Client, Fate
from constructs_lib.testing.simulator.promise import audit
from constructs_lib.testing.simulator.world import World
from saga_runtime.http.response import Problem
from saga_runtime.protocol import SETTLED, RecordAttribute

from .examples import EXAMPLES

SAGAS = 150
MOST_LATE = 1_800 * SECOND


def test_late_clients_are_refused_and_nothing_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, kept = Counter[str](), Counter[str]()
    monkeypatch.setattr(Client, "_insist", comes_back(report))
    monkeypatch.setattr("constructs_lib.testing.simulator.run.audit", _counts(kept))

    found = simulate(with_short_replays(tmp_path), EXAMPLES["funds_transfer"].workload(), sagas=SAGAS)

    found.require_kept()
    # Otherwise nothing was tried.
    assert report["refused"] > SAGAS
    assert report["replayed"]
    assert kept["tombstones"] > kept["whole"]


def with_short_replays(folder: Path) -> Path:
    """Synthesize the transfers into a folder, with responses that expire after a minute."""
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App, Duration

    from constructs_lib import IdempotencyTable

    short = functools.partial(IdempotencyTable, replay_for=Duration.minutes(1))
    with mock.patch("examples.funds_transfer.stack.IdempotencyTable", short):
        app = App(outdir=str(folder), analytics_reporting=False)
        EXAMPLES["funds_transfer"].add(app)
        app.synth()
    return folder


def comes_back(report: Counter[str]) -> Any:
    """A client that sends its request again, long after it was answered."""
    insist = Client._insist

    def insists_and_comes_back(self: Client) -> None:
        insist(self)
        fate = self._fate
        fate.done = False
        for _ in range(3):
            self._world.kernel.sleep(int(self._share() ** 2 * MOST_LATE))
            response = self._post(fate.intent.body)
            if response is not None and response.status == 410:
                report["refused"] += 1
                _agrees(response.json(), fate)
            elif response is not None and response.headers.get("idempotent-replayed"):
                report["replayed"] += 1
        fate.done = True

    return insists_and_comes_back


def _agrees(document: dict[str, Any], fate: Fate) -> None:
    """A refusal reports the same outcome as the response that the client had."""
    assert document["type"] == f"urn:cdk-sagas:problem:{Problem.KEY_EXPIRED}"
    for status, _ in fate.settled:
        assert document["http_status"] == status
        assert (document["saga_status"] == "COMPLETED") is (status < 300)


def _counts(kept: Counter[str]) -> Any:
    """The audit, which counts what is left of records."""

    def counts(world: World, fates: list[Fate]) -> Any:
        for item in (item for table in world.parts.requests for item in world.records(table)):
            whole = RecordAttribute.INPUT in item
            kept["whole" if whole else "tombstones"] += 1
            assert whole or item[RecordAttribute.STATUS]["S"] in SETTLED
        return audit(world, fates)

    return counts
