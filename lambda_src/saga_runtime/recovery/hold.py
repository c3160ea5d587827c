"""The switches that keep a reconciler from acting: it checks and measures, and changes nothing.

For a restore of tables, and whatever else must not be recovered by the records' current contents. One switch is for all
sagas, and each saga has one of its own, for an operator who examines it. Each is an item in a table of its own: no
deployment sets or resets it, and no restore of a saga's tables touches it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from saga_runtime.idempotency.record import AttributeMap
from saga_runtime.protocol import HOLD_DECISIONS, HOLD_ID, Env, HoldAttribute
from saga_runtime.shared import aws, clock
from saga_runtime.shared.decisions import Decision, grown, stored
from saga_runtime.shared.expressions import when
from saga_runtime.shared.writes import Entry

KEPT_MS: Final = 10_000
"""Milliseconds for which a read is valid: a check reads before each action."""
HOLD_KEY: Final[dict[str, dict[str, str]]] = {HoldAttribute.ID: {"S": HOLD_ID}}


def hold_key(saga_id: str | None) -> dict[str, dict[str, str]]:
    """Key of a saga's switch; None: of the one for all sagas."""
    return HOLD_KEY if saga_id is None else {HoldAttribute.ID: {"S": saga_id}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Since when, and why, a reconciler changes nothing.

    Attributes:
        since_ms: epoch milliseconds.
        reason: what the operator gave.
        who: ARN of the operator, as AWS knows it.
    """

    since_ms: int
    reason: str
    who: str

    @classmethod
    def from_item(cls, item: Mapping[str, Mapping[str, Any]]) -> Held:
        """Read the item; one that lacks an attribute holds all the same."""
        a = HoldAttribute
        return cls(
            since_ms=int(item[a.SINCE]["N"]) if a.SINCE in item else 0,
            reason=str(item[a.REASON]["S"]) if a.REASON in item else "",
            who=str(item[a.WHO]["S"]) if a.WHO in item else "",
        )


def on(table: str, saga_id: str | None, held: Held) -> Entry:
    """Return the write that sets a switch, unless another operator did: the first reason and time stay.

    Args:
        table: the table of switches.
        saga_id: the saga's; None: the switch for all sagas.
        held: since when, why, and by whom.
    """
    a = HoldAttribute
    item: dict[str, dict[str, str]] = {
        **hold_key(saga_id),
        a.SINCE: {"N": str(held.since_ms)},
        a.REASON: {"S": held.reason},
        a.WHO: {"S": held.who},
    }
    return {"Put": {"TableName": table, "Item": item, **when("attribute_not_exists(#id)")}}


def decisions_key(saga_id: str | None) -> dict[str, dict[str, str]]:
    """Key of the item that keeps the decisions about a switch, also when it is released."""
    return {HoldAttribute.ID: {"S": hold_key(saga_id)[HoldAttribute.ID]["S"] + HOLD_DECISIONS}}


def kept(table: str, saga_id: str | None, was: AttributeMap | None, decision: Decision) -> Entry:
    """Return the write that keeps a decision about a switch, in one transaction with ``on`` or ``off``.

    Args:
        table: the table of switches.
        saga_id: the saga's; None: the switch for all sagas.
        was: the item of its decisions as it was read; None: it does not exist.
        decision: the new one.
    """
    list_ = HoldAttribute.DECISIONS
    as_read = when("attribute_not_exists(#id)") if was is None else when(f"#{list_} = :was", was=dict(was[list_]))
    item = {**decisions_key(saga_id), list_: stored(grown(Decision.all_of(was or {}), decision))}
    return {"Put": {"TableName": table, "Item": item, **as_read}}


def off(table: str, saga_id: str | None, held: Held) -> Entry:
    """Return the write that releases a switch as it was read: not that of another operator, also if it is sent again.

    Args:
        table: the table of switches.
        saga_id: the saga's; None: the switch for all sagas.
        held: as it was read.
    """
    # An attribute that the item lacks was read as 0, or as an empty text.
    since = "#since = :since" if held.since_ms else "(attribute_not_exists(#since) OR #since = :since)"
    why = "#reason = :reason" if held.reason else "(attribute_not_exists(#reason) OR #reason = :reason)"
    as_read = when(f"{since} AND {why}", since={"N": str(held.since_ms)}, reason={"S": held.reason})
    return {"Delete": {"TableName": table, "Key": hold_key(saga_id), **as_read}}


@dataclass(slots=True, kw_only=True)
class Hold:
    """Reads the switches, the one for all sagas at most once in ``KEPT_MS``. Threads may share it.

    Guaranteed: no action on a saga without a read of its own switch right before, and of the other one within
    ``KEPT_MS``.
    Not guaranteed: that an action stops which began before its switch was set, or within ``KEPT_MS`` after.

    Attributes:
        table: the table; None: there is no switch, and nothing is ever held.
    """

    table: str | None = None
    _held: Held | None = None
    _read_at: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> Held | None:
        """Since when nothing may be changed; None: it may.

        Raises:
            ClientError, BotoCoreError: the switch cannot be read.
        """
        with self._lock:
            now_ms = clock.now_ms()
            if self.table is not None and (self._read_at is None or now_ms - self._read_at >= KEPT_MS):
                self._held, self._read_at = _read(self.table, None), now_ms
            return self._held

    def holds(self, saga_id: str) -> bool:
        """Test whether a saga, or every saga, is held.

        Raises:
            ClientError, BotoCoreError: a switch cannot be read.
        """
        return self.of(saga_id) is not None

    def of(self, saga_id: str) -> Held | None:
        """Since when a saga, or every saga, is held; None: it is not.

        Raises: as ``holds``.
        """
        return self.read() or (_read(self.table, saga_id) if self.table is not None else None)


def _read(table: str, saga_id: str | None) -> Held | None:
    item = aws.dynamodb().get_item(TableName=table, Key=hold_key(saga_id), ConsistentRead=True).get("Item")
    return Held.from_item(item) if item is not None else None


def hold_of_env() -> Hold:
    """The switch that the environment names: one for all invocations in this process."""
    return _hold(os.environ.get(Env.HOLD_TABLE))


@lru_cache(maxsize=1)
def _hold(table: str | None) -> Hold:
    return Hold(table=table)
