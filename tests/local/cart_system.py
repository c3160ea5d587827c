"""Carts, deployed in local AWS with a payment provider, a warehouse and a carrier that report later."""

from __future__ import annotations

import functools
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from constructs_lib.testing import HttpResponse, LocalAws, ProviderEffect, audit_provider
from constructs_lib.testing.invariants import Invariant, Item, audit_sagas, read_table
from examples.cart_fulfilment.audit import audit_events, audit_shop
from examples.cart_fulfilment.providers import Provider
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import LogAttribute
from saga_runtime.shared.arns import machine_of

from .pauses import Pauses
from .reconcilers import prepare_reconciler
from .transfer_system import is_settled
from .two_ledgers import TwoLedgers, drain, edit

STACK: Final = "CartFulfilment"
PRICE: Final = 1250
DEAR: Final = 200_000
"""A price from which a cart needs a review."""
SPEED: Final = 8.0
FUNCTION_SECONDS: Final = 80
"""In the emulator's time: long enough for a process to start on a busy machine."""
PATIENCE_SECONDS: Final = 300.0
LONGEST_WAIT_SECONDS: Final = 400
"""What one step waits at most, in the emulator's time."""
_HEARD: Final = "heard-of-orders"
PROVIDERS: Final = ("payments", "carrier", "warehouse")
UNDONE_BY: Final = {
    "payments": {"AuthorizePayment": ("authorized", "canceled"), "CapturePayment": ("captured", "refunded")},
    "warehouse": {"Pick": ("picked", "put_back")},
    "carrier": {"ShippingLabel": ("labelled", "voided")},
}
"""Entries of each provider's books, by step: after the step was applied, and after it was compensated."""


