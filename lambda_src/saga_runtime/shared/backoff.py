"""Policies of retries: failures, number of tries, delays. Pure: the caller sleeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Number and delays of retries within one invocation, of what certainly was not written.

    The delay after failure ``n`` (from 1) is drawn evenly from 0 to ``d = min(cap, base * 2**(n-1))`` milliseconds
    ("full jitter", as in the AWS Architecture Blog's "Exponential Backoff And Jitter"), or, if not ``full``, from
    ``d`` to one and a half ``d``.

    Attributes:
        attempts: tries in all, the first one included; 1 or more.
        base_ms: delay ``d`` after the first failure, in milliseconds; 1 or more.
        cap_ms: largest ``d``, in milliseconds; ``base_ms`` or more.
        full: a random part of the delay (full jitter); False: the delay and up to half as much again.

    Raises:
        ValueError: for an attribute that is not so.
    """

    attempts: int = 8
    base_ms: int = 20
    cap_ms: int = 1_000
    full: bool = True

    def __post_init__(self) -> None:
        for name, least in (("attempts", 1), ("base_ms", 1), ("cap_ms", self.base_ms)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} of a backoff must be an integer of at least {least}, got {value!r}; raise it")
        if not isinstance(self.full, bool):
            raise ValueError(f"full of a backoff must be True or False, got {self.full!r}; choose one")

    @classmethod
    def from_json(cls, text: str | None) -> Backoff:
        """Read ``Env.CONFLICT_BACKOFF``; the default without it."""
        return cls(**json.loads(text)) if text else cls()

    def to_json(self) -> str:
        """Value of ``Env.CONFLICT_BACKOFF``."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def longest_ms(self) -> int:
        """Longest sum of all delays, in milliseconds."""
        last = 1.0
        grown = _DOUBLINGS + 1  # the delay stays the same from this failure on
        growing = sum(self.delay_ms(failures, last) for failures in range(1, min(self.attempts, grown)))
        return math.ceil(growing + max(0, self.attempts - grown) * self.delay_ms(grown, last))

    def delay_ms(self, failures: int, random: float) -> float:
        """Delay after the ``failures``-th failure (from 1), for a ``random`` number in [0, 1)."""
        longest = float(min(self.cap_ms, self.base_ms * 2 ** min(failures - 1, _DOUBLINGS)))
        return longest * (random if self.full else 1 + random / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Failures of a write that are sent again, how often, and until when.

    Attributes:
        backoff: number and delays of the tries.
        throttled: whether a throttle is sent again; a conflict always is.
        unanswered: whether a write without an answer is sent again; its condition shows whether it was written.
        remaining_ms: time that the invocation has left, in milliseconds; None: enough for all tries.
    """

    backoff: Backoff = Backoff()
    throttled: bool = True
    unanswered: bool = True
    remaining_ms: Callable[[], int] | None = None

    def pause_ms(self, failures: int, failure: str | None, random: float) -> float | None:
        """Delay after the ``failures``-th failure (from 1); None: it is not sent again."""
        if (failure == "THROTTLED" and not self.throttled) or (failure == "UNANSWERED" and not self.unanswered):
            return None
        delay = self.backoff.delay_ms(failures, random)
        late = self.remaining_ms is not None and delay * 2 + 1_000 > self.remaining_ms()
        return None if failures >= self.backoff.attempts or late else delay


PATIENT: Final = Retry()
"""For writers that have nothing better to do than to wait."""
