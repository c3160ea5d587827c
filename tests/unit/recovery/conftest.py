"""Fixtures of the tests of recoveries."""

from __future__ import annotations

from tests.unit.support.reconciled import watch

__all__ = ["watch"]
