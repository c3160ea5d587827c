"""Rows and notifications of a reconciler about hand-written state machines, for fixed inputs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from saga_runtime.protocol import FailedStatus, WatchStatus
from saga_runtime.watch.decisions import event_of, first_list, read_on
from saga_runtime.watch.rows import (
    EndRow,
    again_update,
    dead_lettered_update,
    end_id,
    failed_update,
    found_put,
    later_update,
    lease_update,
    list_id,
    list_put,
    list_update,
    over_update,
    queued_update,
    told_update,
)
from tests.unit.support.samples import NOW_MS
from tests.unit.support.watched import MACHINE, Run


def watch_formats() -> dict[str, Any]:
    """All of them, as the code makes them now."""
    run = Run("nightly", NOW_MS - 5_000, status="ABORTED", stopped=NOW_MS - 1_000, redrives=2, input='{"day":1}')
    id_ = end_id(run.arn, run.redrives)
    row = EndRow(
        id=id_,
        status=WatchStatus.PENDING,
        end=FailedStatus.ABORTED,
        stopped_at=run.stopped,
        attempt=3,
        not_before=NOW_MS,
        due_at=NOW_MS,
        error="KeyError",
    )
    listed = first_list(list_id(MACHINE, FailedStatus.ABORTED), NOW_MS)
    page = read_on(listed, NOW_MS, "token", NOW_MS + 1)
    return {
        "found": found_put(
            id=id_,
            end=row.end,
            started_at=run.started,
            stopped_at=row.stopped_at,
            not_before=NOW_MS + 9,
            now_ms=NOW_MS,
        ),
        "queued": queued_update(id_, NOW_MS, NOW_MS + 9),
        "leased": lease_update(row, NOW_MS, NOW_MS + 9),
        "failed": failed_update(row, NOW_MS, NOW_MS + 9, "KeyError"),
        "due later": later_update(row, NOW_MS, NOW_MS + 9, redriven=False),
        "redriven": later_update(row, NOW_MS, NOW_MS + 9, redriven=True),
        "told": told_update(row, NOW_MS),
        "over": over_update(row, NOW_MS),
        "stuck": dead_lettered_update(row, NOW_MS),
        "tried again": again_update(id_, NOW_MS),
        "list, begun": list_put(listed),
        "list, read on": list_update(listed, page),
        "list, read to its end": list_update(page, read_on(page, NOW_MS, None, NOW_MS + 2)),
        "event": event_of(row, _described(run)),
    }


def _described(run: Run) -> dict[str, Any]:
    """As boto3 has it."""
    said: dict[str, Any] = run.said() | {"input": run.input, "error": "E", "cause": "C"}
    return said | {name: datetime.fromtimestamp(said[name], UTC) for name in ("startDate", "stopDate")}
