"""Reports that runs write: a proof's, a migration's, a soak's. Each is made by a small run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.testing.proof import NotProvenError, Proof
from constructs_lib.testing.simulator import Deployment
from examples.wallet.migration_demo.report import PAGE, write
from examples.wallet.migration_demo.run import run
from tests.simulator.examples import assembly
from tests.simulator.workloads.transfers import Transfers, Weakened
from tests.soak.report import write as write_soak
from tests.soak.run import Settings, soak
from tests.soak.wishes import Example

from . import served
from .chromium import Page
from .looks import Look, faults

SEED: Final = 4


def _proof(folder: Path) -> Path:
    """One whose claims hold."""
    with (
        Deployment.of_assembly(assembly("funds_transfer")) as deployment,
        Proof(deployment, Transfers(), seeds=(SEED,), report=folder) as proof,
    ):
        proof.survives_crashes()
        proof.duplicates_are_one()
        proof.retry_completes()
    return folder / "proof.html"


def _broken(folder: Path) -> Path:
    """One whose claim does not hold."""
    with (
        Deployment.of_assembly(assembly("funds_transfer")) as deployment,
        pytest.raises(NotProvenError),
        Proof(deployment, Weakened(), seeds=(SEED,), report=folder) as proof,
    ):
        proof.survives_crashes(at_most=60)
    return folder / "proof.html"


def _migration(folder: Path) -> Path:
    write(run(seed=3, rate=12, least_seconds=1, way=(4, 1)), folder, seed=3)
    return folder / PAGE


def _soak(folder: Path) -> Path:
    clients = {Example.TRANSFERS: 3, Example.ORDERS: 3, Example.PAYOUTS: 3, Example.CARTS: 6}
    page, _ = write_soak(soak(Settings(seed=6, seconds=20, requests=5, clients=clients), print), folder)
    return page


MADE_BY: Final[dict[str, Callable[[Path], Path]]] = {
    "proof": _proof,
    "proof-broken": _broken,
    "migration": _migration,
    "soak": _soak,
}


@pytest.fixture(scope="module", params=MADE_BY)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A report: its name and its address."""
    folder = tmp_path_factory.mktemp(request.param)
    made = MADE_BY[request.param](folder)
    with served.folder(folder) as address:
        yield request.param, f"{address}/{made.name}"


def test_report_is_readable(report: tuple[str, str], look: Look, page: Page) -> None:
    name, address = report
    page.visit(address)
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")

    assert faults(page, f"report-{name}", look) == []
