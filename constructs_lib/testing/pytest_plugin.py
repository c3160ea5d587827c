"""Fixtures for pytest: `local_aws_server`, one emulator for the session, and `local_aws`, the same one, emptied.

A test that fails and uses a ``LocalAws`` gets a section with what went wrong there: ``LocalAws.explain``.

Installed with the package (entry point ``pytest11``). Nothing starts unless a test asks for a fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what went wrong on local AWS to a failed test's report."""
    del call
    report = yield
    if report.when == "call" and report.failed:
        for aws in _used(item):
            try:
                text = aws.explain()
            except Exception as error:  # noqa: BLE001  # the test's own failure is what matters
                text = f"it cannot be explained: {type(error).__name__}: {error}"
            if text:
                report.sections.append(("local AWS", text))
    return report


def _used(item: pytest.Item) -> list[LocalAws]:
    """The local AWS of a test's fixtures, each once."""
    module: Any = sys.modules.get("constructs_lib.testing.local_aws")
    if module is None:
        return []
    values = getattr(item, "funcargs", {}).values()
    found = [value for value in values if isinstance(value, module.LocalAws)]
    found += [value.aws for value in values if isinstance(getattr(value, "aws", None), module.LocalAws)]
    return list({id(aws): aws for aws in found}.values())
