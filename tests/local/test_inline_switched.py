"""Inline transfers are switched off, and on again, while requests are in flight: each moves its money once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import pytest

from constructs_lib.testing import Fault, HttpResponse

from .inline_system import STACK, InlineSystem, deployed_inline, synthesized
from .transfer_system import SPEED, transfer, until

pytestmark = pytest.mark.proof

HELD_SECONDS: Final = 20
"""Emulated. Longer than until a saga is due, shorter than an Express execution may take."""
HOLDS: Final = Fault(
    function=f"states:{STACK}/Transfer/Express", call="lambda:Invoke", action="delay", seconds=HELD_SECONDS
)
EACH: Final = 3
"""Requests of each kind before each deployment."""
BODIES: Final[Mapping[str, Mapping[str, object]]] = {
    "within": transfer("alice", "bob", 10),
    "partner": transfer("alice", "carol", 10, to_ledger="partner"),
    "refused": transfer("alice", "dora", 10, to_ledger="partner"),
}


@pytest.fixture
def system() -> Iterator[InlineSystem]:
    with deployed_inline(speed=SPEED, reconciled=True) as system:
        system.open("alice", "bob")
        system.open("carol", ledger="partner")
        yield system


@pytest.mark.parametrize(
    "runs",
    [("PREPARED", "STANDARD"), ("STANDARD", "INLINE")],  # the documented way; and a rollback that skips it
    ids="-".join,
)
def test_run_changes_with_requests_in_flight(system: InlineSystem, runs: tuple[str, ...]) -> None:
    settled: dict[str, Future[HttpResponse]] = {}
    system.user()
    system.aws.faults.plan(HOLDS)

    def asked(key: str, body: object) -> HttpResponse:
        with suppress(OSError):  # the gateway timed out
            system.ask(key, body)
        return system.settle(key, body)

    with ThreadPoolExecutor(EACH * len(BODIES) * (len(runs) + 1)) as clients:

        def send(under: str) -> None:
            before = len(settled)
            for kind, body in BODIES.items():
                for number in range(EACH):
                    key = f"{under}-{kind}-{number}"
                    settled[key] = clients.submit(asked if number % 2 else system.settle, key, body)
            until(lambda: len(system.records()) >= before + EACH * len(BODIES), "the reservations")

        send("first")
        for run in runs:
            assert system.in_progress() > 0
            system.aws.deploy(synthesized(run))
            send(run)
        answers = {key: future.result() for key, future in settled.items()}
    system.aws.faults.report().require_all_fired()
    system.aws.faults.clear()

    moved = {kind: sum(answers[key].status == 200 for key in answers if f"-{kind}-" in key) for kind in BODIES}
    assert {answer.status for answer in answers.values()} <= {200, 404, 500}
    assert moved["refused"] == 0
    assert moved["within"] + moved["partner"] >= EACH
    assert system.balances() | system.balances("partner") == {
        "alice": 1_000 - 10 * (moved["within"] + moved["partner"]),
        "bob": 1_000 + 10 * moved["within"],
        "carol": 1_000 + 10 * moved["partner"],
    }
    assert not [invariant for invariant in system.audit() if invariant.violations]
