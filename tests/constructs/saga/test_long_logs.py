"""A log of more than a page: every reader reads all of it."""

from __future__ import annotations

from typing import Any

import pytest

from constructs_lib.saga.asl import SagaPlan, definition_of, recovery_of
from tests.constructs.support.answers import answers, called, operators_are_told, record, refusal
from tests.constructs.support.groups import FORWARD_MACHINE, of_items, plan
from tests.constructs.support.interpreter import run
from tests.constructs.support.jsonata import EXECUTION
from tests.constructs.support.plans import job, step
from tests.constructs.support.simulation import Simulation

NEXT = {"saga_id": {"S": EXECUTION}, "step": {"S": "Debit"}}
PLAIN = plan(step("Debit", undo=True), step("Credit", pivot=True))
JOBS = plan(step("Reserve", undo=True), job("Pay", undo=True), step("Commit", pivot=True))
EMPTY: dict[str, Any] = {"Count": 0, "Items": []}
MORE = {**EMPTY, "LastEvaluatedKey": NEXT}
LATE = {"Count": 1, "Items": [{"status": {"S": "APPLIED_LATE"}}]}
STANDS = {"Count": 1, "Items": [{"status": {"S": "DONE"}}]}


def _asked(saga: SagaPlan, first: Any, *further: Any) -> Any:
    pages = {"Query saga log": first, "Query saga log - more": list(further)}
    return run(definition_of(saga), answers({saga.steps[0].name: refusal(), **pages}))


@pytest.mark.parametrize("saga", [PLAIN, JOBS], ids=["plain", "jobs"])
def test_a_log_of_three_pages_without_an_effect_is_settled(saga: SagaPlan) -> None:
    done = _asked(saga, MORE, MORE, EMPTY)

    assert done.trace[-1] == "Settle failed"
    further = called(done, "Query saga log - more")
    assert [page["ExclusiveStartKey"] for page in further] == [NEXT, NEXT]
    assert further[0]["FilterExpression"] == done.sent["Query saga log"]["FilterExpression"]


@pytest.mark.parametrize("saga", [PLAIN, JOBS], ids=["plain", "jobs"])
@pytest.mark.parametrize("page", [0, 1, 2])
def test_an_applied_effect_is_found_on_any_page(saga: SagaPlan, page: int) -> None:
    pages = [MORE, MORE, EMPTY]
    pages[page] = {**pages[page], **STANDS}
    done = _asked(saga, *pages)

    assert operators_told_of(done) == "EffectsNotCompensated"


def operators_told_of(done: Any) -> str:
    error: str = done.variables["parked_reason"]["error"]
    assert done.trace[-2:] == ["Park saga", "End parked"]
    return error


def test_a_late_effect_is_compensated_only_when_the_whole_log_was_read() -> None:
    pages = {"Query saga log": [{**LATE, "LastEvaluatedKey": NEXT}, EMPTY], "Query saga log - more": EMPTY}
    done = run(definition_of(JOBS), answers({"Reserve": refusal(), **pages}))

    asked = done.trace.index("Query saga log")
    assert done.trace[asked : asked + 5] == [
        "Query saga log", "All compensated?", "Query saga log - more", "All compensated?", "Compensate Pay",
    ]  # fmt: skip
    assert done.trace[-1] == "Settle failed"


def test_after_a_late_effect_another_effect_may_remain() -> None:
    done = _asked(JOBS, {**LATE, "LastEvaluatedKey": NEXT}, STANDS)

    assert operators_told_of(done) == "EffectsNotCompensated"


def _rows(*names: str, **more: Any) -> dict[str, Any]:
    rows = [{"step": {"S": name}, "side": {"S": "before"}, "status": {"S": "DONE"}} for name in names]
    return {"Items": rows, **more}


@pytest.mark.parametrize(("further", "fits"), [("Debit", True), ("Gone", False)])
def test_rows_of_another_definition_are_compared_on_every_page(further: str, fits: bool) -> None:
    found = record(definition="old", direction="compensate")
    pages = {"Query log rows": _rows("Debit", LastEvaluatedKey=NEXT), "Query log rows - more": _rows(further)}
    saga = plan(*PLAIN.steps)
    done = run(recovery_of(saga, FORWARD_MACHINE), answers({"Read direction": found, **pages}))

    assert done.sent["Query log rows - more"]["ExclusiveStartKey"] == NEXT
    if fits:
        assert done.trace[-1] == "Settle failed"
    else:
        assert operators_are_told(done)["parked_reason"]["error"] == "IncompatibleDefinition"


def test_a_row_that_does_not_fit_ends_the_reading() -> None:
    found = record(definition="old", direction="compensate")
    pages = {"Query log rows": _rows("Gone", LastEvaluatedKey=NEXT)}
    done = run(recovery_of(plan(*PLAIN.steps), FORWARD_MACHINE), answers({"Read direction": found, **pages}))

    assert "Query log rows - more" not in done.trace
    assert operators_are_told(done)["parked_reason"]["error"] == "IncompatibleDefinition"


@pytest.mark.exhaustive
def test_a_saga_of_a_thousand_items_is_compensated_and_settled() -> None:
    saga = plan(of_items("All", step("Pack", undo=True), max_items=1_000), step("End", pivot=True), fingerprint="new")
    request = {"items": [{"sku": f"item-{number}"} for number in range(1_000)]}
    done = Simulation(plan=saga, request=request, refused=frozenset({"End"}), page=300).run()

    assert done.settled == "FAILED"
    assert not +done.effects
