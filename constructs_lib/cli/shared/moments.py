"""Moments for people. All in UTC: operators may be in different time zones."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(epoch_ms: int) -> str:
    """Date and time.

    >>> moment(1_700_000_000_123)
    '2023-11-14 22:13:20 UTC'
    """
    return datetime.fromtimestamp(epoch_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def time_of_day(epoch_ms: int) -> str:
    """The time alone.

    >>> time_of_day(1_700_000_000_123)
    '22:13:20 UTC'
    """
    return datetime.fromtimestamp(epoch_ms // 1_000, UTC).strftime("%H:%M:%S UTC")
