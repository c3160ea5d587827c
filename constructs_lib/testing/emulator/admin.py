"""HTTP endpoints of the emulator next to AWS's: identify the process, reset, and stop."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing.emulator.admin_paths import PROCESS_PATH, RESET_PATH, STOP_PATH
from constructs_lib.testing.emulator.clock import EmulatorClock

Scope = MutableMapping[str, Any]
#: In the scope of a request: its header names as the client wrote them, by their lower case.
HEADER_NAMES: Final = "cdk-sagas.header-names"

Application = Callable[[Scope, Any, Any], Awaitable[None]]


def with_admin(
    application: Application,
    *,
    reset: Callable[[], None],
    stop: asyncio.Event,
    run_folder: Path,
    clock: EmulatorClock,
) -> Application:
    """Return an application that answers our own paths and leaves all others to the emulator.

    Args:
        application: The emulator's ASGI application.
        reset: Empties the emulator.
        stop: Ends the emulator when it is set.
        run_folder: The emulator's folder, by which a client recognizes it.
        clock: The emulator's clock, so that a client can show the same time.
    """

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        request = (scope.get("method"), scope.get("path"))
        if request == ("POST", RESET_PATH):
            # In a thread: a reset waits for executions, which need the loop to end.
            await asyncio.to_thread(reset)
            await _answer(send, 204)
        elif request == ("GET", PROCESS_PATH):
            process = {"pid": os.getpid(), "run_folder": str(run_folder), "base": clock.base, "speed": clock.speed}
            await _answer(send, 200, json.dumps(process).encode())
        elif request == ("POST", STOP_PATH):
            await _answer(send, 204)
            stop.set()
        else:
            await application(_with_lower_case_headers(scope), receive, send)

    return serve


def _with_lower_case_headers(scope: Scope) -> Scope:
    """Return a scope as applications expect it, and keep the original header names in it."""
    headers: list[tuple[bytes, bytes]] = list(scope.get("headers", []))
    names = {name.lower().decode("latin-1"): name.decode("latin-1") for name, _value in headers}
    return {**scope, "headers": [(name.lower(), value) for name, value in headers], HEADER_NAMES: names}


async def _answer(send: Any, status: int, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})
