"""Goods that a cart holds: no piece is sold twice, and an expired hold has no effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from examples.cart_fulfilment.functions.cart.shop import COUPONS, OutOfStock, ReservationLost, Shop, UnknownItem
from saga_runtime import Invalid, PermanentError, VersionedItem
from saga_runtime.protocol import OUTPUT_FIELD, Env
from saga_runtime.shared import aws
from saga_runtime.steps.atomic_compensation import CompensationRefused
from tests.unit.support.payouts import OTHER_SAGA
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

HOLD_MS: Final = 1_000_000
ENVIRONMENT: Final = {
    "SHOP_TABLE": "shop",
    "HOLD_SECONDS": "1000",
    "HOLD_SECONDS_REVIEWED": "9000",
    "REVIEW_FROM": "500",
    Env.OUTBOX_TABLE: "outbox",
}
THIRD_SAGA: Final = f"{OTHER_SAGA}0"


@dataclass
class Carts:
    """The deployed functions, invoked one by one."""

    world: World
    coupon: str = ""
    committed: dict[str, Any] = field(default_factory=dict)

    def issue(self, code: str, off: int = 30, currency: str = "EUR") -> None:
        [write] = COUPONS.create(
            VersionedItem(table="shop", key={"id": {"S": f"coupon#{code}"}, "entry": {"S": "coupon"}}),
            {"off": {"N": str(off)}, "currency": {"S": currency}},
        )
        entries: Any = [write.action]
        aws.dynamodb().transact_write_items(TransactItems=entries)
        self.coupon = code

    def coupon_state(self) -> str:
        return next(str(item["state"]["S"]) for item in self.world.items("shop") if item["entry"]["S"] == "coupon")

    def offer(self, stock: int, *, sku: str = "lamp", price: int = 100) -> None:
        item = {"price": {"N": str(price)}, "stock": {"N": str(stock)}, "version": {"N": "0"}, "currency": {"S": "EUR"}}
        key = {"id": {"S": f"goods#{sku}"}, "entry": {"S": "item"}}
        aws.dynamodb().put_item(TableName="shop", Item={**key, **item})

    def price(self, *lines: tuple[str, int]) -> dict[str, Any]:
        from examples.cart_fulfilment.functions.cart.validate import price

        found: dict[str, Any] = price(self._event("PriceCart", SAGA_ID, lines), Context())[OUTPUT_FIELD]
        return found

    def assess(self, amount: int) -> bool:
        from examples.cart_fulfilment.functions.cart.validate import assess

        event = self._event("AssessRisk", SAGA_ID, (), PriceCart={"amount": str(amount)})
        return bool(assess(event, Context())[OUTPUT_FIELD]["review"])

    def reserve(self, saga_id: str = SAGA_ID, *lines: tuple[str, int], review: bool = False) -> None:
        from examples.cart_fulfilment.functions.cart.inventory import reserve

        reserve(self._event("ReserveInventory", saga_id, lines, AssessRisk={"review": review}), Context())

    def release(self, saga_id: str = SAGA_ID) -> None:
        from examples.cart_fulfilment.functions.cart.inventory import release

        release(self._event("ReserveInventory", saga_id, ()), Context())

    def commit(self, saga_id: str = SAGA_ID) -> None:
        from examples.cart_fulfilment.functions.cart.inventory import commit

        event = self._event("CommitOrder", saga_id, (), AuthorizePayment={"payment": "pi_1"})
        self.committed = commit(event, Context())[OUTPUT_FIELD]

    def cancel(self, saga_id: str = SAGA_ID) -> None:
        from examples.cart_fulfilment.functions.cart.inventory import cancel

        cancel(self._event("CommitOrder", saga_id, ()), Context())

    def ship(self, saga_id: str = SAGA_ID) -> None:
        from examples.cart_fulfilment.functions.cart.inventory import ship

        outputs = {"ShippingLabel": {"tracking": "T1"}, "CommitOrder": self.committed}
        ship(self._event("ShipOrder", saga_id, (), **outputs), Context())

    def later(self, ms: int = HOLD_MS + 1) -> None:
        self.world.clock.ms += ms

    def stock(self) -> int:
        return next(int(i["stock"]["N"]) for i in self.world.items("shop") if i["entry"]["S"] == "item")

    def holds(self) -> int:
        return sum(item["entry"]["S"].startswith("hold#") for item in self.world.items("shop"))

    def order(self, saga_id: str = SAGA_ID) -> str:
        found = [i for i in self.world.items("shop") if i["id"]["S"] == f"order#{saga_id}"]
        return str(found[0]["state"]["S"]) if found else ""

    def events(self) -> dict[str, Any]:
        """Details of the events that wait to be published, by type."""
        return {row["type"]["S"]: json.loads(row["detail"]["S"]) for row in self.world.items("outbox")}

    def _event(self, step: str, saga_id: str, lines: tuple[tuple[str, int], ...], **outputs: Any) -> dict[str, Any]:
        items = [{"sku": sku, "quantity": quantity} for sku, quantity in lines or (("lamp", 1),)]
        body: dict[str, Any] = {"customer": "ada", "card": "card-1", "address": "10 Mill Lane", "items": items}
        if self.coupon:
            body["coupon"] = self.coupon
        return {**step_event(step=step, body=body, saga_id=saga_id, outputs=outputs), "record": True}


@pytest.fixture
def carts(world: World, monkeypatch: pytest.MonkeyPatch) -> Carts:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    aws.dynamodb().create_table(
        TableName="shop",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("id", "entry")],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}, {"AttributeName": "entry", "KeyType": "RANGE"}],
    )
    return Carts(world)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen once, when goods have been read and nothing is written yet."""
    read, waiting = Shop.read, [happens]

    def interrupted(shop: Shop, sku: str) -> Any:
        found = read(shop, sku)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(Shop, "read", interrupted)


