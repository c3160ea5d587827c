"""An operator redrives an execution in the console while the reconciler takes its saga over: before, after, at once.

In any order, money moves once or not at all. Local AWS does not return ``PENDING_REDRIVE``, a short status at AWS; that
it is treated as running is tested in ``tests/unit/idempotency/test_record_decisions.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from constructs_lib.testing import Fault, First, LocalAws, StopAt
from constructs_lib.testing.fault_plan import Moment, Planned, StopStatus
from constructs_lib.testing.faults import Firing
from constructs_lib.testing.invariants import assert_all_hold
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import RecordAttribute, RecordStatus
from saga_runtime.recovery.takeover import Finding, recovery_name
from tests.sampling import a_sixth

from .transfer_system import until
from .two_ledgers import FORWARD, MAIN, PARTNER, RECOVERY, TwoLedgers, Way, deployed

pytestmark = pytest.mark.proof

SPEED: Final = 10.0
FUNCTION_SECONDS: Final = 200
OPENING, AMOUNT = 1000, 100
MOVED: Final = (OPENING - AMOUNT, AMOUNT)
NOT_MOVED: Final = (OPENING, 0)
CLIENTS: Final = 8
TRIES: Final = 12
HOLD_SECONDS: Final = 15
"""Emulated: for so long a call is held back, so that a person's redrive comes in between."""
CALLS: Final = ("dynamodb:GetItem", "states:DescribeExecution", "dynamodb:UpdateItem", "states:StartExecution")
"""What the reconciler does for an interrupted saga, in this order."""
SERVICE_TRIES: Final = 11
"""How often a state machine calls a service before it gives up: once, and ten retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End of an execution that did not settle.

    Attributes:
        name: one word.
        state, moment: where it ended.
        status: of the execution.
        recovered: status code of the response after a recovery; the money moves with 200, and not otherwise.
        closed: whether the credit is refused.
    """

    name: str
    state: str
    moment: Moment
    status: StopStatus | None
    recovered: int
    closed: bool = False

    def planned(self, request_id: str) -> Planned:
        """Fault that ends the execution."""
        if self.status is None:
            return Fault(
                function=f"states:{FORWARD}",
                call="dynamodb:UpdateItem",
                action="drop",
                on=First(SERVICE_TRIES),
                containing=request_id,
            )
        return StopAt(machine=FORWARD, state=self.state, moment=self.moment, status=self.status, containing=request_id)

    @property
    def ended(self) -> str:
        """Status of the execution."""
        return "FAILED" if self.status is None else str(self.status)

    @property
    def alone(self) -> int:
        """Status code of the response without a recovery."""
        return 422 if self.closed else 200


