"""Quotas of an account that a rate of sagas would meet. All of them are shared with whatever else runs there.

The numbers are defaults of us-east-1 for an account with a history: new accounts begin with less, other regions have
less of some, and all of them can be raised on request. Service Quotas has an account's own values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Usage
from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.description.kind import Machine, group_kind

_STEP_FUNCTIONS: Final = "https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html"
_LAMBDA: Final = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"
_API_GATEWAY: Final = "https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html"
_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One quota.

    Attributes:
        name: what it limits.
        limit: by default.
        as_of: year and month in which the limit was looked up.
        source: the page with the limit.
        note: what to know about it.
    """

    name: str
    limit: int
    source: str
    as_of: str = "2026-11"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load of a rate of sagas on a quota."""

    quota: Quota
    load: Decimal

    @property
    def share(self) -> Decimal:
        """1 is all of it."""
        return self.load / self.quota.limit

    @property
    def is_met(self) -> bool:
        """True if the rate exceeds the quota."""
        return self.share > 1


TRANSITIONS: Final = Quota(
    name="Standard transitions per second",
    limit=5_000,
    source=_STEP_FUNCTIONS,
    note="5,000 in N. Virginia, Oregon and Ireland, 800 elsewhere; throttled executions continue later",
)
STARTS: Final = Quota(
    name="StartExecution per second",
    limit=300,
    source=_STEP_FUNCTIONS,
    note="after a burst of 1,300; 150 after 800 outside N. Virginia, Oregon and Ireland",
)
OPEN_EXECUTIONS: Final = Quota(name="open executions", limit=1_000_000, source=_STEP_FUNCTIONS)
EXPRESS_AT_ONCE: Final = Quota(
    name="synchronous Express executions at once",
    limit=1_000,
    source=_STEP_FUNCTIONS,
    note="1,000 to 3,700, by region; it grows with sustained load",
)
FUNCTIONS_AT_ONCE: Final = Quota(name="Lambda functions at once", limit=1_000, source=_LAMBDA)
REST_CALLS: Final = Quota(
    name="REST API requests per second", limit=10_000, source=_API_GATEWAY, note="of the account and region"
)


def loads_of(saga: SagaDescription, usage: Usage, per_second: Decimal) -> list[Load]:
    """Load of ``per_second`` sagas on each quota, the fullest first; unused quotas are left out."""
    loads = [Load(quota=quota, load=load(saga, usage) * per_second) for quota, load in _LOADS]
    return sorted((load for load in loads if load.load), key=lambda load: -load.share)


def most_per_second(loads: list[Load], per_second: Decimal) -> Decimal:
    """Sagas per second that fill the first quota: ``loads`` are those of ``per_second``."""
    return min(load.quota.limit * per_second / load.load for load in loads)


def _starts(saga: SagaDescription, _: Usage) -> Decimal:
    if saga.inline:
        return Decimal(0)
    machines = [group_kind(step.kind).machine for step in saga.steps if step.branches]
    return Decimal(1 + machines.count(Machine.STANDARD))


def _open(saga: SagaDescription, usage: Usage) -> Decimal:
    return _starts(saga, usage) * usage.milliseconds / _MS


_LOADS: Final[tuple[tuple[Quota, Callable[[SagaDescription, Usage], Decimal]], ...]] = (
    (TRANSITIONS, lambda _, usage: usage.total(Meter.TRANSITIONS)),
    (STARTS, _starts),
    (OPEN_EXECUTIONS, _open),
    (EXPRESS_AT_ONCE, lambda _, usage: Decimal(usage.express_milliseconds) / _MS),
    (FUNCTIONS_AT_ONCE, lambda _, usage: usage.function_seconds),
    (REST_CALLS, lambda _, usage: usage.total(Meter.REST_REQUESTS)),
)
QUOTAS: Final = tuple(quota for quota, _ in _LOADS)
"""Every checked quota."""
