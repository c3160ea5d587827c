"""Orders in local AWS with a payment gateway that has books of its own: many troubles at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing.invariants import assert_all_hold
from examples.payment_gateway import Action, Moment, Operation, Trouble
from saga_runtime.idempotency.identity import provider_key_of, step_key_of
from saga_runtime.protocol import LogAttribute, RecordAttribute

from .order_system import ASKING, ORDERS, PRICE, STEPS, OrderSystem, order, until
from .transfer_system import at_once, problem_of

DAY_MS: Final = 86_400_000
CLIENTS: Final = 24
"""Most of them only wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of one order."""

    saga_id: str
    answer: HttpResponse
    seen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Outcomes of all scenes, by name."""

    systems: Mapping[str, OrderSystem]
    outcomes: Mapping[str, Outcome]
    notices: Mapping[str, list[dict[str, Any]]]

    def system(self, name: str) -> OrderSystem:
        """The system in which a scene ran."""
        return self.systems[ASKING if name.endswith("asking") else ORDERS]

    def __getitem__(self, name: str) -> Outcome:
        return self.outcomes[name]


Scene = Callable[[OrderSystem, str], Outcome]


def bought(system: OrderSystem, name: str, *, status: int = 200, **seen: Any) -> Outcome:
    """Drive an order of one piece of goods of its own to its end."""
    answer = system.drive(name, order(name, card=f"card-{name}"))
    assert answer.status == status, answer.text
    return Outcome(saga_id=answer.json()["saga_id"], answer=answer, seen=seen)


def trouble(on: Operation, action: Action, moment: Moment = Moment.BEFORE, **further: Any) -> Scene:
    """An order that is paid for after trouble with the gateway."""

    def scene(system: OrderSystem, name: str) -> Outcome:
        system.offer(name)
        system.gateway.plan(Trouble(on=on, action=action, moment=moment, containing=system.request_id(name), **further))
        return bought(system, name)

    return scene


def calm(system: OrderSystem, name: str) -> Outcome:
    system.offer(name)
    return bought(system, name)


def double_click(system: OrderSystem, name: str) -> Outcome:
    system.offer(name, 5)
    body = {**order(name, card=f"card-{name}"), "order_id": name}
    clicks = at_once([partial(click, system, key, body) for key in ("click-1", "click-2")])
    outcome = bought(system, name)
    return Outcome(saga_id=outcome.saga_id, answer=outcome.answer, seen={"clicks": clicks})


def click(system: OrderSystem, key: str, body: object) -> HttpResponse:
    """Send a request until the gatekeeper responds: on a busy machine, the gateway may time out."""
    for _ in range(20):
        answer = system.try_post(key, body)
        if answer is not None and answer.status < 500:
            return answer
    raise AssertionError(f"{key} was not answered")


def declined(system: OrderSystem, name: str) -> Outcome:
    system.offer(name)
    answer = system.drive(name, order(name, card="card-declined", customer="grace"))
    return Outcome(saga_id=answer.json()["saga_id"], answer=answer)


def last_one(system: OrderSystem, name: str) -> Outcome:
    system.offer(name, 1)
    keys = (f"{name}-1", f"{name}-2")
    answers = at_once([partial(system.drive, key, order(name)) for key in keys])
    winner = next(answer for answer in answers if answer.status == 200)
    return Outcome(saga_id=winner.json()["saga_id"], answer=winner, seen={"answers": answers})


def empty_shelf(system: OrderSystem, name: str) -> Outcome:
    system.offer(name, 3, on_shelf=0)
    return bought(system, name, status=422)


def lost_refund(system: OrderSystem, name: str) -> Outcome:
    system.offer(name, 3, on_shelf=0)
    request_id = system.request_id(name)
    system.gateway.plan(Trouble(on=Operation.REFUND, action=Action.DROP, moment=Moment.AFTER, containing=request_id))
    return bought(system, name, status=422)


def digital(system: OrderSystem, name: str) -> Outcome:
    system.offer(name, digital={"BOOL": True})
    return bought(system, name)


def unknown(system: OrderSystem, name: str) -> Outcome:
    return bought(system, name, status=404)


