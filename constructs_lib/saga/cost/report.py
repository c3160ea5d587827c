"""An estimate as text for a terminal: aligned, the dearest first, with bars, prices and their dates at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from textwrap import wrap
from typing import Final

from constructs_lib.saga.cost.bill import DAYS_A_MONTH, Bill
from constructs_lib.saga.cost.compare import Alternative
from constructs_lib.saga.cost.estimate import THOUSAND, Estimate
from constructs_lib.saga.cost.prices import REGION, Meter, Price
from constructs_lib.saga.cost.quotas import QUOTAS, Load, most_per_second
from constructs_lib.saga.cost.tally import Purpose

NOT_COUNTED: Final = (
    "logs, traces, metrics, data transfer, storage, backups, payload buckets, WAF, KMS, cold starts, snapshots,",
    "services that steps call, providers, recoveries, parking, free tiers, discounts",
)
_WIDTH: Final = 120
_BAR: Final = 30
_NAME: Final = 30
_NUMBER: Final = 22


def report(estimates: Sequence[Estimate], *, bar: str = "█") -> str:
    """Every saga, then what holds for all of them.

    Args:
        estimates: one per saga; at least one.
        bar: what bars are made of.
    """
    lines = [line for estimate in estimates for line in (*_saga(estimate, bar), "")]
    lines += ["assumed", *(f"  {text}" for text in estimates[0].inputs.told())]
    lines += ["not counted", *(f"  {text}" for text in NOT_COUNTED), ""]
    lines += _prices({price.meter: price for estimate in estimates for price in estimate.prices})
    if any(estimate.loads for estimate in estimates):
        lines += ["", f"quotas: defaults of {REGION}, for an account with a history"]
        lines += [f"  {quota.name:<{_NAME + 9}}{quota.limit:>10,}  {quota.as_of}  {quota.source}" for quota in QUOTAS]
    return "\n".join(lines) + "\n"


def _saga(estimate: Estimate, bar: str) -> Iterator[str]:
    yield estimate.saga.name
    yield "=" * len(estimate.saga.name)
    yield from wrap(
        estimate.happy.usage.way, width=_WIDTH, initial_indent="  happy path            ", subsequent_indent=" " * 24
    )
    if estimate.back is not None:
        yield f"  longest compensation  {estimate.back.usage.way}, all before it is undone"
    yield ""
    yield from _used(estimate)
    yield ""
    yield from _bars(estimate.happy, bar)
    if estimate.loads:
        yield ""
        yield from _quotas(estimate)
    if estimate.others:
        yield ""
        yield from compared(estimate.others)


def _used(estimate: Estimate) -> Iterator[str]:
    columns = ["happy path", "longest compensation"][: len(estimate.bills)]
    yield f"  {'one saga uses':<{_NAME}}" + _cells(columns)
    for meter in Meter:
        amounts = [bill.usage.total(meter) for bill in estimate.bills]
        if any(amounts):
            yield f"  {meter:<{_NAME}}" + _cells([number(amount) for amount in amounts])
    yield f"  {'$ per 1,000 sagas':<{_NAME}}" + _cells([f"${bill.for_sagas(THOUSAND):,.4f}" for bill in estimate.bills])
    if estimate.per_day is not None:
        months = [f"${bill.for_month(estimate.per_day):,.2f}" for bill in estimate.bills]
        yield f"  {'$ a month, if all go this way':<{_NAME}}" + _cells(months)
        yield f"  ({number(estimate.per_day)} sagas a day, {DAYS_A_MONTH} days)"


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"{text:>{_NUMBER}}" for text in texts)


def number(amount: Decimal) -> str:
    """A quantity: whole if it is, to three digits behind the point otherwise."""
    rounded = round(amount, 3)
    return f"{rounded:,.0f}" if rounded == rounded.to_integral_value() else f"{rounded:,.3f}"


def _bars(bill: Bill, bar: str) -> Iterator[str]:
    yield "  where it goes: 1,000 sagas on the happy path"
    yield from _bar_lines([(name, dollars) for name, dollars in bill.by_service.items()], bar)
    yield ""
    yield "  and what for"
    yield from _bar_lines([(name, dollars) for name, dollars in bill.by_purpose.items()], bar)


def _bar_lines(lines: Sequence[tuple[str, Decimal]], bar: str) -> Iterator[str]:
    together = sum(dollars for _, dollars in lines)
    for name, dollars in lines:
        share = dollars / together
        length = max(1, round(share * _BAR))
        yield f"  {name:<16}{f'${dollars * THOUSAND:,.4f}':>10}  {bar * length:<{_BAR}} {share * 100:>5.1f} %"


def _quotas(estimate: Estimate) -> Iterator[str]:
    per_second = estimate.per_second or Decimal(0)
    yield f"  quotas at {number(per_second)} sagas a second, evenly; the happy path"
    for load in estimate.loads:
        yield from _quota(load)
    most = most_per_second(list(estimate.loads), per_second)
    yield f"  the first one is full at {number(most)} a second: {estimate.loads[0].quota.name}"


def _quota(load: Load) -> Iterator[str]:
    quota = load.quota
    used = f"{load.load:,.1f} of {quota.limit:,}"
    yield f"  {quota.name:<44}{used:>22}{load.share * 100:>9.2f} %{'  MET' if load.is_met else ''}"
    if load.is_met and quota.note:
        yield f"    {quota.note}"


def compared(others: Sequence[Alternative]) -> Iterator[str]:
    """Compare the saga with other designs, dollars per 1,000."""
    yield "  built in other ways: $ per 1,000 sagas that complete"
    heads = ("orchestration + log", "compute", "effects", "API", "together")
    yield f"  {'':<36}" + "".join(f"{head:>{_width(head)}}" for head in heads)
    for other in others:
        usage = other.usage
        amounts = (
            usage.dollars(Purpose.ORCHESTRATION, Purpose.LOG),
            *(usage.dollars(purpose) for purpose in (Purpose.COMPUTE, Purpose.EFFECTS, Purpose.API)),
            usage.dollars(),
        )
        cells = (f"{amount * THOUSAND:>{_width(head)}.4f}" for head, amount in zip(heads, amounts, strict=True))
        yield f"  {other.name:<36}" + "".join(cells)
    for other in others[1:]:
        yield f"  {other.name}: {other.without}"


def _width(head: str) -> int:
    return max(len(head), 8) + 2


def _prices(prices: dict[Meter, Price]) -> Iterator[str]:
    yield f"prices: {REGION}, on demand, first tier"
    for price in sorted(prices.values(), key=lambda price: list(Meter).index(price.meter)):
        per = f"per {price.per:,}" if price.per > 1 else "each"
        yield f"  {price.meter:<{_NAME}}${price.dollars:<13}{per:<15}{price.as_of}  {price.source}"
