"""The numbers of docs/cost.md are those that the code counts."""

from __future__ import annotations

import re

from tools import cost_page


def test_the_page_is_current() -> None:
    text = cost_page.PAGE.read_text("utf-8")

    assert text == cost_page.page_of(text), "regenerate it: python -m tools.cost_page"


def test_every_block_is_on_the_page() -> None:
    text = cost_page.PAGE.read_text("utf-8")

    assert sorted(re.findall(r"<!-- generated: ([a-z-]+) -->", text)) == sorted(cost_page.BLOCKS)


def test_the_page_names_the_number_of_steps_from_which_on_a_phase_is_below_durable_functions() -> None:
    assert cost_page.below_durable() == 12
    assert "twelve steps to be below them" in cost_page.PAGE.read_text("utf-8")
