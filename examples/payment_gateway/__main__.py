"""``python -m examples.payment_gateway``: the gateway as a process of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from constructs_lib.testing.providers.process import parser_of, serve
from examples.payment_gateway.books import BookKeeper
from examples.payment_gateway.server import GatewayServer


def main() -> int:
    """Serve until Ctrl-C, or, when another program started it, until that one ends."""
    options = parser_of("payment_gateway", books=Path("payment-gateway.sqlite")).parse_args()
    base = time.time()

    def now_ms() -> int:
        return int((base + (time.time() - base) * options.speed) * 1000)

    keeper = BookKeeper(options.books, window_ms=int(options.idempotent_for * 1000), now_ms=now_ms)
    return serve(
        lambda spare: GatewayServer(options.port, keeper=keeper, speed=options.speed, spare=spare), child=options.child
    )


if __name__ == "__main__":
    sys.exit(main())
