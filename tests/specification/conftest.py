"""Large configurations of the models are part of a run only when they are asked for: ``make spec-full``."""

from __future__ import annotations

import os

import pytest

from tests.specification.suite import LARGE

FULL = "CDK_SAGAS_SPECIFICATION"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect large configurations, unless the variable asks for them: they take minutes."""
    if os.environ.get(FULL) == "full":
        return
    large = [item for item in items if isinstance(item, pytest.Function) and item.originalname == LARGE]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]
