"""A rule of retention with one of its parts taken away, or off by one: a test of the rule notices."""

from __future__ import annotations

import pytest

from constructs_lib.saga.validation import retention
from saga_runtime.recovery import decisions as reconciliation
from tests.constructs.tables import test_retention as r
from tests.unit.support.mutation import Mutant, Scenario, mutate


def _without(name: str, target: str, old: str, new: str, kills: Scenario) -> Mutant:
    return Mutant(name=name, owner=retention, target=target, old=old, new=new, kills=kills)


_REDRIVE, _MESSAGE = (
    r.test_rows_must_outlast_an_execution_that_is_redriven_on_the_last_day_and_runs_to_its_timeout,
    r.test_rows_must_outlast_the_last_message_of_a_job,
)
_LATE = r.test_rows_must_outlast_the_record_by_which_a_late_answer_is_undone
_BY_HAND = r.test_without_a_reconciler_rows_must_outlast_what_a_person_may_still_recover
_NEVER = r.test_an_undo_that_its_provider_forgets_before_it_could_be_repeated_is_an_error
_TRYING = r.test_an_undo_that_is_tried_for_longer_than_its_provider_remembers_is_a_warning
_UNDO_LATER = r.test_a_provider_must_know_the_key_of_an_undo_until_a_recovery_repeats_it
_BRANCHES = r.test_a_step_in_doubt_is_asked_about_when_its_branches_have_ended


def _window() -> None:
    r.test_a_provider_must_know_a_key_until_a_recovery_asks(retention.DAY, r.HOUR, retention.DAY + r.HOUR)
    r.test_a_provider_must_know_a_key_until_a_recovery_asks(60, 60, r.LOOK + 60)


def _half() -> None:
    r.test_half_of_the_rows_time_is_for_what_comes_after_the_end(400, 200)


_KEPT = "kept_after_the_end(saga.log_days) < need"
MUTANTS = [
    _without("a redrive on the last day counts as too late", "_redrives", _KEPT, _KEPT.replace("<", "<="), _REDRIVE),
    _without("nobody redrives", "_last_run", "REDRIVE_DAYS * DAY + ", "", _REDRIVE),
    _without("a redriven execution ends at once", "_last_run", " + saga.timeout", "", _REDRIVE),
    _without("a recovery outlives nothing", "_last_run", " + outlived_with_phases(saga)", "", _REDRIVE),
    _without("the last message counts as too late", "_messages", _KEPT, _KEPT.replace("<", "<="), _MESSAGE),
    _without("a message is delivered at once", "_messages", " + step.messages", "", _MESSAGE),
    _without("a redriven execution sends no message", "_messages", "_last_run(saga) + ", "", _MESSAGE),
    _without("every step is a job", "retention_findings", "if step.messages:", "if True:", _LATE),
    _without("the last late answer counts as too late", "_late_answers", _KEPT, _KEPT.replace("<", "<="), _LATE),
    _without("what is late is undone at once", "_late_answers", " + LATE_DAYS * DAY", "", _LATE),
    _without("the remedy is a day short", "_keep", "ceil(need / DAY)", "int(need / DAY)", _REDRIVE),
    _without(
        "a saga of exactly 89 days is too long",
        "_names",
        "saga.timeout > young",
        "saga.timeout >= young",
        r.test_names_of_executions_can_be_trusted_for_89_days,
    ),
    _without(
        "names are trusted to their last day",
        "_names",
        "EXECUTION_NAME_DAYS - 1",
        "EXECUTION_NAME_DAYS",
        r.test_names_of_executions_can_be_trusted_for_89_days,
    ),
    _without(
        "a client that asks to the very end is late",
        "_clients",
        "saga.remembered < worst",
        "saga.remembered <= worst",
        r.test_a_key_that_is_remembered_for_less_than_the_worst_case_is_a_warning,
    ),
    _without("the key is needed past the second call", "_undo_windows", "< never", "<= never", _NEVER),
    _without("clocks agree", "_undo_windows", "step.grace - step.margin", "step.grace - 3 * step.margin", _NEVER),
    _without("nobody can be asked about an undo", "_undo_windows", " or step.verify_undo", "", _NEVER),
    _without("the key is needed past the last try", "_undo_windows", "< trying", "<= trying", _TRYING),
    _without(
        "a recovery repeats an undo at once", "_undo_windows_of_recoveries", "< alone + pause", "< alone", _UNDO_LATER
    ),
    _without(
        "what is found already is found again",
        "_undo_windows_of_recoveries",
        "alone <= step.undo_window",
        "step.undo_window",
        _UNDO_LATER,
    ),
    _without(
        "a recovery cannot ask about an undo", "_undo_windows_of_recoveries", " or step.verify_undo", "", _UNDO_LATER
    ),
    _without("nobody recovers by hand", "_recoveries_by_hand", "HISTORY_DAYS * DAY + ", "", _BY_HAND),
    _without("what is recovered by hand ends at once", "_recoveries_by_hand", "2 * saga", "1 * saga", _BY_HAND),
    _without("one that waits does not", "_recoveries_by_hand", " + outlived_with_phases(saga)", "", _BY_HAND),
    _without("the last recovery by hand is late", "_recoveries_by_hand", "* DAY < need", "* DAY <= need", _BY_HAND),
    _without("a reconciler keeps nothing", "recovery_findings", "looked_at_every is None", "True", _BY_HAND),
    _without("a record is due at once", "recovery_findings", "max(saga.due_after, ", "max(0, ", _window),
    _without("looks follow each other at once", "recovery_findings", " + looked_at_every", "", _window),
    _without("branches end at once", "_windows", "max(alone, tried(node))", "alone", _BRANCHES),
    _without("the key is needed past the question", "_windows", "< asked", "<= asked", _window),
    _without("what is found already is found twice", "_windows", "alone <= step.window", "step.window", _window),
    _without("a recovery cannot ask", "_windows", " or step.verify", "", _window),
    Mutant(
        name="rows of open sagas are kept shortly before their end",
        owner=reconciliation,
        target="keeps_ahead_days",
        old="max(1, log_days // 2)",
        new="min(30, max(1, log_days // 4))",
        kills=_half,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_without_it_a_rule_no_longer_holds(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.kills()
    mutate(monkeypatch, mutant)
    for user in (retention, r):
        monkeypatch.setattr(user, mutant.target, getattr(mutant.owner, mutant.target), raising=False)

    with pytest.raises((AssertionError, KeyError, ValueError)):
        mutant.kills()
