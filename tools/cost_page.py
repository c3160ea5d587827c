"""Rewrites the numbers of docs/cost.md: ``python -m tools.cost_page``. A test finds a page that is not current."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from constructs_lib.saga.cost.assumptions import Assumptions, Source
from constructs_lib.saga.cost.bill import bill_of
from constructs_lib.saga.cost.compare import Alternative, alternatives
from constructs_lib.saga.cost.estimate import estimate_of
from constructs_lib.saga.cost.prices import PRICES, REGION, Meter, Service
from constructs_lib.saga.cost.quotas import QUOTAS
from constructs_lib.saga.cost.report import NOT_COUNTED, report
from constructs_lib.saga.cost.tally import Purpose, Usage
from constructs_lib.saga.cost.usage import direct_operation, happy_path
from tools.cost_examples import (
    INLINE,
    ONE_TRANSACTION,
    ORDERS_A_DAY,
    PARTLY,
    PHASE,
    PLAIN,
    STOREFRONT,
    TWO,
    TWO_INLINE,
    phase_of,
)

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cost.md"
_MILLION: Final = 1_000_000
_BLOCK: Final = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_of(text: str) -> str:
    """Return the page with its generated blocks rewritten."""
    return _BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match['name']]()}{match[3]}", text)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _millions(usage: Usage, *purposes: Purpose) -> str:
    return f"{usage.dollars(*purposes) * _MILLION:,.2f}"


def _row(name: str, usage: Usage) -> list[str]:
    return [
        name,
        f"{usage.total(Meter.TRANSITIONS):.0f}",
        _millions(usage, Purpose.ORCHESTRATION),
        _millions(usage, Purpose.LOG),
        f"**{_millions(usage, Purpose.ORCHESTRATION, Purpose.LOG)}**",
        _millions(usage, Purpose.COMPUTE),
        _millions(usage, Purpose.EFFECTS),
        _millions(usage, Purpose.API),
        _millions(usage),
    ]


_HEAD: Final = (
    "transitions",
    "orchestration",
    "log",
    "orchestration + log",
    "compute",
    "effects",
    "API",
    "together",
)


def _one_transaction() -> str:
    rows = (
        ("direct operation", direct_operation()),
        ("saga of one step, outcome asked for once", happy_path(ONE_TRANSACTION)),
    )
    return _table(("one transaction, $ per million requests", *_HEAD), (_row(name, usage) for name, usage in rows))


_INLINE: Final = {
    "inline, outcome asked for once": Assumptions(),
    "inline, the client waits": Assumptions(polls=0),
    "inline, the client waits, gatekeeper of 256 MiB": Assumptions(polls=0, gatekeeper_mib=256, gatekeeper_ms=60),
}
"""With half of the memory a function has half of the processor, and the gatekeeper's own time is counted twice."""


_ARRIVALS: Final = {
    None: "a client, by the API",
    Source.WEBHOOK: "a webhook: `add_webhook`",
    Source.RULE: "a bus: `add_event_rule`",
    Source.QUEUE: "a queue: `add_queue`",
    Source.FIFO: "a FIFO queue: `add_queue`",
    Source.STREAM: "a table: `add_stream`",
}


def _intakes() -> str:
    def row(source: Source | None, name: str) -> list[str]:
        inputs = Assumptions(api=source is None, event=source)
        direct, saga = direct_operation(inputs), happy_path(ONE_TRANSACTION, inputs)
        inline = happy_path(replace(ONE_TRANSACTION, inline=True), inputs)
        amounts = [_millions(usage, *of) for usage in (direct, saga) for of in ((Purpose.API,), ())]
        return [name, *amounts, _millions(inline)]

    head = ("from, $ per million", "one transaction: API", "together", "saga of one step: API", "together", "inline")
    return _table(head, (row(source, name) for source, name in _ARRIVALS.items()))


def _two_steps() -> str:
    ours = [_row("this library, two plain steps", happy_path(TWO))]
    ours += [_row(f"this library, {name}", happy_path(TWO_INLINE, inputs)) for name, inputs in _INLINE.items()]
    others = (_row(other.name, other.usage) for other in alternatives(TWO)[1:])
    return _table(("two steps, $ per million sagas", *_HEAD), iter([*ours, *others]))


