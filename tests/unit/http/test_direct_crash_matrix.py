"""A crash or a lost answer before and after every AWS call of a direct operation; then its client sends again.

What is enumerated is what an undisturbed run sends: success, refused by the plan, refused by a write, under both modes
of refusals. Each call is disturbed in each way, once and as often as the SDK tries; the client then sends the same
body, or another one. The numbers are printed, and have to agree.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from saga_runtime import Commit, DirectCall, InsufficientFunds, Money, Write, direct_operation
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import REPLAYED_HEADER, RecordStatus, RefusalPolicy
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.samples import BODY, post
from tests.unit.support.wallet import LEDGER, deploy, moved, pay
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

pytestmark = pytest.mark.proof

READ, WRITE, STORE, LOOK = "BatchGetItem", "TransactWriteItems", "PutItem", "GetItem"


@direct_operation
def refused_by_a_write(call: DirectCall) -> Commit:
    """A payment whose last write is refused until its limit exists."""
    body = call.request
    demand = Write(
        action={
            "ConditionCheck": {
                "TableName": "log",
                "Key": {"saga_id": {"S": "limit"}, "step": {"S": "limit"}},
                "ConditionExpression": "attribute_exists(saga_id)",
            }
        },
        refusal=lambda _: InsufficientFunds("the limit is used up"),
    )
    amount = Money(body["amount"], body["currency"])
    writes = LEDGER.transfer(call, source=body["from"], target=body["to"], amount=amount)
    return Commit(writes=[*writes, demand], output={"paid": body["amount"]})


TOO_MUCH = {**BODY, "amount": 501}
OUTCOMES: dict[str, tuple[Any, dict[str, Any], int]] = {
    "success": (pay, BODY, 200),
    "refused by the plan": (pay, TOO_MUCH, 402),
    "refused by a write": (refused_by_a_write, BODY, 402),
}
"""Handler, body, and the status of an undisturbed run."""
CALLS: dict[tuple[str, RefusalPolicy], tuple[str, ...]] = {
    ("success", RefusalPolicy.FINAL): (READ, WRITE),
    ("success", RefusalPolicy.OPEN): (READ, WRITE),
    ("refused by the plan", RefusalPolicy.FINAL): (READ, STORE),
    ("refused by the plan", RefusalPolicy.OPEN): (READ, LOOK),
    ("refused by a write", RefusalPolicy.FINAL): (READ, WRITE, STORE),
    ("refused by a write", RefusalPolicy.OPEN): (READ, WRITE, LOOK),
}
DISTURBANCES = [
    *product((Action.KILL, Action.DROP), Moment),
    (Action.THROTTLE, Moment.BEFORE),
    (Action.CONFLICT, Moment.BEFORE),
]
SAME, OTHER = "the same body", "another body"
WAYS = [
    (outcome, mode, call, action, moment, times, again)
    for (outcome, mode), calls in CALLS.items()
    for call in calls
    for action, moment in DISTURBANCES
    if action is not Action.CONFLICT or call in (WRITE, STORE)
    for times in ((1,) if action is Action.KILL else (1, 3, 1_000))
    for again in (SAME, OTHER)
]
MATRIX = [
    pytest.param(*way, id="{}, {}: {} {} {} x{}, {}".format(*way[:2], way[3], way[4], way[2], *way[5:])) for way in WAYS
]
RAN: set[str] = set()


@pytest.fixture(autouse=True)
def accounts(world: World) -> None:
    """The accounts."""
    world.open_accounts(alice=500, bob=0)
    world.wire.forget()


def _send(handler: Any, body: dict[str, Any]) -> dict[str, Any] | None:
    """Answer to the client; None: no answer, the function died."""
    try:
        answer: dict[str, Any] = handler(post(body), Context())
    except Killed:
        return None
    return answer


@pytest.mark.parametrize(("outcome", "mode"), CALLS)
def test_every_call_is_enumerated(
    world: World, monkeypatch: pytest.MonkeyPatch, outcome: str, mode: RefusalPolicy
) -> None:
    deploy(monkeypatch, REFUSAL_POLICY=mode)
    handler, body, status = OUTCOMES[outcome]

    answer = _send(handler, body)

    assert answer is not None
    assert (answer["statusCode"], tuple(world.wire.sent)) == (status, CALLS[outcome, mode])


@pytest.mark.parametrize(("outcome", "mode", "call", "action", "moment", "times", "again"), MATRIX)
def test_money_moves_at_most_once_and_final_responses_are_stored(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    mode: RefusalPolicy,
    call: str,
    action: Action,
    moment: Moment,
    times: int,
    again: str,
    request: pytest.FixtureRequest,
) -> None:
    deploy(monkeypatch, REFUSAL_POLICY=mode)
    handler, body, status = OUTCOMES[outcome]
    world.wire.plan(Fault(operation=call, action=action, moment=moment, times=times))

    first = _send(handler, body)

    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    _audit(world, body, first, mode)
    world.clock.ms += 1
    second = _send(handler, body if again == SAME else {**BODY, "amount": 7})
    _audit(world, body, second if again == SAME else None, mode)
    third = _send(handler, body if again == SAME else {**BODY, "amount": 7})
    assert second is not None
    assert third is not None
    if again == SAME:
        assert second["statusCode"] == third["statusCode"] == status
        finals = [answer for answer in (first, second, third) if answer and answer["statusCode"] != 503]
        if mode is RefusalPolicy.FINAL or status == 200:
            assert {answer["body"] for answer in finals} == {third["body"]}, "two answers of one key"
            assert third["headers"][REPLAYED_HEADER] == "true"
    else:
        recorded = (
            first is not None and first["statusCode"] == status and (mode is RefusalPolicy.FINAL or status == 200)
        )
        if recorded:
            assert second["statusCode"] == 422
        assert second["statusCode"] in {200, 402, 422}
    assert moved(world) in {0, 7, body["amount"]}
    RAN.add(request.node.name)


def _audit(world: World, body: dict[str, Any], answer: dict[str, Any] | None, mode: RefusalPolicy) -> None:
    """Money moved exactly if a record is COMPLETED, and an answer that is final is that record's."""
    records = [RequestRecord.from_item(item) for item in world.items("requests")]
    assert len(records) <= 1
    completed = any(record.status is RecordStatus.COMPLETED for record in records)
    assert (moved(world) > 0) == completed
    if answer is None or answer["statusCode"] == 503:
        return
    if answer["statusCode"] == 200:
        assert completed
        assert moved(world) == body["amount"]
    elif answer["statusCode"] == 402:
        assert not completed
        if mode is RefusalPolicy.OPEN:
            assert not records
            return
    (record,) = records
    assert (answer["statusCode"], answer["body"]) == (record.http_status, record.body)
    assert json.loads(answer["body"])


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_money_moves_at_most_once_and_final_responses_are_stored,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of direct operations",
    )
