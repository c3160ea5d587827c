"""Compensation conditions: late executions, settles, takeovers and compensations change nothing on local AWS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from constructs_lib.testing import Fault, First, StopAt
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, RecordStatus
from saga_runtime.recovery.takeover import Finding, Owner, Recoverer, recovery_name

from .transfer_system import is_settled, until
from .two_ledgers import FORWARD, MAIN, PARTNER, RECOVERY, TRANSACT, TwoLedgers, Way, deployed, in_time

SPEED = 10.0
FUNCTION_SECONDS = 200
OPENING: Final = 1000

Both = tuple[TwoLedgers, Mapping[str, str]]
States = dict[str, Any]


@pytest.fixture(scope="module")
def running() -> Iterator[Both]:
    with deployed(speed=SPEED, seconds=FUNCTION_SECONDS) as (system, counting):
        yield system, counting


@pytest.fixture
def system(running: Both) -> TwoLedgers:
    """The reference app, emptied."""
    running[0].aws.reset()
    return running[0]


def money(system: TwoLedgers, way: Way) -> int:
    """Sum of both accounts of a transfer, with nothing in flight."""
    return system.balance(MAIN, way.source) + system.balance(PARTNER, way.target)


def stopped_after_the_credit(system: TwoLedgers) -> tuple[Way, str]:
    """A saga whose money has moved, and whose execution died before it settled."""
    way, request_id = system.way("k"), system.request_id("k")
    system.aws.faults.plan(StopAt(machine=FORWARD, state="Credit", moment="after", containing=request_id))
    saga_id = system.begin("k", way.body)
    system.await_end(FORWARD, saga_id)
    return way, saga_id


def test_the_fence_prevents_a_refund_of_an_applied_transfer(system: TwoLedgers) -> None:
    way, saga_id = stopped_after_the_credit(system)
    record = system.recover_to_the_end(saga_id)

    assert (record.http_status, money(system, way)) == (200, OPENING)


def test_the_directions_condition_keeps_a_forward_saga_from_compensating(
    system: TwoLedgers,
) -> None:
    way, saga_id = stopped_after_the_credit(system)
    request_id = system.request_id("k")
    # The second forward execution's first step fails until its retries are exhausted; then nothing fails.
    system.aws.faults.plan(
        Fault(function=f"states:{FORWARD}", call="lambda:Invoke", action="error", on=First(7), containing=request_id)
    )
    system.recover(saga_id)
    record = system.await_quiet(saga_id)

    assert (record.status, record.http_status) == (RecordStatus.COMPLETED, 200)
    assert money(system, way) == OPENING


def test_the_owners_condition_keeps_a_late_settle_from_ending_a_saga_that_was_taken_over(
    system: TwoLedgers,
) -> None:
    def take_over_and_settle(key: str, seconds: float) -> str | None:
        way, request_id = system.way(key), system.request_id(key)
        held = Fault(function=f"states:{FORWARD}", call="dynamodb:UpdateItem", action="delay", seconds=seconds)
        (settle, _) = system.aws.faults.plan(
            replace(held, containing=request_id),
            StopAt(machine=RECOVERY, state="Read direction", moment="before", containing=request_id),
        )
        states = system.aws.client("stepfunctions")
        with system.aws.calls.record() as calls:
            saga_id = system.begin(key, way.body)
            until(lambda: any(o.fired for o in system.aws.faults.report().outcomes if o.id == settle), "the settle")
            with suppress(states.exceptions.ValidationException):  # too late: it has ended
                states.stop_execution(executionArn=system.arn(FORWARD, saga_id))
            taken_over = system.recover(saga_id)

            def settled() -> bool:
                return any(call.fault is not None and call.status is not None for call in calls)

            is_late = not settled()
            until(settled, "the late settle")
        return saga_id if is_late and taken_over == (Finding.DEAD, recovery_name(saga_id, 1)) else None

    saga_id = in_time(take_over_and_settle, seconds=20)

    record = system.record(saga_id)
    assert record.owner == recovery_name(saga_id, 1)
    assert not record.settled


class TakesEverybodyForDead(Recoverer):
    """Checked the owner long ago."""

    def owner(self, record: RequestRecord) -> Owner:
        return Owner("ABORTED")


def test_the_takeovers_condition_protects_a_settled_saga_from_an_old_read(system: TwoLedgers) -> None:
    way, saga_id = stopped_after_the_credit(system)
    looked_long_ago = system.record(saga_id)
    assert system.recover_to_the_end(saga_id).http_status == 200
    settled = system.item(saga_id)
    recoverer = TakesEverybodyForDead(
        table=system.outputs["RequestTableName"],
        dynamodb=system.aws.client("dynamodb"),
        step_functions=system.aws.client("stepfunctions"),
    )
    finding, _ = recoverer.recover(looked_long_ago, system.now_ms())

    assert finding is not Finding.DEAD
    assert system.item(saga_id) == settled
    assert money(system, way) == OPENING


def test_the_compensations_condition_prevents_a_second_compensation(running: Both) -> None:
    """The counting saga's undo has no condition of its own: only the row keeps it single."""
    system, outputs = running
    system.aws.reset()
    functions, undo = system.aws.client("lambda"), "Counting/Undo/Function"
    # It times out, is invoked again, and the first request travels on.
    functions.update_function_configuration(FunctionName=system.aws.resolve_function(undo), Timeout=25)
    user = system.aws.create_api_user("counter", api_id=outputs["ApiId"])
    url = f"{system.aws.api_url(outputs['ApiId'], outputs['ApiStage'])}/plain"
    body = {"counter": "k", "Second": "breaks"}
    system.aws.faults.plan(Fault(function=undo, call=TRANSACT, action="delay", seconds=80))

    with system.aws.calls.record() as calls:
        until(
            lambda: is_settled(user.request("POST", url, headers={IDEMPOTENCY_KEY_HEADER: "k"}, body=body)), "the end"
        )
        until(lambda: [c for c in calls.calls if c.fault is not None and c.status is not None], "the late undo")

    items = system.aws.client("dynamodb").scan(TableName=outputs["CounterTableName"])["Items"]
    assert [item["n"]["N"] for item in items] == ["0"]
