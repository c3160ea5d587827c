"""Gates between the phases of a migration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from saga_runtime.errors import Conflict
from saga_runtime.migration import Change, LayoutChanged
from saga_runtime.migration.gates import Facts, ahead, back, due
from saga_runtime.migration.progress import Job, Pass, Phase
from saga_runtime.migration.terms import Terms
from tests.unit.support.migrations import AUDIT, CASH, LAST, LAYOUT, POINT, open_table
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


DAYS_40 = 40 * 86_400 * SECOND


def compared_at(began_ms: int, ended_ms: int, **changes: Any) -> Pass:
    return passed(4, began_ms=began_ms, ended_at_ms=ended_ms, clean_since_ms=began_ms - 1_000 * SECOND, **changes)


@pytest.mark.parametrize(
    ("age", "took", "opens"),
    [(3 * 3_600, 0, True), (3 * 3_600 + 1, 0, False), (40 * 86_400, 0, False), (40 * 86_400, 40 * 86_400, True)],
)
def test_comparison_is_recent(age: int, took: int, opens: bool) -> None:
    now = NOW + 2 * DAYS_40
    ended = now - age * SECOND
    known = facts(4, changed_ms=0, now_ms=now, compared=[compared_at(ended - took * SECOND, ended)] * 2)

    reasons = ahead(TERMS, known)

    assert reasons == [] if opens else "the last comparison must have ended within 10800 s" in reasons[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"deployed": {"Pay": NOW - 4 * SECOND}},
        {"moved": [passed(4, clean_since_ms=NOW - 4 * SECOND)] * 2},
        {"moved": [passed(4), passed(4, clean_since_ms=NOW - 4 * SECOND)]},
    ],
    ids=["writer deployed", "moved", "one segment moved"],
)
def test_comparison_is_newer_than_what_it_compares(changes: dict[str, Any]) -> None:
    before = [compared_at(NOW - 5 * SECOND, NOW - 3 * SECOND)] * 2
    after = [compared_at(NOW - 4 * SECOND, NOW - 3 * SECOND)] * 2

    assert "must have begun after the last move" in ahead(TERMS, facts(4, compared=before, **changes))[0]
    assert ahead(TERMS, facts(4, compared=after, **changes)) == []


@pytest.mark.parametrize("phase", range(1, LAST))
def test_writer_that_is_not_ready_closes_every_gate(phase: int) -> None:
    assert ahead(TERMS, facts(phase, unready={"Pay": "another layout"})) == [
        "writer Pay must be ready, got another layout"
    ]


@pytest.mark.parametrize("phase", range(1, LAST))
def test_writer_that_does_not_exist_closes_every_gate_once(phase: int) -> None:
    assert ahead(TERMS, facts(phase, deployed={})) == [
        "writers must exist, got no function Pay; correct Migration(writers=…)"
    ]


def test_writer_that_does_not_exist_closes_the_return_to_legacy_code() -> None:
    assert back(TERMS, facts(1, deployed={})) == [
        "writers must exist, got no function Pay; correct Migration(writers=…)"
    ]


def test_comparisons_before_the_phase_count_not() -> None:
    assert "passes must be clean" in ahead(TERMS, facts(4, changed_ms=NOW - 99 * SECOND))[0]


def test_old_items_are_kept() -> None:
    assert "old items must be kept" in ahead(TERMS, facts(LAST - 1, changed_ms=NOW - 499 * SECOND))[0]


def test_old_items_are_kept_from_the_last_move_on() -> None:
    moved = [passed(LAST - 1), passed(LAST - 1, clean_since_ms=NOW - 499 * SECOND)]

    assert ahead(TERMS, facts(LAST - 1, moved=moved)) == ["old items must be kept for 500 s, got 499 s; wait for 1 s"]


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

    changed = store.change_phase(read, 1, NOW, AUDIT)

    assert store.phase() == changed
    with pytest.raises(ValueError, match="must change by one"):
        store.change_phase(changed, 3, NOW, AUDIT)
    with pytest.raises(ValueError, match="must change by one"):
        store.change_phase(read, -1, NOW, AUDIT)
    assert store.change_phase(read, 1, NOW, AUDIT) == changed, "an operator whose answer was lost sends it again"
    with pytest.raises(Conflict):
        store.change_phase(read, 1, NOW + 1, AUDIT)


def test_layout_of_phase_1_is_kept(world: World) -> None:
    table = open_table(world)
    changed = replace(
        LAYOUT, groups=(LAYOUT.groups[0], (replace(POINT, attributes={"balance": "point", "t": "t"}), CASH))
    )
    other = replace(table.store, layout=changed)
    other.change_phase(other.change_phase(other.phase(), 1, NOW, AUDIT), 0, NOW, AUDIT)
    table.go_to(1)

    with pytest.raises(LayoutChanged, match="must be the one of phase 1"):
        other.phase()
    with pytest.raises(LayoutChanged):
        other.born("bert", {})
    with pytest.raises(LayoutChanged):
        other.writes("anna", {"POINT": Change(add={"t": 1})})
    with pytest.raises(LayoutChanged):
        other.read("anna", "POINT")
    with pytest.raises(LayoutChanged):
        other.change_phase(Phase(), 1, NOW, AUDIT)
    with pytest.raises(LayoutChanged):
        replace(table.worker(), store=other).run()
    table.go_to(0)
    assert other.phase().number == 0, "in phase 0 another one may begin"


def test_pilots_and_order_within_a_group_are_not_of_the_layout() -> None:
    first, second = LAYOUT.groups
    assert replace(LAYOUT, pilots=(), groups=(first, second[::-1])).fingerprint == LAYOUT.fingerprint
    assert replace(LAYOUT, groups=(second, first)).fingerprint != LAYOUT.fingerprint


def test_writer_compares_its_layout_once_a_minute(world: World) -> None:
    table = open_table(world)
    table.go_to(1)

    assert world.calls_of(lambda: table.writes("anna", 1)) == ["GetItem", "BatchGetItem"]
    assert world.calls_of(lambda: table.writes("anna", 1)) == ["BatchGetItem"]
    world.clock.ms += 60_000
    assert world.calls_of(lambda: table.writes("anna", 1)) == ["GetItem", "BatchGetItem"]
    world.clock.ms -= 1
    assert world.calls_of(lambda: table.writes("anna", 1)) == ["GetItem", "BatchGetItem"], (
        "by a clock that was set earlier"
    )


def test_phase_item_of_an_operator_who_was_late_is_refused(world: World) -> None:
    store = open_table(world).store
    first = store.change_phase(store.phase(), 1, NOW, AUDIT)
    store.change_phase(
        store.change_phase(first, 2, NOW, AUDIT), 1, NOW, AUDIT
    )  # there and back: the number is the same

    with pytest.raises(Conflict):
        store.change_phase(first, 2, NOW, AUDIT)
