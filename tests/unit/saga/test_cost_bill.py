"""Dollars, quotas and other ways to build the same saga."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from constructs_lib.saga.cost.assumptions import Assumptions
from constructs_lib.saga.cost.bill import bill_of
from constructs_lib.saga.cost.compare import alternatives
from constructs_lib.saga.cost.estimate import as_json, estimate_of
from constructs_lib.saga.cost.prices import PRICES, Meter, Service
from constructs_lib.saga.cost.quotas import OPEN_EXECUTIONS, STARTS, TRANSITIONS, loads_of, most_per_second
from constructs_lib.saga.cost.tally import Purpose
from constructs_lib.saga.cost.usage import happy_path
from tests.unit.saga.test_cost_usage import group, saga, step
from tools.cost_examples import ORDERS_A_DAY, PARTLY, PHASE, PLAIN, STOREFRONT

FIVE = (PHASE, PARTLY, PLAIN)


def test_every_price_has_its_date_and_its_source() -> None:
    for meter, price in PRICES.items():
        assert price.meter is meter
        assert price.dollars > 0
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", price.as_of), meter
        assert price.source.startswith("https://aws.amazon.com/"), meter
    assert set(PRICES) == set(Meter)


@pytest.mark.parametrize(
    ("meter", "million"),
    [
        (Meter.TRANSITIONS, "25"),
        (Meter.EXPRESS_REQUESTS, "1"),
        (Meter.WRITE_UNITS, "0.625"),
        (Meter.READ_UNITS, "0.125"),
        (Meter.LAMBDA_REQUESTS, "0.2"),
        (Meter.REST_REQUESTS, "3.5"),
        (Meter.FIFO_REQUESTS, "0.5"),
        (Meter.EVENTS, "1"),
        (Meter.DURABLE_OPERATIONS, "8"),
    ],
)
def test_a_million_costs_what_the_price_list_states(meter: Meter, million: str) -> None:
    assert PRICES[meter].of(Decimal(1_000_000)) == Decimal(million)


def test_the_storefronts_twelve_transitions_are_90_dollars_a_month() -> None:
    bill = bill_of(happy_path(STOREFRONT))

    assert bill.usage.total(Meter.TRANSITIONS) == 12
    assert bill.usage.total(Meter.EXPRESS_REQUESTS) == 1
    assert bill.by_meter[Meter.TRANSITIONS] * ORDERS_A_DAY * 30 == Decimal("90.00")


def test_services_purposes_and_meters_each_sum_to_the_whole() -> None:
    for example in (*FIVE, STOREFRONT):
        bill = bill_of(happy_path(example))
        for sums in (bill.by_service, bill.by_purpose, bill.by_meter):
            assert sum(sums.values()) == bill.dollars
            assert list(sums.values()) == sorted(sums.values(), reverse=True)


def test_a_month_has_thirty_days() -> None:
    bill = bill_of(happy_path(PLAIN))

    assert bill.for_month(Decimal(100)) == bill.for_sagas(3_000) == bill.dollars * 3_000


def test_the_transitions_are_most_of_the_bill() -> None:
    assert next(iter(bill_of(happy_path(PLAIN)).by_service)) is Service.STEP_FUNCTIONS


def test_the_fullest_quota_comes_first_and_is_met_above_its_limit() -> None:
    usage = happy_path(PLAIN)

    loads = loads_of(PLAIN, usage, Decimal(301))

    assert loads[0].quota is STARTS
    assert loads[0].is_met
    assert [load.share for load in loads] == sorted((load.share for load in loads), reverse=True)
    assert most_per_second(loads, Decimal(301)) == 300
    assert not loads_of(PLAIN, usage, Decimal(300))[0].is_met


def test_transitions_per_second_and_executions_follow_from_the_rate() -> None:
    loads = {
        load.quota: load.load
        for load in loads_of(PLAIN, happy_path(PLAIN, Assumptions(duration_ms=200, external_ms=900)), Decimal(10))
    }

    assert loads[TRANSITIONS] == 60
    assert loads[OPEN_EXECUTIONS] == Decimal(10) * (4 * 225 + 925 + 25) / 1_000


def test_a_child_is_an_execution_of_its_own() -> None:
    with_child = saga(group("Child", "child", (step("A"),)), step("B", side="pivot"))

    loads = {load.quota: load.load for load in loads_of(with_child, happy_path(with_child), Decimal(7))}

    assert loads[STARTS] == 14


def _overheads(example: object) -> dict[str, Decimal]:
    assert example in FIVE
    return {
        other.name: other.usage.dollars(Purpose.ORCHESTRATION, Purpose.LOG) * 1_000_000
        for other in alternatives(next(one for one in FIVE if one is example))
    }


def test_the_other_ways_cost_the_same_however_the_saga_is_laid_out() -> None:
    first, *rest = ({n: d for n, d in _overheads(one).items() if n != "this saga"} for one in FIVE)

    assert all(other == first for other in rest)


def test_in_a_phase_orchestration_and_log_are_below_both_standard_architectures() -> None:
    for example in (PHASE, PARTLY):
        costs = _overheads(example)
        assert costs["this saga"] < costs["Standard only, by hand"]
        assert costs["this saga"] < costs["function per step with Powertools"]


def test_the_disadvantages_on_the_page_are_true() -> None:
    plain, phase = _overheads(PLAIN), _overheads(PHASE)

    assert plain["this saga"] - plain["Standard only, by hand"] == Decimal("1.25")
    assert plain["this saga"] - plain["function per step with Powertools"] == Decimal("2.5")
    assert phase["this saga"] > phase["Lambda durable functions"]


def test_a_durable_function_is_one_operation_to_start_and_one_per_step() -> None:
    durable = alternatives(PLAIN)[-1].usage
    mapped = saga(group("Each", "map", (step("A"), step("B")), max_items=9))

    assert durable.total(Meter.DURABLE_OPERATIONS) == 1 + 5
    assert alternatives(mapped, Assumptions(map_items=4))[-1].usage.total(Meter.DURABLE_OPERATIONS) == 1 + 5 + 8


def test_powertools_are_two_writes_per_call() -> None:
    powertools = alternatives(PLAIN)[2].usage

    assert powertools.total(Meter.WRITE_UNITS, Purpose.LOG) == 2 * 5


def test_the_effects_are_the_same_for_everybody() -> None:
    for example in (*FIVE, STOREFRONT):
        assert len({other.usage.dollars(Purpose.EFFECTS) for other in alternatives(example)}) == 1


def test_a_rate_must_be_one() -> None:
    with pytest.raises(ValueError, match="a rate must be above 0"):
        estimate_of(PLAIN, per_day=Decimal(0))


def test_json_agrees_with_the_text() -> None:
    estimate = estimate_of(PLAIN, per_day=Decimal(100), compare=True)

    document = as_json(estimate)

    assert document["happy_path"]["used_by_one"]["Standard transitions"] == 6
    assert document["happy_path"]["dollars"] == pytest.approx(float(estimate.happy.for_sagas(1_000)))
    assert document["longest_compensation"]["way"] == "Charge refuses"
    assert [other["name"] for other in document["compared"]] == [other.name for other in estimate.others]
    assert {price["meter"] for price in document["prices"]} == {price.meter for price in estimate.prices}
    assert document["quotas"][0]["source"].startswith("https://docs.aws.amazon.com/")
