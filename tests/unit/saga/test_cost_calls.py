"""Units for each kind of step, compared with the calls that the runtime really makes, and sizes likewise."""

from __future__ import annotations

from typing import Any

import pytest

from constructs_lib.saga.cost.assumptions import (
    ANSWER_BYTES,
    DIRECT_RECORD_BYTES,
    RECORD_BYTES,
    ROW_BYTES,
    Assumptions,
    Source,
)
from constructs_lib.saga.cost.compensation import longest_compensation
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose, Tally, Usage, front_door, look
from constructs_lib.saga.cost.usage import direct_operation, happy_path
from constructs_lib.saga.cost.work import INDEX_UNITS, MOVED_INDEX_UNITS, TOKEN_UNITS
from constructs_lib.saga.description.description import SagaDescription, StepDescription
from handlers import notifier
from saga_runtime import Commit, StepCall, Write, atomic_step, compensation, read_only_step
from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import CallField, Side
from saga_runtime.saga_log.rows import done_put
from saga_runtime.shared import aws
from tests.unit.support.client import accepted
from tests.unit.support.formats import produced
from tests.unit.support.gateway import Shop
from tests.unit.support.samples import SAGA_ID, get, reservation_of, step_event
from tests.unit.support.warehouse import Picking
from tests.unit.support.world import Context, World

_ITEMS = 2
_INPUTS = Assumptions(items=_ITEMS)


def _commit(name: str) -> Commit:
    puts = [
        {"TableName": "ledger", "Item": {"pk": {"S": f"{name}-{n}"}, "sk": {"S": "x"}, "n": {"N": "1"}}}
        for n in range(_ITEMS)
    ]
    return Commit(writes=[Write(action={"Put": put}) for put in puts])


@atomic_step
def _move(_: StepCall) -> Commit:
    return _commit("move")


@compensation
def _move_back(_: StepCall, __: Any) -> Commit:
    return _commit("back")


@read_only_step
def _quote(_: StepCall) -> dict[str, str]:
    return {"price": "2.00"}


def _saga(kind: str, **options: Any) -> SagaDescription:
    step = StepDescription(name="Only", kind=kind, side="before", **options)
    return SagaDescription(name="Saga", steps=(step,), timeout=60, fingerprint="f")


def _units(calls: list[str], *, transaction: int = 0) -> tuple[int, int]:
    """Write and read units of calls with small items; of a transaction's ``transaction`` items each counts twice."""
    writes = calls.count("PutItem") + calls.count("UpdateItem") + 2 * transaction * calls.count("TransactWriteItems")
    return writes, calls.count("GetItem") + calls.count("Query")


def _counted(usage: Usage, by: str = "Only") -> tuple[int, int]:
    uses = [use for use in usage.uses if use.by.startswith(by) and use.purpose is not Purpose.API]
    writes, reads = (
        sum(int(use.quantity) for use in uses if use.meter is meter) for meter in (Meter.WRITE_UNITS, Meter.READ_UNITS)
    )
    return writes, reads


def test_the_writes_of_an_atomic_step_are_as_counted(world: World) -> None:
    calls = world.calls_of(lambda: _move(step_event(step="Only"), Context()))

    assert _units(calls, transaction=1 + _ITEMS) == _counted(happy_path(_saga("atomic"), _INPUTS)) == (6, 0)


def test_the_writes_of_an_external_step_are_as_counted(world: World) -> None:
    shop = Shop(world)

    assert _units(world.calls_of(shop.run)) == _counted(happy_path(_saga("external"), _INPUTS)) == (2, 0)


@pytest.mark.parametrize(("recorded", "units"), [(True, (1, 1)), (False, (0, 0))])
def test_the_writes_of_a_read_only_step_are_as_counted(world: World, recorded: bool, units: tuple[int, int]) -> None:
    event = step_event(step="Only")
    if recorded:
        event[CallField.RECORD] = True

    calls = world.calls_of(lambda: _quote(event, Context()))

    assert _units(calls) == _counted(happy_path(_saga("read-only", recorded=recorded), _INPUTS)) == units


