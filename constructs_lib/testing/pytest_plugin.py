"""Fixtures for pytest: `local_aws_server`, one emulator for the session, and `local_aws`, the same one, emptied.

A test that fails and uses a ``LocalAws`` gets a section with what went wrong there: ``LocalAws.explain``. So does one
whose fixture fails, in its setup or its teardown, also if the failure closes the ``LocalAws``. One that uses a
``FakeProvider`` gets a section with the faults that did not fire.

Installed with the package (entry point ``pytest11``). Nothing starts unless a test asks for a fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from constructs_lib.testing.in_use import IN_USE, explanation_of

if TYPE_CHECKING:
    from constructs_lib.testing.local_aws import LocalAws


@pytest.fixture(scope="session")
def local_aws_server() -> Iterator[LocalAws]:
    """One emulator for the whole session. Deploy into it once, in a session fixture of your own.

    Tests that share it see each other's data; use `local_aws` in tests.
    """
    # Imported here: the plugin is loaded by every pytest run, with or without the extra `local`.
    from constructs_lib.testing.local_aws import LocalAws

    with LocalAws() as aws:
        yield aws


@pytest.fixture
def local_aws(local_aws_server: LocalAws) -> LocalAws:
    """The session's emulator, emptied: stacks stay, data, messages, executions, logs and faults are gone."""
    local_aws_server.reset()
    return local_aws_server


def pytest_runtest_logstart() -> None:
    """Begin to observe which local AWS a test uses."""
    IN_USE.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what went wrong on local AWS to a failed test's report."""
    report = yield
    if report.failed:
        closed = IN_USE.ended_by(call.excinfo.value) if call.excinfo is not None else []
        texts = [*closed, *(explanation_of(aws) for aws in _used(item))]
        report.sections += [("local AWS", text) for text in texts if text]
        report.sections += [("fake provider", text) for text in _silent_faults(item)]
    return report


def _silent_faults(item: pytest.Item) -> Iterator[str]:
    """Faults that did not fire, of each fake provider of a test's fixtures."""
    module: Any = sys.modules.get("constructs_lib.testing.providers.fake")
    if module is None:
        return
    for value in getattr(item, "funcargs", {}).values():
        if isinstance(value, module.FakeProvider):
            try:
                value.require_all_fired()
            except (OSError, AssertionError) as error:
                yield str(error)


def _used(item: pytest.Item) -> list[LocalAws]:
    """The local AWS of a test's fixtures, and any that it used, each once, as far as it is open."""
    module: Any = sys.modules.get("constructs_lib.testing.local_aws")
    if module is None:
        return []
    values = getattr(item, "funcargs", {}).values()
    found = [value for value in values if isinstance(value, module.LocalAws)]
    found += [value.aws for value in values if isinstance(getattr(value, "aws", None), module.LocalAws)]
    found += IN_USE.used()
    return list({id(aws): aws for aws in found if IN_USE.is_open(aws)}.values())
