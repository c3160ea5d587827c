"""The audit of a provider's books passes what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any, Final

import pytest

from constructs_lib.testing import ProviderEffect, audit_provider
from saga_runtime.idempotency.identity import provider_key_of, saga_id_of, step_key_of
from saga_runtime.protocol import LogAttribute, StepStatus

REQUEST: Final = "a" * 26
SAGA: Final = saga_id_of(REQUEST, 1, "requests")
LATER: Final = saga_id_of(REQUEST, 2, "requests")

Rows = list[dict[str, Any]]
Effects = list[ProviderEffect]


def _row(status: StepStatus, step: str = "Charge", saga_id: str = SAGA) -> dict[str, Any]:
    a = LogAttribute
    return {a.SAGA_ID: {"S": saga_id}, a.STEP: {"S": step}, a.STATUS: {"S": status}}


def _effect(step: str = "Charge", *, undo: bool = False, amount: int = 500, saga_id: str = SAGA) -> ProviderEffect:
    name, _, item = step.removesuffix("]").partition("[")
    key = provider_key_of(step_key_of(saga_id, name, item_key=item or None, undo=undo))
    return ProviderEffect(key=key, amount=amount)


def _broken(rows: Rows, effects: Effects) -> dict[str, tuple[str, ...]]:
    audits = audit_provider(rows, effects, steps=["Charge"])
    return {audit.name: audit.violations for audit in audits if not audit.holds}


@pytest.mark.parametrize(
    ("status", "effects"),
    [
        (StepStatus.DONE, [_effect()]),
        (StepStatus.COMPENSATED, [_effect(), _effect(undo=True)]),
        (StepStatus.REFUSED, []),
        (StepStatus.TOMBSTONE, []),
    ],
)
def test_books_that_agree_with_the_log_are_right(status: StepStatus, effects: Effects) -> None:
    assert _broken([_row(status)], effects) == {}


def test_an_item_of_a_map_has_a_key_of_its_own() -> None:
    rows = [_row(StepStatus.DONE, "Charge[a]"), _row(StepStatus.DONE, "Charge[b]")]

    assert _broken(rows, [_effect("Charge[a]"), _effect("Charge[b]")]) == {}


def test_rows_of_other_steps_are_irrelevant_for_this_provider() -> None:
    assert _broken([_row(StepStatus.DONE, "Reserve"), _row(StepStatus.DONE, "Charges")], []) == {}


@pytest.mark.parametrize(
    ("rows", "effects", "broken"),
    [
        ([_row(StepStatus.DONE)], [], {"log and provider agree"}),
        ([_row(StepStatus.COMPENSATED)], [_effect()], {"log and provider agree", "what was undone is what was done"}),
        ([_row(StepStatus.TOMBSTONE)], [_effect()], {"log and provider agree"}),
        ([_row(StepStatus.REFUSED)], [_effect()], {"log and provider agree"}),
        ([_row(StepStatus.DONE)], [_effect(), _effect(undo=True)], {"log and provider agree"}),
        ([], [_effect()], {"log and provider agree"}),
        ([_row(StepStatus.DONE)], [_effect(), _effect()], {"the provider acted once per key"}),
        ([_row(StepStatus.INTENT)], [], {"no step at the provider is in doubt"}),
        ([_row(StepStatus.COMPENSATING)], [_effect()], {"no step at the provider is in doubt"}),
        ([_row(StepStatus.APPLIED_LATE)], [_effect()], {"late effects are compensated"}),
        (
            [_row(StepStatus.APPLIED_LATE)],
            [_effect(), _effect(undo=True)],
            {"late effects are compensated", "log and provider agree"},
        ),
        (
            [_row(StepStatus.COMPENSATED)],
            [_effect(), _effect(undo=True, amount=499)],
            {"what was undone is what was done"},
        ),
        (
            [_row(StepStatus.DONE), _row(StepStatus.DONE, saga_id=LATER)],
            [_effect(), _effect(saga_id=LATER)],
            {"one saga per request reached the provider"},
        ),
    ],
    ids=[
        "an effect is missing", "an undo is missing", "an effect of a fenced step", "an effect of a refused step",
        "an undo of an applied step", "an effect without a row", "the same key twice", "a step in doubt",
        "an undo in doubt", "an effect that came late", "an undo of a late one",
        "less given back than taken", "two sagas of one request",
    ],
)  # fmt: skip
def test_books_that_disagree_with_the_log_are_reported(rows: Rows, effects: Effects, broken: set[str]) -> None:
    assert set(_broken(rows, effects)) == broken


def test_a_violation_names_the_saga_and_the_step() -> None:
    (violation,) = _broken([_row(StepStatus.TOMBSTONE)], [_effect()])["log and provider agree"]

    assert "Charge" in violation
    assert SAGA in violation
    assert "TOMBSTONE" in violation


def test_an_audit_reports_the_number_of_its_checks() -> None:
    def checked(rows: Rows, effects: Effects) -> list[int]:
        return [audit.checked for audit in audit_provider(rows, effects, steps=["Charge"])]

    assert checked([], []) == [0, 0, 0, 0, 0, 0]
    assert checked([_row(StepStatus.COMPENSATED)], [_effect(), _effect(undo=True)]) == [1, 2, 2, 1, 1, 1]
