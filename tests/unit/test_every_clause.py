"""Every clause of every conditional write, and every member of every transaction, is left out in turn.

The tests below run once, and each clause that the runtime or the command sends is recorded. Then each clause is
removed from every request that has it, before the request reaches the database: one of the tests in which the clause
decides must fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = (
    "test_lost_races.py",
    "test_protocol_histories.py",
    "test_runtime_histories.py",
    "approvals",
    "callbacks/test_callback_histories.py",
    "callbacks/test_callback_step_histories.py",
    "callbacks/test_callback_sweep.py",
    "callbacks/test_callbacks.py",
    "cli/test_adopt.py",
    "cli/test_callbacks_command.py",
    "cli/test_doctor.py::test_a_problem_is_repaired_once",
    "cli/test_hold_command.py",
    "http",
    "idempotency/test_expired_responses.py",
    "idempotency/test_gatekeeper.py",
    "ledger",
    "migration/test_clauses.py",
    "migration/test_deletions.py",
    "migration/test_gates.py",
    "migration/test_handler.py",
    "migration/test_moves.py",
    "migration/test_pages.py",
    "migration/test_rows.py",
    "recovery/test_audit.py",
    "recovery/test_cancel.py",
    "recovery/test_late_effects.py",
    "recovery/test_late_undo.py",
    "recovery/test_log_retention.py",
    "recovery/test_reconciler.py",
    "recovery/test_reconciler_crash_matrix.py",
    "recovery/test_reconciler_hold.py",
    "recovery/test_reconciler_races.py",
    "recovery/test_reconciler_surroundings.py",
    "recovery/test_resolution.py",
    "recovery/test_status_events.py",
    "saga_log",
    "steps/test_atomic_step.py",
    "steps/test_compensation.py",
    "steps/test_external_histories.py",
    "steps/test_read_only_step.py",
    "versions/test_transitions.py",
    "versions/test_versioned_items.py",
    "watch/test_watching.py",
)
EQUIVALENT: dict[str, str] = {
    "without `attribute_exists(id)`": "the other clauses compare attributes, which a deleted item lacks",
    "without `attribute_exists(saga_id)`": "the other clause compares an attribute, which a deleted row lacks",
    "without `status IN (:completed, :failed)`": "a record in progress has no expiration, so the other clause refuses",
}
"""Part of a clause's description, and the reason why no test can notice that it is missing."""


def test_every_clause_that_is_left_out_is_noticed(tmp_path: Path) -> None:
    found = tmp_path / "clauses.json"
    options = ("-q", "-p", "no:cacheprovider", "-p", "tests.unit.support.clause_run", f"--clauses={found}")
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/unit/{path}" for path in SCENARIOS)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    document = json.loads(found.read_text("utf-8"))
    clauses = document["clauses"]
    missed = [one["clause"] for one in clauses if one["noticed by"] is None]
    unexplained = [clause for clause in missed if not any(part in clause for part in EQUIVALENT)]
    print(f"clauses: {len(clauses)} enumerated, {len(clauses)} run, {len(missed) - len(unexplained)} equivalent")

    assert document["failed"] == []
    assert unexplained == []
    assert [part for part in EQUIVALENT if not any(part in clause for clause in missed)] == []