def broken_goods(system: OrderSystem, name: str) -> Outcome:
    system.offer(name, price={"N": "12.5"})
    return bought(system, name, status=422)


def dearer(system: OrderSystem, name: str) -> Outcome:
    """The price rises while the charge is in doubt."""
    system.offer(name)
    drop = Trouble(on=Operation.CHARGE, action=Action.DROP, moment=Moment.AFTER, containing=system.request_id(name))
    system.gateway.plan(drop)
    saga_id = system.begin(name, order(name, card=f"card-{name}"))
    until(lambda: system.books(saga_id).charges, "the charge")
    table = system.outputs["ShopTableName"]
    system.aws.client("dynamodb").update_item(
        TableName=table,
        Key={"id": {"S": f"goods#{name}"}, "entry": {"S": "item"}},
        UpdateExpression="SET price = :p",
        ExpressionAttributeValues={":p": {"N": str(PRICE * 2)}},
    )
    return bought(system, name)


def ages_ago(system: OrderSystem, name: str) -> Outcome:
    """The row of a call in doubt grows older than anything, and the gateway has forgotten the key."""
    system.offer(name)
    drop = Trouble(on=Operation.CHARGE, action=Action.DROP, moment=Moment.AFTER, containing=system.request_id(name))
    system.gateway.plan(drop)
    saga_id = system.begin(name, order(name, card=f"card-{name}"))
    until(lambda: system.books(saga_id).charges, "the charge")
    record = system.item(saga_id)
    a = LogAttribute
    key: dict[str, dict[str, str]] = {a.SAGA_ID: {"S": saga_id}, a.STEP: {"S": "ProcessPayment"}}
    dynamodb, table = system.aws.client("dynamodb"), system.outputs["LogTableName"]
    row = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    older: dict[str, dict[str, str]] = {
        name: {"N": str(int(row[name]["N"]) - 365 * DAY_MS)} for name in (a.DEADLINE, a.FIRST_ATTEMPT_AT)
    }
    dynamodb.put_item(TableName=table, Item={**row, **older})
    system.gateway.forget(provider_key_of(step_key_of(saga_id, "ProcessPayment")))
    outcome = bought(system, name)
    return Outcome(saga_id=outcome.saga_id, answer=outcome.answer, seen={"record": record, "row": row})


SCENES: Final[Mapping[str, Scene]] = {
    "ages-ago": ages_ago,
    "ages-ago-asking": ages_ago,
    "dearer": dearer,
    "lost-refund": lost_refund,
    "lost-refund-asking": lost_refund,
    "charged-and-silent": trouble(Operation.CHARGE, Action.HANG, Moment.AFTER),
    "charged-and-silent-asking": trouble(Operation.CHARGE, Action.HANG, Moment.AFTER),
    "charged-and-gone": trouble(Operation.CHARGE, Action.DROP, Moment.AFTER),
    "charged-and-failed": trouble(Operation.CHARGE, Action.ERROR, Moment.AFTER),
    "not-charged-and-gone-asking": trouble(Operation.CHARGE, Action.DROP),
    "slow": trouble(Operation.CHARGE, Action.SLOW, seconds=60.0),
    "slow-asking": trouble(Operation.CHARGE, Action.SLOW, seconds=90.0),
    "late-asking": trouble(Operation.CHARGE, Action.LATE, seconds=50.0),
    "calm": calm,
    "double-click": double_click,
    "declined": declined,
    "last-one": last_one,
    "empty-shelf": empty_shelf,
    "digital": digital,
    "unknown": unknown,
    "broken-goods": broken_goods,
}


@pytest.fixture(scope="module")
def day(order_systems: dict[str, OrderSystem]) -> Day:
    """All of it, at once."""
    for system in order_systems.values():
        assert system.user_scope  # once: many threads will ask for it
    order_systems[ORDERS].aws.reset()
    order_systems[ORDERS].gateway.reset()

    def play(name: str) -> Outcome:
        return SCENES[name](order_systems[ASKING if name.endswith("asking") else ORDERS], name)

    with ThreadPoolExecutor(CLIENTS) as pool:
        outcomes = dict(zip(SCENES, pool.map(play, SCENES), strict=True))
    notices: dict[str, list[dict[str, Any]]] = {}
    for system in order_systems.values():
        for message in system.messages():
            notices.setdefault(message["order"], []).append(message)
    return Day(systems=order_systems, outcomes=outcomes, notices=notices)


