"""Decisions about a saga: what follows from what was found, and when it is checked again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from saga_runtime.recovery.decisions import (
    LONGEST_LOOK_MS,
    LONGEST_PAUSE_MS,
    LOOK_MS,
    Decision,
    Need,
    ParkedFor,
    decide,
    look_again_after,
    pause_after,
    saga_of_execution,
)
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.recovery.takeover import Finding
from tests.unit.support.reconciled import LATER, LIMIT, NOTHING, R1, Watch, record_of
from tests.unit.support.samples import DAY_MS, NOW_MS, SAGA_ID

DECISIONS: list[tuple[Finding, dict[str, Any], bool, Decision]] = [
    (Finding.SETTLED, {}, True, Decision(need=Need.CLEAR)),
    (Finding.SETTLED, {}, False, NOTHING),
    (Finding.PARKED, {}, True, Decision(need=LATER, after_ms=LONGEST_LOOK_MS)),
    (Finding.PARKED, {}, False, NOTHING),
    (Finding.RUNNING, {}, True, Decision(need=LATER, after_ms=LOOK_MS)),
    (Finding.RUNNING, {}, False, NOTHING),
    (Finding.RUNNING, {"created_at": NOW_MS - DAY_MS}, True, Decision(need=LATER, after_ms=LONGEST_LOOK_MS)),
    (Finding.NOT_STARTED, {}, True, Decision(need=Need.START)),
    (Finding.NOT_STARTED, {}, False, Decision(need=Need.START)),
    (Finding.NOT_STARTED, {"recoveries": LIMIT}, True, Decision(need=Need.START)),
    (Finding.NAME_EXPIRED, {}, True, Decision(need=Need.PARK, reason=ParkedFor.NAME_EXPIRED)),
    (Finding.OWNER_UNKNOWN, {}, True, Decision(need=Need.PARK, reason=ParkedFor.OWNER_UNKNOWN)),
    (Finding.OWNER_SUCCEEDED, {}, True, Decision(need=Need.PARK, reason=ParkedFor.OWNER_SUCCEEDED)),
    (Finding.OWNER_SUCCEEDED, {}, False, Decision(need=Need.PARK, reason=ParkedFor.OWNER_SUCCEEDED)),
    (Finding.ROWS_EXPIRED, {}, True, Decision(need=Need.PARK, reason=ParkedFor.ROWS_EXPIRED)),
    (Finding.DEAD, {}, True, Decision(need=Need.TAKE_OVER, after_ms=LOOK_MS)),
    (Finding.DEAD, {}, False, Decision(need=Need.TAKE_OVER, after_ms=LOOK_MS)),
    (Finding.DEAD, {"recoveries": 2}, True, Decision(need=Need.TAKE_OVER, after_ms=4 * LOOK_MS)),
    (Finding.DEAD, {"recoveries": 2}, False, NOTHING),
    (Finding.DEAD, {"recoveries": LIMIT}, True, Decision(need=Need.PARK, reason=ParkedFor.RECOVERIES_EXHAUSTED)),
    (Finding.DEAD, {"recoveries": LIMIT}, False, NOTHING),
]


@pytest.mark.parametrize(("finding", "fields", "due", "decision"), DECISIONS)
def test_the_action_follows_from_the_finding(
    watch: Watch, finding: Finding, fields: dict[str, Any], due: bool, decision: Decision
) -> None:
    found = record_of(watch, due_at=NOW_MS if due else NOW_MS + 1, **fields)

    assert decide(found, finding, now_ms=NOW_MS, limit=LIMIT) == decision


def test_every_finding_is_decided() -> None:
    assert {finding for finding, *_ in DECISIONS} == set(Finding)


def test_a_saga_that_a_callback_woke_is_taken_over_once_more_than_the_limit(watch: Watch) -> None:
    found = replace(record_of(watch, due_at=NOW_MS, recoveries=LIMIT), answered=True)

    assert decide(found, Finding.DEAD, now_ms=NOW_MS, limit=LIMIT).need is Need.TAKE_OVER


def test_pauses_double_up_to_an_hour_and_looks_grow_with_age() -> None:
    assert [pause_after(number) for number in (1, 2, 3, 7, 100)] == [60_000, 120_000, 240_000, 3_600_000, 3_600_000]
    assert LONGEST_PAUSE_MS == 3_600_000
    assert [look_again_after(age) for age in (0, 1_200_000, DAY_MS)] == [LOOK_MS, 120_000, LONGEST_LOOK_MS]
    with pytest.raises(ValueError, match="numbered from 1, got 0"):
        pause_after(0)


@pytest.mark.parametrize(
    ("name", "saga_id"),
    [
        (SAGA_ID, SAGA_ID),
        (R1, SAGA_ID),
        (late_name(SAGA_ID, 2), SAGA_ID),
        (f"{SAGA_ID}-1-0123456789abcdef", SAGA_ID),
        ("by-hand", None),
        ("8f14e45f-ceea-467f-a8d4-1f2b3c4d5e6f", None),
        ("nodash", None),
        ("", None),
    ],
)
def test_an_executions_name_contains_its_saga_id(name: str, saga_id: str | None) -> None:
    assert saga_of_execution(name) == saga_id
