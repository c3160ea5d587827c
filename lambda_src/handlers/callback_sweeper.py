"""Delivers undelivered outcomes and entries for operators every minute; measures the oldest overdue token."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.shared import aws, telemetry


def handler(_event: Any, context: Any) -> dict[str, Any]:
    """Process every due token row; return what was found, in numbers."""
    aws.check_protocol()
    try:
        swept = asdict(sweep(remaining_ms=context.get_remaining_time_in_millis))
        telemetry.event("swept", **swept)
        return swept
    finally:
        telemetry.flush()
