"""The picture of a saga: positions, and the contents of the file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings

from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.graph import cards, text
from constructs_lib.saga.graph.drawing import Box, Card, Chip, End, Lane, Panel, Pill, PivotLine
from constructs_lib.saga.graph.layout import lay_out
from constructs_lib.saga.graph.svg import to_svg
from constructs_lib.saga.graph.text import code_width, text_width
from tests.unit.support.drawn_sagas import ORDER, TRANSFER, saga, sagas, step

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def all_cards(of: SagaDescription) -> list[Card]:
    return [shape for shape in lay_out(of).shapes if isinstance(shape, Card)]


def card(of: SagaDescription, name: str) -> Card:
    return next(shape for shape in all_cards(of) if "".join(shape.name) == name)


def undo(of: SagaDescription, name: str) -> Card:
    return next(shape for shape in all_cards(of) if shape.hint == f"the compensation of {name}")


def pivot_line(of: SagaDescription) -> PivotLine:
    (line,) = (shape for shape in lay_out(of).shapes if isinstance(shape, PivotLine))
    return line


def overlap(one: Box, other: Box) -> bool:
    apart = one.right <= other.x or other.right <= one.x or one.bottom <= other.y or other.bottom <= one.y
    return not apart


@given(sagas())
@settings(max_examples=100)
def test_nothing_overlaps(of: SagaDescription) -> None:
    boxes = [shape.box for shape in lay_out(of).shapes if isinstance(shape, Card | Chip | Pill)]

    assert not [(one, other) for n, one in enumerate(boxes) for other in boxes[n + 1 :] if overlap(one, other)]


@given(sagas())
@settings(max_examples=100)
def test_every_shape_is_in_the_picture(of: SagaDescription) -> None:
    drawing = lay_out(of)
    boxes = [shape.box for shape in drawing.shapes if isinstance(shape, Card | Chip | Pill | Panel | Lane)]

    assert all(box.x >= 0 and box.right <= drawing.width and box.y >= 0 for box in boxes)
    assert all(box.bottom <= drawing.height for box in boxes)
    assert drawing.width <= 900


@given(sagas())
@settings(max_examples=100)
def test_every_text_has_room(of: SagaDescription) -> None:
    for shape in lay_out(of).shapes:
        if isinstance(shape, Card):
            room = shape.box.width - cards.PADDING - (0 if shape.compact else cards.ICON + cards.PADDING)
            assert max(text_width(line, cards.NAME_SIZE, bold=True) for line in shape.name) <= room
            small = [*shape.caption, *(note.text for note in shape.notes)]
            assert max((text_width(line, cards.CAPTION_SIZE) for line in small), default=0) <= room
            lines = len(shape.name) * cards.NAME_LINE + len(small) * cards.CAPTION_LINE
            assert lines + (cards.ICON if shape.compact else 0) <= shape.box.height
        elif isinstance(shape, Chip):
            assert max(code_width(line, cards.CODE_SIZE) for line in shape.lines) <= shape.box.width - 20
            assert len(shape.lines) * cards.CODE_LINE <= shape.box.height
        elif isinstance(shape, Pill):
            assert text_width(shape.note, cards.CAPTION_SIZE) <= shape.box.width - 46


@given(sagas())
@settings(max_examples=60)
def test_every_picture_is_well_formed_and_always_the_same(of: SagaDescription) -> None:
    drawn = to_svg(of)

    ET.fromstring(drawn)
    assert drawn == to_svg(SagaDescription.from_json(of.to_json()))


def test_compensations_are_next_to_the_forward_steps() -> None:
    assert undo(ORDER, "Charge").box.middle == card(ORDER, "Charge").box.middle
    assert undo(ORDER, "Charge").box.x > card(ORDER, "Charge").box.right


def test_steps_after_the_pivot_are_below_its_line() -> None:
    y = pivot_line(ORDER).y

    assert card(ORDER, "Commit").box.bottom < y < card(ORDER, "Announce").box.y
    assert all(shape.box.bottom < y for shape in all_cards(ORDER) if shape.tone is None)


def test_pivots_of_two_routes_are_side_by_side() -> None:
    transfer, credit = card(TRANSFER, "Transfer"), card(TRANSFER, "Credit")

    assert transfer.pivot
    assert credit.pivot
    assert transfer.box.bottom == credit.box.bottom < pivot_line(TRANSFER).y
    assert transfer.box.right < credit.box.x


def test_the_route_with_compensations_is_the_one_next_to_them() -> None:
    other = saga(
        step("Hold", when="$not($request.fast)", compensated=True),
        step("Skip", when="$request.fast"),
        step("Commit", side="pivot"),
    )

    assert card(other, "Skip").box.x < card(other, "Hold").box.x


def test_compensations_of_branches_are_next_to_them_in_their_order() -> None:
    both = saga(
        *ORDER.steps[:3],
        step("A", when="$request.x", compensated=True),
        step("B", when="$not($request.x)", compensated=True),
        step("Commit", side="pivot"),
    )
    stops = sorted((shape for shape in all_cards(both) if shape.tone is None), key=lambda shape: shape.box.y)

    assert [shape.hint.rpartition(" ")[2] for shape in stops] == ["Reserve", "Charge", "A", "B"]
    assert all(above.box.bottom < below.box.y for above, below in pairwise(stops))


def test_every_way_to_end_is_shown() -> None:
    ends = [shape.end for shape in lay_out(ORDER).shapes if isinstance(shape, Pill)]

    assert sorted(ends) == sorted(End)


def test_a_failure_notification_is_shown() -> None:
    notes = [shape.note for shape in lay_out(TRANSFER).shapes if isinstance(shape, Pill) and shape.end is End.FAILED]

    assert notes == ["compensated, notified"]


def test_the_routes_of_named_errors_are_shown() -> None:
    assert [(note.text, note.way) for note in card(ORDER, "Charge").notes] == [
        ("Busy: continue without it", "forward"),
        ("Declined: compensate, then notify", "undo"),
    ]


def test_a_map_is_drawn_as_many_sheets() -> None:
    panels = {"".join(shape.name): shape for shape in lay_out(ORDER).shapes if isinstance(shape, Panel)}

    assert panels["Ship"].sheets
    assert not panels["Prepare"].sheets
    assert panels["Ship"].caption == "map, for each of at most 40 items"


def test_an_unknown_kind_is_drawn_with_its_name() -> None:
    assert card(saga(step("Wait", "pigeon", side="pivot")), "Wait").caption == ("pigeon",)


def test_the_file_is_readable_without_eyes() -> None:
    root = ET.fromstring(to_svg(TRANSFER))

    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "Saga Transfer"
    told = root.findtext(f"{SVG}desc") or ""
    assert "before the pivot fails: Debit" in told
    assert "Receipt: notification" in told


def test_the_picture_in_the_documentation_is_current() -> None:
    assert (ROOT / "docs" / "images" / "every-kind.svg").read_text("utf-8") == to_svg(ORDER)


def test_the_file_runs_nothing_and_fetches_nothing() -> None:
    drawn = to_svg(ORDER)

    assert "<script" not in drawn
    assert "href" not in drawn
    assert "url(" not in drawn


def test_dark_pages_have_colours_of_their_own() -> None:
    assert "@media(prefers-color-scheme:dark)" in to_svg(ORDER)


def test_the_text_of_a_condition_cannot_break_the_file() -> None:
    drawn = to_svg(saga(step("A", side="pivot", when="$a < 1 & '</text>' > \"\x00\x1b\"")))

    texts = "".join(ET.fromstring(drawn).itertext())
    assert "</text>" in texts


@pytest.mark.parametrize(("name", "lines"), [("ReserveStock", ("ReserveStock",)), ("A" * 40, ("A" * 12, "A" * 12))])
def test_names_are_broken_between_their_words_and_inside_only_when_they_must(name: str, lines: tuple[str, ...]) -> None:
    assert text.wrap_name(name, 150, 14)[: len(lines)] == lines


def test_a_truncated_condition_is_marked() -> None:
    shown = text.wrap_code("$request.items.price " * 40, 200, 11, most=4)

    assert len(shown) == 4
    assert shown[-1].endswith("…")