def test_the_writes_of_a_notification_are_as_counted(world: World) -> None:
    url = aws.sqs().create_queue(QueueName="told.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    event = {**step_event(step="Only"), CallField.QUEUE_URL: url, CallField.MESSAGE: "paid"}

    calls = world.calls_of(lambda: notifier.handler(event, Context()))

    usage = happy_path(_saga("notify"), _INPUTS)
    assert _units(calls) == _counted(usage) == (1, 1)
    assert calls.count("SendMessage") == usage.total(Meter.FIFO_REQUESTS) == 1


def _waited(calls: list[str]) -> tuple[int, int]:
    """Units of the calls around a job or a wait: its token's row is larger than others, and is in an index."""
    log_puts = sum(calls.count(name) for name in ("PutItem", "UpdateItem")) - len(("registered", "told"))
    token_writes = 2 * (TOKEN_UNITS + INDEX_UNITS) + MOVED_INDEX_UNITS
    received = 2 * (1 + TOKEN_UNITS + 1) * calls.count("TransactWriteItems")
    both_rows = 2 * calls.count("BatchGetItem")
    return log_puts + token_writes + received, calls.count("GetItem") + both_rows


def test_the_writes_of_a_job_and_its_outcome_are_as_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch)

    calls = world.calls_of(lambda: (picking.dispatch(), picking.job_saga.reports("answer")))

    assert _waited(calls) == _counted(happy_path(_saga("callback"), _INPUTS)) == (22, 3)
    assert calls.count("SendTaskSuccess") == 1


def test_the_writes_of_a_wait_and_its_outcome_are_as_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    picking = Picking(world, monkeypatch, job=False)

    calls = world.calls_of(lambda: (picking.dispatch(), picking.job_saga.reports("answer")))

    assert _waited(calls) == _counted(happy_path(_saga("wait"), _INPUTS)) == (20, 4)


def _undone(kind: str) -> tuple[int, int]:
    """Counted units of a kind's compensation, when the step after it is refused."""
    first = StepDescription(name="First", kind=kind, side="before", compensated=True)
    look = StepDescription(name="Look", kind="read-only", side="before", recorded=False)
    usage = longest_compensation(
        SagaDescription(name="Saga", steps=(first, look), timeout=60, fingerprint="f"), _INPUTS
    )
    assert usage is not None
    assert usage.way == "Look refuses"
    return _counted(usage, "undo First")


def test_the_writes_of_an_atomic_compensation_are_as_counted(world: World) -> None:
    _move(step_event(step="Only"), Context())

    calls = world.calls_of(lambda: _move_back(step_event(step="Only"), Context()))

    assert _units(calls, transaction=1 + _ITEMS) == _undone("atomic") == (6, 1)


def test_the_writes_of_an_external_compensation_are_as_counted(world: World) -> None:
    shop = Shop(world)
    shop.run()

    assert _units(world.calls_of(shop.undo)) == _undone("external") == (2, 1)


def test_the_writes_of_fencing_a_refused_step_are_as_counted(world: World) -> None:
    calls = world.calls_of(lambda: _move_back(step_event(step="Only"), Context()))

    usage = longest_compensation(_saga("atomic", compensated=True), _INPUTS)
    assert usage is not None
    assert _units(calls) == _counted(usage, "undo Only") == (1, 1)


def test_the_gatekeeper_makes_the_calls_that_are_counted(world: World) -> None:
    tally = Tally(Assumptions())
    front_door(tally)
    table = [use for use in tally.uses if use.by == "reserve"]

    calls = world.calls_of(lambda: accepted(world))

    assert _units(calls) == (len(table), 0)


def test_a_status_request_makes_the_calls_that_are_counted(world: World) -> None:
    saga_id = accepted(world)
    tally = Tally(Assumptions())
    look(tally, rows=3)

    calls = world.calls_of(lambda: world.call(get(saga_id)))

    assert _units(calls) == (0, int(tally.usage("look").total(Meter.READ_UNITS)))


