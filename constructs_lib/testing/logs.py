"""Reads what deployed functions printed, one entry per invocation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient

_START: Final = re.compile(r"START RequestId: (\S+)")
_PLATFORM: Final = ("START RequestId:", "END RequestId:", "REPORT RequestId:")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLog:
    """Output of one invocation of a function.

    Attributes:
        request_id: The invocation's request id.
        lines: The lines that it printed, on standard output and standard error, without the platform's own.
    """

    request_id: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def read_function_logs(logs: CloudWatchLogsClient, group: str) -> list[FunctionLog]:
    """Return the log of every invocation since the last reset, oldest first.

    Args:
        logs: A client that may read logs.
        group: Name of the function's log group.
    """
    streams: dict[str, list[str]] = {}
    try:
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group):
            for event in page["events"]:
                streams.setdefault(event.get("logStreamName", ""), []).append(event.get("message", ""))
    except logs.exceptions.ResourceNotFoundException:
        return []
    entries: list[FunctionLog] = []
    for messages in streams.values():
        match = next((found for message in messages if (found := _START.match(message))), None)
        lines = tuple(message for message in messages if not message.startswith(_PLATFORM))
        entries.append(FunctionLog(request_id=match.group(1) if match else "", lines=lines))
    return entries
