"""The dispatcher of integrations that hand nothing over."""

from __future__ import annotations

from handlers import callback_dispatcher
from saga_runtime.callback_step import CallbackStep


def test_it_dispatches_as_every_callback_step_does() -> None:
    assert isinstance(callback_dispatcher.handler, CallbackStep)


def test_it_announces_to_nobody_and_asks_nobody() -> None:
    assert callback_dispatcher.handler.function is None
    assert callback_dispatcher.handler.verify is None
