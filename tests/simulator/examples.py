"""The five examples: how they are synthesized for a simulation, and what is asked of them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.simulator import Workload

from .kept import kept
from .workloads.carts import Carts
from .workloads.orders import Orders
from .workloads.payouts import Payouts
from .workloads.transfers import Transfers
from .workloads.wallet import Wallet


@dataclass(frozen=True, slots=True)
class Example:
    """An example.

    Attributes:
        add: adds its stack to an app.
        workload: makes what is asked of it.
    """

    add: Callable[[Any], object]
    workload: Callable[[], Workload]


def _transfers(app: Any) -> object:
    from examples.funds_transfer.stack import FundsTransferStack

    return FundsTransferStack(app, "FundsTransfer")


def _orders(app: Any) -> object:
    from examples.order_processing.stack import OrderProcessingStack

    return OrderProcessingStack(app, "OrderProcessing", mailer=True)


def _payouts(app: Any) -> object:
    from examples.agentic_payout.stack import AgenticPayoutStack

    return AgenticPayoutStack(app, "AgenticPayout")


def _carts(app: Any) -> object:
    from examples.cart_fulfilment.stack import CartFulfilmentStack

    return CartFulfilmentStack(app, "CartFulfilment")


def _wallet(app: Any) -> object:
    from examples.wallet.stack import WalletStack

    return WalletStack(app, "Wallet")


EXAMPLES: Final = {
    "funds_transfer": Example(_transfers, Transfers),
    "order_processing": Example(_orders, Orders),
    "agentic_payout": Example(_payouts, Payouts),
    "cart_fulfilment": Example(_carts, Carts),
    "wallet": Example(_wallet, Wallet),
}


@functools.cache
def _folder(add: Callable[..., object], *given: str) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="cdk-sagas-simulation-")
    _synthesize(lambda app: add(app, *given), Path(folder.name))
    return folder


def _synthesize(add: Callable[[Any], object], folder: Path) -> None:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App

    app = App(outdir=str(folder), analytics_reporting=False, stack_traces=False)
    add(app)
    app.synth()


def assembly(name: str) -> Path:
    """The synthesized assembly of an example."""
    return kept(name, lambda folder: _synthesize(EXAMPLES[name].add, folder))


def assembly_of(add: Callable[..., object], *given: str) -> Path:
    """The synthesized assembly of what a function adds to an app, with what it is given, made once in a process."""
    return Path(_folder(add, *given).name)
