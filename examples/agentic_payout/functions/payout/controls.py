"""Limits of an agent: one claim per intent, and its spending per day. Writes for the steps' transactions.

Both are conditions in the very transaction that moves money. A check that reads first, and pays then, holds for one
agent at a time; these hold for any number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from saga_runtime import Conflict, CurrencyMismatch, Money, StepCall, Transitions, VersionedItem, Write
from saga_runtime.shared import aws

from .errors import AgentUnknown, IntentTaken, SpendingCapExceeded
from .intent import Intent

TABLE: Final = "PAYOUT_CONTROLS_TABLE"
CAPS: Final = "PAYOUT_CAPS"
CURRENCY: Final = "PAYOUT_CURRENCY"
_KEPT_DAYS: Final = 90
_DAY_SECONDS: Final = 86_400


class ClaimState(StrEnum):
    """State of an intent."""

    CLAIMED = "CLAIMED"
    """A saga is deciding it."""
    PAID = "PAID"
    HELD = "HELD"
    """It waits for a person; no saga pays it."""
    RELEASED = "RELEASED"
    """Its saga failed, and none of its effects remains: it may be claimed again."""


CLAIMS: Final = Transitions(
    table={
        ClaimState.CLAIMED: [ClaimState.PAID, ClaimState.HELD, ClaimState.RELEASED],
        ClaimState.RELEASED: [ClaimState.CLAIMED],
        ClaimState.PAID: [],
        ClaimState.HELD: [],
    },
    initial=ClaimState.CLAIMED,
    held=[ClaimState.CLAIMED],
)
"""An intent is claimed by one saga, which alone ends its claim."""
_TAKEN: Final = {
    ClaimState.CLAIMED: "is being decided under another request",
    ClaimState.PAID: "was paid under another request",
    ClaimState.HELD: "is held for a person, under another request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Claims and caps, in one table.

    Attributes:
        table: its name; the partition key is ``id``.
        caps: what each agent may spend per day, in minor units. Who is not named may spend nothing.
        currency: of the caps. Payouts in another one are refused: no cap would bound them.
    """

    table: str
    caps: Mapping[str, int]
    currency: str

    @classmethod
    def from_env(cls) -> Controls:
        """The controls that the function was deployed with."""
        return cls(table=os.environ[TABLE], caps=json.loads(os.environ[CAPS]), currency=os.environ[CURRENCY])

    def cap(self, agent: str, amount: Money) -> int:
        """Return what an agent may spend per day, if it may spend this amount at all.

        Raises:
            AgentUnknown: if it has no cap.
            CurrencyMismatch: if the cap is in another currency.
            SpendingCapExceeded: if the amount alone is above it.
        """
        if agent not in self.caps:
            raise AgentUnknown(f"agent {agent} has no spending cap, and may spend nothing")
        if amount.currency != self.currency:
            raise CurrencyMismatch(f"spending caps are in {self.currency}, the amount is in {amount.currency}")
        cap = self.caps[agent]
        if amount.minor_units > cap:
            raise SpendingCapExceeded(f"agent {agent} may not spend that much on one day")
        return cap

    def spent(self, agent: str, now_ms: int) -> int:
        """Return what an agent has spent today. Only for display: ``spend`` decides."""
        key = _spending_id(agent, day_of(now_ms))
        found = aws.dynamodb().get_item(TableName=self.table, Key={"id": {"S": key}}, ConsistentRead=True)
        return int(found["Item"]["spent"]["N"]) if "Item" in found else 0

    def spend(self, *, agent: str, amount: Money, now_ms: int) -> Write:
        """Count an amount against today's cap (UTC), on condition that it fits.

        Raises:
            PermanentError: as ``cap``.
        """
        cap, day = self.cap(agent, amount), day_of(now_ms)
        update = {
            "TableName": self.table,
            "Key": {"id": {"S": _spending_id(agent, day)}},
            "UpdateExpression": "SET #expiration = if_not_exists(#expiration, :expiration) ADD #spent :amount",
            "ConditionExpression": "attribute_not_exists(#spent) OR #spent <= :room",
            "ExpressionAttributeNames": {"#spent": "spent", "#expiration": "expiration"},
            "ExpressionAttributeValues": {
                ":amount": {"N": str(amount.minor_units)},
                ":room": {"N": str(cap - amount.minor_units)},
                ":expiration": {"N": str(now_ms // 1_000 + _KEPT_DAYS * _DAY_SECONDS)},
            },
        }
        return Write(
            action={"Update": update},
            refusal=lambda _: SpendingCapExceeded(f"agent {agent} would exceed its spending cap of {day}"),
        )

    def claim(self, call: StepCall, intent: Intent, *, agent: str) -> tuple[list[Write], int]:
        """Take an intent for a saga, if no other saga has it; the version that its claim has then.

        Raises:
            IntentTaken: if another saga has it.
        """
        claim = self._claim(intent.obligation)
        key: Any = claim.key
        found = aws.dynamodb().get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        values = {"saga_id": {"S": call.saga_id}, "agent": {"S": agent}, "updated_at": {"N": str(call.now_ms)}}
        if found is None:
            [write] = CLAIMS.create(claim, values, holder=call.saga_id)
            return [replace(write, refusal=lambda _: Conflict("the payout was claimed after it was read"))], 1
        state, version = ClaimState(found["state"]["S"]), int(found["version"]["N"])
        if state is not ClaimState.RELEASED:
            raise IntentTaken(f"this payout {_TAKEN[state]}")
        writes = CLAIMS.move(
            claim,
            ClaimState.RELEASED,
            ClaimState.CLAIMED,
            expected_version=version,
            holder=call.saga_id,
            values=values,
            read_now=True,
        )
        return writes, version + 1

    def conclude(self, call: StepCall, obligation: str, state: ClaimState, *, version: int) -> list[Write]:
        """Record the outcome of the intent that this saga holds since this version."""
        [write] = CLAIMS.move(
            self._claim(obligation),
            ClaimState.CLAIMED,
            state,
            expected_version=version,
            holder=call.saga_id,
            values={"updated_at": {"N": str(call.now_ms)}},
        )
        return [replace(write, refusal=_lost)]

    def _claim(self, obligation: str) -> VersionedItem:
        return VersionedItem(table=self.table, key={"id": {"S": f"claim#{obligation}"}})


def day_of(now_ms: int) -> str:
    """The day of a time, in UTC: ``2026-11-21``."""
    return datetime.fromtimestamp(now_ms / 1_000, UTC).date().isoformat()


def _spending_id(agent: str, day: str) -> str:
    return f"spent#{agent}#{day}"


def _lost(item: Mapping[str, Mapping[str, Any]] | None) -> IntentTaken:
    state = ClaimState(item["state"]["S"]) if item else ClaimState.RELEASED
    return IntentTaken(f"this payout {_TAKEN.get(state, 'was released')}")
