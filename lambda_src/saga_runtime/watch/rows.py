"""Rows of failed executions of watched state machines, and every conditional write of them. Pure.

::

    PENDING ──called, succeeded──▶ TOLD
       │ ▲ └──redriven, and not failed any more──▶ OVER
       │ └──────a person puts the dead letter back──┐
       └──called as often as is allowed──────────▶ STUCK

``not_before`` is the version of a pending row, too: a writer increments it, on condition that no other
did. While a function may be running it is the end of that call's lease: no call before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.protocol import (
    WATCH_DUE_SHARDS,
    WATCH_LIST_PREFIX,
    FailedStatus,
    WatchAttribute,
    WatchedField,
    WatchStatus,
)
from saga_runtime.shared.expressions import Arguments, update, when

NEW: Final = "attribute_not_exists(#id)"
NEW_OR_OF_AN_EARLIER_ONE: Final = "attribute_not_exists(#id) OR #stopped_at < :started_at"
"""An execution's name is free again 90 days after its end, and what is kept of that end is still there."""
UNTOUCHED: Final = "#not_before = :was"
STILL_DUE: Final = "#due_at = :was"
STILL_DEAD_LETTERED: Final = "#status = :dead_lettered"
SAME_VERSION: Final = "#version = :was"

_KEPT_SECONDS: Final = 120 * 86_400
"""Step Functions lists an execution for 90 days after its end: a reported end is known for longer."""

AttributeMap = Mapping[str, Any]
_A: Final = WatchAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A watched state machine.

    Attributes:
        machine: its ARN.
        function: ARN of the function that is called.
        ends: statuses to report.
        grace_ms: between an end and the first call.
        lease_ms: after which a call is certainly over.
        attempts: calls before an operator is notified.
    """

    machine: str
    function: str
    ends: frozenset[FailedStatus]
    grace_ms: int
    lease_ms: int
    attempts: int


def watched_of(text: str) -> tuple[Watched, ...]:
    """Read ``Env.WATCHED``."""
    f = WatchedField
    return tuple(
        Watched(
            machine=entry[f.MACHINE],
            function=entry[f.FUNCTION],
            ends=frozenset(map(FailedStatus, entry[f.ENDS])),
            grace_ms=entry[f.GRACE] * 1_000,
            lease_ms=entry[f.LEASE] * 1_000,
            attempts=entry[f.ATTEMPTS],
        )
        for entry in json.loads(text)
    )


def end_id(execution_arn: str, redrives: int) -> str:
    """The id of an end: always the same; another one when the execution was redriven and ended again."""
    return f"{execution_arn}#{redrives}"


def list_id(machine_arn: str, end: FailedStatus) -> str:
    """The id of how far a machine's executions that ended in one way were listed."""
    return f"{WATCH_LIST_PREFIX}{machine_arn}#{end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRow:
    """An execution's end, as it is kept.

    Attributes:
        id: see ``end_id``.
        status: whether its function has succeeded.
        end: how it ended.
        stopped_at: epoch milliseconds.
        attempt: how often its function was called.
        not_before: no call before this; 0: it is not pending.
        due_at: its next check; 0: none.
        redriven: whether it was redriven, and runs.
        error: error name of the last call.
    """

    id: str
    status: WatchStatus
    end: FailedStatus
    stopped_at: int
    attempt: int = 0
    not_before: int = 0
    due_at: int = 0
    redriven: bool = False
    error: str = ""

    @classmethod
    def from_item(cls, item: AttributeMap) -> EndRow:
        """Read an item.

        Raises:
            ValueError: if it is not a row of an end.
        """

        def number(name: WatchAttribute) -> int:
            return int(item[name]["N"]) if name in item else 0

        try:
            return cls(
                id=item[_A.ID]["S"],
                status=WatchStatus(item[_A.STATUS]["S"]),
                end=FailedStatus(item[_A.EXECUTION_STATUS]["S"]),
                stopped_at=number(_A.STOPPED_AT),
                attempt=number(_A.ATTEMPT),
                not_before=number(_A.NOT_BEFORE),
                due_at=number(_A.DUE_AT),
                redriven=_A.REDRIVEN_AT in item,
                error=item[_A.ERROR]["S"] if _A.ERROR in item else "",
            )
        except KeyError as error:
            raise ValueError(f"item {item.get(_A.ID)} must be a row of an end, got none with {error}") from error

    @property
    def execution_arn(self) -> str:
        """The execution."""
        return self.id.rpartition("#")[0]

    @property
    def redrives(self) -> int:
        """Number of redrives before it ended."""
        return int(self.id.rpartition("#")[2])


