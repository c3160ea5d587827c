"""Publishes the events of an ``Outbox``: for the table's stream, and on a schedule what is left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from saga_runtime.outbox.publisher import Publisher
from saga_runtime.protocol import Env
from saga_runtime.shared import aws, telemetry


def handler(event: Mapping[str, Any], context: Any) -> dict[str, int]:
    """Publish the rows of these records, or, without records, all that are left."""
    aws.check_protocol()
    publisher = Publisher(
        table=os.environ[Env.OUTBOX_TABLE], bus=os.environ[Env.OUTBOX_BUS], source=os.environ[Env.OUTBOX_SOURCE]
    )
    remaining_ms = context.get_remaining_time_in_millis
    try:
        if "Records" in event:
            return {"published": publisher.take(event["Records"], remaining_ms=remaining_ms)}
        return {"published": publisher.sweep(remaining_ms=remaining_ms)}
    finally:
        telemetry.flush()
