"""Guarantees of a provider: data that decides how an interrupted step is recovered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration

from constructs_lib.shared.arguments import require_between, require_seconds
from constructs_lib.shared.types import check_fields
from saga_runtime.saga_log.provider import ProviderSettings

PROVIDER_KEY_LENGTH: Final = 36
"""Length of the keys that providers are given: a UUID derived from the step key."""
_GRACE: Final = Duration.seconds(30)
_CLOCK_MARGIN: Final = Duration.seconds(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Properties of a provider that determine the outcome of an interrupted call.

    A provider that offers neither an idempotency key nor a query cannot be used safely: the saga of an interrupted
    call is parked.

    Attributes:
        idempotent_for: how long the provider recognizes ``call.provider_key`` and answers a repeated call with the
            first one's outcome (Stripe: 24 hours); 1 minute to 366 days. None: it does not.
        verify: whether ``external_step(verify=…)`` can query the provider for the outcome of a call.
        compensation_idempotent_for: as ``idempotent_for``, for the compensation and its own key.
        verify_undo: whether ``external_compensation(verify_undo=…)`` can query the outcome of a compensation.
        grace: how long a request can travel after its sender died: earlier, neither "not applied" nor a refusal is
            accepted. The library's guarantee depends on this bound. 0 s to 1 hour, 30 s by default.
        max_clock_skew: how far the clocks of two functions may be apart; 5 s by default, 0 s to 1 minute.
        max_key_length: longest idempotency key that the provider takes; 255 by default. The library's keys have 36
            characters: less is refused.

    Raises:
        ValueError: for a value out of range, or a provider whose outcome could never be known.
    """

    idempotent_for: Duration | None = None
    verify: bool = False
    compensation_idempotent_for: Duration | None = None
    verify_undo: bool = False
    grace: Duration = _GRACE
    max_clock_skew: Duration = _CLOCK_MARGIN
    max_key_length: int = 255

    def __post_init__(self) -> None:
        check_fields(self)
        require_seconds("grace", self.grace, at_least=0, at_most=3_600)
        require_seconds("max_clock_skew", self.max_clock_skew, at_least=0, at_most=60)
        for name in ("idempotent_for", "compensation_idempotent_for"):
            window: Duration | None = getattr(self, name)
            if window is not None:
                require_seconds(name, window, at_least=60, at_most=366 * 86_400)
        require_between("max_key_length", self.max_key_length, at_least=1, at_most=1_024)
        if self.max_key_length < PROVIDER_KEY_LENGTH:
            raise ValueError(
                f"max_key_length must be {PROVIDER_KEY_LENGTH} or more, got {self.max_key_length}: a shorter key would "
                "not be one step's alone; ask the provider for longer ones"
            )
        if self.idempotent_for is None and not self.verify:
            raise ValueError(
                "a provider needs idempotent_for or verify, got neither: a call that was cut off could never be "
                "decided; declare what the provider offers"
            )

    def settings(self, refusals: Sequence[str]) -> ProviderSettings:
        """The settings that a step's functions receive.

        Args:
            refusals: error names with which the provider refuses the step.
        """
        return ProviderSettings(
            grace=_whole(self.grace),
            clock_skew=_whole(self.max_clock_skew),
            verify=self.verify,
            verify_undo=self.verify_undo,
            window=_whole(self.idempotent_for),
            undo_window=_whole(self.compensation_idempotent_for),
            refusals=tuple(refusals),
        )


def _whole(duration: Duration | None) -> int:
    return int(duration.to_seconds()) if duration is not None else 0
