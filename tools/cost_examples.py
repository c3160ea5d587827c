"""The sagas that docs/cost.md counts, as descriptions: five steps in three layouts, and a storefront."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from constructs_lib.saga.description.description import FunctionDescription, SagaDescription, StepDescription

_OWN: Final = FunctionDescription(timeout=15, memory_mib=512, architecture="arm64")
ORDERS_A_DAY: Final = 10_000


def _step(name: str, kind: str, side: str = "before") -> StepDescription:
    undone = kind in ("atomic", "external") and side != "after"
    runs = _OWN if kind != "event" else None
    return StepDescription(
        name=name,
        kind=kind,
        side=side,
        function=runs,
        compensation=_OWN if undone else None,
        compensated=undone,
        recorded=kind != "event",
    )


def _phase(name: str, *steps: StepDescription) -> StepDescription:
    return StepDescription(name=name, kind="express", side=steps[0].side, branches=(steps,), timeout=300)


def _saga(name: str, *steps: StepDescription) -> SagaDescription:
    return SagaDescription(name=name, steps=steps, timeout=3_600, fingerprint="example", tells_of_failure=True)


def _local(number: int) -> list[StepDescription]:
    return [_step(f"Step{n}", "atomic") for n in range(1, number + 1)]


ONE_TRANSACTION: Final = _saga("one transaction", *_local(1))
_CHARGE: Final = _step("Charge", "external", "pivot")

TWO: Final = _saga("two steps", _step("Debit", "atomic"), _step("Credit", "atomic", "pivot"))
"""A transfer: debit, credit, an item of each."""
TWO_INLINE: Final = replace(TWO, inline=True)
"""The same, in an Express execution."""
PLAIN: Final = _saga("five plain steps", *_local(4), _CHARGE)
"""Four atomic steps of one item each, and one external call."""
INLINE: Final = replace(PLAIN, inline=True)
"""The same, in an Express execution."""
PARTLY: Final = _saga("local steps in a phase", _phase("Prepare", *_local(4)), _CHARGE)
"""The same, the local steps in one Express phase."""
PHASE: Final = _saga("all in a phase", _phase("All", *_local(4), _CHARGE))
"""The same, all of them in one Express phase: where the provider answers within its five minutes."""


def phase_of(number: int) -> SagaDescription:
    """So many steps in one Express phase, the last of them external."""
    return _saga("phase", _phase("All", *_local(number - 1), _CHARGE))


STOREFRONT: Final = _saga(
    "storefront",
    _phase("Validate", *(_step(name, "read-only") for name in ("ValidateCart", "PriceCart", "CheckStock"))),
    _step("ReserveStock", "atomic"),
    _step("ScreenOrder", "read-only"),
    _step("AuthorizePayment", "external"),
    _step("CommitOrder", "atomic", "pivot"),
    _step("CapturePayment", "external", "after"),
    _step("UpdateInventory", "atomic", "after"),
    _step("CreateShipment", "external", "after"),
    _step("PublishOrder", "event", "after"),
    _step("SendReceipt", "notify", "after"),
)
"""Twelve Standard transitions and one Express child: nine steps, two for the phase, one to settle."""
