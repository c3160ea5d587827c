"""A payment provider: holds an amount on a card, which its owner may have to confirm, and takes it later.

    POST /payment_intents               {amount, currency, card, reference, expires_in}   202, 402
    POST /payment_intents/{id}/capture  {amount, reference}                               200, 402, 404
    POST /payment_intents/{id}/cancel   {reference}                                       200, 404, 409
    POST /refunds                       {payment_intent, amount, reference}               201, 404
    GET  /payment_intents?key=…         what was asked for under a key                    200
    GET  /effects?key=…                 what happened under a key                         200

A webhook reports the outcome of a payment. As at Stripe, a declined card ends nothing: the payment
waits for another card, until it is canceled. After `expires_in` seconds the provider cancels it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from examples.cart_fulfilment.providers.books import Answer, Job, Page, problem
from examples.cart_fulfilment.providers.business import Asked, Business, Operation, shown
from examples.cart_fulfilment.providers.courier import sign_like_stripe
from examples.cart_fulfilment.providers.troubles import Plan

DECLINED_CARD: Final = "card-declined"
"""Declined when it is decided, as providers have cards for tests."""
BLOCKED_CARD: Final = "card-blocked"
"""Declined at once."""
CONFIRMED_CARD: Final = "card-3ds"
"""Its owner confirms the payment (3-D Secure), and takes minutes."""
DECIDE_SECONDS: Final = 2
CONFIRM_SECONDS: Final = 150
AUTHORIZED: Final = "payment_intent.amount_capturable_updated"
FAILED: Final = "payment_intent.payment_failed"
EXPIRED: Final = "payment_intent.canceled"


class Payments(Business):
    """The payment provider."""

    events: ClassVar[Mapping[str, str]] = {AUTHORIZED: EXPIRED, EXPIRED: AUTHORIZED, FAILED: ""}

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, sign=sign_like_stripe)
        wanted = {"amount": int, "currency": str, "card": str, "reference": str, "expires_in": int}
        intent, money = "/payment_intents/{id}", {"amount": int, "reference": str}
        self.operations = (
            Operation(
                name="authorize", method="POST", path="/payment_intents", run=self._authorize, fields=wanted, job=True
            ),
            Operation(name="capture", method="POST", path=f"{intent}/capture", run=self._capture, fields=money),
            Operation(
                name="cancel", method="POST", path=f"{intent}/cancel", run=self._cancel, fields={"reference": str}
            ),
            Operation(
                name="refund", method="POST", path="/refunds", run=self._refund, fields={"payment_intent": str, **money}
            ),
            Operation(name="find-payment", method="GET", path="/payment_intents", run=self.find, acts=False),
            Operation(name="find-effects", method="GET", path="/effects", run=self.find_effects, acts=False),
        )

    def on_timer(self, page: Page, job: Job, name: str) -> None:
        """Decide a payment, end an expired one, or correct a wrong event."""
        if name == AUTHORIZED:
            page.happened("authorized", key=job.key, job=job, amount=job.body["amount"])
            self.tell(page, AUTHORIZED, page.change(job, "requires_capture"))
        if name == EXPIRED:
            self.tell(page, EXPIRED, job)
        if job.status not in {"processing", "requires_action", "requires_payment_method"}:
            return
        if name == "expire":
            self.tell(page, EXPIRED, page.change(job, "canceled"))
        elif job.body["refused"]:
            self.tell(page, FAILED, page.change(job, "requires_payment_method", why="card_declined"))
        else:
            page.happened("authorized", key=job.key, job=job, amount=job.body["amount"])
            self.tell(page, AUTHORIZED, page.change(job, "requires_capture"))

    def document(self, type: str, job: Job, event: str, now_ms: int) -> Mapping[str, Any]:
        """An event as Stripe has them."""
        payment = {
            "id": job.id, "object": "payment_intent", "status": job.status, "amount": job.body["amount"],
            "currency": job.body["currency"], "metadata": {"reference": job.reference},
            "last_payment_error": {"code": "card_declined"} if job.body.get("why") == "card_declined" else None,
        }  # fmt: skip
        return {"id": event, "object": "event", "type": type, "created": now_ms // 1000, "data": {"object": payment}}

    def _authorize(self, page: Page, asked: Asked) -> Answer:
        card = asked.body["card"]
        if card == BLOCKED_CARD:
            return problem(402, "card_declined", "the card is blocked")
        confirmed = card == CONFIRMED_CARD
        job = page.add_job(
            "pi", kind="payment", key=asked.key, status="requires_action" if confirmed else "processing",
            body={**asked.body, "refused": asked.refused or card == DECLINED_CARD},
        )  # fmt: skip
        page.wake(job, "decide", CONFIRM_SECONDS if confirmed else DECIDE_SECONDS, key=asked.key)
        page.wake(job, "expire", asked.body["expires_in"], key=asked.key, ends=True)
        return Answer(status=202, document=shown(job))

    def _capture(self, page: Page, asked: Asked) -> Answer:
        job = page.job(asked.id)
        if job is None:
            return problem(404, "payment_unknown", "there is no such payment")
        if job.status != "requires_capture" or asked.body["amount"] > job.body["amount"]:
            return problem(402, "not_capturable", f"the payment is {job.status}, of {job.body['amount']}")
        page.happened("captured", key=asked.key, job=job, amount=asked.body["amount"])
        return Answer(status=200, document=shown(page.change(job, "succeeded", captured=asked.body["amount"])))

    def _cancel(self, page: Page, asked: Asked) -> Answer:
        """Release the amount held. A refunded payment is closed, too: nothing is held any more."""
        job = page.job(asked.id)
        if job is None:
            return problem(404, "payment_unknown", "there is no such payment")
        if job.body.get("captured", 0) > job.body.get("refunded", 0):
            return problem(409, "payment_captured", "the money was taken; give it back first")
        held = job.body["amount"] if job.status in {"requires_capture", "succeeded"} else 0
        page.happened("canceled", key=asked.key, job=job, amount=held)
        return Answer(status=200, document=shown(page.change(job, "canceled")))

    def _refund(self, page: Page, asked: Asked) -> Answer:
        job = page.job(asked.body["payment_intent"])
        if job is None or job.status != "succeeded":
            return problem(404, "payment_unknown", "there is no such payment, or nothing was taken")
        page.happened("refunded", key=asked.key, job=job, amount=asked.body["amount"])
        refunded = job.body.get("refunded", 0) + asked.body["amount"]
        return Answer(status=201, document=shown(page.change(job, "succeeded", refunded=refunded)))
