"""Dispatches waits that need no announcement: registers the waiting task, and notifies no function."""

from __future__ import annotations

from typing import Final

from saga_runtime.callbacks.step import CallbackStep

handler: Final = CallbackStep(None, None)
"""The entry: batches of the queue of a ``CallbackIntegration`` without a function of its own."""
