"""Gates between the phases of a migration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from saga_runtime.errors import Conflict
from saga_runtime.migration.gates import Facts, ahead, back, due
from saga_runtime.migration.progress import Job, Pass, Phase
from saga_runtime.migration.terms import Terms
from tests.unit.support.migrations import LAST, LAYOUT, open_table
from tests.unit.support.world import World

NOW, SECOND = 10_000_000, 1_000
TERMS = Terms(
    layout=LAYOUT,
    most_phase=LAST,
    segments=2,
    ended_after_seconds=60,
    clean_for_seconds=100,
    kept_for_seconds=500,
    writers=("Pay",),
)


def passed(phase: int, *, began_ms: int = NOW - 1, **changes: Any) -> Pass:
    done = Pass(
        phase=phase,
        changes=phase,
        began_at_ms=began_ms,
        ended_at_ms=NOW,
        seen=5,
        moved=0,
        left=0,
        compared=5,
        different=0,
        clean_since_ms=began_ms - 1_000_000,
    )
    return replace(done, **changes)


def facts(phase: int, *, changed_ms: int = 1_000_000, **changes: Any) -> Facts:
    good = passed(phase)
    known = Facts(
        phase=Phase(number=phase, changed_at_ms=changed_ms, changes=phase),
        now_ms=NOW,
        moved=[good, good],
        compared=[good, good],
        deployed={"Pay": 0},
    )
    return replace(known, **changes)


@pytest.mark.parametrize("phase", range(LAST))
def test_every_gate_opens_when_everything_holds(phase: int) -> None:
    assert ahead(TERMS, facts(phase)) == []


@pytest.mark.parametrize("phase", range(1, LAST))
def test_return_is_open_from_every_phase_but_the_last(phase: int) -> None:
    assert back(TERMS, facts(phase)) == []
    assert "old items are deleted" in back(TERMS, facts(LAST))[0]


@pytest.mark.parametrize("phase", [1, LAST - 1])
@pytest.mark.parametrize(
    "changes",
    [{"changed_ms": NOW - 59 * SECOND}, {"deployed": {"Pay": NOW - 59 * SECOND}}, {"deployed": {}}],
    ids=["phase just changed", "function just deployed", "function missing"],
)
def test_gate_is_closed_while_code_of_before_may_run(phase: int, changes: dict[str, Any]) -> None:
    assert ahead(replace(TERMS, kept_for_seconds=0), facts(phase, **changes))


@pytest.mark.parametrize("phase", range(2, LAST))
@pytest.mark.parametrize(
    "moved",
    [[None, None], [passed(0)] * 2, [passed(0, left=1)] * 2],
    ids=["no pass", "pass of another phase", "something left"],
)
def test_gate_is_closed_until_everything_moved(phase: int, moved: list[Pass | None]) -> None:
    if moved[0] is not None and moved[0].left:
        moved = [passed(phase), passed(phase, left=1)]

    assert ahead(TERMS, facts(phase, moved=moved))


@pytest.mark.parametrize("phase", range(2, LAST))
def test_pass_of_the_same_phase_at_another_time_counts_not(phase: int) -> None:
    before = passed(phase, changes=phase - 2)

    assert ahead(TERMS, facts(phase, moved=[before, before]))


@pytest.mark.parametrize("phase", [4, 10])
@pytest.mark.parametrize(
    "changes",
    [{"different": 1}, {"clean_since_ms": None}, {"clean_since_ms": NOW - 99 * SECOND}],
    ids=["different", "not compared", "not for long"],
)
def test_gate_is_closed_until_comparisons_were_clean_for_long(phase: int, changes: dict[str, Any]) -> None:
    assert ahead(TERMS, facts(phase, compared=[passed(phase), passed(phase, **changes)]))
    assert ahead(TERMS, facts(phase, compared=[passed(phase), None]))


@pytest.mark.parametrize("phase", [3, 4, 5, 9, 10, 11])
def test_known_differences_close_the_gate_wherever_items_are_compared(phase: int) -> None:
    assert "got 1" in ahead(TERMS, facts(phase, compared=[None, passed(phase, different=1)]))[0]
    assert ahead(TERMS, facts(phase, compared=[passed(phase), passed(phase, changes=phase - 1, different=1)])) == (
        [] if phase not in {4, 10} else ahead(TERMS, facts(phase, compared=[passed(phase), None]))
    )


def test_pass_by_a_clock_that_is_ahead_counts_not() -> None:
    early = [passed(4, began_ms=NOW + 1)] * 2

    assert "a backfill pass" in ahead(TERMS, facts(4, moved=early))[0]
    assert "a verify pass" in ahead(TERMS, facts(4, compared=early))[0]
    assert back(TERMS, facts(1, moved=[passed(1, began_ms=NOW + 1)] * 2))
    assert due(TERMS, Job.BACKFILL, facts(4).phase, early[0], NOW)


def test_comparisons_before_the_phase_count_not() -> None:
    assert "passes must be clean" in ahead(TERMS, facts(4, changed_ms=NOW - 99 * SECOND))[0]


def test_old_items_are_kept() -> None:
    assert "old items must be kept" in ahead(TERMS, facts(LAST - 1, changed_ms=NOW - 499 * SECOND))[0]


def test_deployment_limits_the_phase() -> None:
    assert "deploy Migration(phase=6)" in ahead(replace(TERMS, most_phase=5), facts(5))[0]


def test_legacy_code_returns_only_when_everything_is_old() -> None:
    late = [passed(1, began_ms=1_000_000 + 60 * SECOND - 1)] * 2

    assert back(TERMS, facts(1, moved=late))
    assert back(TERMS, facts(1, moved=[passed(1, left=1)] * 2))
    assert back(TERMS, facts(1, changed_ms=NOW - 1))


def test_terms_survive_their_stored_form() -> None:
    assert Terms.from_json(TERMS.to_json()) == TERMS


def test_phase_changes_by_one_and_once(world: World) -> None:
    store = open_table(world).store
    read = store.phase()

    changed = store.change_phase(read, 1, NOW)

    assert store.phase() == changed
    with pytest.raises(ValueError, match="must change by one"):
        store.change_phase(changed, 3, NOW)
    with pytest.raises(ValueError, match="must change by one"):
        store.change_phase(read, -1, NOW)
    assert store.change_phase(read, 1, NOW) == changed, "an operator whose answer was lost sends it again"
    with pytest.raises(Conflict):
        store.change_phase(read, 1, NOW + 1)


def test_phase_item_of_an_operator_who_was_late_is_refused(world: World) -> None:
    store = open_table(world).store
    first = store.change_phase(store.phase(), 1, NOW)
    store.change_phase(store.change_phase(first, 2, NOW), 1, NOW)  # there and back: the number is the same

    with pytest.raises(Conflict):
        store.change_phase(first, 2, NOW)
