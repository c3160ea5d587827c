"""Orders, deployed in local AWS with a payment gateway: one stack uses idempotency keys, one queries outcomes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import HttpResponse, LocalAws, ProviderEffect, audit_provider
from constructs_lib.testing.invariants import Invariant, Item, audit_sagas, read_table
from examples.order_processing.audit import audit_shop
from examples.payment_gateway import Books, PaymentGateway
from saga_runtime.protocol import LogAttribute, RecordAttribute

from .pauses import Pauses
from .reconcilers import prepare_reconciler
from .transfer_system import is_settled
from .two_ledgers import TwoLedgers, edit

PRICE: Final = 1250
SPEED: Final = 10.0
PAYING_SECONDS: Final = 58
"""Timeout of the functions that pay, in the emulator's time. A step in doubt waits for as long: the third retry
resolves it, and yet a process has time to start."""
FUNCTION_SECONDS: Final = 100
"""In the emulator's time: long enough for a process to start on a busy machine."""
PATIENCE_SECONDS: Final = 240.0
ORDERS, ASKING = "OrderProcessing", "AskingOrders"
"""The example as it is, and one whose provider is only asked: it knows no keys."""
STEPS: Final = ("ValidateInventory", "ReserveInventory", "ProcessPayment", "UpdateInventory", "CreateShipment")


@dataclass(frozen=True, kw_only=True)
class OrderSystem(TwoLedgers):
    """One deployed stack of the example, and the gateway that it pays at.

    What drives requests to their end is the same for every saga, so it is that of the transfers.
    """

    gateway: PaymentGateway
    _opening: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """URL for orders."""
        return f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/orders"

    @property
    def gatekeeper(self) -> str:
        return f"{self.stack}/Api/Gatekeeper/orders/Function"

    @property
    def forward(self) -> str:
        """The state machine."""
        return f"{self.stack}/Order/StateMachine"

    def function(self, name: str) -> str:
        """Path of a step's function."""
        return f"{self.stack}/{name}Function/Function"

    @property
    def functions(self) -> tuple[str, ...]:
        """Every function that makes calls of AWS."""
        names = ("Validate", "Reserve", "Release", "Charge", "Refund", "Update", "Shipment")
        return (self.gatekeeper, f"{self.stack}/Order/Notifier/Function", *map(self.function, names))

    def post(self, key: str | None, body: object, *, user: str = "alice", wait: int | None = None) -> HttpResponse:
        """Send a request; an order without an id of its own has its key as one."""
        return super().post(key, {"order_id": key, **body} if isinstance(body, dict) else body, user=user, wait=wait)

    def drive(self, key: str, body: object) -> HttpResponse:
        """Send a request until it is accepted, read its record until it is settled, and request the response.

        A client that repeats its request all the time would load a small machine more than the orders do.
        """
        saga_id = self.begin(key, body)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.record(saga_id).settled:
            assert time.monotonic() < deadline, f"{key} was not settled: {self.statuses(saga_id)}"
            time.sleep(0.4)
        return self.replayed(key, body)

    def replayed(self, key: str, body: object) -> HttpResponse:
        """The stored answer of a settled request."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answer = self.try_post(key, body)
            if answer is not None and is_settled(answer):
                return answer
            time.sleep(0.1)
        raise AssertionError(f"{key} was not answered")

    # --- The shop

    def offer(self, sku: str, stock: int = 1, *, on_shelf: int | None = None, **further: dict[str, Any]) -> str:
        """Put goods on offer and return their name; `on_shelf` defaults to the stock in the books."""
        numbers = {"price": PRICE, "stock": stock, "reserved": 0, "on_shelf": stock if on_shelf is None else on_shelf}
        item = {
            "id": {"S": f"goods#{sku}"},
            "entry": {"S": "item"},
            "currency": {"S": "EUR"},
            **{name: {"N": str(number)} for name, number in numbers.items()},
            **further,
        }
        self.aws.client("dynamodb").put_item(TableName=self.outputs["ShopTableName"], Item=item)
        self._opening[sku] = stock
        return sku

    def goods(self, sku: str) -> tuple[int, int, int]:
        """Numbers of free, reserved and shelved goods."""
        key = {"id": {"S": f"goods#{sku}"}, "entry": {"S": "item"}}
        item = self.aws.client("dynamodb").get_item(
            TableName=self.outputs["ShopTableName"], Key=key, ConsistentRead=True
        )["Item"]
        free, reserved, on_shelf = (int(item[name]["N"]) for name in ("stock", "reserved", "on_shelf"))
        return free, reserved, on_shelf

    def shop(self) -> list[Item]:
        """Every item of the shop's table."""
        return read_table(self.aws.client("dynamodb"), self.outputs["ShopTableName"])

    def orders(self) -> list[str]:
        """The sagas that led to an order."""
        return [item["id"]["S"].partition("#")[2] for item in self.shop() if item["entry"]["S"] == "order"]

    # --- Contents of the tables and of the gateway's books

    @property
    def saga_of_scope(self) -> str:
        """A saga that is refused at once, and whose record contains the scope of the user's requests."""
        return self.begin("scope", order("nothing-of-the-kind"))

    def records(self) -> list[Item]:
        """Every request record; those of Powertools are in the same table, under a prefix."""
        return [record for record in super().records() if "#" not in record[RecordAttribute.ID]["S"]]

    def books(self, saga_id: str) -> Books:
        """The gateway's books for an order."""
        return self.gateway.books().of(saga_id)

    def audit(self) -> list[Invariant]:
        """Everything that must hold once all requests are settled."""
        records, rows, books = self.records(), self.rows(), self.gateway.books()
        sagas = {row[LogAttribute.SAGA_ID]["S"] for row in rows}
        # Two stacks pay at one gateway.
        effects = [
            *(
                ProviderEffect(key=charge.key, amount=charge.amount)
                for charge in books.charges
                if charge.succeeded and charge.reference in sagas
            ),
            *(
                ProviderEffect(key=refund.key, amount=refund.amount)
                for refund in books.refunds
                if refund.reference in sagas
            ),
        ]
        return [
            *audit_sagas(records, rows),
            *audit_provider(rows, effects, steps=["ProcessPayment"]),
            *audit_shop(self.shop(), rows, self._opening),
        ]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is there."""
    deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses()
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE_SECONDS:.0f} s"
        pauses.pause()


def order(*skus: str, card: str = "card-1", quantity: int = 1, customer: str = "ada") -> dict[str, object]:
    """A request's body."""
    return {"customer": customer, "card": card, "items": [{"sku": sku, "quantity": quantity} for sku in skus]}


