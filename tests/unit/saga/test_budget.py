"""The budget's arithmetic, compared with numbers that were counted by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from constructs_lib.saga.description.description import (
    FunctionDescription,
    SagaDescription,
    StepDescription,
)
from constructs_lib.saga.description.retry import Retry
from constructs_lib.saga.validation.budget import Finding, Need, Severity, findings_of, happy_path, worst_case
from saga_runtime.protocol import MAX_OUTPUTS_BYTES, MAX_STATE_PAYLOAD
from tests.unit.support.drawn_sagas import provider_of

RETRY = Retry(
    transient_attempts=2,
    transient_interval=1,
    transient_cap=30,
    in_doubt_attempts=3,
    in_doubt_interval=10,
    in_doubt_cap=30,
)
# Six attempts of a function of 5 s, each with 10 s for the task; delays of 1 + 2 s, and of 10 + 20 + 30 s.
TRIED = Need(seconds=6 * 15 + 3 + 60, events=5 + 5 * 3)
# Without compensations, twenty retries in each class, up to 300 s apart: 1 + 2 + … + 256 s and eleven times 300 s;
# 10 + 20 + … + 160 s and fifteen times 300 s.
LONG = Need(seconds=41 * 15 + (511 + 11 * 300) + (310 + 15 * 300), events=5 + 40 * 3)
ENDING = Need(seconds=600, events=60)
# Between 21 runs of a group: 10 + 20 + 40 + 80 + 160 s and fifteen times 300 s.
WAITS = 310 + 15 * 300


def step(
    name: str, *, side: str = "before", undo: bool = False, kind: str = "atomic", **options: Any
) -> StepDescription:
    """A step with a function of five seconds."""
    declared: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "side": side,
        "function": FunctionDescription(timeout=5),
        "compensation": FunctionDescription(timeout=5) if undo else None,
        "compensated": undo,
        "retry": RETRY,
    }
    return StepDescription(**declared | options)


def group(
    kind: str, name: str, *branches: list[StepDescription], side: str = "before", **options: Any
) -> StepDescription:
    """A group of steps."""
    return StepDescription(
        name=name, kind=kind, side=side, branches=tuple(tuple(branch) for branch in branches), **options
    )


def saga(*steps: StepDescription, timeout: int = 86_400, **options: Any) -> SagaDescription:
    """A saga of these steps."""
    return SagaDescription(name="Saga", steps=steps, timeout=timeout, fingerprint="f", **options)


PIVOT = step("Pay", side="pivot")


def test_one_step_uses_all_its_retries() -> None:
    assert worst_case(saga(PIVOT)) == TRIED + ENDING
    assert (TRIED.seconds, TRIED.events) == (153, 20)


def test_a_step_after_the_pivot_is_retried_for_long() -> None:
    assert worst_case(saga(PIVOT, step("Book", side="after"))) == TRIED + LONG + ENDING
    assert (LONG.seconds, LONG.events) == (9236, 125)


def test_compensating_includes_all_steps_and_their_compensations() -> None:
    back = saga(step("One", undo=True), step("Two", undo=True), PIVOT)
    assert worst_case(back) == TRIED.times(3) + LONG.times(2) + ENDING


def test_the_longer_path_counts() -> None:
    both = saga(step("One", undo=True), PIVOT, step("Two", side="after"), step("Three", side="after"))
    assert worst_case(both).seconds == (TRIED.times(2) + LONG.times(2) + ENDING).seconds


def test_a_retry_of_your_own_that_is_longer_counts() -> None:
    often = dataclasses.replace(RETRY, in_doubt_attempts=30, in_doubt_interval=600, in_doubt_rate=1.0, in_doubt_cap=600)
    long = worst_case(saga(PIVOT, step("Book", side="after", retry=often))).seconds
    assert long == 153 + 51 * 15 + (511 + 11 * 300) + 30 * 600 + 600


def test_branches_take_as_long_as_the_slowest_and_have_the_events_of_all() -> None:
    made = saga(group("parallel", "Both", [step("A"), step("B")], [step("C")]))
    assert worst_case(made) == Need(seconds=2 * 153 + 600, events=3 * 20 + 6 + 60)


def test_items_run_a_few_at_once() -> None:
    made = saga(group("map", "Ship", [step("Pack"), step("Label")], max_items=25, max_concurrency=10), PIVOT)
    items = Need(seconds=3 * 2 * 153, events=25 * (2 * 20 + 2) + 6)
    assert worst_case(made) == items + TRIED + ENDING


def test_items_are_compensated_a_few_at_once() -> None:
    made = saga(group("map", "Ship", [step("Pack", undo=True)], max_items=3, max_concurrency=2), PIVOT)
    forward = Need(seconds=2 * 153, events=3 * 22 + 6)
    assert worst_case(made) == forward + LONG.times(3, at_once=2) + TRIED + ENDING


@pytest.mark.parametrize("kind", ["express", "child"])
def test_a_phase_takes_its_timeout_at_most_and_keeps_its_history_to_itself(kind: str) -> None:
    made = saga(group(kind, "Quick", [step("A"), step("B"), step("C")], timeout=300), PIVOT)
    assert worst_case(made) == Need(seconds=310, events=5 + 6) + TRIED + ENDING


def test_a_short_phase_takes_the_time_of_its_steps() -> None:
    assert worst_case(saga(group("express", "Quick", [step("A")], timeout=300), PIVOT)).seconds == 153 + 153 + 600


def test_a_group_after_the_pivot_is_run_again_and_again() -> None:
    made = saga(PIVOT, group("express", "Quick", [step("A"), step("B"), step("C")], side="after", timeout=300))
    assert worst_case(made) == Need(seconds=21 * 310 + WAITS, events=21 * 11) + TRIED + ENDING


def test_the_state_machines_own_calls_have_their_own_timeout() -> None:
    look = step("Look", kind="service", function=None, timeout=20)
    assert worst_case(saga(look, PIVOT)).seconds == 6 * 30 + 63 + 153 + 600
    writes = step("Mark", kind="dynamodb", function=None)
    assert worst_case(saga(writes, PIVOT)).seconds == 6 * 40 + 63 + 153 + 600


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_state_that_waits_takes_its_time_once(side: str) -> None:
    waits = step("Pause", side=side, kind="custom", function=None, timeout=1_209_600, retried=False)
    assert worst_case(saga(waits, PIVOT)) == Need(seconds=1_209_600, events=2) + worst_case(saga(PIVOT))


def test_writes_of_the_state_machine_are_compensated_after_fence_and_read() -> None:
    made = saga(step("Mark", kind="dynamodb", function=None, compensation=None, compensated=True), PIVOT)
    undo = Need(seconds=41 * 40 + (511 + 11 * 300) + (310 + 15 * 300), events=125) + Need(seconds=80, events=14)
    forward = Need(seconds=6 * 40 + 63, events=20)
    assert worst_case(made) == forward + undo + TRIED + ENDING


def test_the_happy_path_tries_everything_once() -> None:
    made = saga(
        step("One"),
        group("map", "Ship", [step("Pack")], max_items=40, max_concurrency=10),
        group("parallel", "Both", [step("A")], [step("B")]),
        group("express", "Quick", [step("C")], timeout=300),
        step("Pause", kind="custom", function=None, timeout=60),
    )
    seconds = 5 + 4 * 5 + 5 + 5 + 60 + 30
    events = 5 + (40 * 7 + 4) + (2 * 5 + 4) + 7 + 2 + 5
    assert happy_path(made) == Need(seconds=seconds, events=events)


# ---- findings: a saga that has it, and one just inside --------------------------------------------------------------


def _found(made: SagaDescription) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings_of(made)}


def test_a_saga_that_fits_is_nothing_to_speak_of() -> None:
    assert _found(saga(step("One", undo=True), PIVOT, step("Book", side="after"), remembered=604_800)) == {}


def test_a_timeout_below_the_worst_case_is_a_warning() -> None:
    worst = 153 + 600
    assert "cdk-sagas-timeout" not in _found(saga(PIVOT, timeout=worst))
    finding = _found(saga(PIVOT, timeout=worst - 1))["cdk-sagas-timeout"]
    assert finding.severity is Severity.WARNING
    assert "may take 753 s" in finding.message
    assert "a timeout of 752 s" in finding.message


def test_a_step_that_outlasts_the_saga_is_an_error() -> None:
    slow = dataclasses.replace(PIVOT, function=FunctionDescription(timeout=90))
    assert "cdk-sagas-step-outlasts-saga" not in _found(saga(slow, timeout=90))
    finding = _found(saga(slow, timeout=89))["cdk-sagas-step-outlasts-saga"]
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "step Pay may take 90 s, the whole saga 89 s; raise the saga's timeout, or lower the step's"
    )


def _items(number: int, *steps: StepDescription) -> StepDescription:
    return group("map", "Ship", list(steps), max_items=number, max_concurrency=40)


def test_a_history_that_overflows_when_nothing_fails_is_an_error() -> None:
    # 24 steps of 5 events and 2 per item: 204 items have 24,888; with 4 for the map, 5 for the pivot, 5 to settle.
    steps = [step(f"S{n}") for n in range(24)]
    assert happy_path(saga(_items(204, *steps), PIVOT)).events == 204 * 122 + 4 + 5 + 5 == 24_902
    assert "cdk-sagas-history-error" not in _found(saga(_items(204, *steps), PIVOT))
    finding = _found(saga(_items(205, *steps), PIVOT))["cdk-sagas-history-error"]
    assert finding.severity is Severity.ERROR
    assert "25024 events when nothing fails" in finding.message
    assert "Ship has most of them: lower max_items, or put steps into Step.child" in finding.message


def test_a_history_that_overflows_at_worst_is_a_warning() -> None:
    # Ten steps of 20 events and 2 per item; 6 for the map, 20 for the pivot, 60 for the end.
    steps = [step(f"S{n}") for n in range(10)]
    assert worst_case(saga(_items(123, *steps), PIVOT)).events == 123 * 202 + 86 == 24_932
    assert "cdk-sagas-history-warning" not in _found(saga(_items(123, *steps), PIVOT))
    found = _found(saga(_items(124, *steps), PIVOT))
    assert found["cdk-sagas-history-warning"].severity is Severity.WARNING
    assert "cdk-sagas-history-error" not in found


def test_a_step_key_of_an_item_that_no_queue_takes_is_an_error() -> None:
    def tell(length: int) -> SagaDescription:
        return saga(PIVOT, _items(3, step("T" * length, kind="notify")))

    assert "cdk-sagas-key-length" not in _found(tell(21))
    finding = _found(tell(22))["cdk-sagas-key-length"]
    assert finding.severity is Severity.ERROR
    assert "has 22 characters" in finding.message
    assert "use a name of at most 21" in finding.message
    assert len("a" * 40 + "#" + "T" * 21 + "[" + "k" * 64 + "]") == 128


def test_a_child_must_be_shorter_than_its_saga() -> None:
    def child(seconds: int) -> SagaDescription:
        return saga(PIVOT, group("child", "Slow", [step("A")], timeout=seconds, side="after"), timeout=3_600)

    assert "cdk-sagas-phase-timeout" not in _found(child(3_599))
    finding = _found(child(3_600))["cdk-sagas-phase-timeout"]
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("phase Slow may take 3600 s, the whole saga 3600 s; ")


@pytest.mark.parametrize("kind", ["express", "child"])
def test_a_phase_with_steps_that_may_outlast_it_is_a_warning(kind: str) -> None:
    def phase(seconds: int) -> SagaDescription:
        return saga(group(kind, "Quick", [step("A")], timeout=seconds), PIVOT)

    assert "cdk-sagas-phase-Quick" not in _found(phase(153))
    finding = _found(phase(152))["cdk-sagas-phase-Quick"]
    assert finding.severity is Severity.WARNING
    assert "may take 153 s" in finding.message


def test_a_step_retried_for_longer_than_its_providers_key_is_a_warning() -> None:
    def charge(window: int, *, verify: bool = False) -> SagaDescription:
        return saga(step("Charge", kind="external", side="pivot", provider=provider_of(window=window, verify=verify)))

    assert "cdk-sagas-idempotency-window-Charge" not in _found(charge(153))
    assert "cdk-sagas-idempotency-window-Charge" not in _found(charge(152, verify=True))
    assert "cdk-sagas-idempotency-window-Charge" not in _found(charge(0, verify=True))
    finding = _found(charge(152))["cdk-sagas-idempotency-window-Charge"]
    assert finding.severity is Severity.WARNING
    assert "may be tried for 153 s, and its provider knows a key for 152 s" in finding.message


def test_after_the_pivot_a_providers_key_must_last_longer() -> None:
    charge = step("Charge", kind="external", side="after", provider=provider_of(window=9_235))
    longer = dataclasses.replace(charge, provider=provider_of(window=9_236))
    assert "cdk-sagas-idempotency-window-Charge" in _found(saga(PIVOT, charge))
    assert "cdk-sagas-idempotency-window-Charge" not in _found(saga(PIVOT, longer))


def test_constants_that_no_state_can_have_are_an_error() -> None:
    def look(size: int) -> SagaDescription:
        return saga(step("Look", kind="service", constant=size), PIVOT)

    assert _found(look(MAX_STATE_PAYLOAD)) == {}
    finding = _found(look(MAX_STATE_PAYLOAD + 1))["cdk-sagas-payload-Look"]
    assert finding.severity is Severity.ERROR
    assert "step Look sends 262145 bytes" in finding.message


def test_substitutes_that_no_saga_can_have_together_are_a_warning() -> None:
    half = step("One", undo=True, instead=MAX_OUTPUTS_BYTES // 2)
    other = step("Two", undo=True, instead=MAX_OUTPUTS_BYTES // 2)
    assert _found(saga(half, other, PIVOT)) == {}
    larger = dataclasses.replace(other, instead=MAX_OUTPUTS_BYTES // 2 + 1)
    finding = _found(saga(half, larger, PIVOT))["cdk-sagas-outputs"]
    assert finding.severity is Severity.WARNING
    assert "Two has most of them" in finding.message


def test_the_substitute_of_a_map_is_counted_for_each_item() -> None:
    inner = step("One", undo=True, instead=MAX_OUTPUTS_BYTES // 40)
    assert "cdk-sagas-outputs" not in _found(saga(group("map", "Ship", [inner], max_items=40), PIVOT))
    assert "cdk-sagas-outputs" in _found(saga(group("map", "Ship", [inner], max_items=41), PIVOT))


@pytest.mark.parametrize(("items", "steps", "room"), [(1_000, 1, 98), (245, 2, 200), (246, 2, 199), (40, 3, 819)])
def test_a_map_with_no_room_for_outputs_is_a_warning(items: int, steps: int, room: int) -> None:
    inner = [step(f"S{number}", undo=True) for number in range(steps)]
    found = _found(saga(group("map", "Ship", inner, max_items=items), PIVOT))
    if room >= 200:
        assert "cdk-sagas-share-Ship" not in found
    else:
        finding = found["cdk-sagas-share-Ship"]
        assert (finding.severity, f"may answer {room} bytes" in finding.message) == (Severity.WARNING, True)
