"""Modules that new environments import, compared with the page."""

from __future__ import annotations

import pytest

from benchmarks.cold_start import KINDS, imported, own
from tests.docs.pages import DOCS

_UNNEEDED = {"asyncio", "boto3", "multiprocessing.managers", "s3transfer"}
"""Packages that take long to import, and that no function needs."""


@pytest.fixture(scope="module")
def modules() -> dict[str, list[str]]:
    return imported()


def test_no_function_imports_more_modules_than_the_page_states(modules: dict[str, list[str]]) -> None:
    text = (DOCS / "benchmarks.md").read_text("utf-8")
    section = text.partition("\n## Cold starts\n")[2].partition("\n## ")[0]
    lines = [line.strip("|") for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    stated = {row[0]: int(row[1]) for row in rows[2:]}

    assert stated == {kind: own(names) for kind, names in modules.items()}
    assert list(stated) == list(KINDS)


def test_no_function_imports_what_it_does_not_need(modules: dict[str, list[str]]) -> None:
    for kind, names in modules.items():
        assert not _UNNEEDED & set(names), kind
