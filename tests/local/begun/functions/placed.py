"""A reader of market signals: each trade begins a saga."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_runtime import Begin, PermanentError, event_saga


@event_saga
def handler(event: Mapping[str, Any]) -> Begin | None:
    """Begin a trade. EventBridge's id is another one each time that the publisher publishes."""
    if "dynamodb" in event:
        trade = event["dynamodb"]["Keys"]["id"]["S"]
        return Begin(key=trade, request={"counter": trade}, event_id=event["eventID"])
    signal = event["detail"]
    if signal["kind"] == "noise":
        return None
    if signal["kind"] == "unknown":
        raise PermanentError("the market is unknown")
    return Begin(key=signal["trade"], request={"counter": signal["trade"]}, event_id=event.get("id"))