@contextmanager
def deployed(
    *, speed: float = SPEED, concurrency: int = 2, reconciled: bool = False, asking: bool = True
) -> Iterator[dict[str, OrderSystem]]:
    """Local AWS and a payment gateway, with the stacks, by name; their reconcilers run on schedule if requested.

    Args:
        asking: whether the stack is there that queries the provider.
    """
    with (
        PaymentGateway(speed=speed) as gateway,
        LocalAws(speed=speed, concurrency=concurrency) as aws,
        tempfile.TemporaryDirectory(prefix="cdk-sagas-test-") as folder,
    ):
        outputs = aws.deploy(_synthesized(gateway.url, Path(folder), asking=asking))
        systems = {name: OrderSystem(aws, outputs[name], speed, name, gateway=gateway) for name in outputs}
        for system in systems.values():
            system.user()  # once: many threads will ask for it
            _give_time(system)
            prepare_reconciler(aws, system.outputs, seconds=FUNCTION_SECONDS, reconciled=reconciled)
        yield systems


def _give_time(system: OrderSystem) -> None:
    """Let functions, and the tasks that wait for them, take long: emulated time is fast, a starting process is not."""
    functions = system.aws.client("lambda")
    paying = {system.function("Charge"), system.function("Refund")}
    for path in system.functions:
        seconds = PAYING_SECONDS if path in paying else FUNCTION_SECONDS
        functions.update_function_configuration(FunctionName=system.aws.resolve_function(path), Timeout=seconds)

    def patient(states: dict[str, Any]) -> None:
        for state in states.values():
            if state.get("Resource", "").endswith("lambda:invoke"):
                state["TimeoutSeconds"] = FUNCTION_SECONDS + 10

    for machine in (system.forward, f"{system.stack}/Order/Recovery"):
        edit(system.aws, machine, patient)


def _synthesized(gateway_url: str, folder: Path, *, asking: bool) -> Path:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App, Duration

    from constructs_lib import Provider
    from examples.order_processing.stack import OrderProcessingStack

    app = App(outdir=str(folder))
    OrderProcessingStack(app, ORDERS, gateway_url=gateway_url)
    if asking:
        asked = Provider(verify=True, verify_undo=True, grace=Duration.seconds(10))
        OrderProcessingStack(app, ASKING, gateway_url=gateway_url, provider=asked)
    app.synth()
    return folder