AFTER, BEFORE = Moment.AFTER, Moment.BEFORE
ABORTED, TIMED_OUT = StopStatus.ABORTED, StopStatus.TIMED_OUT
ENDS: Final = (
    End(name="begun", state="Debit", moment=BEFORE, status=ABORTED, recovered=500),
    End(name="debited", state="Debit", moment=AFTER, status=TIMED_OUT, recovered=500),
    End(name="credited", state="Credit", moment=AFTER, status=ABORTED, recovered=200),
    End(name="told", state="Receipt", moment=AFTER, status=TIMED_OUT, recovered=200),
    End(name="unsettled", state="Settle completed", moment=BEFORE, status=None, recovered=200),
    End(name="refusing", state="Compensate Debit", moment=BEFORE, status=ABORTED, recovered=422, closed=True),
    End(name="refunded", state="Compensate Debit", moment=AFTER, status=TIMED_OUT, recovered=422, closed=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The funds transfer, and its reconciler, which the test invokes.

    Attributes:
        system: the deployed example; its reconciler does not run on its schedule.
    """

    system: TwoLedgers

    @property
    def aws(self) -> LocalAws:
        return self.system.aws

    @property
    def function(self) -> str:
        """The reconciler's function."""
        return self.system.outputs["ReconcilerName"]

    def look(self) -> dict[str, Any]:
        """Run one sweep, as the schedule does; returns an empty mapping if the process died."""
        return self._invoke({})

    def event(self, saga_id: str) -> dict[str, Any]:
        """A status event of a saga's first execution, as it comes out of the queue; empty if the process died."""
        body = json.dumps({"detail": {"name": saga_id}})
        return self._invoke({"Records": [{"messageId": saga_id, "body": body}]})

    def _invoke(self, event: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.aws.client("lambda").invoke(FunctionName=self.function, Payload=json.dumps(event))
        said: dict[str, Any] = json.loads(answer["Payload"].read())
        return {} if answer.get("FunctionError") is not None else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A saga whose first execution ended."""

    end: End
    way: Way
    saga_id: str


def broken(found: Watched, end: End, key: str) -> Broken:
    """Begin a saga, and end its execution."""
    system = found.system
    way = system.way(key, closed=end.closed)
    found.aws.faults.plan(end.planned(system.request_id(key)))
    saga_id = system.begin(key, way.body)
    assert system.await_end(FORWARD, saga_id) == end.ended
    return Broken(end=end, way=way, saga_id=saga_id)


def redrive(found: Watched, saga_id: str) -> bool:
    """Redrive as an operator in the console; returns whether the execution was redrivable."""
    states = found.aws.client("stepfunctions")
    try:
        states.redrive_execution(executionArn=found.system.arn(FORWARD, saga_id))
    except states.exceptions.ExecutionNotRedrivable:
        return False
    return True


def money_of(found: Watched, way: Way) -> tuple[int, int]:
    """Balances of the two accounts of a transfer."""
    return found.system.balance(MAIN, way.source), found.system.balance(PARTNER, way.target)


# --- Who comes first


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """When a saga's execution is redriven.

    Attributes:
        call, moment: before or after this call of the reconciler, while it is at it.
        end: how the execution had ended.
    """

    call: str
    moment: Moment
    end: End


@dataclass(kw_only=True)
class Redriven:
    """Sagas that were redriven, after they ended.

    Attributes:
        found: the system.
        before: by a person, before the reconciler looked.
        during: while a recovery ran.
        after: when a recovery had ended.
        between: while the reconciler was between two calls.
        left: record and money of each of ``after``, before it was redriven.
        first_ends: how the redriven executions of ``before`` ended.
    """

    found: Watched
    before: list[Broken]
    during: list[Broken]
    after: list[Broken]
    between: dict[Order, Broken]
    left: Mapping[str, object]
    first_ends: set[str]


_NUMBER, _PARTS = a_sixth()
ORDERS: Final = tuple(
    Order(call=call, moment=moment, end=end)
    for call in CALLS
    for moment in Moment
    for end in ENDS
    if end.name in {"debited", "credited"}
)[_NUMBER::_PARTS]
"""A part of them, which each run of the tests draws."""


@pytest.fixture(scope="module")
def redriven() -> Iterator[Redriven]:
    """Everything, redriven and taken over."""
    with deployed(speed=SPEED, seconds=FUNCTION_SECONDS) as (system, _):
        assert system.now_ms()
        assert system.user_scope  # once: many threads will ask for it
        yield all_redriven(Watched(system=system))


def all_redriven(found: Watched) -> Redriven:
    """Break every saga, and let a person and the reconciler see to it."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        groups = [(group, end) for group in ("before", "during", "after") for end in ENDS]
        made = list(pool.map(lambda one: broken(found, one[1], f"{one[0]}-{one[1].name}x"), groups))
        before, during, after = (made[at : at + len(ENDS)] for at in range(0, len(made), len(ENDS)))
        # A redriven execution takes a while, so that it still runs when it is checked.
        hold_back(found, FORWARD, before)
        assert all(pool.map(partial(redrive, found), ids_of(before)))
        assert {found.system.status_of(FORWARD, id_) for id_ in ids_of(before)} <= {"RUNNING", "SUCCEEDED"}
        list(pool.map(found.event, ids_of(before)))
        list(pool.map(found.event, ids_of(after)))
        hold_back(found, RECOVERY, during)
        list(pool.map(found.event, ids_of(during)))
        assert all(pool.map(partial(redrive, found), ids_of(during)))
        between = dict(zip(ORDERS, pool.map(partial(at_that_moment, found), ORDERS), strict=True))
        list(pool.map(found.system.await_quiet, ids_of(after)))
        left = {saga.saga_id: (found.system.item(saga.saga_id), money_of(found, saga.way)) for saga in after}
        assert all(pool.map(partial(redrive, found), ids_of(after)))
        sagas = [*made, *between.values()]
        list(pool.map(found.system.await_quiet, ids_of(sagas)))
        ends = list(pool.map(partial(found.system.await_end, FORWARD), ids_of(sagas)))
    return Redriven(
        found=found,
        before=before,
        during=during,
        after=after,
        between=between,
        left=left,
        first_ends=set(ends[: len(before)]),
    )


def hold_back(found: Watched, machine: str, sagas: Sequence[Broken]) -> None:
    """Hold back what a machine does next for some sagas."""
    found.aws.faults.plan(
        *(
            Fault(
                function=f"states:{machine}",
                call="*",
                action="delay",
                seconds=HOLD_SECONDS,
                containing=request_id_from(saga.saga_id),
            )
            for saga in sagas
        )
    )


def at_that_moment(found: Watched, order: Order) -> Broken:
    """Break a saga, and have a person redrive it while the reconciler is at a call.

    On a busy machine a person may be too slow: that was another order, so it is tried again.
    """
    for attempt in range(TRIES):
        saga = broken(found, order.end, f"order-{ORDERS.index(order):02d}-{attempt}x")
        hold = Fault(
            function=found.function,
            call=order.call,
            moment=order.moment,
            action="delay",
            seconds=HOLD_SECONDS,
            containing=request_id_from(saga.saga_id),
        )
        (planned,) = found.aws.faults.plan(hold)
        with ThreadPoolExecutor(1) as beside:
            looking = beside.submit(found.event, saga.saga_id)
            in_time = person(found, saga, planned)
            assert looking.result() == {"batchItemFailures": []}
        if in_time:
            return saga
    raise AssertionError(f"no redrive of {order} was in time")


def person(found: Watched, saga: Broken, planned: str) -> bool:
    """Redrive a saga's execution while the reconciler is held; returns whether it was still held afterwards."""

    def firing() -> Firing | None:
        (outcome,) = (outcome for outcome in found.aws.faults.report().outcomes if outcome.id == planned)
        return next(iter(outcome.firings), None)

    held = until(firing, "the reconciler's call")
    assert redrive(found, saga.saga_id)
    return found.aws.now() < held.at + timedelta(seconds=HOLD_SECONDS)


def ids_of(sagas: Iterable[Broken]) -> list[str]:
    """Their names."""
    return [saga.saga_id for saga in sagas]


def test_redriven_before_the_reconciler_looks_a_saga_is_left_alone_and_settles_once(redriven: Redriven) -> None:
    assert redriven.first_ends == {"SUCCEEDED"}
    for saga in redriven.before:
        record = redriven.found.system.record(saga.saga_id)
        assert (record.http_status, record.owner, record.recoveries) == (saga.end.alone, saga.saga_id, 0), saga.end
        assert money_of(redriven.found, saga.way) == (MOVED if saga.end.alone == 200 else NOT_MOVED), saga.end


def test_redriven_after_a_recovery_ended_an_execution_is_fenced_and_changes_nothing(redriven: Redriven) -> None:
    for saga in redriven.after:
        record, money = redriven.found.system.record(saga.saga_id), money_of(redriven.found, saga.way)
        assert (record.http_status, record.owner) == (saga.end.recovered, recovery_name(saga.saga_id, 1)), saga.end
        assert (redriven.found.system.item(saga.saga_id), money) == redriven.left[saga.saga_id], saga.end
        assert money == (MOVED if saga.end.recovered == 200 else NOT_MOVED), saga.end


def test_redriven_while_a_recovery_runs_a_saga_ends_as_the_recovery_decides(redriven: Redriven) -> None:
    for saga in redriven.during:
        record = redriven.found.system.record(saga.saga_id)
        assert (record.settled, record.owner) == (True, recovery_name(saga.saga_id, 1)), saga.end
        # The old execution may have continued before the recovery decided; then it decides to continue, too.
        moved = record.status is RecordStatus.COMPLETED
        assert money_of(redriven.found, saga.way) == (MOVED if moved else NOT_MOVED), saga.end
        assert record.http_status in {saga.end.recovered, saga.end.alone}, saga.end


def test_redriven_between_any_two_calls_of_the_reconciler_a_saga_ends_once(redriven: Redriven) -> None:
    redriven.found.aws.faults.report().require_all_fired()
    for order, saga in redriven.between.items():
        record = redriven.found.system.record(saga.saga_id)
        assert record.settled, order
        assert record.recoveries in recoveries_of(order.call, order.moment), order
        moved = record.status is RecordStatus.COMPLETED
        assert money_of(redriven.found, saga.way) == (MOVED if moved else NOT_MOVED), order


def test_in_any_order_every_invariant_of_ledgers_log_and_records_holds(redriven: Redriven) -> None:
    audit = redriven.found.system.audit()

    assert_all_hold(audit)
    assert all(invariant.checked >= len(ORDERS) for invariant in audit), audit


def recoveries_of(call: str, moment: Moment) -> set[int]:
    """Possible numbers of recoveries, by the reconciler's progress when its saga was redriven."""
    reached = (CALLS.index(call), moment is AFTER)
    if reached < (CALLS.index("states:DescribeExecution"), True):
        return {0}  # it sees an execution that runs
    if reached >= (CALLS.index("dynamodb:UpdateItem"), True):
        return {1}  # it has taken the saga over
    return {0, 1}  # the redriven execution may have settled before the takeover


def test_a_parked_saga_is_left_alone_by_events_and_sweeps_until_resolved(redriven: Redriven) -> None:
    found = redriven.found
    saga = broken(found, ENDS[1], "parked")
    system = found.system

    def change(update: str, **names: str) -> None:
        system.aws.client("dynamodb").update_item(
            TableName=system.outputs["RequestTableName"],
            Key={RecordAttribute.ID: {"S": request_id_from(saga.saga_id)}},
            UpdateExpression=update,
            ExpressionAttributeNames={"#due_at": RecordAttribute.DUE_AT, **names},
            ExpressionAttributeValues={":due": {"N": str(system.now_ms() + due_in_ms)}},
        )

    due_in_ms = 600_000
    names = {"#parked_by": RecordAttribute.PARKED_BY, "#owner": RecordAttribute.OWNER}
    change("SET #parked_by = #owner, #due_at = :due", **names)
    before = system.item(saga.saga_id)

    assert found.event(saga.saga_id) == {"batchItemFailures": []}
    assert system.item(saga.saga_id) == before
    due_in_ms = 0
    change("SET #due_at = :due")
    said = found.look()

    after = system.item(saga.saga_id)
    assert (said["waiting"], said["taken_over"], said["started"]) == (1, 0, 0)
    assert int(after["due_at"]["N"]) > system.now_ms()
    assert {**after, "due_at": None} == {**before, "due_at": None}
    assert system.recover(saga.saga_id) == (Finding.PARKED, None)
    assert money_of(found, saga.way) == (OPENING - AMOUNT, 0)
