"""``python -m examples.cart_fulfilment.providers payments``: one provider as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from constructs_lib.testing.providers.process import parser_of, serve
from examples.cart_fulfilment.providers.business import Business
from examples.cart_fulfilment.providers.carrier import Carrier
from examples.cart_fulfilment.providers.payments import Payments
from examples.cart_fulfilment.providers.server import ProviderServer
from examples.cart_fulfilment.providers.troubles import Plan
from examples.cart_fulfilment.providers.warehouse import Warehouse


def main() -> int:
    """Serve until Ctrl-C, or, when another program started it, until that one ends."""
    parser = parser_of("providers")
    parser.add_argument("provider", choices=["payments", "warehouse", "carrier"])
    parser.add_argument("--pace", type=float, default=1.0, help="how many times longer than usual its work takes")
    parser.add_argument("--carrier", help="of a warehouse: address of the carrier who fetches parcels")
    options = parser.parse_args()

    kinds: dict[str, Callable[[Plan], Business]] = {
        "payments": Payments,
        "warehouse": partial(Warehouse, carrier=options.carrier),
        "carrier": Carrier,
    }

    def make(spare: Collection[int]) -> ProviderServer:
        return ProviderServer(
            options.port,
            business=kinds[options.provider],
            books=options.books or Path(f"{options.provider}.sqlite"),
            window_ms=int(options.idempotent_for * 1000),
            speed=options.speed,
            pace=options.pace,
            spare=spare,
        )

    return serve(make, child=options.child)


if __name__ == "__main__":
    sys.exit(main())
