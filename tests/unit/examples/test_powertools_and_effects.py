"""When Powertools' ``@idempotent`` suffices and when it does not: a function dies between its effect and its record."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from aws_lambda_powertools.utilities import idempotency
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent,
    idempotent_function,
    persistence,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError

from examples.payment_gateway import PaymentGateway
from saga_runtime import Applied, ExternalCall, NotApplied, external_step
from saga_runtime.protocol import OUTPUT_FIELD, CallField
from saga_runtime.shared import aws
from saga_runtime.steps.verdict import Verdict
from tests.unit.examples.test_powertools_on_our_table import LambdaContext
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import Action, Fault, Killed
from tests.unit.support.world import Context, World

WINDOW_MS: Final = 600_000
"""What is left to a function when its record is written: Powertools takes it for dead when that is over."""
PROVIDER: Final = {
    "grace": 10,
    "clock_skew": 5,
    "window": 0,
    "undo_window": 0,
    "verify": True,
    "verify_undo": False,
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[PaymentGateway]:
    with PaymentGateway() as started:
        yield started


def send(gateway: PaymentGateway, method: str, path: str, *, key: str = "", body: Any = None) -> Any:
    connection = HTTPConnection(urlsplit(gateway.url).netloc, timeout=5)
    try:
        connection.request(method, path, body=json.dumps(body), headers={"Idempotency-Key": key} if key else {})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def pay(gateway: PaymentGateway, order: str, *, key: str) -> Any:
    body = {"amount": 1250, "currency": "EUR", "card": "card-1", "reference": order}
    return send(gateway, "POST", "/charges", key=key, body=body)


def dies_before_its_record(world: World) -> None:
    world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, times=1))


@pytest.fixture
def until_the_window_is_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Moves the clock that Powertools reads."""

    class Clock(dt.datetime):
        ahead = dt.timedelta()

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return dt.datetime.now(tz) + cls.ahead

    def move() -> None:
        Clock.ahead += dt.timedelta(milliseconds=WINDOW_MS + 1_000)

    for module in (idempotency.base, persistence.base, persistence.datarecord, persistence.dynamodb):
        monkeypatch.setattr(module, "dt", SimpleNamespace(datetime=Clock, timedelta=dt.timedelta))
    return move


def test_a_charge_is_made_twice_if_its_function_dies_before_the_record(
    world: World, gateway: PaymentGateway, until_the_window_is_over: Callable[[], None]
) -> None:
    layer = DynamoDBPersistenceLayer(table_name="requests", boto3_client=aws.dynamodb())

    @idempotent(persistence_store=layer, config=IdempotencyConfig(event_key_jmespath="order"), key_prefix="orders")
    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        charged = pay(gateway, event["order"], key=str(uuid.uuid4()))
        return {"charge": charged["id"]}

    context = LambdaContext(remaining_ms=WINDOW_MS)
    dies_before_its_record(world)
    with pytest.raises(Killed):
        handler({"order": "powertools"}, context)
    with pytest.raises(IdempotencyAlreadyInProgressError):
        handler({"order": "powertools"}, context)
    until_the_window_is_over()
    handler({"order": "powertools"}, context)

    assert len(gateway.books().of("powertools").charges) == 2


def test_a_saga_queries_the_provider_instead(world: World, gateway: PaymentGateway) -> None:
    def find(call: ExternalCall) -> Verdict:
        found = send(gateway, "GET", f"/charges?key={call.provider_key}")["found"]
        return Applied(output={"charge": found[0]["id"]}) if found else NotApplied()

    @external_step(verify=find)
    def handler(call: ExternalCall) -> dict[str, Any]:
        return {"charge": pay(gateway, "saga", key=call.provider_key)["id"]}

    event = step_event(saga_id=SAGA_ID, step="ProcessPayment") | {CallField.PROVIDER: PROVIDER}
    sent_before = len(world.wire.sent)
    dies_before_its_record(world)
    with pytest.raises(Killed):
        handler(event, Context())
    assert world.wire.sent[sent_before:] == ["PutItem", "UpdateItem"]
    world.clock.ms += 3_600_000
    answer = handler(event, Context())

    (charge,) = gateway.books().of("saga").charges
    assert answer[OUTPUT_FIELD] == {"charge": charge.id}
    asked = [request.operation for request in gateway.requests() if request.key == charge.key]
    assert asked == ["charge", "find-charge"]


def test_a_query_whose_function_dies_before_the_record_is_repeated_alone(
    world: World, until_the_window_is_over: Callable[[], None]
) -> None:
    layer = DynamoDBPersistenceLayer(table_name="requests", boto3_client=aws.dynamodb())
    config = IdempotencyConfig()
    context: Any = LambdaContext(remaining_ms=WINDOW_MS)
    config.register_lambda_context(context)
    looked: list[str] = []

    def price(*, sku: str) -> int:
        looked.append(sku)
        return 1250

    look_up: Any = idempotent_function(
        price, data_keyword_argument="sku", persistence_store=layer, config=config, key_prefix="quotes"
    )
    dies_before_its_record(world)
    with pytest.raises(Killed):
        look_up(sku="lamp")
    until_the_window_is_over()

    assert [look_up(sku="lamp"), look_up(sku="lamp")] == [1250, 1250]
    assert looked == ["lamp", "lamp"]
