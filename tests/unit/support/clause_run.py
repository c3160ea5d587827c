"""A pytest plugin that runs tests once, and then again for each clause of a condition that decides in them.

``python -m pytest -p tests.unit.support.clause_run --clauses=found.json tests/unit/...`` writes what it found.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.unit.support.clauses import WATCH

SECONDS = 20
"""A test that takes longer without a clause has noticed it."""


class Overdue(BaseException):
    """A test did not end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file of results."""
    parser.addoption("--clauses", help="file for the clauses that were found")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Record every clause, then leave out one after the other."""
    runner = _Runner(session)
    items = {item.nodeid: item for item in session.items}
    failed: list[str] = []
    took: dict[str, float] = {}
    WATCH.on = True
    for nodeid, item in items.items():
        WATCH.test = nodeid
        began = time.perf_counter()
        if not runner.passes(item):
            failed.append(nodeid)
        took[nodeid] = time.perf_counter() - began
    WATCH.on = False
    found: list[dict[str, Any]] = []
    for clause in sorted(WATCH.sent):
        WATCH.dropped = clause
        tests = sorted(WATCH.tests_of(clause), key=took.__getitem__)
        noticed = next((nodeid for nodeid in tests if not runner.passes(items[nodeid])), None)
        found.append({"clause": str(clause), "decides in": len(tests), "noticed by": noticed})
    WATCH.dropped = None
    runner.finish()
    document = {"tests": len(items), "seconds": round(sum(took.values())), "failed": failed, "clauses": found}
    Path(session.config.getoption("--clauses")).write_text(json.dumps(document, indent=1), "utf-8")
    return True


class _Runner:
    def __init__(self, session: pytest.Session) -> None:
        self._state: Any = session._setupstate

    def passes(self, item: Any) -> bool:
        """Run a test and return whether it passes; fixtures of a wider scope stay for the next test."""
        self._state.teardown_exact(item)
        item._initrequest()
        signal.signal(signal.SIGALRM, _overdue)
        signal.alarm(SECONDS)
        try:
            reports = runtestprotocol(item, log=False, nextitem=item)
        finally:
            signal.alarm(0)
        return all(report.passed for report in reports)

    def finish(self) -> None:
        """Tear everything down."""
        self._state.teardown_exact(None)


def _overdue(*_: object) -> None:
    raise Overdue
