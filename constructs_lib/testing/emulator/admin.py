"""The emulator's own HTTP surface, beside AWS's: health and reset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .admin_paths import RESET_PATH

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


def with_admin(application: Application, reset: Callable[[], None]) -> Application:
    """Return an application that answers our own paths and leaves all others to the emulator.

    Args:
        application: The emulator's ASGI application.
        reset: Empties the emulator.
    """

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != RESET_PATH:
            await application(scope, receive, send)
            return
        # In a thread: a reset waits for executions, which need the loop to end.
        await asyncio.to_thread(reset)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return serve
