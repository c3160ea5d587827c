"""Fixtures of the specification."""

from __future__ import annotations

import os

import pytest

FULL = "CDK_SAGAS_SPECIFICATION"


@pytest.fixture
def large_configurations() -> None:
    """Skips a test of a large configuration, unless they were asked for."""
    if os.environ.get(FULL) != "full":
        pytest.skip(f"a large configuration: set {FULL}=full to run it")
