"""The migration worker's handler: it passes while there is work, and reads two items otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handlers import migration
from saga_runtime.migration.terms import Terms
from saga_runtime.protocol import Env
from tests.unit.support.migrations import LAST, LAYOUT, TABLE, Table, open_table
from tests.unit.support.world import Context, World

TERMS = Terms(
    layout=LAYOUT,
    most_phase=LAST,
    segments=1,
    ended_after_seconds=60,
    clean_for_seconds=0,
    kept_for_seconds=0,
    writers=("Pay",),
)


@pytest.fixture
def table(world: World, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv(Env.MIGRATION, json.dumps(TERMS.to_json()))
    monkeypatch.setenv(Env.MIGRATION_TABLE, TABLE)
    return open_table(world)


def run(job: str, remaining_ms: int = 240_000) -> Any:
    return migration.handler({"job": job, "segment": "0"}, Context(remaining_ms=remaining_ms))


def test_backfill_moves_once_and_rests_until_late_births_have_ended(table: Table) -> None:
    table.go_to(9)
    assert run("backfill") == {"seen": 2, "left": 0}
    assert table.balances("anna") == (100, 100)

    assert table.world.calls_of(lambda: run("backfill")) == ["GetItem", "GetItem"]

    table.world.clock.ms += 60_000
    assert run("backfill") == {"seen": 2, "left": 0}
    assert table.world.calls_of(lambda: run("backfill")) == ["GetItem", "GetItem"]


@pytest.mark.parametrize(("phase", "seen"), [(0, 0), (1, 0), (2, 0), (3, 2), (4, 2), (5, 2), (6, 0), (7, 0), (9, 2)])
def test_verify_compares_while_a_group_is_in_both_items(table: Table, phase: int, seen: int) -> None:
    table.move_to(phase)

    assert run("verify")["seen"] == seen


def test_nothing_moves_while_there_are_legacy_functions(table: Table) -> None:
    assert table.world.calls_of(lambda: run("backfill")) == ["GetItem", "GetItem"]


def test_run_without_time_continues_later(table: Table) -> None:
    table.go_to(9)

    assert run("backfill", remaining_ms=9_000) == {"seen": 0, "left": 0}
    assert run("backfill") == {"seen": 2, "left": 0}
