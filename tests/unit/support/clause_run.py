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

from tests.unit.support.clauses import WATCH, Clause

SECONDS = 20
"""A test that takes longer without a clause has noticed it."""


class Overdue(BaseException):
    """A test did not end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write what was found."""
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
    order = {nodeid: place for place, nodeid in enumerate(items)}
    noticed: dict[Clause, str] = {}
    tried: dict[Clause, int] = {}
    for clause in sorted(WATCH.seen):
        WATCH.dropped = clause
        tests = sorted(WATCH.decides[clause], key=lambda nodeid: (took[nodeid], order[nodeid]))
        for count, nodeid in enumerate(tests, start=1):
            tried[clause] = count
            if not runner.passes(items[nodeid]):
                noticed[clause] = nodeid
                break
    WATCH.dropped = None
    runner.finish()
    found = [
        {
            "clause": str(clause),
            "sent by": sorted(WATCH.seen[clause]),
            "decides in": len(WATCH.decides[clause]),
            "tried": tried.get(clause, 0),
            "noticed by": noticed.get(clause),
        }
        for clause in sorted(WATCH.seen)
    ]
    document = {"tests": len(items), "seconds": round(sum(took.values())), "failed": failed, "clauses": found}
    Path(session.config.getoption("--clauses")).write_text(json.dumps(document, indent=1), "utf-8")
    return True


class _Runner:
    def __init__(self, session: pytest.Session) -> None:
        self._state: Any = session._setupstate

    def passes(self, item: Any) -> bool:
        """Whether a test passes; fixtures of a wider scope stay for the next one as far as that has them, too."""
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
