"""Tells again what was not told, every minute, and says how long the oldest overdue token has waited."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.shared import aws, telemetry


def handler(_event: Any, context: Any) -> dict[str, Any]:
    """Look after every token row that is due; what was found, in numbers."""
    aws.check_protocol()
    try:
        swept = asdict(sweep(remaining_ms=context.get_remaining_time_in_millis))
        telemetry.event("swept", **swept)
        return swept
    finally:
        telemetry.flush()
