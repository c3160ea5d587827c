"""Writes and messages of a reconciler for an interrupted saga."""

from __future__ import annotations

from typing import Any

from saga_runtime.idempotency.record import AttributeMap, RequestRecord
from saga_runtime.protocol import RecordAttribute
from saga_runtime.recovery.decisions import (
    Found,
    ParkedFor,
    clear_update,
    look_later_update,
    operators_entry,
    park_update,
    rows_kept_update,
)
from saga_runtime.recovery.late_effects import give_up_update, late_input
from saga_runtime.recovery.takeover import take_over_update
from tests.unit.support.samples import NOW_MS, SAGA_ID

_LATER_MS = NOW_MS + 60_005


def reconciler_formats(item: AttributeMap) -> dict[str, Any]:
    """All of it, of a record in progress."""
    a = RecordAttribute
    record = RequestRecord.from_item(item)
    dead: AttributeMap = {a.OWNER: {"S": f"{SAGA_ID}-r20"}, a.RECOVERIES: {"N": "20"}}
    failure: AttributeMap = {a.FAILURE: {"S": '{"error":"Declined"}'}}
    exhausted = Found.from_item({**item, **dead, **failure})
    settled = RequestRecord.from_item({**item, a.STATUS: {"S": "COMPLETED"}})
    assert exhausted is not None
    return {
        "due later": look_later_update(record, _LATER_MS, 60_000),
        "not due any more": clear_update(settled),
        "taken over": take_over_update(record, _LATER_MS, 60_000),
        "taken over again": take_over_update(exhausted.record, _LATER_MS, 3_600_000),
        "parked": {reason: park_update(record, reason, _LATER_MS) for reason in ParkedFor},
        "operators' entry": operators_entry(exhausted, ParkedFor.RECOVERIES_EXHAUSTED),
        "rows kept": rows_kept_update(record, 1_707_408_000_000),
        "late: start input": late_input(record.input),
        "late: exhausted": give_up_update(record, 20, at_ms=_LATER_MS),
        "late: tried again": give_up_update(record, 20, at_ms=None),
    }
