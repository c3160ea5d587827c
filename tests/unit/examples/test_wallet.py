"""The wallet's operations: each once, never below zero, never above the cap, whichever face they come through."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from examples.wallet.functions.wallet import stripe
from examples.wallet.functions.wallet.logs import logger
from saga_runtime.protocol import REPLAYED_HEADER, Metric
from saga_runtime.shared import aws
from tests.unit.support.samples import DAY_MS
from tests.unit.support.wallets import CARD, FRIEND, SHOP, Wallet, open_wallet
from tests.unit.support.wire import Action, Fault
from tests.unit.support.world import World

PAY = {"card": CARD, "merchant": SHOP, "amount": 50}


@pytest.fixture
def wallet(world: World, monkeypatch: pytest.MonkeyPatch) -> Wallet:
    """The wallet; the card holds 120: 100 and their bonus."""
    return open_wallet(world, monkeypatch)


class TestAPayment:
    def test_moves_money_counts_co2_and_is_one_call(self, wallet: Wallet) -> None:
        wallet.result("terminal/payments", PAY)

        assert wallet.world.wire.sent == ["TransactWriteItems"]
        assert (wallet.balance(CARD), wallet.balance(SHOP)) == (70, 50)
        assert Decimal(wallet.items(CARD)["METRICS"]["co2_saved"]["N"]) == Decimal("0.5")
        wallet.audit()

    def test_spends_points_too(self, wallet: Wallet) -> None:
        wallet.result("admin/issues", {"card": CARD, "unit": "POINT", "amount": 10}, key="points")

        wallet.result("customer/payments", {**PAY, "points": 4})

        assert (wallet.balance(CARD, "POINT"), wallet.balance(SHOP, "POINT")) == (6, 4)
        wallet.audit()

    @pytest.mark.parametrize(
        ("change", "status", "error"),
        [
            ({"amount": 121}, 400, "InsufficientFunds"),
            ({"points": 1}, 400, "InsufficientFunds"),
            ({"card": "nobody"}, 404, "CardUnknown"),
            ({"merchant": "nobody"}, 404, "CardUnknown"),
            ({"merchant": CARD}, 422, "Invalid"),
        ],
    )
    def test_that_is_refused_moves_nothing_and_leaves_no_marker(
        self, wallet: Wallet, change: dict[str, Any], status: int, error: str
    ) -> None:
        answer = wallet.send("terminal/payments", {**PAY, **change})

        assert answer is not None
        assert (answer["statusCode"], json.loads(answer["body"])["error"]) == (status, error)
        assert (wallet.balance(CARD), wallet.balance(SHOP)) == (120, 0)
        assert not [type_ for type_ in wallet.items(CARD) if type_.startswith("card_op_idem#pay#")]

    def test_that_is_repeated_is_a_replay(self, wallet: Wallet) -> None:
        first = wallet.send("terminal/payments", PAY)
        wallet.world.clock.ms += 1
        again = wallet.send("terminal/payments", PAY)

        assert first is not None
        assert again is not None
        assert again["body"] == first["body"]
        assert again["headers"][REPLAYED_HEADER] == "true"
        assert wallet.balance(CARD) == 70
        assert wallet.world.telemetry.counts[Metric.REPLAYED] == 1

    def test_under_a_key_of_another_face_is_refused(self, wallet: Wallet) -> None:
        wallet.result("terminal/payments", PAY)

        assert wallet.status("customer/payments", PAY) == 409
        assert wallet.balance(CARD) == 70
        wallet.audit()

    def test_counts_its_conflicts_the_last_one_too(self, wallet: Wallet) -> None:
        wallet.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.CONFLICT, times=1_000))

        assert wallet.status("terminal/payments", PAY) == 503
        assert wallet.world.telemetry.counts[Metric.CONFLICT] == 4
        for nap, least in zip(wallet.world.naps, (0.05, 0.1, 0.2), strict=True):
            assert least <= nap <= 1.5 * least
        assert wallet.balance(CARD) == 120


class TestATopUp:
    def test_that_exceeds_the_cap_by_its_bonus_alone_is_refused(self, wallet: Wallet) -> None:
        wallet.result("terminal/top-ups", {"card": FRIEND, "amount": 750}, key="a")
        assert wallet.balance(FRIEND) == 900

        answer = wallet.send("terminal/top-ups", {"card": FRIEND, "amount": 100}, key="b")

        assert answer is not None
        assert (answer["statusCode"], json.loads(answer["body"])["error"]) == (400, "CapExceeded")
        assert wallet.balance(FRIEND) == 900
        wallet.audit()

    def test_up_to_the_cap_is_taken(self, wallet: Wallet) -> None:
        wallet.result("terminal/top-ups", {"card": FRIEND, "amount": 750}, key="a")

        wallet.result("terminal/top-ups", {"card": FRIEND, "amount": 84}, key="b")

        assert wallet.balance(FRIEND) == 1_000

    def test_of_a_card_that_does_not_exist_creates_none(self, wallet: Wallet) -> None:
        assert wallet.status("terminal/top-ups", {"card": "nobody", "amount": 10}) == 404
        assert wallet.items("nobody") == {}


class TestARefund:
    def test_refunds_in_parts_and_never_more(self, wallet: Wallet) -> None:
        payment = wallet.result("terminal/payments", PAY)["payment"]
        body = {"card": CARD, "merchant": SHOP, "payment": payment, "amount": 30}

        wallet.result("merchant/refunds", body, key="a")
        assert wallet.status("merchant/refunds", {**body, "amount": 21}, key="b") == 409
        wallet.result("admin/refunds", {**body, "amount": 20}, key="c")

        assert (wallet.balance(CARD), wallet.balance(SHOP)) == (120, 0)
        assert Decimal(wallet.items(CARD)["METRICS"]["co2_saved"]["N"]) == 0
        wallet.audit()

    @pytest.mark.parametrize("change", [{"payment": "abcdefghijklmnopqrstuvwxyz-1"}, {"merchant": FRIEND}])
    def test_of_a_payment_that_does_not_exist_is_404(self, wallet: Wallet, change: dict[str, Any]) -> None:
        payment = wallet.result("terminal/payments", PAY)["payment"]
        body = {"card": CARD, "merchant": SHOP, "payment": payment, "amount": 30, **change}

        assert wallet.status("merchant/refunds", body, key="r") == 404

    def test_above_the_cap_is_taken(self, wallet: Wallet) -> None:
        payment = wallet.result("terminal/payments", PAY)["payment"]
        wallet.result("terminal/top-ups", {"card": CARD, "amount": 775}, key="a")
        assert wallet.balance(CARD) == 1_000

        body = {"card": CARD, "merchant": SHOP, "payment": payment, "amount": 50}
        wallet.result("merchant/refunds", body, key="r")

        assert wallet.balance(CARD) == 1_050


class TestATransfer:
    @pytest.mark.parametrize("unit", ["POINT", "JCREDIT", "REGIONAL:kobe"])
    def test_moves_any_unit(self, wallet: Wallet, unit: str) -> None:
        wallet.result("admin/issues", {"card": CARD, "unit": unit, "amount": 9}, key="issue")

        wallet.result("customer/transfers", {"card": CARD, "to": FRIEND, "amount": 4, "unit": unit})

        stored = unit.replace(":", "#")
        assert (wallet.balance(CARD, stored), wallet.balance(FRIEND, stored)) == (5, 4)
        wallet.audit()

    def test_of_money_keeps_the_receivers_cap(self, wallet: Wallet) -> None:
        wallet.result("terminal/top-ups", {"card": FRIEND, "amount": 833}, key="a")

        body = {"card": CARD, "to": FRIEND, "amount": 2, "unit": "ECOPAY"}
        assert wallet.status("customer/transfers", body) == 400
        assert (wallet.balance(CARD), wallet.balance(FRIEND)) == (120, 999)

    def test_of_a_unit_never_takes_another(self, wallet: Wallet) -> None:
        body = {"card": CARD, "to": FRIEND, "amount": 1, "unit": "POINT"}

        assert wallet.status("customer/transfers", body) == 400
        assert wallet.balance(CARD) == 120


def test_money_is_not_issued(wallet: Wallet) -> None:
    assert wallet.status("admin/issues", {"card": CARD, "unit": "ECOPAY", "amount": 1}) == 422


def test_a_profile_member_is_left_set_or_removed(wallet: Wallet) -> None:
    wallet.result("admin/profiles", {"card": CARD, "name": "Aki", "phone_number": "+81 90 1234 5678"}, key="a")
    wallet.result("admin/profiles", {"card": CARD, "email": "aki@example.org", "phone_number": None}, key="b")

    profile = wallet.items(CARD)["PROFILE"]
    assert (profile["name"], profile["email"], "phone_number" in profile) == (
        {"S": "Aki"},
        {"S": "aki@example.org"},
        False,
    )


class TestStripe:
    def test_several_events_of_a_payment_charge_the_card_once(self, wallet: Wallet) -> None:
        assert [wallet.event(stripe.PAID) for _ in range(3)] == [200] * 3

        assert wallet.balance(CARD) == 240
        wallet.audit()

    def test_a_redelivery_after_29_days_is_counted_and_has_no_effect(self, wallet: Wallet) -> None:
        """The record under the business key outlasts a marker of 30 days: it refuses for 400."""
        assert wallet.event(stripe.PAID) == 200
        before = wallet.world.items("wallet")
        wallet.world.clock.ms += 29 * DAY_MS

        assert wallet.event(stripe.PAID) == 200

        assert wallet.world.telemetry.counts[Metric.EVENT_DUPLICATE] == 1
        assert wallet.world.items("wallet") == before
        assert wallet.balance(CARD) == 240

    def test_an_event_whose_function_fails_leaves_no_marker_and_its_redelivery_works(self, wallet: Wallet) -> None:
        before = wallet.world.items("wallet"), wallet.world.items("requests")
        wallet.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.THROTTLE, times=3))

        assert wallet.event(stripe.PAID) == 503
        assert (wallet.world.items("wallet"), wallet.world.items("requests")) == before
        assert wallet.event(stripe.PAID) == 200
        assert wallet.balance(CARD) == 240

    def test_a_refund_before_its_payment_is_applied_after_it(self, wallet: Wallet) -> None:
        assert wallet.event(stripe.REFUNDED) == 202
        assert wallet.world.wire.sent.count("TransactWriteItems") == 1, "no try would have gone otherwise"
        assert wallet.event(stripe.PAID) == 200
        wallet.work()

        assert wallet.balance(CARD) == 120
        wallet.audit()

    def test_a_payment_above_the_cap_or_of_an_unknown_card_is_parked(self, wallet: Wallet) -> None:
        assert wallet.event(stripe.PAID, payment="pi_2", amount=900) == 202
        assert wallet.event(stripe.PAID, payment="pi_3", card="nobody") == 202

        assert len(aws.sqs().receive_message(QueueUrl=wallet.parked, MaxNumberOfMessages=10)["Messages"]) == 2
        assert wallet.balance(CARD) == 120

    @pytest.mark.parametrize(("kind", "card"), [("invoice.paid", CARD), (stripe.PAID, None)])
    def test_an_event_of_another_product_leaves_nothing(self, wallet: Wallet, kind: str, card: str | None) -> None:
        before = wallet.world.items("wallet"), wallet.world.items("requests")

        assert wallet.event(kind, card=card) == 200
        assert (wallet.world.items("wallet"), wallet.world.items("requests")) == before


def test_ten_threads_under_one_key_have_one_effect_and_ten_equal_responses(wallet: Wallet) -> None:
    def send(_: int) -> tuple[int, str]:
        answer = wallet.send("terminal/payments", PAY)
        assert answer is not None
        return answer["statusCode"], answer["body"]

    with ThreadPoolExecutor(max_workers=10) as pool:
        answers = set(pool.map(send, range(10)))

    assert len(answers) == 1
    assert answers.pop()[0] == 200
    assert wallet.balance(CARD) == 70
    wallet.audit()


def test_many_deductions_at_once_never_go_below_zero(wallet: Wallet) -> None:
    with ThreadPoolExecutor(max_workers=10) as pool:
        statuses = list(pool.map(lambda n: wallet.status("terminal/payments", PAY, key=f"k{n}"), range(10)))

    assert sorted(statuses) == [200] * 2 + [400] * 8
    assert wallet.balance(CARD) == 20
    wallet.audit()


def test_no_log_line_of_any_operation_contains_personal_data(wallet: Wallet, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", printed)
    secrets = {"name": "Aki Sato", "email": "aki@example.org", "phone_number": "+81 90-1234-5678"}
    wallet.result("admin/cards", {"card": "card-9", **secrets}, key="a")
    wallet.result("admin/profiles", {"card": "card-9", **secrets}, key="b")
    wallet.result("terminal/payments", PAY, key="c")

    lines = printed.getvalue()
    assert '"operation":"open"' in lines
    assert not [value for value in secrets.values() if value in lines]
