"""Carts in local AWS with providers that report later: many troubles at once.

One scene for each response, and for each trouble that real signatures, processes or schedules have a part in. The other
cards, silences and delays of each provider are drawn in ``tests/simulator/workloads/carts.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from constructs_lib.testing import HttpResponse
from constructs_lib.testing.faults import Fault
from constructs_lib.testing.invariants import assert_all_hold
from examples.cart_fulfilment.providers import Action, Delivery, Trouble
from examples.cart_fulfilment.providers.courier import sign_like_stripe
from saga_runtime.protocol import RecordAttribute, RecordStatus, TokenAttribute, TokenStatus
from saga_runtime.recovery.late_effects import late_log

from .cart_system import DEAR, LONGEST_WAIT_SECONDS, PRICE, CartSystem, cart, deployed, until
from .transfer_system import at_once, problem_of

CLIENTS: Final = 48
"""They only wait."""
REAL_SECONDS_OF_WORK: Final = 60
"""Time for everything except waiting: functions start slowly on a busy machine."""
ALONE: Final = ("early",)
"""Scenes that run after the others: on a busy machine, a task might time out before its outcome is delivered."""
AUTHORIZED: Final = "payment_intent.amount_capturable_updated"
PICKED, REJECTED = "pick.completed", "pick.rejected"
SCANNED: Final = "parcel.picked_up"

Books = Mapping[str, Sequence[str]]
SENT: Final[Books] = {"payments": ["authorized", "captured"], "warehouse": ["picked"], "carrier": ["labelled"]}
NOTHING: Final[Books] = {"payments": [], "warehouse": [], "carrier": []}
RELEASED: Final[Books] = {**NOTHING, "payments": ["authorized", "canceled"]}
PAID_BACK: Final[Books] = {
    "payments": ["authorized", "captured", "refunded", "canceled"], "warehouse": [], "carrier": ["labelled", "voided"],
}  # fmt: skip
CALLED_OFF: Final[Books] = {**PAID_BACK, "warehouse": ["picked", "put_back"]}

DONE: Final = (
    "AuthorizePayment",
    "CommitOrder",
    "CapturePayment",
    "ShippingLabel",
    "Pick",
    "ShipOrder",
    "Tracking",
    "TrackingText",
)


def on(provider: str, on: str, action: Action, **more: Any) -> tuple[str, Callable[[str], Trouble]]:
    """Trouble with one cart at one provider."""
    return provider, lambda request_id: Trouble(on=on, action=action, containing=request_id, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One cart, its faults, and its expected end.

    Attributes:
        troubles: faults.
        status: status code of the response.
        error: error name of the response.
        books: final entries of the providers' books.
        notice: the customer's notification.
        sku: goods; the scene's name by default.
        card, address, price, stock: of the cart and of the goods.
        decision: the reviewer's decision.
    """

    troubles: Sequence[tuple[str, Callable[[str], Trouble]]] = ()
    status: int = 200
    error: str | None = None
    books: Books = field(default_factory=lambda: SENT)
    notice: str = "SHIPPED"
    sku: str | None = None
    card: str = "card-1"
    address: str = "10 Mill Lane"
    price: int = PRICE
    stock: int = 1
    decision: str | None = None


def failed(error: str, books: Books, *, status: int = 422, notice: str = "FAILED", **more: Any) -> Scene:
    return Scene(status=status, error=error, books=books, notice=notice, **more)