def _size(item: dict[str, Any]) -> int:
    """Bytes of an item as DynamoDB counts them: names and values, numbers in half their digits and one."""
    return sum(
        len(name) + (len(value["S"].encode()) if "S" in value else len(value["N"]) // 2 + 1)
        for name, value in item.items()
    )


def test_a_record_is_as_large_as_is_assumed() -> None:
    request = '{"amount":200}'
    item = dict(reserve_put(reservation_of(body=request))["Item"])
    # The sample's names are short; those of a stack are up to this long.
    arn = f"arn:aws:states:eu-central-1:111111111111:execution:{'n' * 60}:{SAGA_ID}"
    item |= {"execution_arn": {"S": arn}, "recovery_machine_arn": {"S": arn}}

    assert 0.75 * RECORD_BYTES < _size(item) - len(request) <= RECORD_BYTES


def test_a_direct_operations_record_is_as_large_as_is_assumed() -> None:
    item = dict(produced()["request record"]["direct operation"]["Item"])
    item["owner"] = {"S": "a" * 32}
    item["operation"] = {"S": "o" * 40}
    known = {name: item.pop(name) for name in ("http_status", "response", "response_expires_at", "response_shard")}

    assert 0.75 * DIRECT_RECORD_BYTES < _size(item) <= DIRECT_RECORD_BYTES
    assert known["response"]


def test_a_direct_operation_has_no_transition_and_one_request() -> None:
    usage = direct_operation()

    assert usage.total(Meter.TRANSITIONS) == 0
    assert usage.total(Meter.REST_REQUESTS) == usage.total(Meter.LAMBDA_REQUESTS) == 1
    # The record twice, its index, its removal and that index; the item twice.
    assert usage.total(Meter.WRITE_UNITS) == 2 + 1 + 1 + 1 + 2


ARRIVALS = {
    Source.WEBHOOK: {Meter.REST_REQUESTS: 1},
    Source.RULE: {Meter.EVENTS: 1, Meter.QUEUE_REQUESTS: 3},
    Source.QUEUE: {Meter.QUEUE_REQUESTS: 3},
    Source.FIFO: {Meter.FIFO_REQUESTS: 3},
    Source.STREAM: {},
}


@pytest.mark.parametrize("source", Source)
def test_an_event_costs_its_arrival_and_a_function_and_no_query(source: Source) -> None:
    without = Assumptions(api=False)
    begun = Assumptions(api=False, event=source)
    only = StepDescription(name="Only", kind="atomic", side="before")
    saga = SagaDescription(name="S", steps=(only,), timeout=60, fingerprint="")

    for before, after, calls in (
        (direct_operation(without), direct_operation(begun), 0),
        (happy_path(saga, without), happy_path(saga, begun), 1),
    ):
        gained = {meter: after.total(meter) - before.total(meter) for meter in Meter}
        assert {m: n for m, n in gained.items() if n and m is not Meter.LAMBDA_GB_SECONDS} == {
            **ARRIVALS[source],
            **({Meter.LAMBDA_REQUESTS: calls} if calls else {}),
        }


def test_an_event_and_an_api_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="api must be False if events begin the saga, got event=queue; leave one out"):
        Assumptions(event=Source.QUEUE)


def test_a_row_is_at_most_as_large_as_assumed() -> None:
    put = done_put(
        table="log",
        saga_id=SAGA_ID,
        step="S" * 40,
        side=Side.BEFORE,
        attempt="a" * 32,
        output="",
        now_ms=1_700_000_000_000,
        keep_days=400,
    )

    assert _size(put["Put"]["Item"]) + len("deadline") + len("first_attempt_at") + 16 <= ROW_BYTES


def test_an_outcome_adds_no_more_than_is_assumed() -> None:
    body = f'{{"saga_id":"{SAGA_ID}","status":"COMPLETED","result":}}'

    assert (
        len(f"http_status200body{body}updated_at1700000expiration170000response_expires_at170000response_shard00")
        <= ANSWER_BYTES
    )
