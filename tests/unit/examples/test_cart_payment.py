"""Translation of the provider's events by the cart's payment function."""

from __future__ import annotations

import json
from typing import Any

import pytest

from saga_runtime import Callback, Failed, Succeeded, WebhookEvent


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function behind the webhook."""
    monkeypatch.setenv("PAYMENTS_URL", "http://127.0.0.1:1")
    from examples.cart_fulfilment.functions.cart.payment import from_provider

    return from_provider.function


def event(type: str, *, declined: bool = False, **changes: Any) -> WebhookEvent:
    """An event as Stripe has them."""
    payment: dict[str, Any] = {
        "id": "pi_1",
        "amount": 1200,
        "currency": "EUR",
        "metadata": {"reference": "ours"},
        "last_payment_error": {"code": "card_declined"} if declined else None,
        **changes,
    }
    document = {"id": "evt_1", "type": type, "data": {"object": payment}}
    return WebhookEvent(body=json.dumps(document).encode(), headers={}, query={}, received_at=1)


def test_an_authorized_payment_is_the_steps_output(read: Any) -> None:
    output = {"payment": "pi_1", "amount": "1200", "currency": "EUR"}

    found = read(event("payment_intent.amount_capturable_updated"))

    assert found == Callback(job_id="pi_1", event_id="evt_1", outcome=Succeeded(output))


@pytest.mark.parametrize(("declined", "why"), [(True, "was declined"), (False, "was not confirmed in time")])
def test_a_canceled_payment_is_a_refusal_with_its_reason(read: Any, declined: bool, why: str) -> None:
    found = read(event("payment_intent.canceled", declined=declined))

    assert found.outcome == Failed("Declined", f"the payment {why}")


def test_a_declined_card_is_not_the_end_of_a_payment(read: Any) -> None:
    """At Stripe, the payment waits for another card."""
    assert read(event("payment_intent.payment_failed", declined=True)) is None


@pytest.mark.parametrize("metadata", [{}, {"order": "17"}])
def test_another_applications_payment_is_ignored(read: Any, metadata: dict[str, str]) -> None:
    assert read(event("payment_intent.canceled", metadata=metadata)) is None
