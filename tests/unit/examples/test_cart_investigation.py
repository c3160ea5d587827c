"""Jobs that no provider reported: one investigation each, of what provider and order have by then."""

from __future__ import annotations

import importlib
import json
from types import ModuleType
from typing import Any

import pytest

from saga_runtime import Begin, Invalid, TransientError
from saga_runtime.errors import StepInDoubt
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.protocol import OUTPUT_FIELD, UNANSWERED_FIELD, UnansweredField
from saga_runtime.shared import aws
from tests.unit.support.payouts import OTHER_SAGA
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.world import Context, World

JOB = f"{OTHER_SAGA}#Pick"
REQUEST = {"job": JOB, "order": OTHER_SAGA, "step": "Pick"}


def entry(step: str = "Pick", **more: Any) -> dict[str, Any]:
    """An entry of an unanswered job."""
    f = UnansweredField
    return {UNANSWERED_FIELD: {f.JOB_ID: JOB, f.SAGA_ID: OTHER_SAGA, f.STEP: step, f.FOUND_AT: 1, **more}}


@pytest.fixture
def investigation(world: World, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The functions, with the shop's table."""
    for name, value in {"SHOP_TABLE": "shop", "WAREHOUSE_URL": "http://127.0.0.1:9", "ASK_SECONDS": "1"}.items():
        monkeypatch.setenv(name, value)
    aws.dynamodb().create_table(
        TableName="shop",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("id", "entry")],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}, {"AttributeName": "entry", "KeyType": "RANGE"}],
    )
    del world
    return importlib.import_module("examples.cart_fulfilment.functions.cart.investigation")


def run(function: Any, step: str, **outputs: Any) -> Any:
    """Call a step of the investigation."""
    event = step_event(step=step, body=REQUEST, saga_id=SAGA_ID, outputs=outputs)
    return function({**event, "record": True}, Context())[OUTPUT_FIELD]


class TestAnEntry:
    def test_begins_the_investigation_of_its_job(self, investigation: ModuleType) -> None:
        again = entry(found_at=2, log_status="INTENT")
        assert investigation.begin.read(entry()) == Begin(key=JOB, request=REQUEST) == investigation.begin.read(again)

    @pytest.mark.parametrize("message", [{}, {UNANSWERED_FIELD: 1}, entry("ShippingLabel"), {"token": "x"}])
    def test_of_nothing_that_can_be_investigated_is_parked(self, investigation: ModuleType, message: Any) -> None:
        with pytest.raises(Invalid, match="must be the entry of an unanswered job of this saga; delete it"):
            investigation.begin.read(message)


class TestAnInvestigation:
    def test_asks_the_provider_under_the_key_of_the_job(
        self, investigation: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[str, str, str]] = []

        def found(client: Any, path: str, *, key: str, reference: str, timeout: float) -> Any:
            asked.append((client.url + path, key, reference))
            return [{"id": "p-1", "status": "picked", "parcel": "x"}], False

        monkeypatch.setattr(investigation.Client, "found", found)
        first = run(investigation.ask, "AskProvider")

        assert first == {"provider": "the warehouse", "found": [{"id": "p-1", "status": "picked"}], "in_work": False}
        assert asked == [("http://127.0.0.1:9/picks", provider_key_of(JOB), JOB)]

    def test_is_retried_while_the_provider_does_not_answer(
        self, investigation: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def silent(*_: Any, **__: Any) -> Any:
            raise StepInDoubt("the warehouse did not answer")

        monkeypatch.setattr(investigation.Client, "found", silent)
        with pytest.raises(TransientError, match="the warehouse did not answer"):
            run(investigation.ask, "AskProvider")

    @pytest.mark.parametrize("state", [None, "PAID"])
    def test_keeps_what_was_found_with_the_order(
        self, investigation: ModuleType, world: World, state: str | None
    ) -> None:
        order = {"id": {"S": f"order#{OTHER_SAGA}"}, "entry": {"S": "order"}}
        if state is not None:
            aws.dynamodb().put_item(TableName="shop", Item={**order, "state": {"S": state}})
        seen = run(investigation.look, "LookAtOrder")
        asked = {"provider": "the warehouse", "found": [], "in_work": False}

        kept = run(investigation.keep, "KeepFinding", AskProvider=asked, LookAtOrder=seen)

        assert kept == {"provider": asked, "state": state}
        assert run(investigation.keep, "KeepFinding", AskProvider=asked, LookAtOrder=seen) == kept
        (finding,) = (item for item in world.items("shop") if item["entry"] == {"S": "finding#Pick"})
        assert finding["id"] == order["id"]
        assert json.loads(finding["finding"]["S"]) == kept
