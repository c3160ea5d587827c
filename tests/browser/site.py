"""The documentation site, as it is published: readable everywhere, without a request to another host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from . import served
from .chromium import Page
from .looks import DESKTOP, PHONE, ROOT, Look, faults, sideways, strange

_THEMES: Final = ".md-version"
"""What the theme's script writes: a button whose name is not its text."""
PAGES: Final = {
    "home": "",
    "how-to": "how-to/request-approval/",
    "tables": "reference/transaction-api/",
    "diagram": "explanation/callbacks/",
    "api": "api/migration/",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the latest version, next to the list of versions that `mike` publishes."""
    folder = tmp_path_factory.mktemp("published")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder / "latest")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    versions = [{"version": "0.1", "title": "0.1", "aliases": ["latest"]}]
    Path(folder / "versions.json").write_text(json.dumps(versions), "utf-8")
    with served.folder(folder) as address:
        yield f"{address}/latest/"


@pytest.mark.parametrize("name", PAGES)
def test_page_is_readable(name: str, look: Look, page: Page, site: str) -> None:
    page.visit(site + PAGES[name])
    page.wait(lambda: page.evaluate("!document.querySelector('pre.mermaid')"), "every diagram drawn")

    dark = page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    assert dark is (look.scheme == "dark")
    # Tab goes through hundreds of links of the other ones.
    assert faults(page, f"site-{name}", look, keyboard=name in ("home", "how-to"), without=_THEMES) == []


def test_every_link_of_the_navigation_opens_a_page_as_wide_as_a_phone(page: Page, site: str) -> None:
    PHONE.take(page)
    page.visit(site)
    links = page.evaluate("[...new Set([...document.querySelectorAll('.md-nav--primary a[href]')].map(a => a.href))]")
    addresses = {link.partition("#")[0] for link in links}
    found = []
    for address in sorted(addresses):
        page.visit(address)
        if page.status != 200 or not page.evaluate("!!document.querySelector('h1')?.innerText"):
            found.append(f"{address}: status {page.status}")
        found += [f"{address}: {one}" for one in [*sideways(page), *strange(page)]]
        page.problems.clear()

    assert len(addresses) > 100
    assert found == []


def test_diagrams_are_drawn_from_the_sites_own_host(page: Page, site: str) -> None:
    DESKTOP.take(page)
    page.visit(f"{site}explanation/callbacks/")
    page.wait(lambda: page.evaluate("document.querySelectorAll('div.mermaid').length > 0"), "a diagram")

    assert page.evaluate("[...document.querySelectorAll('div.mermaid')].every(e => e.clientHeight > 100)")
    assert f"{site}assets/javascripts/mermaid.js" in page.requests
    assert strange(page) == []


def test_search_finds_a_header_by_keyboard_alone(look: Look, page: Page, site: str) -> None:
    page.visit(site)
    page.press("/")
    page.wait(lambda: page.evaluate("document.activeElement.matches('.md-search__input')"), "the search open")
    page.type("Idempotency-Key")
    page.wait(lambda: page.evaluate("document.querySelectorAll('.md-search-result__link').length > 3"), "results")
    # The results cover a part of the page, whichever links end there.
    found = faults(page, "site-search", look, keyboard=False, without=f"{_THEMES}, .md-container")
    page.evaluate("document.querySelector('.md-search__input').focus()")
    with page.loading():
        page.press("Enter")

    assert found == []
    assert "Idempotency-Key" in page.text()
    assert page.evaluate("location.href") != site


def test_term_of_the_glossary_shows_its_definition(page: Page, site: str) -> None:
    DESKTOP.take(page)
    page.visit(f"{site}reference/step-kinds/")
    page.point('abbr[title="the step after which the saga only goes forward"], abbr')
    shown = page.wait(
        lambda: page.evaluate("document.querySelector('.md-tooltip2--active')?.innerText"), "a definition"
    )

    assert len(shown) > 10


def test_keyboard_alone_opens_the_navigation_of_a_phone(page: Page, site: str) -> None:
    PHONE.take(page)
    page.visit(site)
    page.evaluate("document.querySelector('.md-header__button[for=__drawer]').focus()")
    page.press("Enter")
    page.wait(
        lambda: page.evaluate(
            "getComputedStyle(document.querySelector('.md-sidebar--primary')).visibility === 'visible'"
        ),
        "the navigation",
    )


def test_switch_turns_the_site_dark_and_light(page: Page, site: str) -> None:
    DESKTOP.take(page)
    page.visit(site)
    switch = "label[for^=__palette]:not([hidden])"
    page.click(switch)
    page.wait(lambda: page.evaluate("document.body.dataset.mdColorScheme === 'slate'"), "dark")
    page.click(switch)
    page.wait(lambda: page.evaluate("document.body.dataset.mdColorScheme === 'default'"), "light")
