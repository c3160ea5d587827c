"""The reader in the guide to events: what can happen several times has a key of its own each time."""

from __future__ import annotations

import json
from typing import Any

from saga_runtime import WebhookEvent

from .pages import DOCS, snippets


def _begin(kind: str, data: dict[str, Any], *, event_id: str) -> Any:
    page = DOCS / "how-to" / "begin-by-an-event.md"
    (shown,) = [one for one in snippets() if one.page == page and one.kind == ["run"]]
    names: dict[str, Any] = {}
    exec(shown.body, names)  # the page's own code
    body = json.dumps({"id": event_id, "type": kind, "data": {"object": data}}).encode()
    return names["read"](WebhookEvent(body=body, headers={}, query={}, received_at=1))


def test_two_refunds_of_parts_of_a_payment_are_two() -> None:
    half = {"payment_intent": "pi_1", "amount": 50}
    one, two = (_begin("refund.created", {"id": name, **half}, event_id=f"evt_{name}") for name in ("re_1", "re_2"))
    again = _begin("refund.created", {"id": "re_1", **half}, event_id="evt_3")

    assert one.key != two.key
    assert (one.key, one.request) == (again.key, again.request)
    assert one.request["payment"] == two.request["payment"] == "pi_1"


def test_two_events_of_one_payment_are_one() -> None:
    one, again = (_begin("payment_intent.succeeded", {"id": "pi_1", "amount": 50}, event_id=name) for name in "ab")

    assert (one.key, one.request) == (again.key, again.request)
    assert one.request["payment"] == "pi_1"
