"""``python -m examples.payment_gateway``: the gateway as a process of its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from examples.payment_gateway.books import BookKeeper
from examples.payment_gateway.server import GatewayServer, serve_until


def main() -> int:
    """Serve until Ctrl-C, or, when another program started it, until that one ends."""
    parser = argparse.ArgumentParser(prog="payment_gateway", description="A payment gateway to test against")
    parser.add_argument("--books", type=Path, default=Path("payment-gateway.sqlite"), help="file of the books")
    parser.add_argument("--port", type=int, default=0, help="loopback port; a free one by default")
    parser.add_argument("--idempotent-for", type=float, default=86_400.0, help="seconds that a key is remembered")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster than real time it passes")
    parser.add_argument("--child", action="store_true", help="end when standard input does")
    options = parser.parse_args()

    base = time.time()

    def now_ms() -> int:
        return int((base + (time.time() - base) * options.speed) * 1000)

    keeper = BookKeeper(options.books, window_ms=int(options.idempotent_for * 1000), now_ms=now_ms)
    spare = {os.getppid()}
    server = GatewayServer(options.port, keeper=keeper, speed=options.speed, spare=spare)
    print(server.url, flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if options.child:
        threading.Thread(target=_end_with_input, args=(ended,), daemon=True).start()
    serve_until(server, ended.wait)
    return 0


def _end_with_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
