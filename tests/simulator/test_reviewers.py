"""Audit of what simulated reviewers are shown."""

from __future__ import annotations

import json

import pytest

from constructs_lib.testing.invariants import Item
from constructs_lib.testing.simulator import simulate
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, StepStatus
from tests.simulator.examples import assembly
from tests.simulator.workloads.carts import ReviewedCarts
from tests.simulator.workloads.reviewers import STEP, Shown, audit_reviews

APPROVED = "Approved. Thank you; you can close this page."
REJECTED = "Already decided: rejected by "
LATE = "Your decision is recorded, but it came too late: this was settled without it."


def test_reviewers_of_simulated_carts_decide_and_read_the_page() -> None:
    report = simulate(assembly("cart_fulfilment"), ReviewedCarts(), sagas=40)

    report.require_kept()
    assert report.checked["reviewers are shown what happened"] > 5


@pytest.mark.parametrize(
    ("text", "status", "ended", "step", "violated"),
    [
        (APPROVED, StepStatus.RECORDED, RecordStatus.COMPLETED, None, False),
        (APPROVED, StepStatus.REFUSED, RecordStatus.FAILED, STEP, True),
        (APPROVED, None, RecordStatus.COMPLETED, None, True),
        (APPROVED, None, RecordStatus.FAILED, STEP, True),
        (APPROVED, StepStatus.TOMBSTONE, RecordStatus.FAILED, "AuthorizePayment", False),
        (REJECTED, StepStatus.REFUSED, RecordStatus.FAILED, STEP, False),
        (REJECTED, StepStatus.RECORDED, RecordStatus.COMPLETED, None, True),
        (REJECTED, None, RecordStatus.COMPLETED, None, True),
        (LATE, None, RecordStatus.FAILED, STEP, False),
        (LATE, StepStatus.TOMBSTONE, RecordStatus.FAILED, STEP, False),
        (LATE, StepStatus.RECORDED, RecordStatus.COMPLETED, None, True),
        (LATE, StepStatus.REFUSED, RecordStatus.FAILED, STEP, True),
    ],
)
def test_page_that_shows_another_end_than_the_logs_is_a_violation(
    text: str, status: StepStatus | None, ended: RecordStatus, step: str | None, violated: bool
) -> None:
    saga = {"S": "cart"}
    rows: list[Item] = [
        {LogAttribute.SAGA_ID: saga, LogAttribute.STEP: {"S": STEP}, LogAttribute.STATUS: {"S": status}}
    ]
    response = json.dumps({"step": step} if step is not None else {})
    record: Item = {
        RecordAttribute.SAGA_ID: saga,
        RecordAttribute.STATUS: {"S": ended},
        RecordAttribute.RESPONSE: {"S": response},
    }

    found = audit_reviews(rows if status is not None else [], [record], [Shown("cart", text)])

    assert (found.checked, bool(found.violations)) == (1, violated)
