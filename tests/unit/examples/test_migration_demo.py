"""The migration demo: a short run holds, and it notices what a missing condition breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.wallet.migration_demo.checks import EQUAL
from examples.wallet.migration_demo.report import document, html, write
from examples.wallet.migration_demo.run import Result, run
from saga_runtime.migration import moves, worker
from saga_runtime.migration.moves import Move


@pytest.fixture(scope="module")
def result() -> Result:
    return run(seed=3, rate=12, least_seconds=1, way=(4, 1))


def test_short_run_holds(result: Result) -> None:
    assert result.holds, document(result, seed=3)
    assert {visit.phase for visit in result.timeline.visits} == {0, 1, 2, 3, 4}
    assert sum(result.outcomes.requests.values()) > 300
    assert sum(result.chaos.struck.values()) > 30
    assert all(one.checked for one in result.checks.invariants.values())


def test_report_has_what_a_reader_looks_for(result: Result, tmp_path: Path) -> None:
    json_file, page = write(result, tmp_path, seed=3)

    told = json.loads(json_file.read_text("utf-8"))
    assert (told["refused_by_migration"], told["lost"], told["holds"]) == (0, 0, True)
    assert {"phases", "requests", "invariants", "seconds"} <= told.keys()
    assert page.read_text("utf-8") == html(result, seed=3)
    assert "<svg" in html(result, seed=3)


def test_report_is_as_wide_as_its_window_and_its_tables_scroll(result: Result) -> None:
    page = html(result, seed=3)

    assert "<meta name='viewport' content='width=device-width, initial-scale=1'>" in page
    assert "color-scheme: light dark" in page
    assert page.count("<table") == page.count('<div class="wide"><table') == 3
    assert '<div class="wide"><svg' in page


@pytest.mark.proof
def test_same_seed_repeats_a_run(result: Result) -> None:
    again = run(seed=3, rate=12, least_seconds=1, way=(4, 1))

    assert [visit.phase for visit in again.timeline.visits] == [visit.phase for visit in result.timeline.visits]
    assert again.outcomes.requests == result.outcomes.requests


@pytest.mark.proof
def test_copy_of_another_value_than_was_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = moves._Entry

    class Careless(made):  # type: ignore[misc, valid-type]
        def as_read(self, item: Any, attributes: Any) -> Any:
            return self

    monkeypatch.setattr(moves, "_Entry", Careless)

    result = run(seed=2, rate=25, least_seconds=1, way=(9,))

    assert result.checks.invariants[EQUAL].violated


@pytest.mark.proof
def test_backfill_by_add_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The article's end: what was mirrored before the copy counts twice."""
    entries = moves.entries

    def adding(layout: Any, table: str, concern: Any, move: Move, old: Any, new: Any) -> list[Any]:
        made = entries(layout, table, concern, move, old, new)
        if move is not Move.COPY or concern.name not in {"ECOPAY", "POINT"}:
            return made
        put = made[1]["Put"]
        balance = {**put["Item"]["balance"], "N": str(2 * int(put["Item"]["balance"]["N"]))}
        made[1] = {"Put": {**put, "Item": {**put["Item"], "balance": balance}}}
        return made

    monkeypatch.setattr(worker, "entries", adding)

    result = run(seed=5, rate=12, least_seconds=1, way=(9,))

    assert result.checks.invariants[EQUAL].violated