def test_everything_that_must_hold_does(day: Day) -> None:
    for system in day.systems.values():
        audits = system.audit()
        assert_all_hold(audits)
        assert all(audit.checked for audit in audits), audits


def test_every_planned_trouble_fired(day: Day) -> None:
    assert [report.trouble for report in day.systems[ORDERS].gateway.report() if not report.fired] == []


class TestAnOrder:
    def test_is_charged_once_reserved_sold_and_sent(self, day: Day) -> None:
        system, outcome = day.system("calm"), day["calm"]

        (charge,) = system.books(outcome.saga_id).charges
        assert (charge.amount, charge.currency) == (PRICE, "EUR")
        assert system.goods("calm") == (0, 0, 0)
        assert outcome.saga_id in system.orders()
        done = {step: "RECORDED" if step == "ValidateInventory" else "DONE" for step in STEPS}
        assert system.statuses(outcome.saga_id) == {**done, "Confirmation": "DONE"}

    def test_takes_one_transition_per_step_one_for_its_choice_and_one_to_settle(self, day: Day) -> None:
        states = day.system("calm").states_of(day.system("calm").forward, day["calm"].saga_id)

        assert [state for state in states if state in {*STEPS, "Confirmation"}] == [*STEPS, "Confirmation"]
        assert len(states) <= len(STEPS) + 1 + 2

    def test_is_confirmed_to_the_customer_once(self, day: Day) -> None:
        (notice,) = day.notices[day["calm"].saga_id]

        assert notice == {
            "status": "COMPLETED", "customer": "ada", "order": day["calm"].saga_id, "amount": str(PRICE),
            "currency": "EUR",
        }  # fmt: skip

    def test_of_goods_that_cannot_be_shipped_is_not_sent(self, day: Day) -> None:
        statuses = day.system("digital").statuses(day["digital"].saga_id)

        assert "CreateShipment" not in statuses
        assert statuses["UpdateInventory"] == "DONE"

    def test_of_unsold_goods_is_refused_before_any_effect(self, day: Day) -> None:
        outcome = day["unknown"]

        assert problem_of(outcome.answer)["error"] == "UnknownItem"
        assert day.system("unknown").books(outcome.saga_id).charges == ()
        assert "ReserveInventory" not in day.system("unknown").statuses(outcome.saga_id)

    def test_of_goods_that_others_wrote_wrongly_is_refused(self, day: Day) -> None:
        document = problem_of(day["broken-goods"].answer)

        assert (document["error"], document["step"]) == ("Invalid", "ValidateInventory")

    def test_has_a_key_per_step_and_another_one_for_its_compensation(self, day: Day) -> None:
        saga_id = day["empty-shelf"].saga_id
        books = day.system("empty-shelf").books(saga_id)

        step, undo = (step_key_of(saga_id, "ProcessPayment", undo=undo) for undo in (False, True))
        assert [charge.key for charge in books.charges] == [provider_key_of(step)]
        assert [refund.key for refund in books.refunds] == [provider_key_of(undo)]
        movements = {item["entry"]["S"] for item in day.system("empty-shelf").shop() if "kind" in item}
        assert {step_key_of(saga_id, "ReserveInventory", undo=undo) for undo in (False, True)} <= movements

    def test_looks_goods_up_through_powertools_under_its_own_prefix(self, day: Day) -> None:
        system = day.system("calm")
        table = system.outputs["RequestTableName"]
        items = system.aws.client("dynamodb").scan(TableName=table)["Items"]
        quotes = [item for item in items if item[RecordAttribute.ID]["S"].startswith("quotes#")]

        orders = len(items) - len(quotes)
        assert len(quotes) == orders
        assert {item[RecordAttribute.STATUS]["S"] for item in quotes} == {"COMPLETED"}