@dataclass(frozen=True, kw_only=True)
class CartSystem(TwoLedgers):
    """One deployed stack of the example, and those who answer it later."""

    providers: Mapping[str, Provider]
    _opening: dict[str, int] = field(default_factory=dict)
    _mail: dict[str, list[str]] = field(default_factory=dict)
    _mail_lock: threading.Lock = field(default_factory=threading.Lock)
    _events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """URL for carts."""
        return f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/carts"

    @property
    def forward(self) -> str:
        """The state machine."""
        return f"{self.stack}/Cart/StateMachine"

    @property
    def gatekeeper(self) -> str:
        return f"{self.stack}/Api/Gatekeeper/carts/Function"

    def function(self, name: str) -> str:
        """Path of a function."""
        return f"{self.stack}/{name}Function/Function"

    def records(self) -> list[Item]:
        """Request records of carts: a job that no provider reports begins another saga, of an event."""
        machine = self.outputs["StateMachineArn"]
        return [
            item for item in super().records() if machine_of(RequestRecord.from_item(item).execution_arn) == machine
        ]

    @functools.cached_property
    def saga_of_scope(self) -> str:
        """A saga that is refused at once, and whose record contains the scope of the user's requests."""
        return self.begin("scope", cart("nothing-of-the-kind"))

    def drive(self, key: str, body: object) -> HttpResponse:
        """Send a cart until it is accepted, read its record until it is settled, and request the response."""
        saga_id = self.begin(key, body)
        self.await_settled(saga_id)
        return self.replayed(key, body)

    def await_settled(self, saga_id: str) -> None:
        """Wait until a saga is settled."""
        until(lambda: self.record(saga_id).settled, lambda: f"settling {saga_id}: {self.statuses(saga_id)}")

    def replayed(self, key: str, body: object) -> HttpResponse:
        """The stored answer of a settled request."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answer = self.try_post(key, body)
            if answer is not None and is_settled(answer):
                return answer
            time.sleep(0.1)
        raise AssertionError(f"{key} was not answered")

    def forget(self) -> None:
        """Forget what was learnt of an emptied system."""
        for known in (self._opening, self._mail, self._events):
            known.clear()

    # --- The shop

    def offer(self, sku: str, stock: int = 1, *, price: int = PRICE) -> str:
        """Put goods on offer, and return their name."""
        numbers = {"price": price, "stock": stock, "version": 0}
        item = {
            "id": {"S": f"goods#{sku}"},
            "entry": {"S": "item"},
            "currency": {"S": "EUR"},
            **{name: {"N": str(number)} for name, number in numbers.items()},
        }
        self.aws.client("dynamodb").put_item(TableName=self.outputs["ShopTableName"], Item=item)
        self._opening[sku] = stock
        return sku

    def shop(self) -> list[Item]:
        """Every item of the shop's table."""
        return read_table(self.aws.client("dynamodb"), self.outputs["ShopTableName"])

    def stock(self, sku: str) -> int:
        """Goods that are not sold."""
        (item,) = [i for i in self.shop() if i["id"]["S"] == f"goods#{sku}" and i["entry"]["S"] == "item"]
        return int(item["stock"]["N"])

    def holds(self, sku: str) -> list[Item]:
        """Reservations of these goods."""
        return [i for i in self.shop() if i["id"]["S"] == f"goods#{sku}" and i["entry"]["S"].startswith("hold#")]

    def order(self, saga_id: str) -> str | None:
        """Status of the order; None without an order."""
        found = [item for item in self.shop() if item["id"]["S"] == f"order#{saga_id}"]
        return str(found[0]["state"]["S"]) if found else None

    # --- Those who hear of orders

    def hear_of_orders(self) -> None:
        """Let a queue receive the events of orders, as a consumer would."""
        sqs, events, bus = self.aws.client("sqs"), self.aws.client("events"), self.outputs["OrderBusName"]
        url = sqs.create_queue(QueueName=_HEARD)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        events.put_rule(Name=_HEARD, EventBusName=bus, EventPattern='{"source": ["shop.orders"]}')
        events.put_targets(Rule=_HEARD, EventBusName=bus, Targets=[{"Id": _HEARD, "Arn": arn}])

    def unpublished(self) -> list[Item]:
        """Events of orders that wait to be published."""
        return read_table(self.aws.client("dynamodb"), self.outputs["OutboxTableName"])

    def _audit_events(self) -> Invariant:
        until(lambda: not self.unpublished(), "publishing every event of an order")
        url = self.aws.client("sqs").get_queue_url(QueueName=_HEARD)["QueueUrl"]
        self._events.extend((event["detail-type"], event["detail"]) for event in drain(self.aws, url))
        return audit_events(self.shop(), self.unpublished(), self._events)

    # --- Those who answer later

    def tell_providers(self) -> None:
        """Configure each provider: our address, its signing secret, and the emulator's time."""
        for kind, provider in self.providers.items():
            name = kind.title()
            secret = self.aws.client("secretsmanager").get_secret_value(SecretId=self.outputs[f"{name}SecretArn"])
            url = self.here(self.outputs[f"{name}WebhookUrl"])
            provider.tell(url, secret=secret["SecretString"], now_ms=self.now_ms())

    def here(self, url: str) -> str:
        """An address at AWS, as it is reached in local AWS."""
        found = re.fullmatch(r"https://([a-z0-9]+)\.execute-api[^/]*/([^/?]+)/?(.*)", url)
        assert found is not None, url
        api, stage, rest = found.groups()
        return f"{self.aws.api_url(api, stage)}/{rest}"

    def effects(self, saga_id: str) -> dict[str, list[str]]:
        """Effects of a saga, from the providers' books."""
        return {kind: [e.kind for e in p.effects(saga_id)] for kind, p in self.providers.items()}

    def review_links(self, saga_id: str) -> list[str]:
        """Review links of a saga that were sent."""
        with self._mail_lock:
            for told in drain(self.aws, self.outputs["ReviewMailQueueUrl"]):
                self._mail.setdefault(told["order"], []).append(told["link"])
            return list(self._mail.get(saga_id, ()))

    def decide(self, link: str, decision: str, note: str = "") -> int:
        """Press a button on the page that a link leads to, until it is answered; the answer's status."""
        body = urlencode({"decision": decision, "note": note}).encode()
        for _ in range(20):
            request = Request(self.here(link), data=body, method="POST")
            try:
                with urlopen(request, timeout=120) as answer:
                    return int(answer.status)
            except HTTPError as error:
                if error.code < 500:  # on a busy machine, its gateway does not always wait for the page
                    return error.code
        raise AssertionError("the page was not answered")

    def operators(self) -> list[dict[str, Any]]:
        """Messages of the operator queue."""
        return drain(self.aws, self.outputs["OperatorsQueueUrl"])

    def tokens(self) -> list[Item]:
        """Every row of the token table."""
        return read_table(self.aws.client("dynamodb"), self.outputs["TokenTableName"])

    def audit(self) -> list[Invariant]:
        """Invariants that hold once all carts are settled and late effects are compensated."""
        records, rows = self.records(), self.rows()
        return [
            *audit_sagas(records, rows),
            *(invariant for kind in PROVIDERS for invariant in self._audit_provider(kind, rows)),
            *audit_shop(self.shop(), rows, self._opening),
            self._audit_events(),
        ]

    def _audit_provider(self, kind: str, rows: list[Item]) -> list[Invariant]:
        effects = [ProviderEffect(key=e.key, amount=e.amount) for e in self.providers[kind].effects()]
        sagas = {row[LogAttribute.SAGA_ID]["S"] for row in rows}
        assert all(any(saga in e.reference for saga in sagas) for e in self.providers[kind].effects())
        return audit_provider(rows, effects, steps=UNDONE_BY[kind])


