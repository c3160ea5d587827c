"""DynamoDB: one write at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ministack import app
from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace


def one_writer(_emulator: Emulator) -> None:
    """A state machine's own reads and writes of a table take turns with those of other clients.

    The emulator runs them in the thread of the execution, concurrently with the loop that serves all other requests,
    without locks: two updates at once lose one, and a condition is checked against an item that is changing.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(operation: str, data: Any) -> Any:
            async def turn() -> Any:
                return original(operation, data)

            if app._MAIN_LOOP is None or asyncio._get_running_loop() is app._MAIN_LOOP:
                return original(operation, data)
            # The task takes over this thread's context, and with it the account and the region.
            return asyncio.run_coroutine_threadsafe(turn(), app._MAIN_LOOP).result()

        return invoke

    replace(states, "_invoke_dynamodb", make)


CORRECTIONS: Final[tuple[Correction, ...]] = (one_writer,)
