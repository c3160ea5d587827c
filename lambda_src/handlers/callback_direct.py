"""Receives a callback by direct invocation; who may invoke it may speak for the provider.

The event is ``{"job_id": ..., "event_id": ..., "outcome": {...}}`` with one of three outcomes, as
``callbacks.rows.callback_of`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_runtime.callbacks import receive
from saga_runtime.callbacks.rows import callback_of
from saga_runtime.shared import aws, telemetry


def handler(event: Mapping[str, Any], _context: object) -> dict[str, str]:
    """Receive one callback: ``{"receipt": ...}``. After an error nothing was received: invoke again."""
    aws.check_protocol()
    try:
        return {"receipt": receive(callback_of(event))}
    finally:
        telemetry.flush()
