"""Dollars: what one saga uses, times the prices; by service, by purpose, for a thousand of them, for a month."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeVar

from constructs_lib.saga.cost.prices import PRICES, Meter, Service
from constructs_lib.saga.cost.tally import Purpose, Usage

DAYS_A_MONTH: Final = 30
SECONDS_A_DAY: Final = 86_400

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Cost of one saga on one path.

    Attributes:
        usage: what is billed.
        by_service: dollars for one saga; services that bill nothing are left out, the most expensive first.
        by_purpose: likewise.
        by_meter: likewise.
    """

    usage: Usage
    by_service: dict[Service, Decimal]
    by_purpose: dict[Purpose, Decimal]
    by_meter: dict[Meter, Decimal]

    @property
    def dollars(self) -> Decimal:
        """For one saga."""
        return self.usage.dollars()

    def for_sagas(self, number: int | Decimal) -> Decimal:
        """For so many sagas, all of which take this way."""
        return self.dollars * number

    def for_month(self, per_day: Decimal) -> Decimal:
        """For a month of thirty days."""
        return self.for_sagas(per_day * DAYS_A_MONTH)


def bill_of(usage: Usage) -> Bill:
    """Multiply with the prices."""
    charges = [(use, PRICES[use.meter].of(use.quantity)) for use in usage.uses]
    return Bill(
        usage=usage,
        by_service=_sums((PRICES[use.meter].service, dollars) for use, dollars in charges),
        by_purpose=_sums((use.purpose, dollars) for use, dollars in charges),
        by_meter=_sums((use.meter, dollars) for use, dollars in charges),
    )


def _sums(charges: Iterable[tuple[_T, Decimal]]) -> dict[_T, Decimal]:
    sums: dict[_T, Decimal] = {}
    for name, dollars in charges:
        sums[name] = sums.get(name, Decimal(0)) + dollars
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))
