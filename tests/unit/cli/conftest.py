"""Fixtures of the tests of the command."""

from __future__ import annotations

from tests.unit.support.doctor_scenes import stack

__all__ = ["stack"]
