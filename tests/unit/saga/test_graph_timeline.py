"""The timeline of a saga, as a terminal shows it."""

from __future__ import annotations

import doctest
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constructs_lib.saga.graph import timeline as module
from constructs_lib.saga.graph.timeline import MIN_WIDTH, TimelineRow, can_draw, duration, timeline
from saga_runtime.protocol import StepStatus

START = 1_763_745_903_120

ROWS = st.lists(
    st.builds(
        TimelineRow,
        step=st.text(max_size=120),
        status=st.one_of(st.sampled_from(list(StepStatus)), st.text(max_size=20)),
        started_ms=st.one_of(st.none(), st.integers(0, START)),
        ended_ms=st.one_of(st.none(), st.integers(0, START)),
        detail=st.text(max_size=200),
    ),
    max_size=6,
)


def row(step: str, begun: int | None, ended: int | None, status: str = "DONE", detail: str = "") -> TimelineRow:
    """A row, in milliseconds since the start."""
    at = [None if moment is None else START + moment for moment in (begun, ended)]
    return TimelineRow(step=step, status=status, started_ms=at[0], ended_ms=at[1], detail=detail)


def line_of(lines: list[str], step: str) -> str:
    return next(line for line in lines if line[2:].startswith(step))


def cells(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(char) in {"W", "F"} for char in line)
    return len(line) + wide - sum(bool(unicodedata.combining(char)) for char in line)


def test_a_saga_that_compensated_is_drawn_so() -> None:
    rows = [
        row("Commit", 95_000, 95_000, "TOMBSTONE"),
        row("Reserve", 220, 94_000, "COMPENSATED"),
        row("Charge", 900, None, "INTENT", "the provider answered neither yes nor no"),
        row("Receipt", None, None, "not reached"),
        row("Quote", 0, 0, "RECORDED"),
    ]

    assert timeline(rows, width=90, now_ms=START + 140_000) == [
        "2025-11-21 17:25:03.120 UTC                                                2 m 20 s in all",
        "                                   0                  1 m                2 m",
        "───────────────────────────────────┬──────────────────┬──────────────────┬────────────────",
        "◦ Quote    RECORDED         +0 ms  ◆                  ┊                  ┊",
        "↩ Reserve  COMPENSATED    +220 ms  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░       ┊        1 m 33 s",
        "? Charge   INTENT         +900 ms  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▶  2 m 19 s",
        "  └ the provider answered neither yes nor no",
        "∅ Commit   TOMBSTONE    +1 m 35 s  ┊                  ┊          ◆       ┊",
        "· Receipt  not reached             ┊                  ┊                  ┊",
    ]


def test_without_unicode_everything_is_ascii() -> None:
    rows = [row("Charge", 0, 9_000, "INTENT", "zu spät"), row("Ship[größe]", 9_000, 9_000)]

    lines = timeline(rows, unicode=False)

    assert "".join(lines).isascii()
    assert "~~~" in line_of(lines, "Charge")
    assert "zu sp\\xe4t" in "\n".join(lines)


@given(rows=ROWS, width=st.integers(0, 200), unicode=st.booleans(), now=st.one_of(st.none(), st.integers(0, START)))
def test_no_line_is_wider_than_the_terminal(
    rows: list[TimelineRow], width: int, unicode: bool, now: int | None
) -> None:
    lines = timeline(rows, width=width, now_ms=now, unicode=unicode)

    assert max(map(cells, lines), default=0) <= max(width, MIN_WIDTH)
    assert all(line.isprintable() for line in lines)


def test_a_providers_control_characters_do_not_reach_the_terminal() -> None:
    lines = timeline([row("Charge", 0, 1, "FAILED", "\x1b[2Jdeclined\r\nDONE")])

    assert lines[-1] == "  └ [2Jdeclined DONE"


def test_rows_are_in_the_order_in_which_they_began() -> None:
    rows = [row("Third", None, None), row("Second", 500, 600), row("First", 100, 900)]

    assert [line[2:].split()[0] for line in timeline(rows)[3:]] == ["First", "Second", "Third"]


def test_bars_are_in_proportion_to_time() -> None:
    lines = timeline([row("Short", 0, 1_000), row("Long", 0, 4_000), row("Wait", 4_000, 8_000)], width=120)

    short, long = (line_of(lines, name).count("█") for name in ("Short", "Long"))
    assert long / short == pytest.approx(4, rel=0.1)


def test_a_row_in_progress_reaches_to_the_present() -> None:
    lines = timeline([row("Quote", 0, 1_000), row("Charge", 1_000, None, "INTENT")], now_ms=START + 10_000)

    assert line_of(lines, "Charge").endswith("▶  9 s")


def test_a_present_before_the_last_row_is_a_clock_that_lags() -> None:
    lines = timeline([row("Quote", 0, 1_000)], now_ms=START - 5_000)

    assert lines[0].endswith("1 s in all")


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    lines = timeline([row("ReserveStockInTheWarehouse[sku-4711:large]", 0, 1)], width=60)

    assert lines[-1].startswith("✔ ReserveStock")
    assert "4711:large]  DONE" in lines[-1]


def test_where_bars_have_no_place_the_numbers_stay() -> None:
    lines = timeline([row("Charge", 0, 90_000), row("Notify", 90_000, 90_000)], width=MIN_WIDTH)

    assert lines[2:] == ["✔ Charge  DONE      +0 ms  1 m 30 s", "✔ Notify  DONE  +1 m 30 s"]


def test_a_saga_of_which_nothing_began_has_no_axis() -> None:
    assert timeline([row("Quote", None, None, "not reached")]) == ["· Quote  not reached"]
    assert timeline([]) == []


@pytest.mark.parametrize("status", list(StepStatus))
def test_every_status_has_a_mark_of_its_own_or_shares_that_of_doubt(status: StepStatus) -> None:
    mark = timeline([row("Step", 0, 0, status)])[3][0]

    assert mark in "✔◦✘∅↩!" or (mark == "?" and status in {StepStatus.INTENT, StepStatus.COMPENSATING})


@pytest.mark.parametrize(("encoding", "able"), [("utf-8", True), ("ascii", False), ("cp1252", False), ("no", False)])
def test_only_a_unicode_terminal_gets_unicode(encoding: str, able: bool) -> None:
    assert can_draw(encoding) is able


def test_durations_have_two_units_at_most() -> None:
    assert duration(3 * 86_400_000 + 3_600_000 + 60_000) == "3 d 1 h"


def test_the_examples_have_the_shown_results() -> None:
    assert doctest.testmod(module).failed == 0