class TestTwoRequests:
    def test_of_one_order_under_two_keys_are_one_charge(self, day: Day) -> None:
        outcome, system = day["double-click"], day.system("double-click")
        clicks: list[HttpResponse] = outcome.seen["clicks"]

        assert {click.json()["saga_id"] for click in clicks} == {outcome.saga_id}
        assert {click.status for click in clicks} <= {202, 409}
        assert [click.status for click in clicks].count(202) <= 1
        assert len(system.books(outcome.saga_id).charges) == 1
        assert system.goods("double-click") == (4, 0, 4)

    def test_for_the_last_one_are_one_order_and_one_refusal(self, day: Day) -> None:
        answers: list[HttpResponse] = day["last-one"].seen["answers"]

        winner, loser = sorted(answers, key=lambda answer: answer.status)
        assert (winner.status, loser.status) == (200, 422)
        assert problem_of(loser)["error"] == "OutOfStock"
        assert day.system("last-one").books(loser.json()["saga_id"]).charges == ()
        assert day.system("last-one").goods("last-one") == (0, 0, 0)


class TestARefusal:
    @pytest.mark.parametrize("name", ["declined"])
    def test_by_the_card_releases_the_goods_and_notifies_the_customer(self, day: Day, name: str) -> None:
        outcome, system = day[name], day.system(name)

        assert outcome.answer.status == 402
        assert problem_of(outcome.answer)["error"] == "Declined"
        assert system.goods(name) == (1, 0, 1)
        assert system.books(outcome.saga_id).taken == 0
        assert system.statuses(outcome.saga_id)["ProcessPayment"] == "REFUSED"
        (notice,) = day.notices[outcome.saga_id]
        assert (notice["status"], notice["customer"]) == ("DECLINED", "grace")

    @pytest.mark.parametrize("name", ["empty-shelf", "lost-refund", "lost-refund-asking"])
    def test_by_the_warehouse_refunds_once(self, day: Day, name: str) -> None:
        outcome, system = day[name], day.system(name)
        books = system.books(outcome.saga_id)

        assert problem_of(outcome.answer)["error"] == "NotOnShelf"
        assert (len(books.charges), len(books.refunds), books.taken) == (1, 1, 0)
        assert system.goods(name) == (3, 0, 0)
        assert system.statuses(outcome.saga_id)["ProcessPayment"] == "COMPENSATED"
        (notice,) = day.notices[outcome.saga_id]
        assert (notice["status"], notice["error"]) == ("FAILED", "NotOnShelf")


class TestAGatewayInTrouble:
    @pytest.mark.parametrize("name", [name for name in SCENES if name.startswith(("charged", "not", "slow", "late"))])
    def test_charges_once_and_the_order_completes(self, day: Day, name: str) -> None:
        outcome = day[name]

        assert len(day.system(name).books(outcome.saga_id).charges) == 1
        assert outcome.answer.json()["saga_id"] in day.system(name).orders()

    def test_with_keys_is_called_again_and_one_without_is_queried(self, day: Day) -> None:
        asked = [self._requests(day, name) for name in ("charged-and-silent", "charged-and-silent-asking")]

        assert asked == [["charge", "charge"], ["charge", "find-charge"]]

    def test_that_did_not_charge_is_queried_and_then_called_again(self, day: Day) -> None:
        assert self._requests(day, "not-charged-and-gone-asking") == ["charge", "find-charge", "charge"]

    def test_is_paid_the_price_that_was_quoted_though_it_rose_meanwhile(self, day: Day) -> None:
        (charge,) = day.system("dearer").books(day["dearer"].saga_id).charges

        assert charge.amount == PRICE

    @pytest.mark.parametrize("name", ["ages-ago", "ages-ago-asking"])
    def test_never_charges_again_because_a_record_is_old(self, day: Day, name: str) -> None:
        outcome = day[name]

        assert len(day.system(name).books(outcome.saga_id).charges) == 1
        assert self._requests(day, name) == ["charge", "find-charge"]
        # In progress, the request's record does not expire.
        assert RecordAttribute.EXPIRATION not in outcome.seen["record"]
        assert outcome.seen["row"][LogAttribute.STATUS]["S"] == "INTENT"

    def _requests(self, day: Day, name: str) -> list[str]:
        system, saga_id = day.system(name), day[name].saga_id
        return [request.operation for request in system.gateway.requests() if request.reference == saga_id]
