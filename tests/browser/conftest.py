"""Fixtures of the tests in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import chromium
from .chromium import Chromium, Page
from .looks import LOOKS, Look


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """Chromium."""
    with chromium.running() as made:
        yield made


@pytest.fixture
def page(browser: Chromium) -> Iterator[Page]:
    """An empty page."""
    with browser.page() as made:
        yield made


@pytest.fixture(params=LOOKS, ids=str)
def look(request: pytest.FixtureRequest, page: Page) -> Look:
    """Each look, which the page has taken on."""
    taken: Look = request.param
    taken.take(page)
    return taken
