"""The five examples, deployed in one local AWS, with the payment gateway and the providers that report later."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from constructs_lib.testing import LocalAws
from constructs_lib.testing.names import DeployedResource
from examples.cart_fulfilment.providers import Provider
from examples.payment_gateway import PaymentGateway
from tests.local.cart_system import CartSystem
from tests.local.migrating_system import STACK as MIGRATING
from tests.local.migrating_system import MigratingSystem
from tests.local.order_system import OrderSystem
from tests.local.payout_system import PayoutSystem
from tests.local.two_ledgers import MAIN, PARTNER, TwoLedgers, edit
from tests.local.wallet_system import STACK as WALLET
from tests.local.wallet_system import WalletSystem

from .wishes import (
    ACCOUNTS,
    AGENTS,
    BARE,
    BROKE,
    CAPPED,
    CLOSED,
    DEAR,
    EMPTY,
    GOODS,
    MOODS,
    PAYEES,
    PAYERS,
    POOR,
    SOLD_OUT,
    TEMPTING,
    TEMPTING_PRICE,
    UNLISTED,
    Example,
)

SPEED: Final = 10.0
FUNCTION_SECONDS: Final = 80
"""Of every function, in the emulator's time: a process that starts on a busy machine is not fast."""
PAYING_SECONDS: Final = 58
"""Of the functions that pay for orders. What is in doubt waits for as long, and no longer than its retries last."""
PLENTY: Final = 10_000_000
DEAR_PRICE: Final = 200_000
STACKS: Final = {
    Example.TRANSFERS: "FundsTransfer",
    Example.ORDERS: "OrderProcessing",
    Example.PAYOUTS: "AgenticPayout",
    Example.CARTS: "CartFulfilment",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A deployed state machine.

    Attributes:
        example: whose it is.
        name: construct path.
        arn: its ARN.
        express: whether it keeps no list of its executions.
        states: names of all its states, those in branches, too.
    """

    example: Example
    name: str
    arn: str
    express: bool
    states: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that runs.

    Attributes:
        aws: the local AWS.
        systems: the examples that have sagas.
        wallet: the example that has none.
        migrating: a table whose items move meanwhile.
        gateway: where orders are paid for.
        providers: whom carts wait for.
        machines: every state machine.
    """

    aws: LocalAws
    systems: Mapping[Example, TwoLedgers]
    wallet: WalletSystem
    migrating: MigratingSystem
    gateway: PaymentGateway
    providers: Mapping[str, Provider]
    machines: tuple[Machine, ...]
    speed: float = SPEED

    @property
    def transfers(self) -> TwoLedgers:
        """The funds transfer."""
        return self.systems[Example.TRANSFERS]

    @property
    def orders(self) -> OrderSystem:
        """The order processing."""
        found = self.systems[Example.ORDERS]
        assert isinstance(found, OrderSystem)
        return found

    @property
    def payouts(self) -> PayoutSystem:
        """The agentic payout."""
        found = self.systems[Example.PAYOUTS]
        assert isinstance(found, PayoutSystem)
        return found

    @property
    def carts(self) -> CartSystem:
        """The cart fulfilment."""
        found = self.systems[Example.CARTS]
        assert isinstance(found, CartSystem)
        return found

    def resources(self, type: str) -> list[DeployedResource]:
        """Everything of a type that is deployed."""
        return [resource for resource in self.aws.resources() if resource.type == type]

    def clear_troubles(self) -> None:
        """Forget the troubles that are planned at the gateway and at the providers; their books stay."""
        for url in (self.gateway.url, *(provider.url for provider in self.providers.values())):
            # Our own process, on the loopback interface.
            with urlopen(Request(f"{url}/admin/troubles", method="DELETE"), timeout=10) as answer:
                answer.read()


@contextmanager
def deployed(*, speed: float = SPEED, concurrency: int = 2) -> Iterator[World]:
    """All of it, with accounts opened and goods on offer."""
    with ExitStack() as running:
        gateway = running.enter_context(PaymentGateway(speed=speed))
        payments, carrier = (running.enter_context(Provider(kind, speed=speed)) for kind in ("payments", "carrier"))
        warehouse = running.enter_context(Provider("warehouse", speed=speed, carrier=carrier.url))
        providers = {"payments": payments, "carrier": carrier, "warehouse": warehouse}
        aws = running.enter_context(LocalAws(speed=speed, concurrency=concurrency))
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="cdk-sagas-soak-")))
        outputs = aws.deploy(_synthesized(gateway.url, {kind: p.url for kind, p in providers.items()}, folder))
        systems: dict[Example, TwoLedgers] = {
            Example.TRANSFERS: TwoLedgers(aws, outputs["FundsTransfer"], speed, "FundsTransfer"),
            Example.ORDERS: OrderSystem(aws, outputs["OrderProcessing"], speed, "OrderProcessing", gateway=gateway),
            Example.PAYOUTS: PayoutSystem(aws, outputs["AgenticPayout"], speed, "AgenticPayout"),
            Example.CARTS: CartSystem(aws, outputs["CartFulfilment"], speed, "CartFulfilment", providers=providers),
        }
        world = World(
            aws=aws,
            systems=systems,
            wallet=WalletSystem(aws, outputs[WALLET]),
            migrating=MigratingSystem(aws=aws, outputs=outputs[MIGRATING]),
            gateway=gateway,
            providers=providers,
            machines=_machines(aws),
            speed=speed,
        )
        _give_time(world)
        _stock(world)
        for system in systems.values():
            system.user()  # once: many threads will ask for it
        world.wallet.admit()
        world.carts.tell_providers()
        world.carts.hear_of_orders()
        yield world


