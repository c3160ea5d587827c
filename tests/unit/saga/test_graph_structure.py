"""Groups of a drawing: conditions, and routes that exclude each other."""

from __future__ import annotations

from constructs_lib.saga.graph.structure import Guarded, Routes, goes_back, last_pivot, parts_of
from tests.unit.support.drawn_sagas import ORDER, TO_PARTNER, TRANSFER, step


def test_a_condition_and_its_negation_are_two_routes() -> None:
    routes, receipt = parts_of(TRANSFER.steps)

    assert isinstance(routes, Routes)
    assert routes.when == TO_PARTNER
    assert [one.name for one in routes.yes] == ["Debit", "Credit"]
    assert [one.name for one in routes.no] == ["Transfer"]
    assert receipt == TRANSFER.steps[-1]


def test_one_condition_over_the_request_is_evaluated_once() -> None:
    parts = parts_of([step("A", when="$request.x"), step("B", when="$request.x"), step("C", when="$request.y")])

    assert [(part.when, len(part.steps)) for part in parts if isinstance(part, Guarded)] == [
        ("$request.x", 2),
        ("$request.y", 1),
    ]


def test_a_condition_over_outputs_is_evaluated_before_each_step() -> None:
    parts = parts_of([step("A", when="$outputs.Q.x"), step("B", when="$outputs.Q.x")])

    assert len(parts) == 2


def test_a_condition_that_a_step_on_the_way_can_change_makes_no_routes() -> None:
    parts = parts_of([step("A", when="$outputs.A.x"), step("B", when="$not($outputs.A.x)")])

    assert not any(isinstance(part, Routes) for part in parts)


def test_a_condition_over_all_outputs_makes_no_routes() -> None:
    parts = parts_of([step("A", when="$count($outputs) > 1"), step("B", when="$not($count($outputs) > 1)")])

    assert not any(isinstance(part, Routes) for part in parts)


def test_a_condition_over_the_output_of_an_earlier_step_makes_routes() -> None:
    parts = parts_of([step("A", when="$outputs.Q.x"), step("B", when="$not($outputs.Q.x)")])

    assert isinstance(parts[0], Routes)


def test_only_a_negation_of_the_whole_condition_is_one() -> None:
    parts = parts_of([step("A", when="a) and (b"), step("B", when="$not(a) and (b)")])

    assert not any(isinstance(part, Routes) for part in parts)


def test_the_last_pivot_is_the_one_that_ends_compensation() -> None:
    pivot = last_pivot(TRANSFER)

    assert pivot is not None
    assert pivot.name == "Credit"


def test_compensations_begin_with_the_last_step_and_omit_steps_without_one() -> None:
    behind = [*ORDER.steps, step("Late", side="after", compensated=True)]

    assert [one.name for one in goes_back(ORDER)] == ["Label", "Pick", "Charge", "Reserve"]
    assert "Late" not in [
        one.name for one in goes_back(type(ORDER)(name="x", steps=tuple(behind), timeout=1, fingerprint=""))
    ]
