"""Executions that run, listed by the thousand instead of asked for one by one.

``DescribeExecution`` answers 15 calls a second for a whole account, or 10, as the region is: thousands of open sagas
use that up, and an interrupted one among them waits for its turn. ``ListExecutions`` answers five calls a second, or
two, each with a thousand names. https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html

A list is eventually consistent, and older than what it is compared with. It is believed only where that is harmless:
a saga whose owner is listed as running is checked again later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from saga_runtime.shared import aws

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

ASKED_ONE_BY_ONE: Final = 50
"""Executions of a state machine, in one look; then it is listed. A small system never lists."""
PAGE: Final = 1_000
"""The most that ``ListExecutions`` answers at once."""
SPARE_MS: Final = 10_000
"""No page is requested when less is left of the function's time."""
_GONE: Final = "StateMachineDoesNotExist"


@dataclass(slots=True)
class _List:
    """Known executions of one state machine."""

    asked: int = 0
    names: set[str] = field(default_factory=set)
    token: str | None = None
    complete: bool = False


@dataclass(slots=True, kw_only=True)
class Running:
    """Executions that run, during one look. Threads may share it.

    Attributes:
        step_functions: the client of Step Functions.
        remaining_ms: time that is left.
        lock: held by the one worker that lists, while the others wait for its list.
        known: how often an execution was found in a list.
        pages: calls of ``ListExecutions``.
    """

    step_functions: Callable[[], SFNClient]
    remaining_ms: Callable[[], int]
    lock: AbstractContextManager[object]
    known: int = 0
    pages: int = 0
    _lists: dict[str, _List] = field(default_factory=dict)

    def includes(self, machine_arn: str, name: str) -> bool:
        """Test whether an execution is listed as running; False: nothing is known of it.

        A refused list continues from the refused page when it is read again.

        Raises:
            ClientError, BotoCoreError: the list was refused.
        """
        with self.lock:
            found = self._lists.setdefault(machine_arn, _List())
            found.asked += 1
            if found.asked <= ASKED_ONE_BY_ONE:
                return False
            while not found.complete and self.remaining_ms() >= SPARE_MS:
                self._read_page(machine_arn, found)
            self.known += name in found.names
            return name in found.names

    def _read_page(self, machine_arn: str, found: _List) -> None:
        after: Any = {"nextToken": found.token} if found.token is not None else {}
        self.pages += 1
        try:
            page: Any = self.step_functions().list_executions(
                stateMachineArn=machine_arn, statusFilter="RUNNING", maxResults=PAGE, **after
            )
        except ClientError as error:
            if aws.error_code(error) != _GONE:
                raise
            found.complete = True  # of a state machine that is gone nothing runs that could be listed
            return
        found.names.update(execution["name"] for execution in page["executions"])
        found.token = page.get("nextToken")
        found.complete = found.token is None
