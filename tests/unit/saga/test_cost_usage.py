"""Counts from a description: conditions, groups, sizes, durations; each rule alone."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from constructs_lib.saga.cost.assumptions import Assumptions
from constructs_lib.saga.cost.compensation import longest_compensation
from constructs_lib.saga.cost.prices import Meter
from constructs_lib.saga.cost.tally import Purpose
from constructs_lib.saga.cost.usage import happy_path
from constructs_lib.saga.cost.ways import MAX_CONDITIONS, ways_of
from constructs_lib.saga.description.description import FunctionDescription, SagaDescription, StepDescription

TO = '$request.to_ledger = "partner"'


def step(name: str, kind: str = "atomic", side: str = "before", **options: Any) -> StepDescription:
    return StepDescription(name=name, kind=kind, side=side, compensated=kind == "atomic", **options)


def group(name: str, kind: str, *branches: tuple[StepDescription, ...], **options: Any) -> StepDescription:
    return StepDescription(name=name, kind=kind, side="before", branches=branches, **options)


def saga(*steps: StepDescription, **options: Any) -> SagaDescription:
    return SagaDescription(name="Saga", steps=steps, timeout=60, fingerprint="f", **options)


def transitions(description: SagaDescription, inputs: Assumptions | None = None) -> Decimal:
    return happy_path(description, inputs).total(Meter.TRANSITIONS)


def test_the_happy_path_is_one_transition_per_step_and_one_to_settle() -> None:
    assert transitions(saga(step("A"), step("B"), step("C", side="pivot"))) == 4


def test_five_local_steps_in_a_phase_are_two_transitions_and_one_to_settle() -> None:
    five = tuple(step(f"S{n}") for n in range(5))

    assert transitions(saga(group("Phase", "express", five))) == 3


def test_branches_items_and_children_are_transitions_of_their_own() -> None:
    two = (step("A"), step("B"))

    # Branches that begin a saga have a state before them, which compares the definition.
    assert transitions(saga(group("Both", "parallel", two, (step("C"),)))) == 1 + 2 + 3 + 1
    assert transitions(saga(group("Child", "child", two))) == 2 + 2 + 1
    assert transitions(saga(group("Each", "map", two, max_items=40)), Assumptions(map_items=7)) == 2 + 7 * 2 + 1


def test_a_map_never_works_on_more_items_than_it_takes() -> None:
    each = saga(group("Each", "map", (step("A"),), max_items=3))

    assert transitions(each, Assumptions(map_items=1_000)) == 2 + 3 + 1


def test_an_open_condition_is_one_transition_for_all_that_are_open_there() -> None:
    conditional = saga(step("A", when="$request.a"), step("B", when="$request.b"), step("C", side="pivot"))

    # A choice before A, and one behind it, but none behind B; passing A over, the first choice leads to B.
    assert transitions(conditional) == 2 + 3 + 1
    assert transitions(conditional, Assumptions(skip=frozenset({"A"}))) == 1 + 2 + 1


def test_a_condition_that_is_known_costs_nothing() -> None:
    known = saga(step("Debit", when=TO), step("Credit", side="pivot", when=TO))
    answered = saga(step("Debit", when="$outputs.X.y"), step("Credit", side="pivot", when="$outputs.X.y"))

    assert transitions(known) == 1 + 2 + 1
    assert transitions(answered) == 2 + 2 + 1


def test_of_two_conditions_that_are_each_others_negation_exactly_one_holds() -> None:
    either = saga(
        step("Transfer", side="pivot", when=f"$not({TO})"),
        step("Debit", when=TO),
        step("Credit", side="pivot", when=TO),
    )

    assert ways_of(either) == [{"Transfer"}, {"Debit", "Credit"}]
    assert happy_path(either).way == "Debit, Credit"


def test_an_apparent_negation_is_a_condition_of_its_own() -> None:
    text = "$not($request.a) and $exists($request.b)"

    assert len(ways_of(saga(step("A", when=text), step("B", when="$request.a")))) == 4


def test_with_too_many_conditions_only_the_path_where_all_hold_counts() -> None:
    many = [step(f"S{n}", when=f"$request.s{n}") for n in range(MAX_CONDITIONS + 1)]

    assert ways_of(saga(*many)) == [frozenset()]


def test_only_a_conditional_step_can_be_skipped() -> None:
    with pytest.raises(ValueError, match=r"no conditional step 'A'; those with a condition are B"):
        happy_path(saga(step("A"), step("B", when="$request.b")), Assumptions(skip=frozenset({"A"})))


def test_inputs_for_a_step_that_is_not_there_are_refused() -> None:
    for inputs in (Assumptions(durations={"Z": 1}), Assumptions(items_of={"Z": 1})):
        for count in (happy_path, longest_compensation):
            with pytest.raises(ValueError, match=r"no step 'Z'; its steps are A"):
                count(saga(step("A")), inputs)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"duration_ms": -1}, "duration_ms"),
        ({"durations": {"A": -1}}, "duration of A"),
        ({"items_of": {"A": -1}}, "items of A"),
        ({"retries": Decimal("-0.1")}, "retries"),
        ({"memory_mib": 64}, "memory_mib"),
        ({"gatekeeper_mib": 64}, "gatekeeper_mib"),
    ],
)
def test_an_input_that_cannot_be_is_refused(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Assumptions(**wrong)


def test_every_kb_that_is_begun_is_a_unit_and_doubles_in_a_transaction() -> None:
    inputs = Assumptions(items=3, item_bytes=1_025, output_bytes=700)

    usage = happy_path(saga(step("A")), inputs)

    assert usage.total(Meter.WRITE_UNITS, Purpose.EFFECTS) == 3 * 2
    assert usage.total(Meter.WRITE_UNITS, Purpose.LOG) == 3 * 2 + 2 * 2


def test_declared_writes_are_counted() -> None:
    declared = step("Mark", "dynamodb", writes=4)

    assert happy_path(saga(declared)).total(Meter.WRITE_UNITS, Purpose.EFFECTS) == 4
    assert happy_path(saga(declared)).total(Meter.LAMBDA_REQUESTS, Purpose.COMPUTE) == 0


def test_a_larger_request_makes_a_larger_record() -> None:
    small, large = (
        happy_path(saga(step("A")), Assumptions(request_bytes=size)).total(Meter.WRITE_UNITS, Purpose.API)
        for size in (100, 5_000)
    )

    # Reserved, settled, and its response removed: the record, and entries of its indexes.
    assert small == (1 + 1) + (2 + 2) + (2 + 1)
    assert large == (6 + 1) + (7 + 2) + (7 + 1)


def test_without_an_api_the_record_is_still_written() -> None:
    usage = happy_path(saga(step("A")), Assumptions(api=False))

    assert usage.total(Meter.REST_REQUESTS) == 0
    assert usage.total(Meter.LAMBDA_REQUESTS) == 1
    assert usage.total(Meter.WRITE_UNITS, Purpose.API) == 10


def test_an_express_phase_is_billed_to_the_next_100_ms_at_64_mb() -> None:
    phase = saga(group("Phase", "express", (step("A"), step("B"))))

    usage = happy_path(phase, Assumptions(duration_ms=60, state_ms=20))

    assert usage.total(Meter.EXPRESS_GB_SECONDS) == Decimal("0.0625") * Decimal("0.2")
    assert usage.express_milliseconds == 160


def test_functions_are_billed_by_their_own_memory_time_and_architecture() -> None:
    large = FunctionDescription(timeout=10, memory_mib=1_024, architecture="x86_64")
    usage = happy_path(
        saga(step("A", function=large), step("B"), step("C", "external")),
        Assumptions(durations={"A": 250}, duration_ms=100, external_ms=400, memory_mib=512),
    )

    assert usage.total(Meter.LAMBDA_GB_SECONDS_X86) == Decimal("0.25")
    assert usage.total(Meter.LAMBDA_GB_SECONDS, Purpose.COMPUTE) == Decimal("0.5") * Decimal("0.5")


def test_a_retry_is_one_transition_and_one_call_more_but_no_transition_in_a_phase() -> None:
    plain = happy_path(saga(step("A")), Assumptions(retries=Decimal("0.5")))
    phase = happy_path(saga(group("P", "express", (step("A"),))), Assumptions(retries=Decimal("0.5")))

    assert plain.total(Meter.TRANSITIONS) == Decimal("2.5")
    assert phase.total(Meter.TRANSITIONS) == 3
    assert plain.total(Meter.LAMBDA_REQUESTS, Purpose.COMPUTE) == Decimal("1.5")


def test_an_event_and_a_notification_are_effects() -> None:
    usage = happy_path(saga(step("A"), step("Told", "notify", "after"), step("Said", "event", "after")))

    assert usage.total(Meter.EVENTS, Purpose.EFFECTS) == usage.total(Meter.FIFO_REQUESTS, Purpose.EFFECTS) == 1


def test_the_longest_compensation_is_that_of_the_last_step_that_can_refuse() -> None:
    usage = longest_compensation(saga(step("A"), step("B"), step("C", side="pivot"), step("D", side="after")))

    assert usage is not None
    assert usage.way == "C refuses"


def test_a_saga_that_nothing_can_refuse_has_no_compensation() -> None:
    assert longest_compensation(saga(step("A", side="after"))) is None


def test_no_cdk_is_needed_to_count() -> None:
    program = (
        "import constructs_lib.saga.cost.report, constructs_lib.cli.cost, sys;"
        "sys.exit(any(name in sys.modules for name in ('aws_cdk', 'boto3')))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[3]).returncode == 0


def test_transitions_of_a_phase() -> None:
    assert transitions(saga(group("Phase", "express", (step("A"),)))) == 3


def test_a_transaction_costs_double() -> None:
    assert happy_path(saga(step("A"))).total(Meter.WRITE_UNITS, Purpose.LOG, Purpose.EFFECTS) == 4


def test_a_skipped_step_is_not_entered() -> None:
    skipping = Assumptions(skip=frozenset({"A"}))
    assert transitions(saga(step("A", when="$request.a"), step("B", side="pivot")), skipping) == 3
