"""Fixtures for pytest: `local_aws_server`, one emulator for the session, and `local_aws`, the same one, emptied.

Installed with the package (entry point ``pytest11``). Nothing starts unless a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
