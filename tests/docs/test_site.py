"""The documentation site: each page once in its navigation, each public name in its API reference, no broken link."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import constructs_lib
import constructs_lib.testing
import constructs_lib.testing.simulator
import saga_runtime
import saga_runtime.migration
from tests.docs.pages import DOCS, ROOT
from tools import docs_site

DOORS: Final = {
    "constructs": constructs_lib,
    "migration": saga_runtime.migration,
    "runtime": saga_runtime,
    "simulator": constructs_lib.testing.simulator,
    "testing": constructs_lib.testing,
}
API: Final = sorted((DOCS / "api").glob("*.md"))


def in_navigation(items: list[Any]) -> list[str]:
    """Pages of a navigation, in its order."""
    found: list[str] = []
    for item in items:
        for value in item.values() if isinstance(item, dict) else [item]:
            found += in_navigation(value) if isinstance(value, list) else [value]
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [page for page in in_navigation(docs_site.navigation()) if not page.startswith(docs_site.PUBLISHED)]

    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_navigation_has_no_markup() -> None:
    assert "`" not in json.dumps(docs_site.navigation())


def test_every_door_has_its_page_of_the_api() -> None:
    documented = {path.stem: re.findall(r"^::: (\S+)$", path.read_text("utf-8"), re.MULTILINE) for path in API}

    assert documented == {page: [door.__name__] for page, door in DOORS.items()}


def test_terms_of_the_glossary_have_their_definition() -> None:
    found = docs_site.definitions()

    assert found["Pivot"] == found["pivots"] == "the step after which the saga only goes forward"
    assert found["recovery machine"] == "the two state machines of a SagaStateMachine"
    assert all(found.values())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.slow
def test_site_builds_strictly_with_search_hover_and_api(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    listed = {re.sub(r"(?:^|/)(?:index|README)\.md$|\.md$", "/", page) for page in _pages()}

    assert {page.lstrip("/") for page in listed} <= searched
    assert '<abbr title="the step after which the saga only goes forward">' in _page(site, "reference/step-kinds")
    for page, door in DOORS.items():
        text = _page(site, f"api/{page}")
        assert [name for name in door.__all__ if f'id="{door.__name__}.{name}"' not in text] == []
        assert text.count("<h1") == 1, "a docstring has a table or a heading that Markdown lacks"


@pytest.mark.slow
def test_site_draws_its_diagrams_itself_and_names_its_buttons(site: Path) -> None:
    """`make browser` tests it in Chromium."""
    diagram, home = _page(site, "explanation/callbacks"), _page(site, "")

    assert '<script src="../../assets/javascripts/mermaid.js" defer></script></head>' in diagram
    assert "mermaid.js" not in home
    assert "globalThis" in (site / docs_site.DRAWS).read_text("utf-8")
    assert "useMaxWidth" in diagram
    assert 'role="dialog" aria-label="Search"' in home
    assert 'for="__drawer" tabindex="0" role="button" aria-label="Navigation"' in home


def _pages() -> list[str]:
    return in_navigation(docs_site.navigation())


def _page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text("utf-8")