def found_put(
    *, id: str, end: FailedStatus, started_at: int, stopped_at: int, not_before: int, now_ms: int
) -> dict[str, Any]:
    """Arguments of the put that keeps an end; refused if it is known, however often it is found.

    A row of an execution that had ended before this one began, under the same name, is obsolete: that one can
    not be described any more.
    """
    return {
        "Item": {
            _A.ID: {"S": id},
            _A.STATUS: {"S": WatchStatus.PENDING},
            _A.EXECUTION_STATUS: {"S": end},
            _A.STOPPED_AT: {"N": str(stopped_at)},
            _A.FOUND_AT: {"N": str(now_ms)},
            _A.ATTEMPT: {"N": "0"},
            _A.NOT_BEFORE: {"N": str(not_before)},
            _A.DUE_AT: {"N": str(not_before)},
            _A.DUE_SHARD: {"S": _shard_of(id)},
        },
        **when(NEW_OR_OF_AN_EARLIER_ONE, started_at={"N": str(started_at)}),
    }


def _shard_of(id: str) -> str:
    return f"{int.from_bytes(hashlib.sha256(id.encode('utf-8')).digest()[:4], 'big') % WATCH_DUE_SHARDS:02d}"


def queued_update(id: str, due_at: int, until: int) -> dict[str, Any]:
    """Arguments of the update after which a due end is not queued again before ``until``; nothing else changes."""
    return _update(id, when(STILL_DUE, was={"N": str(due_at)}), {_A.DUE_AT: {"N": str(until)}})


def lease_update(row: EndRow, now_ms: int, until: int) -> dict[str, Any]:
    """Arguments of the update that leases an end to its caller; no other caller is admitted before ``until``."""
    return _pending(row, now_ms, until, {_A.ATTEMPT: {"N": str(row.attempt + 1)}})


def failed_update(row: EndRow, now_ms: int, until: int, error: str) -> dict[str, Any]:
    """Arguments of the update after a call that failed."""
    return _pending(row, now_ms, until, {_A.ERROR: {"S": error}})


def later_update(row: EndRow, now_ms: int, until: int, *, redriven: bool) -> dict[str, Any]:
    """Arguments of the update that postpones a pending end."""
    return _pending(row, now_ms, until, {_A.REDRIVEN_AT: {"N": str(now_ms)}} if redriven else {})


def told_update(row: EndRow, now_ms: int) -> dict[str, Any]:
    """Arguments of the update after a successful call. The row remains: this end is not reported again."""
    return _settled(row, WatchStatus.NOTIFIED, now_ms)


def over_update(row: EndRow, now_ms: int) -> dict[str, Any]:
    """Arguments of the update that closes an obsolete end."""
    return _settled(row, WatchStatus.SUPERSEDED, now_ms)


def dead_lettered_update(row: EndRow, now_ms: int) -> dict[str, Any]:
    """Arguments of the update that leaves an end to operators. The row remains until they decide."""
    return _settled(row, WatchStatus.DEAD_LETTERED, now_ms)


def again_update(id: str, now_ms: int) -> dict[str, Any]:
    """Arguments of the update that retries an end that was left to operators."""
    now = {"N": str(now_ms)}
    values: dict[WatchAttribute, Any] = {
        _A.STATUS: {"S": WatchStatus.PENDING},
        _A.ATTEMPT: {"N": "0"},
        _A.NOT_BEFORE: now,
        _A.DUE_AT: now,
        _A.DUE_SHARD: {"S": _shard_of(id)},
        _A.UPDATED_AT: now,
    }
    return _update(id, when(STILL_DEAD_LETTERED, dead_lettered={"S": WatchStatus.DEAD_LETTERED}), values)


