"""Trace of a run, a line per call: virtual time, actor, call, outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from constructs_lib.testing.simulator.engine.actors import Actor, Request
from constructs_lib.testing.simulator.engine.kernel import Kernel

_MOST_TEXT: Final = 160
_SHORT: Final = {"stepfunctions": "states"}


class Trace:
    """Lines are kept as data, and written when they are read.

    Args:
        kernel: keeps the time.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._entries: list[tuple[int, str, Request | str, str]] = []

    def call(self, actor: Actor, request: Request, outcome: str) -> None:
        """A call of AWS; an empty outcome: it went well."""
        self._entries.append((self._kernel.now, actor.name, request, outcome))

    def note(self, who: str, what: str) -> None:
        """Anything else that was decided."""
        self._entries.append((self._kernel.now, who, what, ""))

    def lines(self) -> Iterator[str]:
        """Every line."""
        for moment, who, what, outcome in self._entries:
            text = what if isinstance(what, str) else _told(what)
            arrow = f" -> {outcome}" if outcome else ""
            yield f"{_clock(moment)}  {who:<32} {text}{arrow}"

    def about(self, *texts: str) -> Iterator[str]:
        """Lines that contain one of some texts."""
        return (line for line in self.lines() if any(text in line for text in texts))


def _clock(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1_000_000, UTC).strftime("%d %H:%M:%S.%f")[:-3]


def _told(request: Request) -> str:
    service = _SHORT.get(request.service, request.service)
    return f"{service}:{request.operation} {_brief(request)}"[:_MOST_TEXT]


def _brief(request: Request) -> str:
    params = request.params
    if request.operation == "TransactWriteItems":
        parts = [f"{kind} {_item(entry)}" for action in params["TransactItems"] for kind, entry in action.items()]
        return ", ".join(parts)
    if request.service == "dynamodb":
        return _item(params)
    told = [
        str(params[name]).rpartition("/")[2].rpartition(":")[2]
        for name in ("stateMachineArn", "name", "executionArn", "QueueUrl", "FunctionName", "Bucket", "Key", "SecretId")
        if name in params
    ]
    return " ".join(told)


def _item(request: Mapping[str, Any]) -> str:
    table = str(request.get("TableName", ""))
    key = request.get("Key") or request.get("Item") or {}
    told = [f"{name}={next(iter(value.values()))}" for name, value in list(key.items())[:2]]
    status = (request.get("Item") or {}).get("status", {}).get("S")
    update = request.get("UpdateExpression", "")
    return " ".join([table, *told, *([status] if status else []), *([update[:60]] if update else [])])
