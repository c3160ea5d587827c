"""Durations for which the cart waits, and for which it holds goods meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aws_cdk import Duration

_SPARE_SECONDS: Final = 600
"""For everything between two waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job at a provider.

    Attributes:
        expected: its usual duration; after twice that without an event, the saga asks the provider.
        within: sent to the provider: after this time the saga waits no longer, so the provider has to end the job.
    """

    expected: Duration
    within: Duration

    @property
    def timeout(self) -> Duration:
        """When the saga gives up: so late that the provider, when it is asked for the last time, has ended the job."""
        return Duration.seconds(self.within.to_seconds() + 4 * self.expected.to_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Every wait of the cart.

    Attributes:
        authorize: the payment; its card's owner may have to confirm it.
        review: how long a person may take to decide.
        remind: interval of the reviewers' reminders.
        pick: the warehouse.
        pickup: how long the carrier's driver may take, once the parcel is ready.
        pickup_expected: the usual duration of that.
    """

    authorize: Job = field(default_factory=lambda: Job(expected=Duration.minutes(5), within=Duration.minutes(30)))
    review: Duration = field(default_factory=lambda: Duration.hours(48))
    remind: Duration = field(default_factory=lambda: Duration.hours(12))
    pick: Job = field(default_factory=lambda: Job(expected=Duration.hours(4), within=Duration.hours(24)))
    pickup: Duration = field(default_factory=lambda: Duration.hours(72))
    pickup_expected: Duration = field(default_factory=lambda: Duration.hours(12))

    def hold(self, *, reviewed: bool) -> Duration:
        """Return how long a cart holds goods: until it must have been paid for, and approved if it has to be."""
        seconds = self.authorize.timeout.to_seconds() + (self.review.to_seconds() if reviewed else 0)
        return Duration.seconds(seconds + _SPARE_SECONDS)

    @property
    def fulfilment(self) -> Duration:
        """Return how long all steps after the payment may take.

        At worst a wait's only heartbeat arrives at its end: it lasts twice as long. And every call is tried
        as often as it may be.
        """
        waits = 2 * (self.pick.timeout.to_seconds() + self.pickup.to_seconds())
        return Duration.seconds(waits + 12 * 3600)
