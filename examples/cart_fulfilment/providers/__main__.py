"""``python -m examples.cart_fulfilment.providers payments``: one provider as a process of its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from examples.cart_fulfilment.providers.business import Business
from examples.cart_fulfilment.providers.carrier import Carrier
from examples.cart_fulfilment.providers.payments import Payments
from examples.cart_fulfilment.providers.server import ProviderServer
from examples.cart_fulfilment.providers.troubles import Plan
from examples.cart_fulfilment.providers.warehouse import Warehouse


def main() -> int:
    """Serve until Ctrl-C, or, when another program started it, until that one ends."""
    parser = argparse.ArgumentParser(prog="providers", description="A provider to test against")
    parser.add_argument("provider", choices=["payments", "warehouse", "carrier"])
    parser.add_argument("--books", type=Path, help="file of the books; <provider>.sqlite by default")
    parser.add_argument("--port", type=int, default=0, help="loopback port; a free one by default")
    parser.add_argument("--idempotent-for", type=float, default=86_400.0, help="seconds that a key is remembered")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster than real time it passes")
    parser.add_argument("--pace", type=float, default=1.0, help="how many times longer than usual its work takes")
    parser.add_argument("--carrier", help="of a warehouse: address of the carrier who fetches parcels")
    parser.add_argument("--child", action="store_true", help="end when standard input does")
    options = parser.parse_args()

    kinds: dict[str, Callable[[Plan], Business]] = {
        "payments": Payments,
        "warehouse": partial(Warehouse, carrier=options.carrier),
        "carrier": Carrier,
    }
    server = ProviderServer(
        options.port,
        business=kinds[options.provider],
        books=options.books or Path(f"{options.provider}.sqlite"),
        window_ms=int(options.idempotent_for * 1000),
        speed=options.speed,
        pace=options.pace,
        spare={os.getppid()},
    )
    print(server.url, flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if options.child:
        threading.Thread(target=_end_with_input, args=(ended,), daemon=True).start()
    server.serve_until(ended.wait)
    return 0


def _end_with_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