def _five_steps() -> str:
    others = alternatives(PLAIN)[1:]
    names = ("one Express phase", "four steps in a phase, the call next to it", "five plain steps")
    ours = [_row(f"this library, {name}", happy_path(saga)) for name, saga in zip(names, _LAYOUTS, strict=True)]
    ours += [_row(f"this library, {name}", happy_path(INLINE, inputs)) for name, inputs in _INLINE.items()]
    return _table(
        ("five steps, $ per million sagas", *_HEAD),
        iter([*ours, *(_row(other.name, other.usage) for other in others)]),
    )


_LAYOUTS: Final = (PHASE, PARTLY, PLAIN)


def _overhead(usage: Usage) -> Decimal:
    return usage.dollars(Purpose.ORCHESTRATION, Purpose.LOG) * _MILLION


def _by_steps() -> str:
    def row(number: int) -> list[str]:
        saga = phase_of(number)
        amounts = [_overhead(other.usage) for other in alternatives(saga)]
        return [str(number), *(f"{amount:,.2f}" for amount in amounts)]

    names = [other.name for other in alternatives(PHASE)[1:]]
    return _table(("steps in the phase", "this library, one phase", *names), (row(n) for n in (2, 3, 5, 8, *_MEET, 20)))


def below_durable() -> int:
    """From how many steps on, in one phase, orchestration and log cost less than durable operations."""
    number = 2
    while True:
        ours, *_, durable = (_overhead(other.usage) for other in alternatives(phase_of(number)))
        if ours < durable:
            return number
        number += 1


_MEET: Final = (below_durable() - 1, below_durable())


def _rules() -> str:
    def line(other: Alternative) -> str:
        return f"- **{other.name}**: {other.rule}. Left out: {other.without}.\n"

    return "".join(line(other) for other in alternatives(PLAIN)[1:])


def _storefront() -> str:
    bill = bill_of(happy_path(STOREFRONT))
    sagas = ORDERS_A_DAY * 30
    rows = [
        [meter, f"{bill.usage.total(meter):,.5f}".rstrip("0").rstrip("."), f"${dollars * sagas:,.2f}"]
        for meter, dollars in bill.by_meter.items()
    ]
    rows.append(["**together**", "", f"**${bill.for_sagas(sagas):,.2f}**"])
    return _table(("what is counted", "by one order", "a month"), iter(rows))


def _prices() -> str:
    rows = (
        [
            price.meter,
            f"[{price.service}]({price.source})",
            f"${price.dollars}",
            f"{price.per:,}" if price.per > 1 else "1",
        ]
        for price in PRICES.values()
    )
    looked_up = _looked_up({price.meter.value: price.as_of for price in PRICES.values()})
    return f"{REGION}, on demand, first tier, {looked_up}.\n\n" + _table(
        ("what is counted", "billed by", "price", "for"), rows
    )


def _looked_up(months: Mapping[str, str]) -> str:
    latest = max(months.values())
    earlier = [f"{name} in {month}" for name, month in months.items() if month != latest]
    return ", ".join([f"looked up in {latest}", *earlier])


def _quotas() -> str:
    rows = ([f"[{quota.name}]({quota.source})", f"{quota.limit:,}", quota.note] for quota in QUOTAS)
    return f"Defaults, {_looked_up({quota.name: quota.as_of for quota in QUOTAS})}:\n\n" + _table(
        ("quota", "default", ""), rows
    )


def _assumed() -> str:
    lines = [*Assumptions().told(), f"not counted: {' '.join(NOT_COUNTED)}"]
    return "".join(f"- {line}\n" for line in lines)


def _sample() -> str:
    text = report([estimate_of(PARTLY, per_day=Decimal(ORDERS_A_DAY))]).partition("\nassumed\n")[0]
    return f"```text\n{text.rstrip()}\n```\n"


BLOCKS: Final[dict[str, Callable[[], str]]] = {
    "two-steps": _two_steps,
    "five-steps": _five_steps,
    "one-transaction": _one_transaction,
    "intakes": _intakes,
    "by-steps": _by_steps,
    "rules": _rules,
    "storefront": _storefront,
    "prices": _prices,
    "quotas": _quotas,
    "assumed": _assumed,
    "sample": _sample,
}

if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"{PAGE} is current; {len(Service)} services, {len(PRICES)} prices\n")