def _pending(row: EndRow, now_ms: int, until: int, values: Mapping[WatchAttribute, Any]) -> dict[str, Any]:
    moment = {"N": str(until)}
    times = {_A.NOT_BEFORE: moment, _A.DUE_AT: moment, _A.UPDATED_AT: {"N": str(now_ms)}}
    return _update(row.id, _untouched(row), {**times, **values})


def _settled(row: EndRow, status: WatchStatus, now_ms: int) -> dict[str, Any]:
    values: dict[WatchAttribute, Any] = {
        _A.STATUS: {"S": status},
        _A.UPDATED_AT: {"N": str(now_ms)},
    }
    if status is WatchStatus.DEAD_LETTERED:
        values[_A.ERROR] = {"S": row.error}
    else:
        values[_A.EXPIRATION] = {"N": str(now_ms // 1_000 + _KEPT_SECONDS)}
    gone = (_A.NOT_BEFORE, _A.DUE_AT, _A.DUE_SHARD)
    return _update(row.id, _untouched(row), values, gone)


def _untouched(row: EndRow) -> Arguments:
    return when(UNTOUCHED, was={"N": str(row.not_before)})


def _update(
    id: str, condition: Arguments, sets: Mapping[WatchAttribute, Any], gone: tuple[WatchAttribute, ...] = ()
) -> Arguments:
    return {"Key": {_A.ID: {"S": id}}, **update(condition, sets, removes=gone)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRow:
    """Progress of listing a machine's executions with one status.

    Attributes:
        id: see ``list_id``.
        listed_until: every end before this has a row, if the list was in order, and not behind; epoch milliseconds.
        verified_until: every end before this has a row: since then the list was read to its end.
        due_at: when the list is read again.
        scan_started_at: when the pass began that is under way; 0: none is.
        page_token: where it continues; None: at the beginning.
        version: raised by every write.
    """

    id: str
    listed_until: int
    verified_until: int
    due_at: int
    scan_started_at: int = 0
    page_token: str | None = None
    version: int = 0

    @classmethod
    def from_item(cls, item: AttributeMap) -> ListRow:
        """Read an item.

        Raises:
            ValueError: if it is not a row of a list.
        """
        try:
            return cls(
                id=item[_A.ID]["S"],
                listed_until=int(item[_A.LISTED_UNTIL]["N"]),
                verified_until=int(item[_A.VERIFIED_UNTIL]["N"]),
                due_at=int(item[_A.DUE_AT]["N"]),
                scan_started_at=int(item[_A.SCAN_STARTED_AT]["N"]),
                page_token=item[_A.PAGE_TOKEN]["S"] if _A.PAGE_TOKEN in item else None,
                version=int(item[_A.VERSION]["N"]),
            )
        except KeyError as error:
            raise ValueError(f"item {item.get(_A.ID)} must be a row of a list, got none with {error}") from error


def list_put(row: ListRow) -> dict[str, Any]:
    """Arguments of the put that begins a list's progress; refused if it exists."""
    return {
        "Item": {
            _A.ID: {"S": row.id},
            _A.LISTED_UNTIL: {"N": str(row.listed_until)},
            _A.VERIFIED_UNTIL: {"N": str(row.verified_until)},
            _A.DUE_AT: {"N": str(row.due_at)},
            _A.SCAN_STARTED_AT: {"N": str(row.scan_started_at)},
            _A.VERSION: {"N": str(row.version)},
        },
        **when(NEW),
    }


def list_update(was: ListRow, now: ListRow) -> dict[str, Any]:
    """Arguments of the update of a list's progress, on condition that no other process updated it."""
    values: dict[WatchAttribute, Any] = {
        _A.LISTED_UNTIL: {"N": str(now.listed_until)},
        _A.VERIFIED_UNTIL: {"N": str(now.verified_until)},
        _A.DUE_AT: {"N": str(now.due_at)},
        _A.SCAN_STARTED_AT: {"N": str(now.scan_started_at)},
        _A.VERSION: {"N": str(now.version)},
    }
    gone: tuple[WatchAttribute, ...] = ()
    if now.page_token is None:
        gone = (_A.PAGE_TOKEN,)
    else:
        values[_A.PAGE_TOKEN] = {"S": now.page_token}
    return _update(was.id, when(SAME_VERSION, was={"N": str(was.version)}), values, gone)
