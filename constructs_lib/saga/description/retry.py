"""Number and delays of a step's retries, for two classes of failures."""

from __future__ import annotations

from dataclasses import dataclass

from constructs_lib.shared.types import check_fields, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDescription:
    """Retries of one class of failures, in seconds."""

    attempts: int
    interval: int
    rate: float
    cap: int

    @property
    def delays(self) -> tuple[float, ...]:
        """Delays before each retry."""
        return tuple(min(self.interval * self.rate**n, self.cap) for n in range(self.attempts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retries of one step. All intervals are seconds; refusals are never retried.

    Transient failures (throttles, Lambda's service errors, ``TransientError``) are retried with exponential backoff
    and full jitter. What is in doubt (a timeout, a crash, every error name that is in no list) is retried without
    jitter: the delays together must outlast the function, so that the last attempt meets no living predecessor.

    Attributes:
        transient_attempts: retries of throttles and service errors; 0 to 99.
        transient_interval: first delay; each is drawn evenly from 0 to the delay.
        transient_rate: factor from one delay to the next; 1 to 10.
        transient_cap: longest delay.
        in_doubt_attempts: retries of crashes, timeouts and every unknown error name; 0 to 99.
        in_doubt_interval: first delay, without jitter.
        in_doubt_rate: factor from one delay to the next.
        in_doubt_cap: longest delay.

    Raises:
        ValueError: for a value out of range, naming it.
    """

    transient_attempts: int = 6
    transient_interval: int = 1
    transient_rate: float = 2.0
    transient_cap: int = 30
    in_doubt_attempts: int = 4
    in_doubt_interval: int = 2
    in_doubt_rate: float = 2.0
    in_doubt_cap: int = 60

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("transient", "in_doubt"):
            attempts, interval, rate, cap = (
                getattr(self, f"{name}_{part}") for part in ("attempts", "interval", "rate", "cap")
            )
            if not 0 <= attempts <= 99:
                raise ValueError(
                    f"{name}_attempts must be 0 to 99, got {shown(attempts)}; choose a number in that range"
                )
            if not 1 <= interval <= cap <= 86_400:
                raise ValueError(
                    f"{name}_interval and {name}_cap must be 1 <= interval <= cap <= 86400 seconds, "
                    f"got interval={shown(interval)} cap={shown(cap)}; lower the interval or raise the cap"
                )
            if not 1.0 <= rate <= 10.0:
                raise ValueError(f"{name}_rate must be 1.0 to 10.0, got {shown(rate)}; choose a number in that range")

    @classmethod
    def external(cls) -> Retry:
        """For calls of providers: what is in doubt is retried for three minutes and more."""
        return cls(in_doubt_attempts=6, in_doubt_interval=5, in_doubt_rate=2.0, in_doubt_cap=60)

    @classmethod
    def commerce(cls) -> Retry:
        """Numbers that are widely used in commerce, with one correction.

        Infrastructure: 6 attempts from 2 s, doubling to 60 s; application: 3 attempts from 5 s. Where these are
        usually found, refusals are retried with the rest. Here a refusal is never retried; the application's numbers
        are those of what is in doubt.
        """
        return cls(
            transient_attempts=6,
            transient_interval=2,
            transient_rate=2.0,
            transient_cap=60,
            in_doubt_attempts=3,
            in_doubt_interval=5,
            in_doubt_rate=2.0,
            in_doubt_cap=60,
        )

    @property
    def transient(self) -> RetryDescription:
        """Retries of transient failures."""
        return RetryDescription(
            attempts=self.transient_attempts,
            interval=self.transient_interval,
            rate=self.transient_rate,
            cap=self.transient_cap,
        )

    @property
    def in_doubt(self) -> RetryDescription:
        """Retries of what is in doubt."""
        return RetryDescription(
            attempts=self.in_doubt_attempts,
            interval=self.in_doubt_interval,
            rate=self.in_doubt_rate,
            cap=self.in_doubt_cap,
        )

    @property
    def in_doubt_delays(self) -> tuple[float, ...]:
        """Delays before each retry of what is in doubt, in seconds."""
        return self.in_doubt.delays