# --- Histories


def what_is_held_is_not_free(carts: Carts) -> None:
    carts.offer(1)
    carts.reserve()

    with pytest.raises(OutOfStock):
        carts.reserve(OTHER_SAGA)
    with pytest.raises(OutOfStock):
        carts.price(("lamp", 1))


def what_is_held_can_be_sold(carts: Carts) -> None:
    carts.offer(1)
    carts.reserve()
    carts.commit()

    assert (carts.stock(), carts.order()) == (0, "PAID")


def a_hold_that_is_over_binds_nobody(carts: Carts) -> None:
    carts.offer(1)
    carts.reserve()
    carts.later()
    carts.price(("lamp", 1))
    carts.reserve(OTHER_SAGA)
    carts.commit(OTHER_SAGA)

    assert carts.order(OTHER_SAGA) == "PAID"


def a_cart_that_comes_back_too_late_gets_nothing(carts: Carts) -> None:
    carts.offer(1)
    carts.reserve()
    carts.later()
    carts.reserve(OTHER_SAGA)

    with pytest.raises(ReservationLost):
        carts.commit()
    assert carts.stock() == 1


def a_cart_that_comes_back_late_gets_what_is_still_there(carts: Carts) -> None:
    carts.offer(1)
    carts.reserve()
    carts.later()
    carts.commit()

    assert (carts.stock(), carts.holds(), carts.order()) == (0, 0, "PAID")


def two_who_read_at_once_do_not_both_take(carts: Carts, monkeypatch: pytest.MonkeyPatch) -> None:
    carts.offer(1)
    meanwhile(monkeypatch, lambda: carts.reserve(OTHER_SAGA))

    with pytest.raises(OutOfStock):
        carts.reserve()
    assert carts.holds() == 1


def who_sells_meanwhile_is_noticed(carts: Carts, monkeypatch: pytest.MonkeyPatch) -> None:
    carts.offer(2)
    carts.reserve()
    carts.reserve(OTHER_SAGA)
    carts.later()
    carts.reserve(THIRD_SAGA)
    meanwhile(monkeypatch, lambda: carts.commit(OTHER_SAGA))

    with pytest.raises(ReservationLost):
        carts.commit()
    carts.commit(THIRD_SAGA)
    assert carts.stock() == 0


def what_a_cart_gives_back_is_noticed(carts: Carts, monkeypatch: pytest.MonkeyPatch) -> None:
    carts.offer(2)
    carts.reserve()
    carts.commit()
    meanwhile(monkeypatch, carts.cancel)
    carts.reserve(OTHER_SAGA)
    carts.commit(OTHER_SAGA)

    assert carts.stock() == 1


