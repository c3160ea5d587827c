"""All suites, and their conditions as lines of text: ``python -m tests.specification`` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.specification import (
    test_adopted_saga,
    test_atomic_step,
    test_begun_saga,
    test_callback_step,
    test_cancelled_saga,
    test_changed_definition,
    test_check_and_set,
    test_collecting,
    test_conflicting_outcome,
    test_direct_operation,
    test_event_intake,
    test_external_step,
    test_forgotten_outcome,
    test_hold,
    test_inline_branches,
    test_inline_saga,
    test_late_undo,
    test_late_undo_entry,
    test_migration,
    test_migration_layout,
    test_once_in_a_period,
    test_operators_entry,
    test_outbox,
    test_proposed_decision,
    test_proposed_list,
    test_request_record,
    test_resolved_step,
    test_transitions,
    test_whole_saga,
)
from tests.specification.suite import Suite

# The classes stay in their modules: imported by name, a test file would run their tests once more.
SUITES: Final = {
    "test_request_record.py": test_request_record.TestRequestRecord.suite,
    "test_direct_operation.py": test_direct_operation.TestDirectOperation.suite,
    "test_event_intake.py": test_event_intake.TestEventIntake.suite,
    "test_begun_saga.py": test_begun_saga.TestBegunSaga.suite,
    "test_outbox.py": test_outbox.TestOutbox.suite,
    "test_atomic_step.py": test_atomic_step.TestAtomicStep.suite,
    "test_hold.py": test_hold.TestHold.suite,
    "test_collecting.py": test_collecting.TestCollecting.suite,
    "test_external_step.py": test_external_step.TestExternalStep.suite,
    "test_resolved_step.py": test_resolved_step.TestResolvedStep.suite,
    "test_proposed_decision.py": test_proposed_decision.TestProposedDecision.suite,
    "test_proposed_list.py": test_proposed_list.TestProposedList.suite,
    "test_callback_step.py": test_callback_step.TestCallbackStep.suite,
    "test_whole_saga.py": test_whole_saga.TestWholeSaga.suite,
    "test_inline_saga.py": test_inline_saga.TestInlineSaga.suite,
    "test_inline_branches.py": test_inline_branches.TestInlineBranches.suite,
    "test_changed_definition.py": test_changed_definition.TestChangedDefinition.suite,
    "test_cancelled_saga.py": test_cancelled_saga.TestCancelledSaga.suite,
    "test_adopted_saga.py": test_adopted_saga.TestAdoptedSaga.suite,
    "test_late_undo.py": test_late_undo.TestLateUndo.suite,
    "test_operators_entry.py": test_operators_entry.TestOperatorsEntry.suite,
    "test_late_undo_entry.py": test_late_undo_entry.TestLateUndoEntry.suite,
    "test_conflicting_outcome.py": test_conflicting_outcome.TestConflictingOutcome.suite,
    "test_forgotten_outcome.py": test_forgotten_outcome.TestForgottenOutcome.suite,
    "test_check_and_set.py": test_check_and_set.TestCheckAndSet.suite,
    "test_transitions.py": test_transitions.TestTransitions.suite,
    "test_once_in_a_period.py": test_once_in_a_period.TestOnceInAPeriod.suite,
    "test_migration.py": test_migration.TestMigration.suite,
    "test_migration_layout.py": test_migration_layout.TestMigrationLayout.suite,
}
"""Every model's suite, by the file of its tests."""


def lines() -> Iterator[str]:
    """Every condition: its reason, its place in the code, and the promise that is broken without it."""
    for file, suite in SUITES.items():
        yield f"\n{file}"
        yield from lines_of(suite)


def lines_of(suite: Suite) -> Iterator[str]:
    """The conditions of one suite."""
    for mutant in (*suite.mutants, *suite.redundant):
        condition, *companions = mutant.off
        yield f"  {condition.name}: {condition.because.reason} ({condition.because.file})"
        also = "".join(f" and {companion.name}" for companion in companions)
        yield f"      without it{also}: {mutant.harm}, in setting {mutant.setting!r}"
    for condition, reason in suite.spare.items():
        yield f"  {condition.name}: {condition.because.reason} ({condition.because.file})"
        yield f"      no harm was found without it: {reason} (settings: {'; '.join(suite.spare_in)})"
