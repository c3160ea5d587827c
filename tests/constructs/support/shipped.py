"""Every example's stack, in each of its forms, synthesized once for all tests that only read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from aws_cdk import Stack
from constructs import Construct

from constructs_lib import Run
from examples.agentic_payout.stack import AgenticPayoutStack
from examples.cart_fulfilment.stack import CartFulfilmentStack
from examples.funds_transfer.stack import FundsTransferStack
from examples.order_processing.stack import OrderProcessingStack
from examples.wallet.stack import WalletStack
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import AppFactory

SHIPPED: Final[dict[str, Callable[[Construct], Stack]]] = {
    "funds transfer": lambda scope: FundsTransferStack(scope, "FundsTransfer"),
    "order processing": lambda scope: OrderProcessingStack(scope, "OrderProcessing"),
    "order mailer": lambda scope: OrderProcessingStack(scope, "OrderProcessing", mailer=True),
    "agentic payout": lambda scope: AgenticPayoutStack(scope, "AgenticPayout"),
    "cart fulfilment": lambda scope: CartFulfilmentStack(scope, "CartFulfilment"),
    "wallet": lambda scope: WalletStack(scope, "Wallet"),
    "inline transfer": lambda scope: FundsTransferStack(scope, "FundsTransfer", run=Run.INLINE),
}
EXAMPLES: Final = ("funds transfer", "order mailer", "agentic payout", "cart fulfilment", "wallet")
"""Each example once, in its largest form."""


class Shipped:
    """Stacks of ``SHIPPED``, each in an app of its own. A test that adds to a stack makes its own."""

    def __init__(self, new_app: AppFactory) -> None:
        self._new_app = new_app
        self._stacks: dict[str, Stack] = {}
        self._clouds: dict[str, Cloud] = {}

    def stack(self, name: str) -> Stack:
        """The stack of this name."""
        if name not in self._stacks:
            self._stacks[name] = SHIPPED[name](self._new_app())
        return self._stacks[name]

    def cloud(self, name: str) -> Cloud:
        """Its template."""
        if name not in self._clouds:
            self._clouds[name] = Cloud(self.stack(name))
        return self._clouds[name]

    def clouds(self, names: Iterable[str] = SHIPPED) -> dict[str, Cloud]:
        """The templates of these names."""
        return {name: self.cloud(name) for name in names}
