"""A reader of messages that begin transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_runtime import Begin, event_saga


@event_saga
def handler(message: Mapping[str, Any]) -> Begin:
    """Begin a transfer by the order's key, whichever message reports it."""
    return Begin(key=message["key"], request=message["transfer"], event_id=message["id"])