def _synthesized(gateway_url: str, urls: Mapping[str, str], folder: Path) -> Path:
    # Imported here: the CDK takes seconds, and reading a report does not need it.
    from aws_cdk import App, Duration

    from constructs_lib import Run
    from examples.agentic_payout.stack import AgenticPayoutStack
    from examples.cart_fulfilment.stack import CartFulfilmentStack
    from examples.cart_fulfilment.waits import Job, Waits
    from examples.funds_transfer.stack import FundsTransferStack
    from examples.order_processing.stack import OrderProcessingStack
    from examples.wallet.stack import WalletStack
    from tests.local.migrating.stack import MigratingStack

    app = App(outdir=str(folder))
    FundsTransferStack(app, STACKS[Example.TRANSFERS], run=Run.INLINE)
    OrderProcessingStack(app, STACKS[Example.ORDERS], gateway_url=gateway_url, run=Run.INLINE)
    AgenticPayoutStack(app, STACKS[Example.PAYOUTS], caps={CAPPED: 1_000, **dict.fromkeys(AGENTS, 10**12)})
    CartFulfilmentStack(
        app,
        STACKS[Example.CARTS],
        payments_url=urls["payments"],
        warehouse_url=urls["warehouse"],
        carrier_url=urls["carrier"],
        # Long enough for a card's owner who confirms, and for a busy machine; short enough to see it end.
        waits=Waits(
            authorize=Job(expected=Duration.seconds(60), within=Duration.seconds(160)),
            review=Duration.seconds(180),
            remind=Duration.seconds(60),
            pick=Job(expected=Duration.seconds(50), within=Duration.seconds(120)),
            pickup=Duration.seconds(180),
            pickup_expected=Duration.seconds(40),
        ),
    )
    WalletStack(app, WALLET)
    MigratingStack(app, MIGRATING)
    app.synth()
    return folder


def _machines(aws: LocalAws) -> tuple[Machine, ...]:
    found = []
    by_stack = {stack: example for example, stack in STACKS.items()}
    states = aws.client("stepfunctions")
    for resource in aws.resources():
        if resource.type != "AWS::StepFunctions::StateMachine":
            continue
        described = states.describe_state_machine(stateMachineArn=resource.physical_id)
        found.append(
            Machine(
                example=by_stack[resource.stack],
                name=resource.path,
                arn=resource.physical_id,
                express=described["type"] == "EXPRESS",
                states=tuple(_names_of(json.loads(described["definition"])["States"])),
            )
        )
    return tuple(found)


def _names_of(states: Mapping[str, Any]) -> Iterator[str]:
    for name, state in states.items():
        yield name
        for inner in (*state.get("Branches", ()), *(state[key] for key in ("ItemProcessor",) if key in state)):
            yield from _names_of(inner["States"])


def _give_time(world: World) -> None:
    """Let functions, and the tasks that wait for them, take long: emulated time is fast, a starting process is not."""
    aws = world.aws
    functions = aws.client("lambda")
    paying = {aws.resolve_function(world.orders.function(name)) for name in ("Charge", "Refund")}
    for function in aws.functions():
        seconds = PAYING_SECONDS if function.physical_id in paying else FUNCTION_SECONDS
        functions.update_function_configuration(FunctionName=function.physical_id, Timeout=seconds)

    def patient(states: dict[str, Any]) -> None:
        for state in states.values():
            if state.get("Resource", "").endswith("lambda:invoke"):
                state["TimeoutSeconds"] = FUNCTION_SECONDS + 10

    for machine in world.machines:
        with suppress(AssertionError):  # a machine without such a task stays as it is
            edit(aws, machine.name, patient)


def _stock(world: World) -> None:
    """Open the accounts, and put goods on offer."""
    transfers, orders, payouts, carts = world.transfers, world.orders, world.payouts, world.carts
    for account in ACCOUNTS:
        transfers.add_account(MAIN, account, PLENTY)
        transfers.add_account(PARTNER, account, 0)
    transfers.add_account(MAIN, POOR, 0)
    transfers.add_account(PARTNER, CLOSED, 0)
    transfers.close_account(PARTNER, CLOSED)
    for account in PAYERS:
        payouts.add_account(MAIN, account, PLENTY)
    payouts.add_account(MAIN, BROKE, 0)
    for account in (*PAYEES, *(f"{mood}-payee" for mood in MOODS)):
        payouts.add_account(MAIN, account, 0)
    for sku in GOODS:
        orders.offer(sku, PLENTY)
        carts.offer(sku, PLENTY)
    orders.offer(BARE, PLENTY, on_shelf=0)
    orders.offer(SOLD_OUT, 0)
    carts.offer(SOLD_OUT, 0)
    for sku in (UNLISTED, EMPTY):
        carts.offer(sku, PLENTY)
    carts.offer(DEAR, PLENTY, price=DEAR_PRICE)
    carts.offer(TEMPTING, PLENTY, price=TEMPTING_PRICE)
