"""The reader of messages that begin a saga."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from saga_runtime import Begin, event_saga


@event_saga
def handler(message: Mapping[str, Any]) -> Begin:
    """Begin a saga by the message's key, whichever message has it."""
    match message["behave"]:
        case "crash" if random.random() < 0.7:
            raise KeyError("a mistake")
        case "slow":
            time.sleep(random.random() * 12)
    return Begin(key=message["key"], request=message["request"], event_id=message["id"])
