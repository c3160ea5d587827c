"""The soak, for a minute: sagas of all four examples at once, while everything fails a little; then quiet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.soak.report import as_html, as_json, write
from tests.soak.run import Run, Settings, soak
from tests.soak.wishes import Example

SEED: Final = 6
SECONDS: Final = 60.0
REQUESTS: Final = 30
"""Of each example: fewer, and nothing may happen to them of what is to happen."""
LONGEST_SECONDS: Final = 1_800
"""More than the time limits of a soak, which waits on a busy machine."""
CLIENTS: Final = {Example.TRANSFERS: 3, Example.ORDERS: 3, Example.PAYOUTS: 3, Example.CARTS: 6}

pytestmark = [pytest.mark.proof, pytest.mark.timeout(LONGEST_SECONDS)]


@pytest.fixture(scope="module")
def run() -> Run:
    """One soak."""
    return soak(Settings(seed=SEED, seconds=SECONDS, requests=REQUESTS, clients=CLIENTS), print)


def test_after_the_last_fault_all_is_quiet_and_every_book_is_equal(run: Run) -> None:
    assert run.problems() == []


def test_sagas_of_every_example_completed_and_were_compensated_while_calls_failed_in_every_way(run: Run) -> None:
    numbers = as_json(run)

    assert [name for name, one in numbers["examples"].items() if not one["ends"].get("completed")] == []
    compensated = [one["ends"].get("compensated: refused", 0) for one in numbers["examples"].values()]
    assert sum(compensated) > 0
    assert numbers["faults"]["share"] >= 0.04
    assert {kind.split()[0] for kind in numbers["faults"]["by_kind"]} >= {"kill", "drop", "delay", "throttle", "error"}


def test_the_report_is_one_page_that_needs_nothing_else(run: Run, tmp_path: Path) -> None:
    page, numbers = write(run, tmp_path)

    assert json.loads(numbers.read_text("utf-8"))["seed"] == SEED
    text = page.read_text("utf-8")
    assert text == as_html(run)
    assert all(example in text for example in Example)
    assert "<svg" in text
    assert not [mark for mark in ("<script", "<link", "src=", "@import", "url(") if mark in text]
