"""The depth to which Step Functions evaluates JSONata."""

from __future__ import annotations

from typing import Final

EVALUATION_LEVELS: Final = 100
"""Nested evaluations, of which each operator of a chain is one: ``1+1+1`` has three. Deeper ones fail with
``States.QueryEvaluationError``, "Stack overflow error". Measured on AWS: floci-io/floci issue 2737, of 2026-08-30."""
