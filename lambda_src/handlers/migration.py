"""Runs on the schedules of a ``Migration``: one segment of one job per event."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from saga_runtime.migration.gates import due
from saga_runtime.migration.progress import Job
from saga_runtime.migration.store import Store
from saga_runtime.migration.terms import Terms
from saga_runtime.migration.worker import Worker, read_progress
from saga_runtime.protocol import Env
from saga_runtime.shared import aws, clock, telemetry


def handler(event: Mapping[str, Any], context: Any) -> dict[str, int]:
    """Continue a job's pass in progress; ``{"job": "backfill", "segment": "0"}``."""
    aws.check_protocol()
    terms = Terms.from_json(json.loads(os.environ[Env.MIGRATION]))
    store = Store(layout=terms.layout, table=os.environ[Env.MIGRATION_TABLE])
    job, segment = Job(event["job"]), int(event["segment"])
    if not due(terms, job, store.phase(), read_progress(store, job, segment, terms.segments).last, clock.now_ms()):
        return {"seen": 0, "left": 0}
    try:
        done = Worker(
            store=store,
            job=job,
            segment=segment,
            segments=terms.segments,
            remaining_ms=context.get_remaining_time_in_millis,
        ).run()
        return {"seen": done.seen if done is not None else 0, "left": done.left if done is not None else 0}
    finally:
        telemetry.flush()
