"""A fake provider's own process."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from constructs_lib.testing.providers.server import FakeProviderServer


def parser_of(program: str, *, books: Path | None = None) -> argparse.ArgumentParser:
    """Options of every provider."""
    parser = argparse.ArgumentParser(prog=program, description="A provider to test against")
    parser.add_argument("--books", type=Path, default=books, help="file of the books; in this folder by default")
    parser.add_argument("--port", type=int, default=0, help="loopback port; a free one by default")
    parser.add_argument("--idempotent-for", type=float, default=86_400.0, help="seconds that a key is remembered")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster than real time it passes")
    parser.add_argument("--child", action="store_true", help="end when standard input does")
    return parser


def serve(make: Callable[[Collection[int]], FakeProviderServer[Any, Any, Any]], *, child: bool) -> int:
    """Print the address, and serve until Ctrl-C, or, as a child, until the parent process ends.

    Args:
        make: makes the server, given the processes that it must not kill.
        child: whether to end with standard input.
    """
    server = make({os.getppid()})
    print(server.url, flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if child:
        threading.Thread(target=_end_with_input, args=(ended,), daemon=True).start()
    server.serve_until(ended.wait)
    return 0


def _end_with_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()
