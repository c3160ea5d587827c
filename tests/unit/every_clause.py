"""A pytest plugin: every clause of every conditional write, and every member of a transaction, is left out in turn.

The tests run as always, and each clause that the runtime or a command sends in a scenario is recorded. After them, each
clause is removed from every request that has it, before the request reaches the database: one of the scenarios in which
it decides must fail.

``python -m pytest -p tests.unit.every_clause -m scenario tests/unit`` runs it; what nothing noticed is a failure of the
run.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.unit.support.clauses import WATCH, Clause

FOLDER: Final = Path(__file__).parent
SECONDS: Final = 20
"""A test that takes longer without a clause has noticed it."""
SCENARIOS: Final = (
    "test_lost_races.py",
    "test_protocol_histories.py",
    "test_runtime_histories.py",
    "approvals",
    "callbacks/test_callback_histories.py",
    "callbacks/test_callback_step_histories.py",
    "callbacks/test_callback_sweep.py",
    "callbacks/test_callbacks.py",
    "callbacks/test_kept_rows.py",
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
    "recovery/test_lists.py",
    "recovery/test_log_retention.py",
    "recovery/test_operators.py",
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
EQUIVALENT: Final = {
    "without `attribute_exists(id)`": "the other clauses compare attributes, which a deleted item lacks",
    "without `status IN (:completed, :failed)`": "a record in progress has no expiration, so the other clause refuses",
}
"""Part of a clause's description, and the reason why no test can notice that it is missing."""


class Overdue(BaseException):
    """A test did not end."""


class EveryClause:
    """The clauses of one run of the tests."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._scenarios: dict[str, pytest.Item] = {}
        self._lines: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the scenarios, so that ``-m scenario`` runs nothing else."""
        for item in items:
            if _is_scenario(item):
                item.add_marker("scenario")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Record the clauses of a scenario."""
        if not _is_scenario(item):
            return (yield)
        began = time.perf_counter()
        WATCH.on, WATCH.test = True, item.nodeid
        try:
            return (yield)
        finally:
            WATCH.on = False
            self._seconds[item.nodeid] = time.perf_counter() - began
            self._scenarios[item.nodeid] = item

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Leave out one clause after the other, when all tests have run."""
        ended = yield
        if session.testsfailed or session.shouldstop or session.config.option.collectonly:
            return ended
        runner = _Runner(session)
        missed = [str(clause) for clause in sorted(WATCH.sent) if not self._is_noticed(clause, runner)]
        WATCH.dropped = None
        runner.finish()
        unexplained = [clause for clause in missed if not any(part in clause for part in EQUIVALENT)]
        needless = [part for part in EQUIVALENT if not any(part in clause for clause in missed)]
        equivalent = len(missed) - len(unexplained)
        self._lines = [
            f"clauses: {len(WATCH.sent)} enumerated, {len(WATCH.sent)} run, {equivalent} equivalent",
            *(f"FAILED clause: nothing noticed {clause}" for clause in unexplained),
            *(f"FAILED clause: equivalent, but noticed: {part}" for part in needless),
        ]
        session.testsfailed += len(unexplained) + len(needless)
        return ended

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Report what was left out, and what nothing noticed."""
        for line in self._lines:
            terminalreporter.write_line(line)

    def _is_noticed(self, clause: Clause, runner: _Runner) -> bool:
        WATCH.dropped = clause
        scenarios = sorted(WATCH.tests_of(clause), key=self._seconds.__getitem__)
        return any(not runner.passes(self._scenarios[nodeid]) for nodeid in scenarios)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the run."""
    missing = [path for path in SCENARIOS if not (FOLDER / path.partition("::")[0]).exists()]
    if missing:
        raise pytest.UsageError(f"scenarios must be files or folders of {FOLDER}, got {missing}; correct SCENARIOS")
    config.addinivalue_line("markers", "scenario: may notice that a clause is missing")
    config.pluginmanager.register(EveryClause())


def _is_scenario(item: pytest.Item) -> bool:
    return item.nodeid.startswith(tuple(f"tests/unit/{path}" for path in SCENARIOS))


class _Runner:
    def __init__(self, session: pytest.Session) -> None:
        self._state: Any = session._setupstate

    def passes(self, item: Any) -> bool:
        """Run a test and return whether it passes; fixtures of a wider scope stay for the next test."""
        self._state.teardown_exact(item)
        item._initrequest()
        rang: list[bool] = []

        def ring(*_: object) -> None:
            rang.append(True)
            raise Overdue

        signal.signal(signal.SIGALRM, ring)
        signal.alarm(SECONDS)
        try:
            reports = runtestprotocol(item, log=False, nextitem=item)
        except TypeError:
            if not rang:
                raise
            self._state.teardown_exact(item.parent)
            return False  # the alarm met an instruction without a line, of which pytest cannot make a report
        finally:
            signal.alarm(0)
        return all(report.passed for report in reports)

    def finish(self) -> None:
        """Tear everything down."""
        self._state.teardown_exact(None)
