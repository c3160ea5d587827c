"""Runs on the schedule of a ``LedgerTable`` that has holds or collecting accounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_runtime.ledger.store import Ledger
from saga_runtime.ledger.sweep import sweep_due
from saga_runtime.shared import aws, telemetry


def handler(_: Mapping[str, Any], context: Any) -> dict[str, int]:
    """Release holds whose time is over, and close the shards of windows that are over."""
    aws.check_protocol()
    try:
        return {"swept": sweep_due(Ledger.from_env(), remaining_ms=context.get_remaining_time_in_millis)}
    finally:
        telemetry.flush()
