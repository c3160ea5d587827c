"""Tests that enumerate: whether every case that a run has selected was run to its end."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest


def selected(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[pytest.Function]:
    """Cases of a parametrized test of the caller's module that this run has: all of them, or those that were named."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path)
    return [item for item in items if item.originalname == test.__name__]


def require_all_run(
    request: pytest.FixtureRequest, test: Callable[..., None], ran: Collection[str], *, enumerated: int, of: str
) -> None:
    """Print how many cases were enumerated and run, and compare the names of those that ran with those selected.

    Args:
        request: of the test that compares.
        test: the parametrized test, which notes the name of each case at its end.
        ran: these names.
        enumerated: the number of cases; all of them are selected unless the command names some.
        of: what the cases are of.
    """
    print(f"{of}: {enumerated} enumerated, {len(ran)} run")

    assert set(ran) == {item.name for item in selected(request, test)}
    assert len(ran) <= enumerated
