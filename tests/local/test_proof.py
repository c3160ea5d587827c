"""The proof kit on local AWS: processes that die, IAM, and the deployed wiring, for a sample of the cases.

The simulator runs all of them (``tests/simulator/test_users.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from aws_cdk import App

from constructs_lib.testing import LocalAws
from constructs_lib.testing.invariants import Invariant, audit_effects
from constructs_lib.testing.proof import NotProvenError, Proof
from constructs_lib.testing.simulator import Intent, Result, World
from examples.funds_transfer.stack import FundsTransferStack
from tests.sampling import DRAW
from tests.simulator.test_users import Booked

from .reconcilers import prepare_reconciler
from .two_ledgers import TwoLedgers, give_time

SPEED = 10.0
FUNCTION_SECONDS = 200
"""In the emulator's time: long enough for a process to start on a busy machine."""


class Transfers(Booked):
    """A transfer that is made, or refused; the same audits as in the simulator, and the log's against the ledger's."""

    def intent(self, number: int, random: Random) -> Intent:
        intent = super().intent(number, random)
        amount = 5_000 if self.refused else intent.body["amount"]
        return replace(intent, body={**intent.body, "amount": amount})

    def __init__(self, *, refused: bool = False) -> None:
        self.refused = refused

    def audit(self, world: World) -> Iterable[Invariant]:
        rows, entries = world.table(world.output("LogTableName")), world.table(world.output("LedgerTableName"))
        return audit_effects(rows, entries, steps=("Transfer", "Debit", "Credit"))


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    folder = tmp_path_factory.mktemp("cdk.out")
    app = App(outdir=str(folder))
    FundsTransferStack(app, "FundsTransfer")
    app.synth()
    with LocalAws(speed=SPEED) as aws:
        outputs = aws.deploy(folder)["FundsTransfer"]
        prepare_reconciler(aws, outputs, seconds=FUNCTION_SECONDS, reconciled=True)
        give_time(TwoLedgers(aws, outputs, SPEED), FUNCTION_SECONDS)
        yield aws


def test_completed_transfers_are_proven(aws: LocalAws, tmp_path: Path) -> None:
    with Proof(aws, Transfers(), report=tmp_path) as proof:
        crashes = proof.survives_crashes(at_most=4)
        proof.duplicates_are_one()
        proof.retry_completes()
        proof.concurrent_duplicates_are_one()

    assert len(crashes.cases) == 5
    assert crashes.enumerated > 40
    assert {case.status for case in crashes.cases} >= {200}
    assert len({case.fault for case in crashes.cases}) > 2
    assert crashes.invariants["the books have every transfer"] == 5
    assert crashes.invariants["log and ledger agree"] > 2
    document = json.loads((tmp_path / "proof.json").read_text("utf-8"))
    assert (document["holds"], document["layer"]) == (True, "local AWS")


def test_refused_transfers_are_proven(aws: LocalAws) -> None:
    with Proof(aws, Transfers(refused=True)) as proof:
        crashes = proof.survives_crashes(at_most=3, draw=DRAW)

    assert crashes.cases[0].status == 402


def test_transfers_survive_random_faults(aws: LocalAws) -> None:
    with Proof(aws, Transfers()) as proof:
        check = proof.survives_random_faults(requests=8)

    assert check.invariants["no request is left in progress"] == 8


class _Invalid(Transfers):
    """Requests that the schema refuses."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), body={})

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        return ()


def test_requests_of_which_none_settles_prove_nothing(aws: LocalAws) -> None:
    told = r"settled requests of transfers must be 1 or more, got 0 of 3 \(3 received 400: .+\); correct the intents"
    with Proof(aws, _Invalid()) as proof, pytest.raises(NotProvenError, match=told):
        proof.survives_random_faults(requests=3)


class _Elsewhere(Transfers):
    """Books that must have something that no request asked for."""

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        return super().audit_results(world, [*results, *(replace(one, key="more") for one in results)])


def test_request_that_resulted_in_something_else_is_found(aws: LocalAws) -> None:
    with (
        Proof(aws, _Elsewhere()) as proof,
        pytest.raises(NotProvenError, match="the books have every transfer: the books are"),
    ):
        proof.duplicates_are_one()


class _Simulated(Transfers):
    """A workload that needs what only the simulator has."""

    def prepare(self, world: World, random: Random) -> None:
        del random
        world.kernel.sleep(1)


def test_workload_of_the_simulator_alone_is_refused(aws: LocalAws) -> None:
    with (
        Proof(aws, _Simulated()) as proof,
        pytest.raises(AttributeError, match="world must have kernel for this workload, and has not on local AWS; use"),
    ):
        proof.duplicates_are_one()


class _Unknown(Transfers):
    """Requests to an operation that is not deployed."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), operation="payments")


def test_operation_of_no_api_is_refused(aws: LocalAws) -> None:
    with (
        Proof(aws, _Unknown()) as proof,
        pytest.raises(ValueError, match=r"operation must be one of .* that authorizes by IAM, got payments; there are"),
    ):
        proof.duplicates_are_one()
