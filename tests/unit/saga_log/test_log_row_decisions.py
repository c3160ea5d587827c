"""Decisions about a saga log row, and errors that the runtime and the state machine share."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from saga_runtime import errors
from saga_runtime.errors import PermanentError, SagaError
from saga_runtime.ledger import errors as ledger_errors
from saga_runtime.protocol import (
    NOTHING_STANDS,
    PERMANENT_ERRORS,
    SETTLED,
    TRANSIENT_ERRORS,
    ErrorName,
    RecordStatus,
    StepStatus,
)
from saga_runtime.saga_log.rows import LogRow, StepEntry, UndoEntry, entry_of, undo_entry_of
from tests.unit.support.samples import SAGA_ID


def row(status: StepStatus) -> LogRow:
    """A row in this state."""
    return LogRow(saga_id=SAGA_ID, step="Transfer", status=status, output=None, updated_at=1)


@pytest.mark.parametrize(
    ("found", "step", "undo"),
    [
        (None, StepEntry.RUN, UndoEntry.BURY),
        (row(StepStatus.DONE), StepEntry.REPLAY, UndoEntry.UNDO),
        (row(StepStatus.TOMBSTONE), StepEntry.FENCED, UndoEntry.NOTHING),
        (row(StepStatus.COMPENSATED), StepEntry.FENCED, UndoEntry.NOTHING),
        (row(StepStatus.REFUSED), StepEntry.FENCED, UndoEntry.NOTHING),
    ],
)
def test_the_row_decides_for_the_step_and_for_its_compensation(
    found: LogRow | None, step: StepEntry, undo: UndoEntry
) -> None:
    assert (entry_of(found), undo_entry_of(found)) == (step, undo)


def test_a_skipped_step_returns_the_output_of_its_tombstone() -> None:
    passed_over = dataclasses.replace(row(StepStatus.TOMBSTONE), output="{}")

    assert (entry_of(passed_over), undo_entry_of(passed_over)) == (StepEntry.REPLAY, UndoEntry.NOTHING)


@pytest.mark.parametrize("status", StepStatus)
def test_a_status_without_an_effect_needs_no_compensation(status: StepStatus) -> None:
    assert (status in NOTHING_STANDS) == (undo_entry_of(row(status)) is UndoEntry.NOTHING)


@pytest.mark.parametrize("missing", ["saga_id", "step", "status", "updated_at"])
def test_an_invalid_row_is_refused(missing: str) -> None:
    item = {"saga_id": {"S": SAGA_ID}, "step": {"S": "T"}, "status": {"S": "DONE"}, "updated_at": {"N": "1"}}

    with pytest.raises(ValueError, match=missing):
        LogRow.from_item({name: value for name, value in item.items() if name != missing})


def test_a_record_is_settled_exactly_when_it_is_not_in_progress() -> None:
    assert set(RecordStatus) - set(SETTLED) == {RecordStatus.IN_PROGRESS}


CLASSES: dict[str, type[SagaError]] = {
    name: found
    for module in (errors, ledger_errors)
    for name, found in vars(module).items()
    if inspect.isclass(found) and issubclass(found, SagaError)
}


@pytest.mark.parametrize("name", ErrorName)
def test_every_name_that_a_state_machine_matches_is_a_class_of_that_name(name: ErrorName) -> None:
    assert CLASSES[name].__name__ == name


@pytest.mark.parametrize("name", CLASSES)
def test_a_refusal_is_permanent_and_nothing_else_is(name: str) -> None:
    permanent = issubclass(CLASSES[name], PermanentError)
    # Declared by the steps that wait, and by no other.
    everywhere = permanent and name not in {ErrorName.CALLBACK_TIMED_OUT, "Rejected"}

    assert (name in PERMANENT_ERRORS) == everywhere
    assert not (name in TRANSIENT_ERRORS and not CLASSES[name].retryable)
    assert not (permanent and CLASSES[name].retryable)


def test_an_error_needs_a_message() -> None:
    with pytest.raises(ValueError, match="needs a message"):
        PermanentError(" ")
