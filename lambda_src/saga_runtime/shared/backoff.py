"""Exponential backoff with full jitter, for conflicts and throttles only. Pure: the caller sleeps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Number and delays of retries within one invocation, of what certainly was not written.

    The delay after failure ``n`` (from 1) is drawn evenly from 0 to ``d = min(cap, base * 2**(n-1))`` milliseconds
    ("full jitter", as in the AWS Architecture Blog's "Exponential Backoff And Jitter"), or, if not ``full``, from
    ``d`` to one and a half ``d``.
    """

    attempts: int = 8
    base_ms: int = 20
    cap_ms: int = 1_000
    full: bool = True

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.base_ms < 1 or self.cap_ms < self.base_ms:
            raise ValueError(
                f"a backoff needs attempts >= 1 and 1 <= base_ms <= cap_ms, "
                f"got attempts={self.attempts} base_ms={self.base_ms} cap_ms={self.cap_ms}"
            )

    def delay_ms(self, failures: int, random: float) -> float:
        """Delay after the ``failures``-th failure (from 1), for a ``random`` number in [0, 1)."""
        longest = float(min(self.cap_ms, self.base_ms * 2 ** min(failures - 1, 30)))
        return longest * (random if self.full else 1 + random / 2)