class TestHolds:
    def test_keep_goods_from_others(self, carts: Carts) -> None:
        what_is_held_is_not_free(carts)

    def test_can_be_sold(self, carts: Carts) -> None:
        what_is_held_can_be_sold(carts)

    def test_that_are_over_have_no_effect(self, carts: Carts) -> None:
        a_hold_that_is_over_binds_nobody(carts)

    def test_that_are_over_are_lost_to_a_buyer_of_the_goods(self, carts: Carts) -> None:
        a_cart_that_comes_back_too_late_gets_nothing(carts)

    def test_that_are_over_suffice_while_the_goods_are_free(self, carts: Carts) -> None:
        a_cart_that_comes_back_late_gets_what_is_still_there(carts)

    def test_for_the_last_one_are_one(self, carts: Carts, monkeypatch: pytest.MonkeyPatch) -> None:
        two_who_read_at_once_do_not_both_take(carts, monkeypatch)

    def test_meet_sales_on_the_same_condition(self, carts: Carts, monkeypatch: pytest.MonkeyPatch) -> None:
        who_sells_meanwhile_is_noticed(carts, monkeypatch)

    def test_meet_restocked_goods_on_the_same_condition(self, carts: Carts, monkeypatch: pytest.MonkeyPatch) -> None:
        what_a_cart_gives_back_is_noticed(carts, monkeypatch)

    def test_are_released(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.release()
        carts.reserve(OTHER_SAGA)

        assert carts.holds() == 1

    def test_that_were_deleted_are_released_too(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.commit()
        carts.cancel()
        carts.release()

        assert (carts.stock(), carts.holds(), carts.order()) == (1, 0, "CANCELED")

    def test_of_carts_that_are_reviewed_last_longer(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve(review=True)
        carts.later()

        with pytest.raises(OutOfStock):
            carts.reserve(OTHER_SAGA)

    def test_are_all_or_none(self, carts: Carts) -> None:
        carts.offer(1)
        carts.offer(0, sku="vase")

        with pytest.raises(OutOfStock):
            carts.reserve(SAGA_ID, ("lamp", 1), ("vase", 1))
        assert carts.holds() == 0


class TestACart:
    def test_is_priced(self, carts: Carts) -> None:
        carts.offer(5)
        carts.offer(5, sku="vase", price=30)

        assert carts.price(("lamp", 2), ("vase", 1)) == {"amount": "230", "currency": "EUR"}

    def test_of_unsold_goods_has_no_price(self, carts: Carts) -> None:
        with pytest.raises(UnknownItem):
            carts.price(("lamp", 1))

    @pytest.mark.parametrize(("amount", "review"), [(499, False), (500, True)])
    def test_that_is_expensive_is_reviewed(self, carts: Carts, amount: int, review: bool) -> None:
        assert carts.assess(amount) is review

    def test_is_an_order_that_is_shipped(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.commit()
        carts.ship()

        assert carts.order() == "SHIPPED"

    def test_is_reported_by_events_of_its_transactions(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.commit()
        placed = {"order": SAGA_ID, "customer": "ada", "items": [{"quantity": 1, "sku": "lamp"}]}
        assert carts.events() == {"OrderPlaced": {**placed, "event_id": f"{SAGA_ID}#CommitOrder"}}

        carts.cancel()
        carts.cancel()
        cancelled = carts.events()["OrderCancelled"]
        assert (cancelled["order"], cancelled["customer"]) == (SAGA_ID, "ada")
        assert cancelled["event_id"] not in {f"{SAGA_ID}#CommitOrder", ""}

    def test_that_is_not_sold_is_not_reported(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.later()
        carts.reserve(OTHER_SAGA)

        with pytest.raises(ReservationLost):
            carts.commit()
        assert carts.events() == {}

    @pytest.mark.parametrize("moment", list(Moment))
    def test_is_reported_once_whenever_the_process_dies(self, carts: Carts, moment: Moment) -> None:
        carts.offer(1)
        carts.reserve()
        carts.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL, moment=moment, times=1))
        with pytest.raises(Killed):
            carts.commit()
        assert bool(carts.events()) == bool(carts.order())

        carts.commit()
        assert list(carts.events()) == ["OrderPlaced"]

    def test_that_was_canceled_is_not_shipped(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.commit()
        carts.cancel()

        with pytest.raises(PermanentError, match="must be PAID, got CANCELED"):
            carts.ship()
        assert carts.order() == "CANCELED"

    def test_that_was_shipped_is_not_canceled_and_its_goods_are_not_put_back(self, carts: Carts) -> None:
        carts.offer(1)
        carts.reserve()
        carts.commit()
        carts.ship()

        with pytest.raises(CompensationRefused):
            carts.cancel()
        assert (carts.order(), carts.stock()) == ("SHIPPED", 0)

    def test_that_was_never_committed_is_not_shipped(self, carts: Carts) -> None:
        with pytest.raises(PermanentError, match="must be PAID, got unknown"):
            carts.ship()


class TestACoupon:
    def test_takes_its_amount_off_the_price(self, carts: Carts) -> None:
        carts.offer(1)
        carts.issue("SPRING")

        assert carts.price(("lamp", 1)) == {"amount": "70", "currency": "EUR"}
        assert carts.coupon_state() == "ISSUED"

    def test_is_used_up_by_the_order_that_is_shipped(self, carts: Carts) -> None:
        carts.offer(1)
        carts.issue("SPRING")
        carts.reserve()
        carts.commit()
        assert carts.coupon_state() == "REDEEMED"

        carts.ship()

        assert (carts.coupon_state(), carts.order()) == ("USED", "SHIPPED")

    def test_is_given_back_by_a_canceled_order_and_redeemed_by_another(self, carts: Carts) -> None:
        carts.offer(2)
        carts.issue("SPRING")
        carts.reserve()
        carts.commit()

        carts.cancel()

        assert carts.coupon_state() == "ISSUED"
        carts.reserve(OTHER_SAGA)
        carts.commit(OTHER_SAGA)
        assert (carts.coupon_state(), carts.order(OTHER_SAGA)) == ("REDEEMED", "PAID")

    def test_is_redeemed_by_one_of_two_orders(self, carts: Carts) -> None:
        carts.offer(2)
        carts.issue("SPRING")
        carts.reserve()
        carts.reserve(OTHER_SAGA)
        carts.commit()

        with pytest.raises(PermanentError, match="coupon SPRING was redeemed"):
            carts.commit(OTHER_SAGA)
        assert (carts.order(OTHER_SAGA), carts.stock()) == ("", 1)

    def test_that_is_redeemed_between_read_and_write_is_read_again(
        self, carts: Carts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        carts.offer(2)
        carts.issue("SPRING")
        carts.reserve()
        carts.reserve(OTHER_SAGA)
        redeem, waiting = Shop.redeem, [lambda: carts.commit(OTHER_SAGA)]

        def interrupted(shop: Shop, call: Any, code: str) -> Any:
            found = redeem(shop, call, code)
            if waiting:
                waiting.pop()()
            return found

        monkeypatch.setattr(Shop, "redeem", interrupted)

        with pytest.raises(PermanentError, match="coupon SPRING was redeemed"):
            carts.commit()
        assert (carts.order(), carts.order(OTHER_SAGA)) == ("", "PAID")

    @pytest.mark.parametrize(("off", "currency"), [(100, "EUR"), (30, "USD")])
    def test_that_does_not_fit_the_price_is_refused(self, carts: Carts, off: int, currency: str) -> None:
        carts.offer(1)
        carts.issue("SPRING", off, currency)

        with pytest.raises(Invalid, match="less than the amount, in its currency"):
            carts.price(("lamp", 1))

    def test_that_does_not_exist_is_refused(self, carts: Carts) -> None:
        carts.offer(1)
        carts.coupon = "SPRING"

        with pytest.raises(Invalid, match="there is no coupon SPRING"):
            carts.price(("lamp", 1))

    @pytest.mark.parametrize("moment", list(Moment))
    def test_is_redeemed_once_whenever_the_process_dies(self, carts: Carts, moment: Moment) -> None:
        carts.offer(1)
        carts.issue("SPRING")
        carts.reserve()
        carts.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL, moment=moment, times=1))
        with pytest.raises(Killed):
            carts.commit()

        carts.commit()
        carts.ship()

        assert (carts.coupon_state(), carts.order(), carts.stock()) == ("USED", "SHIPPED", 0)