def until(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait until something is there."""
    deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses(next=0.2, most=1.0)
    while not condition():
        told = what if isinstance(what, str) else "" if time.monotonic() < deadline else what()
        assert time.monotonic() < deadline, f"{told} did not happen within {PATIENCE_SECONDS:.0f} s"
        pauses.pause()


def cart(*skus: str, card: str = "card-1", quantity: int = 1, address: str = "10 Mill Lane") -> dict[str, object]:
    """A request's body."""
    items = [{"sku": sku, "quantity": quantity} for sku in skus]
    return {"customer": "ada", "card": card, "address": address, "items": items}


@contextmanager
def deployed(*, speed: float = SPEED, concurrency: int = 1, reconciled: bool = False) -> Iterator[CartSystem]:
    """Local AWS with the stack and the three providers, which know where to report outcomes.

    Args:
        reconciled: whether the stack's reconciler runs on its schedule.
    """
    with ExitStack() as running:
        payments, carrier = (running.enter_context(Provider(kind, speed=speed)) for kind in ("payments", "carrier"))
        warehouse = running.enter_context(Provider("warehouse", speed=speed, carrier=carrier.url))
        aws = running.enter_context(LocalAws(speed=speed, concurrency=concurrency))
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="cdk-sagas-test-")))
        providers = {"payments": payments, "carrier": carrier, "warehouse": warehouse}
        outputs = aws.deploy(_synthesized({kind: p.url for kind, p in providers.items()}, folder))[STACK]
        system = CartSystem(aws, outputs, speed, STACK, providers=providers)
        system.user()  # once: many threads will ask for it
        _give_time(system)
        prepare_reconciler(aws, system.outputs, seconds=FUNCTION_SECONDS, reconciled=reconciled)
        system.tell_providers()
        system.hear_of_orders()
        yield system


def _give_time(system: CartSystem) -> None:
    """Let functions, and the tasks that wait for them, take long: emulated time is fast, a starting process is not."""
    functions = system.aws.client("lambda")
    for function in system.aws.functions():
        functions.update_function_configuration(FunctionName=function.physical_id, Timeout=FUNCTION_SECONDS)

    def patient(states: dict[str, Any]) -> None:
        for state in states.values():
            if state.get("Resource", "").endswith("lambda:invoke"):
                state["TimeoutSeconds"] = FUNCTION_SECONDS + 10

    for machine in ("StateMachine", "Recovery", "CheckCart", "Fulfil", "Notify"):
        edit(system.aws, f"{system.stack}/Cart/{machine}", patient)


def _synthesized(urls: Mapping[str, str], folder: Path) -> Path:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App, Duration

    from examples.cart_fulfilment.stack import CartFulfilmentStack
    from examples.cart_fulfilment.waits import Job, Waits

    job = Job(expected=Duration.seconds(50), within=Duration.seconds(200))
    assert job.timeout.to_seconds() == LONGEST_WAIT_SECONDS
    waits = Waits(
        authorize=job,
        review=Duration.seconds(LONGEST_WAIT_SECONDS),
        remind=Duration.seconds(150),
        pick=job,
        pickup=Duration.seconds(300),
        pickup_expected=Duration.seconds(60),
    )
    app = App(outdir=str(folder))
    CartFulfilmentStack(
        app,
        STACK,
        payments_url=urls["payments"],
        warehouse_url=urls["warehouse"],
        carrier_url=urls["carrier"],
        waits=waits,
    )
    app.synth()
    return folder