SCENES: Final[Mapping[str, Scene]] = {
    "calm": Scene(),
    "silent-payments": Scene(troubles=[on("payments", AUTHORIZED, Action.SILENT)]),
    "idle-carrier": failed(
        "WaitTimedOut", CALLED_OFF, troubles=[on("carrier", "handover", Action.STALL)]
    ),
    "early": Scene(
        troubles=[
            on("payments", "authorize", Action.EARLY),
            on("warehouse", "pick", Action.EARLY),
            on("carrier", "handover", Action.EARLY),
        ]
    ),
    "forged": Scene(
        troubles=[
            on("payments", AUTHORIZED, Action.FORGED),
            on("warehouse", PICKED, Action.FORGED),
            on("carrier", SCANNED, Action.FORGED),
        ]
    ),
    "unknown": Scene(
        troubles=[
            on("payments", AUTHORIZED, Action.UNKNOWN),
            on("warehouse", PICKED, Action.UNKNOWN),
            on("carrier", SCANNED, Action.UNKNOWN),
        ]
    ),
    "says-the-opposite": Scene(
        troubles=[
            on("payments", AUTHORIZED, Action.WRONG, seconds=120),
            on("warehouse", PICKED, Action.WRONG, seconds=120),
            on("carrier", SCANNED, Action.WRONG, seconds=120),
        ]
    ),
    "picked-after-all": failed(
        "OutOfStock",
        CALLED_OFF,
        notice="OUT_OF_STOCK",
        sku="empty-shelf-2",
        troubles=[on("warehouse", REJECTED, Action.WRONG, seconds=100)],
    ),
    "declined": failed("Declined", NOTHING, status=402, notice="DECLINED", card="card-declined"),
    "sold-out": failed("OutOfStock", NOTHING, notice="OUT_OF_STOCK", stock=0),
    "shelf-is-empty": failed("OutOfStock", PAID_BACK, notice="OUT_OF_STOCK", sku="empty-shelf-1"),
    "not-in-the-warehouse": failed("PickRefused", PAID_BACK, sku="unlisted-1"),
    "parcel-lost": failed("ParcelLost", CALLED_OFF, troubles=[on("carrier", "handover", Action.REFUSE)]),
    "no-such-address": failed(
        "AddressUnknown", {**PAID_BACK, "carrier": []}, address="nowhere 7"
    ),
    "approved": Scene(price=DEAR, decision="approve"),
    "rejected": failed("Rejected", RELEASED, status=403, price=DEAR, decision="reject"),
    "nobody-decides": failed("WaitTimedOut", RELEASED, price=DEAR),
    "we-are-down": Scene(),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of one cart."""

    saga_id: str
    answer: HttpResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Outcomes of all scenes, by name."""

    system: CartSystem
    outcomes: Mapping[str, Outcome]
    notices: Mapping[str, list[dict[str, Any]]]
    operators: list[dict[str, Any]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Outcome:
        return self.outcomes[name]

    def told_operators(self, saga_id: str) -> list[dict[str, Any]]:
        """Messages to the operators about a saga, so far."""
        self.operators.extend(self.system.operators())
        return [message for message in self.operators if message["saga_id"] == saga_id]

    def token(self, name: str, step: str) -> dict[str, Any]:
        """The row of a job's token, without types."""
        job = f"{self[name].saga_id}#{step}"
        (found,) = [item for item in self.system.tokens() if item[TokenAttribute.ID]["S"] == job]
        return {name: next(iter(value.values())) for name, value in found.items()}


def answers_of(delivery: Delivery) -> list[int]:
    """Status codes that we returned. On a busy machine the gateway may time out, and the provider retries."""
    return [status for status in delivery.answers if 0 < status < 500]


def play(system: CartSystem, name: str) -> Outcome:
    scene, request_id = SCENES[name], system.request_id(name)
    sku = system.offer(scene.sku or name, scene.stock, price=scene.price)
    for provider, trouble in scene.troubles:
        system.providers[provider].plan(trouble(request_id))
    if name == "we-are-down":
        for function in ("PaymentEvents", "PickEvents", "Scan"):
            system.aws.faults.plan(
                Fault(
                    function=system.function(function),
                    call="dynamodb:TransactWriteItems",
                    action="kill",
                    containing=request_id,
                )
            )
    body = cart(sku, card=scene.card, address=scene.address)
    saga_id = system.begin(name, body)
    if scene.decision is not None:
        until(lambda: system.review_links(saga_id), f"the link of {name}")
        assert system.decide(system.review_links(saga_id)[0], scene.decision) in {200, 409}
    system.await_settled(saga_id)
    undone_if_late(system, saga_id, scene)
    return Outcome(saga_id=saga_id, answer=system.replayed(name, body))


def undone_if_late(system: CartSystem, saga_id: str, scene: Scene) -> None:
    """Wait until the reconciler has compensated a late effect."""
    wrong = [trouble(saga_id) for _, trouble in scene.troubles]
    if not any(trouble.action is Action.WRONG and trouble.on == REJECTED for trouble in wrong):
        return

    def undone() -> bool:
        late = late_log(system.recoverer, system.record(saga_id), system.outputs["LogTableName"]).late
        return not late and system.effects(saga_id) == scene.books

    until(undone, lambda: f"undoing what came late: {system.statuses(saga_id)}")


@pytest.fixture(scope="module")
def system() -> Iterator[CartSystem]:
    with deployed(reconciled=True) as made:
        yield made


@pytest.fixture(scope="module")
def day(system: CartSystem) -> Day:
    """All of it, at once."""
    assert system.user_scope  # once: many threads will ask for it
    together = [name for name in SCENES if name not in ALONE]
    with ThreadPoolExecutor(CLIENTS) as pool:
        outcomes = dict(zip(together, pool.map(partial(play, system), together), strict=True))
    outcomes |= {name: play(system, name) for name in ALONE}
    notices: dict[str, list[dict[str, Any]]] = {}
    for message in system.messages():
        notices.setdefault(message["order"], []).append(message)
    return Day(system=system, outcomes=outcomes, notices=notices)


def test_everything_that_must_hold_does(day: Day) -> None:
    audits = day.system.audit()
    assert_all_hold(audits)
    assert all(audit.checked for audit in audits), audits


def test_every_planned_trouble_fired(day: Day) -> None:
    reports = [report for provider in day.system.providers.values() for report in provider.report()]

    assert [report.trouble for report in reports if not report.fired] == []
    day.system.aws.faults.report().require_all_fired()


class TestACart:
    @pytest.mark.parametrize("name", SCENES)
    def test_ends_as_expected_despite_its_callbacks_order(self, day: Day, name: str) -> None:
        scene, outcome = SCENES[name], day[name]

        assert outcome.answer.status == scene.status, outcome.answer.text
        if scene.error is not None:
            assert problem_of(outcome.answer)["error"] == scene.error
        assert day.system.effects(outcome.saga_id) == scene.books

    @pytest.mark.parametrize("name", SCENES)
    def test_notifies_its_customer_once(self, day: Day, name: str) -> None:
        (notice,) = day.notices[day[name].saga_id]

        assert (notice["status"], notice["customer"]) == (SCENES[name].notice, "ada")

    @pytest.mark.parametrize("name", SCENES)
    def test_leaves_goods_sold_or_on_offer_and_holds_none(self, day: Day, name: str) -> None:
        scene, sku = SCENES[name], SCENES[name].sku or name

        assert day.system.stock(sku) == (0 if scene.status == 200 else scene.stock)
        assert day.system.holds(sku) == []

    def test_that_is_sent_has_a_tracking_number(self, day: Day) -> None:
        (label,) = day.system.providers["carrier"].jobs(day["calm"].saga_id)
        (notice,) = day.notices[day["calm"].saga_id]

        assert notice["tracking"] == label.body["tracking"]
        assert (notice["amount"], notice["currency"]) == (str(PRICE), "EUR")
        assert day.system.order(day["calm"].saga_id) == "SHIPPED"

    def test_has_its_log_as_its_history(self, day: Day) -> None:
        statuses = day.system.statuses(day["calm"].saga_id)

        read = {"PriceCart": "RECORDED", "AssessRisk": "RECORDED", "PickupScan": "RECORDED", "ReserveInventory": "DONE"}
        assert statuses == {**read, **dict.fromkeys(DONE, "DONE")}

    def test_is_few_transitions_of_the_parent(self, day: Day) -> None:
        states = day.system.states_of(day.system.forward, day["calm"].saga_id)

        assert states == [
            "CheckCart", "CheckCart - result", "AuthorizePayment", "Select step after AuthorizePayment", "CommitOrder",
            "CapturePayment", "Fulfil", "Fulfil - result", "Notify", "Notify - result", "Settle completed",
        ]  # fmt: skip

    def test_that_compensates_does_so_in_reverse_order(self, day: Day) -> None:
        statuses = day.system.statuses(day["idle-carrier"].saga_id)

        undone = ("Pick", "ShippingLabel", "CapturePayment", "CommitOrder", "AuthorizePayment", "ReserveInventory")
        assert {step: statuses[step] for step in undone} == dict.fromkeys(undone, "COMPENSATED")
        assert "ShipOrder" not in statuses or statuses["ShipOrder"] == "TOMBSTONE"
        assert day.system.order(day["idle-carrier"].saga_id) == "CANCELED"


class TestAProviderThatIsSilent:
    def test_is_queried_and_the_cart_continues(self, day: Day) -> None:
        payments, saga_id = day.system.providers["payments"], day["silent-payments"].saga_id

        assert "find-payment" in [request.operation for request in payments.requests(saga_id)]
        assert [d.answers for d in payments.deliveries(saga_id) if d.type == AUTHORIZED] == [()]

    @pytest.mark.parametrize("name", ["silent-payments", "idle-carrier"])
    def test_is_waited_for_no_longer_than_declared(self, day: Day, name: str) -> None:
        item = day.system.item(day[name].saga_id)
        created, settled = (int(item[a]["N"]) for a in (RecordAttribute.CREATED_AT, RecordAttribute.UPDATED_AT))

        assert (settled - created) / 1000 < LONGEST_WAIT_SECONDS + REAL_SECONDS_OF_WORK * day.system.speed


class TestAnAnswer:
    @pytest.mark.parametrize("name", ["early", "forged", "unknown"])
    def test_in_any_order_submits_each_job_once(self, day: Day, name: str) -> None:
        for provider in day.system.providers.values():
            keys = [effect.key for effect in provider.effects(day[name].saga_id)]
            assert len(keys) == len(set(keys))

    def test_that_came_early_was_kept(self, day: Day) -> None:
        for step in ("AuthorizePayment", "Pick", "PickupScan"):
            # A dispatcher that finds the outcome in the log does not wait.
            assert day.token("early", step)[TokenAttribute.STATUS] in {TokenStatus.DELIVERED, TokenStatus.EARLY}
        (delivery,) = day.system.providers["carrier"].deliveries(day["early"].saga_id)
        assert answers_of(delivery) == [200]

    @pytest.mark.parametrize(("provider", "type"), [
        ("payments", AUTHORIZED), ("warehouse", PICKED), ("carrier", SCANNED),
    ])  # fmt: skip
    def test_with_a_wrong_signature_is_refused_and_counts_when_it_is_signed(
        self, day: Day, provider: str, type: str
    ) -> None:
        found = [d for d in day.system.providers[provider].deliveries(day["forged"].saga_id) if d.type == type]

        assert [answers_of(delivery) for delivery in found] == [[401, 200]]

    @pytest.mark.parametrize(("provider", "type"), [("payments", AUTHORIZED), ("warehouse", PICKED)])
    def test_about_an_unknown_job_is_accepted_and_kept(self, day: Day, provider: str, type: str) -> None:
        (found,) = [d for d in day.system.providers[provider].deliveries("nobody-") if d.type == type]

        # Of one whose answer was lost, the retry is a duplicate.
        assert answers_of(found) in ([[202]] if len(found.answers) == 1 else [[202], [200]])
        unknown = json.loads(found.body)
        named = unknown["data"]["object"]["id"] if provider == "payments" else unknown["data"]["reference"]
        kept = {item[TokenAttribute.ID]["S"]: item[TokenAttribute.STATUS]["S"] for item in day.system.tokens()}
        integration = {"payments": "Payments", "warehouse": "Warehouse"}[provider]
        (status,) = [status for row, status in kept.items() if row.endswith(f"/{integration}#{named}")]
        assert status == TokenStatus.EARLY

    @pytest.mark.parametrize(("provider", "type"), [("payments", AUTHORIZED), ("warehouse", PICKED)])
    def test_that_we_could_not_receive_is_retried(self, day: Day, provider: str, type: str) -> None:
        found = [d for d in day.system.providers[provider].deliveries(day["we-are-down"].saga_id) if d.type == type]

        (delivery,) = found
        assert delivery.answers[0] >= 500
        assert delivery.answers[-1] == 200

    @pytest.mark.parametrize("step", ["AuthorizePayment", "Pick"])
    def test_that_conflicts_is_kept_and_sent_to_the_operators(self, day: Day, step: str) -> None:
        until(lambda: TokenAttribute.CONFLICT in day.token("says-the-opposite", step), f"the conflict of {step}")

        assert json.loads(day.token("says-the-opposite", step)[TokenAttribute.OUTCOME])["ok"] is True
        until(lambda: day.told_operators(day["says-the-opposite"].saga_id), f"the message about {step}")

    def test_of_a_late_effect_is_compensated_once(self, day: Day) -> None:
        saga_id = day["picked-after-all"].saga_id

        assert day.system.statuses(saga_id)["Pick"] == "COMPENSATED"
        assert day.system.status_of(f"{day.system.stack}/Cart/Recovery", f"{saga_id}-l1") == "SUCCEEDED"
        assert day.system.record(saga_id).status == RecordStatus.FAILED


class TestASignature:
    def test_is_checked_over_the_bytes_as_they_came_text_or_not(self, day: Day) -> None:
        """Latin-1: a gateway that made UTF-8 text of it would make the signature wrong."""
        system, body = day.system, b'{"type": "from J\xf6rg"}'
        found = system.aws.client("secretsmanager").get_secret_value(SecretId=system.outputs["PaymentsSecretArn"])
        headers = sign_like_stripe(found["SecretString"], "", body, system.now_ms() // 1000)

        def answer(body: bytes) -> tuple[int, str]:
            request = Request(
                system.here(system.outputs["PaymentsWebhookUrl"]),
                data=body,
                headers={**headers, "Content-Type": "application/json"},
            )
            with pytest.raises(HTTPError) as refused:
                urlopen(request, timeout=120)
            return refused.value.code, json.loads(refused.value.read())["type"].rpartition(":")[2]

        assert answer(body) == (400, "invalid-body")
        assert answer(body.replace(b"\xf6", "\ufffd".encode())) == (401, "signature-mismatch")


class TestAReview:
    def test_is_required_for_expensive_carts_only(self, day: Day) -> None:
        assert "FraudReview" not in day.system.statuses(day["calm"].saga_id)
        assert day.system.statuses(day["approved"].saga_id)["FraudReview"] == "RECORDED"

    def test_is_requested_again_when_it_is_overdue(self, day: Day) -> None:
        assert len(day.system.review_links(day["nobody-decides"].saga_id)) > 1

    def test_counts_once(self, day: Day) -> None:
        (link, *_) = day.system.review_links(day["rejected"].saga_id)

        assert day.system.decide(link, "approve") in {409, 410}
        assert day.system.effects(day["rejected"].saga_id) == RELEASED


class TestTwoCarts:
    def test_under_one_key_are_one_order(self, day: Day) -> None:
        system = day.system
        body = cart(system.offer("clicked", 5))
        sagas = at_once([partial(system.begin, "clicked", body)] * 2)
        system.await_settled(sagas[0])

        assert len(set(sagas)) == 1
        assert system.effects(sagas[0]) == SENT
        assert system.stock("clicked") == 4

    def test_for_the_last_one_are_one_order_and_one_refusal(self, day: Day) -> None:
        system = day.system
        system.offer("last-one")
        answers = at_once([partial(system.drive, key, cart("last-one")) for key in ("last-1", "last-2")])

        winner, loser = sorted(answers, key=lambda answer: answer.status)
        assert (winner.status, loser.status) == (200, 422)
        assert problem_of(loser)["error"] == "OutOfStock"
        assert system.effects(loser.json()["saga_id"]) == NOTHING


class TestAHold:
    @pytest.mark.parametrize(("age_seconds", "status"), [(1, 200), (-3600, 422)], ids=["over", "not over"])
    def test_of_a_deleted_cart_is_ignored_when_it_is_over(self, day: Day, age_seconds: int, status: int) -> None:
        system, sku = day.system, day.system.offer(f"held-{status}")
        hold = {
            "id": {"S": f"goods#{sku}"},
            "entry": {"S": "hold#of-nobody"},
            "quantity": {"N": "1"},
            "until": {"N": str(system.now_ms() - age_seconds * 1000)},
        }
        dynamodb, table = system.aws.client("dynamodb"), system.outputs["ShopTableName"]
        dynamodb.put_item(TableName=table, Item=hold)

        assert system.drive(f"held-{status}", cart(sku)).status == status
        dynamodb.delete_item(TableName=table, Key={name: hold[name] for name in ("id", "entry")})
