"""The emulator's HTTP server and its clients' connections."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

from hypercorn.asyncio import serve

from constructs_lib.testing.emulator.__main__ import server_config

_A_DAY = 86_400.0
_REQUEST = b"GET / HTTP/1.1\r\nHost: local\r\n\r\n"


class _Loop(asyncio.SelectorEventLoop):
    ahead = 0.0

    def time(self) -> float:
        return time.monotonic() + self.ahead


async def _no_content(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def _responses(loop: _Loop, requests: int) -> list[bytes]:
    """First bytes of the responses on one connection that is idle for a day before each request."""
    listener = socket.create_server(("127.0.0.1", 0))
    address, stop = listener.getsockname(), asyncio.Event()
    server = asyncio.create_task(serve(_no_content, server_config(listener.detach()), shutdown_trigger=stop.wait))
    reader, writer = await asyncio.open_connection(*address)
    responses = []
    for _ in range(requests):
        loop.ahead += _A_DAY
        for _ in range(10):
            await asyncio.sleep(0)
        writer.write(_REQUEST)
        response = await reader.readuntil(b"\r\n\r\n")
        responses.append(response[:12])
    writer.close()
    stop.set()
    await server
    return responses


def test_idle_connections_stay_open_so_that_no_request_meets_a_connection_that_is_being_closed() -> None:
    loop = _Loop()
    try:
        assert loop.run_until_complete(_responses(loop, 3)) == [b"HTTP/1.1 204"] * 3
    finally:
        loop.close()
