"""Everything about one saga's cost in one value, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from constructs_lib.saga.cost.assumptions import MOST, Assumptions
from constructs_lib.saga.cost.bill import SECONDS_A_DAY, Bill, bill_of
from constructs_lib.saga.cost.compare import Alternative, alternatives
from constructs_lib.saga.cost.compensation import longest_compensation
from constructs_lib.saga.cost.prices import PRICES, REGION, Meter, Price
from constructs_lib.saga.cost.quotas import Load, loads_of
from constructs_lib.saga.cost.tally import Purpose
from constructs_lib.saga.cost.usage import happy_path
from constructs_lib.saga.description.description import SagaDescription

THOUSAND: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimated cost of a saga.

    Attributes:
        saga: its description.
        inputs: what was assumed.
        happy: the happy path.
        back: the longest compensation, if there is one.
        per_day: sagas a day, if a rate was given.
        loads: load of that rate on the quotas.
        others: the saga itself, then built in other ways, if that was asked for.
    """

    saga: SagaDescription
    inputs: Assumptions
    happy: Bill
    back: Bill | None
    per_day: Decimal | None
    loads: tuple[Load, ...] = ()
    others: tuple[Alternative, ...] = ()

    @property
    def per_second(self) -> Decimal | None:
        """Sagas a second, if a rate was given: an even one, which no day has."""
        return self.per_day / SECONDS_A_DAY if self.per_day is not None else None

    @property
    def bills(self) -> list[Bill]:
        """The happy path, and the longest compensation if there is one."""
        return [self.happy, *([self.back] if self.back is not None else [])]

    @property
    def prices(self) -> list[Price]:
        """The lines of the price table that this needed."""
        used = {use.meter for bill in self.bills for use in bill.usage.uses}
        used |= {use.meter for other in self.others for use in other.usage.uses}
        return [price for meter, price in PRICES.items() if meter in used]


def estimate_of(
    saga: SagaDescription,
    inputs: Assumptions | None = None,
    *,
    per_day: Decimal | None = None,
    compare: bool = False,
) -> Estimate:
    """Count and multiply.

    Args:
        saga: its description.
        inputs: what a description cannot know.
        per_day: sagas a day, for a month's bill and for the quotas.
        compare: whether to build it in other ways, too.

    Raises:
        ValueError: if the inputs name steps that the saga does not have, or the rate is not positive.
    """
    if per_day is not None and not 0 < per_day <= MOST:
        raise ValueError(
            f"a rate must be above 0 and at most {MOST:,} sagas a day, got {per_day}; leave it out for none"
        )
    known = inputs or Assumptions()
    happy = bill_of(happy_path(saga, known))
    back = longest_compensation(saga, known)
    loads = loads_of(saga, happy.usage, per_day / SECONDS_A_DAY) if per_day is not None else []
    return Estimate(
        saga=saga,
        inputs=known,
        happy=happy,
        back=bill_of(back) if back is not None else None,
        per_day=per_day,
        loads=tuple(loads),
        others=tuple(alternatives(saga, known)) if compare else (),
    )


def as_json(estimate: Estimate) -> dict[str, Any]:
    """Return the estimate as plain data; dollars are for 1,000 sagas unless stated otherwise."""
    document: dict[str, Any] = {
        "saga": estimate.saga.name,
        "region": REGION,
        "assumptions": estimate.inputs.told(),
        "happy_path": _bill(estimate, estimate.happy),
        "longest_compensation": _bill(estimate, estimate.back) if estimate.back is not None else None,
        "prices": [
            {
                "meter": price.meter,
                "dollars": str(price.dollars),
                "per": price.per,
                "as_of": price.as_of,
                "source": price.source,
            }
            for price in estimate.prices
        ],
    }
    if estimate.per_day is not None:
        document["per_day"] = float(estimate.per_day)
        document["quotas"] = [
            {
                "quota": load.quota.name,
                "load": float(load.load),
                "limit": load.quota.limit,
                "met": load.is_met,
                "as_of": load.quota.as_of,
                "source": load.quota.source,
            }
            for load in estimate.loads
        ]
    if estimate.others:
        document["compared"] = [
            {
                "name": other.name,
                "rule": other.rule,
                "without": other.without,
                "dollars": float(other.usage.dollars() * THOUSAND),
                "by_purpose": {purpose: float(other.usage.dollars(purpose) * THOUSAND) for purpose in Purpose},
            }
            for other in estimate.others
        ]
    return document


def _bill(estimate: Estimate, bill: Bill) -> dict[str, Any]:
    document: dict[str, Any] = {
        "way": bill.usage.way,
        "used_by_one": {meter: float(bill.usage.total(meter)) for meter in Meter if bill.usage.total(meter)},
        "dollars": float(bill.for_sagas(THOUSAND)),
        "by_service": {name: float(dollars * THOUSAND) for name, dollars in bill.by_service.items()},
        "by_purpose": {name: float(dollars * THOUSAND) for name, dollars in bill.by_purpose.items()},
    }
    if estimate.per_day is not None:
        document["dollars_a_month"] = float(bill.for_month(estimate.per_day))
    return document
