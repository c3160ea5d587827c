"""Cost of a saga that runs inline: one Express execution, and no transition."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from constructs_lib.saga.cost.assumptions import Assumptions, Source
from constructs_lib.saga.cost.compensation import longest_compensation
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.quotas import STARTS, loads_of
from constructs_lib.saga.cost.usage import happy_path
from constructs_lib.saga.description.description import FunctionDescription, SagaDescription, StepDescription
from tools.cost_examples import INLINE

OWN = FunctionDescription(timeout=15, memory_mib=512, architecture="arm64")
TWO = SagaDescription(
    name="two",
    steps=(
        StepDescription(name="Debit", kind="atomic", side="before", function=OWN, compensation=OWN, compensated=True),
        StepDescription(name="Credit", kind="atomic", side="pivot", function=OWN),
    ),
    timeout=3_600,
    fingerprint="example",
    inline=True,
)
FIVE = INLINE
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("saga", "polls", "dollars"),
    [(TWO, 0, "20.03"), (TWO, 1, "22.35"), (FIVE, 0, "37.55"), (FIVE, 1, "34.70")],
    ids=["two, waits", "two, polls", "five, waits", "five, polls"],
)
def test_inline_saga_costs_one_express_execution(saga: SagaDescription, polls: int, dollars: str) -> None:
    usage = happy_path(saga, Assumptions(polls=polls))

    assert usage.total(Meter.TRANSITIONS) == 0
    assert usage.total(Meter.EXPRESS_REQUESTS) == 1
    assert f"{usage.dollars() * MILLION:.2f}" == dollars


@pytest.mark.parametrize(("saga", "most"), [(TWO, 20), (FIVE, 36)], ids=["two", "five"])
def test_small_gatekeeper_that_waits_costs_less(saga: SagaDescription, most: int) -> None:
    """With half of the memory and of the processor, and twice its own time."""
    small = happy_path(saga, Assumptions(polls=0, gatekeeper_mib=256, gatekeeper_ms=60))

    assert small.dollars() * MILLION < most < happy_path(saga, Assumptions(polls=0)).dollars() * MILLION


@pytest.mark.parametrize("source", list(Source))
def test_inline_saga_that_an_event_begins_costs_one_express_execution(source: Source) -> None:
    inputs = Assumptions(api=False, event=source)
    inline, standard = happy_path(TWO, inputs), happy_path(replace(TWO, inline=False), inputs)

    assert [inline.total(meter) for meter in (Meter.TRANSITIONS, Meter.EXPRESS_REQUESTS)] == [0, 1]
    assert inline.total(Meter.LAMBDA_REQUESTS) == standard.total(Meter.LAMBDA_REQUESTS)
    assert inline.dollars() * 4 < standard.dollars()


@pytest.mark.parametrize("kind", ["parallel", "map"])
def test_branches_and_items_of_an_inline_saga_cost_no_execution_of_their_own(kind: str) -> None:
    steps = tuple(replace(TWO.steps[0], name=name) for name in ("Hotel", "Flight"))
    branches = tuple((step,) for step in steps) if kind == "parallel" else (steps,)
    group = StepDescription(
        name="Group", kind=kind, side="before", branches=branches, max_items=5 if kind == "map" else 0
    )
    usage = happy_path(replace(TWO, steps=(group, TWO.steps[1])))

    assert [usage.total(meter) for meter in (Meter.TRANSITIONS, Meter.EXPRESS_REQUESTS)] == [0, 1]
    assert usage.total(Meter.LAMBDA_REQUESTS) > 2


def test_refused_inline_saga_costs_no_transition() -> None:
    happy, refused = happy_path(TWO), longest_compensation(TWO)

    assert refused is not None
    assert refused.total(Meter.TRANSITIONS) == 0
    ten_percent = (9 * happy.dollars() + refused.dollars()) / 10
    assert ten_percent <= Decimal("1.2") * happy.dollars()


def test_inline_saga_starts_no_standard_execution() -> None:
    assert STARTS not in [load.quota for load in loads_of(TWO, happy_path(TWO), Decimal(1))]
