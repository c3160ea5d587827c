"""``make simulate`` runs every saga once, on several processors, and reports what it found."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Self

import pytest

from constructs_lib.testing.simulator import Deployment, SimulationReport, simulate
from constructs_lib.testing.simulator.checks.findings import Finding
from constructs_lib.testing.simulator.checks.requests import Requests
from constructs_lib.testing.simulator.run import RunResult
from constructs_lib.testing.simulator.simulation import SAGAS_OF_A_RUN
from tests.simulator import __main__ as command
from tests.simulator import campaign as campaigns
from tests.simulator.campaign import SHARES, Block, Campaign, shares

from .conftest import Deployed
from .examples import EXAMPLES

pytestmark = pytest.mark.proof


def test_campaign_of_several_processes_has_the_findings_of_one(deployed: Deployed) -> None:
    campaign = Campaign(wanted={"funds_transfer": 120}, seed=5)
    seen: list[int] = []
    campaign.run(2, lambda: seen.append(campaign.reports["funds_transfer"].sagas))
    found = campaign.reports["funds_transfer"]

    alone = simulate(deployed("funds_transfer"), EXAMPLES["funds_transfer"].workload(), sagas=120, seed=5)

    assert seen == sorted(seen)
    assert (found.sagas, found.faults, found.statuses) == (alone.sagas, alone.faults, alone.statuses)
    assert found.coverage.as_json() == alone.coverage.as_json()


def test_blocks_share_no_seed_and_leave_no_saga_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "assembly", Path)
    monkeypatch.setattr(campaigns, "drawn_assembly", lambda *drawn: Path(str(hash(drawn))))
    blocks = list(Campaign(wanted={"drawn": 12_000, "funds_transfer": 250}, seed=1_000)._blocks())

    for name, sagas in (("drawn", 12_000), ("funds_transfer", 250)):
        of_name = [block for block in blocks if block.name == name]
        runs = [(block.seed, -(-block.sagas // SAGAS_OF_A_RUN)) for block in of_name]
        seeds = [seed for first, count in runs for seed in range(first, first + count)]
        assert sum(block.sagas for block in of_name) == sagas
        assert len(set(seeds)) == len(seeds) == -(-sagas // SAGAS_OF_A_RUN)
    assert len({block.folder for block in blocks if block.name == "drawn"}) == 3


@pytest.mark.parametrize("sagas", [1, 7, 2_000, 20_000])
def test_shares_divide_all_sagas(sagas: int) -> None:
    found = shares(sagas, [*SHARES])
    assert set(found) == {*EXAMPLES, "drawn", "released", "queued"}
    assert all(found.values())
    # Each name has one at least, so few sagas may become some more.
    assert sagas <= sum(found.values()) <= max(sagas, 2 * len(SHARES))


def _found(block: Block) -> SimulationReport:
    report = SimulationReport(seed=block.seed)
    requests = {
        "transfers": Requests(sent=block.sagas, settled=0 if block.seed == 22 else block.sagas, final=block.sagas)
    }
    statuses = {"COMPLETED": block.sagas}
    run = RunResult(seed=block.seed, sagas=block.sagas, statuses=statuses, faults=3, requests=requests)
    run.findings = [Finding("promise", "it moved twice")] if block.seed == 20 else []
    report.add(run)
    return report


class _Pool:
    """Runs blocks in this process."""

    def __init__(self, _workers: int, **_options: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, _work: object, block: Block) -> object:
        ended: Future[SimulationReport] = Future()
        ended.set_result(_found(block))
        return ended


@pytest.mark.parametrize(("seed", "status"), [(20, 1), (21, 0), (22, 1)])
def test_command_reports_seed_totals_and_findings(
    seed: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaigns, "ProcessPoolExecutor", _Pool)
    monkeypatch.setattr(campaigns, "assembly", Path)
    monkeypatch.setattr(command, "REPORT", tmp_path / "report.json")
    ledger = tmp_path / "ledger.md"
    ledger.write_text("Together: 5 sagas in 1 runs.\n\n| `0123456789ab` | 1 | 1,200 | 2 | 0 | 0 | 1 |\n")
    monkeypatch.setattr(command, "LEDGER", ledger)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(Block, "shortened", lambda _block, run: f"seed {run.seed} made shorter")
    arguments = ["--sagas", "100", "--seed", str(seed), "--examples", "funds_transfer", "--record"]
    monkeypatch.setattr(sys, "argv", ["simulate", *arguments])

    assert command.main() == status

    shown = capsys.readouterr()
    assert f"SEED={seed}" in shown.err
    assert f"100 sagas from seed {seed}" in shown.out
    assert ("it moved twice" in shown.out) is (seed == 20)
    assert ("seed 20 made shorter" in shown.out) is (seed == 20)
    assert ("funds_transfer: settled requests of transfers must be 1 or more, got 0" in shown.out) is (seed == 22)
    written = json.loads((tmp_path / "report.json").read_text())
    assert {"sagas", "seed", "faults", "parked", "violated", "seconds", "coverage"} <= set(written)
    assert (written["seed"], written["sagas"], written["violated"]) == (seed, 100, seed == 20)
    # A run that broke the promise, or tried nothing, is not a row of the ledger.
    assert ("Together: 1,300 sagas in 2 runs." in ledger.read_text()) is not bool(status)


def test_ledger_has_the_total_of_its_rows() -> None:
    page = command.LEDGER.read_text(encoding="utf-8")
    assert "Together: " in page
    assert command.with_total(page) == page


def test_seed_is_fresh_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["simulate"])
    assert len({command._options().seed for _ in range(20)}) > 1


def test_report_of_two_processes_adds_up(deployed: Deployed) -> None:
    deployment: Deployment = deployed("funds_transfer")
    reports = [simulate(deployment, EXAMPLES["funds_transfer"].workload(), sagas=10, seed=seed) for seed in (1, 2)]
    merged = SimulationReport(seed=1)
    for report in reports:
        merged.merge(report)
    assert merged.sagas == 20
    assert merged.faults == sum(report.faults for report in reports)
    assert merged.coverage.states.total() == sum(report.coverage.states.total() for report in reports)
