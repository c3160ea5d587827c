"""Backoff of a function whose transactions may conflict, checked against its timeout."""

from __future__ import annotations

from typing import Final

from saga_runtime.protocol import Env
from saga_runtime.shared.backoff import Backoff

_LEFT_MS: Final = 1_000
"""Time that is left for the last try."""


def backoff_environment(backoff: Backoff | None, timeout_seconds: int) -> dict[str, str]:
    """Variables of a function with this backoff; none for the default.

    Raises:
        ValueError: if its delays do not fit into the timeout.
    """
    if backoff is None:
        return {}
    room_ms = timeout_seconds * 1_000 - _LEFT_MS
    if backoff.longest_ms > room_ms:
        raise ValueError(
            f"the delays of backoff must sum to at most {room_ms} ms, {_LEFT_MS} ms less than the function's timeout, "
            f"got up to {backoff.longest_ms} ms; lower attempts or cap_ms, or raise the timeout"
        )
    return {Env.CONFLICT_BACKOFF: backoff.to_json()}
