"""Many parked sagas that one operator proposes to resume, and another one confirms.

::

    propose    ONE conditional update makes an item of its own: the sagas, and of each what was seen, with who and why
    confirm    by another principal, before it expires: ONE conditional update adds who and why
    resume     each saga by an update of its own, if it is as it was seen; it appends both decisions to the record

The item's id is the hash of what it proposes: what a confirmer read under it is what is executed. Any operator may
continue what is confirmed: a saga that was resumed, or changed since, is left alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.idempotency.record import AttributeMap, RequestRecord
from saga_runtime.protocol import LIST_PREFIX, ListAttribute, RecordAttribute, SecondPerson
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.recovery.proposals import Caller, require_other
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.shared.decisions import Audit, Decision
from saga_runtime.shared.expressions import RETURNS_ITEM, Arguments, update, when

MOST_SAGAS: Final = 1_000
"""Of one proposal: an item of DynamoDB holds 400 KB, and the function reads each saga before it answers."""
KEPT_MS: Final = 90 * 86_400_000
"""For so long an item is kept behind its time; the decisions are kept with the sagas."""
FREE: Final = "attribute_not_exists(#id) OR (attribute_not_exists(#confirmed_by) AND #expires_at <= :now)"
"""There is no such proposal, or its time passed before it was confirmed."""
OPEN: Final = "#at = :was_at AND #expires_at > :now AND attribute_not_exists(#confirmed_by)"
RESUMED: Final = "is parked: would be resumed"
LEFT: Final = "was parked since it was listed: left alone"
FOR_AN_OPERATOR: Final = "needs an operator"


@dataclass(frozen=True, slots=True)
class SeenSaga:
    """A parked saga, as its record was read: its owner, and when it was parked."""

    saga_id: str
    owner: str
    parked_at: int

    def is_of(self, record: RequestRecord, parked_at: int | None) -> bool:
        """Test whether a record is as it was seen."""
        return (record.owner, parked_at) == (self.owner, self.parked_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListProposal:
    """Sagas that wait for a second operator, to be resumed.

    Attributes:
        at_ms: when it was proposed; epoch milliseconds.
        who: ARN of the proposer.
        user_id: its unique id.
        why: its reason.
        expires_at: epoch milliseconds.
        sagas: the sagas, as the proposer's function read them.
        confirmed: who confirmed it, and why; None: it is not confirmed.
    """

    at_ms: int
    who: str
    user_id: str
    why: str
    expires_at: int
    sagas: tuple[SeenSaga, ...]
    confirmed: Audit | None = None

    @property
    def id(self) -> str:
        """Its id: two that propose the same are one."""
        return hashlib.sha256(f"{self.user_id}\n{self.why}\n{self._sagas}".encode()).hexdigest()[:32]

    @property
    def _sagas(self) -> str:
        return json.dumps([[one.saga_id, one.owner, one.parked_at] for one in self.sagas], separators=(",", ":"))

    @classmethod
    def from_item(cls, item: AttributeMap) -> ListProposal:
        """Read the item."""
        a = ListAttribute
        proposed_by = item[a.WHO]["S"]
        confirmed = None
        if a.CONFIRMED_BY in item:
            confirmed = Audit(who=item[a.CONFIRMED_BY]["S"], why=item[a.CONFIRMED_WHY]["S"], proposed_by=proposed_by)
        return cls(
            at_ms=int(item[a.AT]["N"]),
            who=proposed_by,
            user_id=item[a.USER_ID]["S"],
            why=item[a.WHY]["S"],
            expires_at=int(item[a.EXPIRES_AT]["N"]),
            sagas=tuple(SeenSaga(*one) for one in json.loads(item[a.SAGAS]["S"])),
            confirmed=confirmed,
        )

    @property
    def proposed(self) -> Decision:
        """The proposer's decision, as the record of each saga keeps it."""
        what = f"proposed in list {self.id}: resume"
        return Decision(at_ms=self.at_ms, who=self.who, what=what, why=self.why, parked_reason=None)

    @property
    def what(self) -> str:
        """The confirmer's decision."""
        return f"resumed by list {self.id}"

    def is_resumed(self, decisions: Sequence[Decision]) -> bool:
        """Test whether a saga was resumed by it."""
        return any(one.what == self.what for one in decisions)

    def propose_update(self, now_ms: int) -> Arguments:
        """Arguments of the ONE conditional update that makes the item, unless it is there."""
        a = ListAttribute
        sets: dict[ListAttribute, Any] = {
            a.AT: {"N": str(self.at_ms)},
            a.WHO: {"S": self.who},
            a.USER_ID: {"S": self.user_id},
            a.WHY: {"S": self.why},
            a.EXPIRES_AT: {"N": str(self.expires_at)},
            a.SAGAS: {"S": self._sagas},
            a.EXPIRATION: {"N": str((self.expires_at + KEPT_MS) // 1_000)},
        }
        return {"Key": list_key(self.id), **update(when(FREE, now={"N": str(now_ms)}) | RETURNS_ITEM, sets)}

    def confirm_update(self, audit: Audit, now_ms: int) -> Arguments:
        """Arguments of the ONE conditional update that confirms it, once, and before it expires."""
        a = ListAttribute
        as_read = when(OPEN, was_at={"N": str(self.at_ms)}, now={"N": str(now_ms)})
        sets: dict[ListAttribute, Any] = {
            a.CONFIRMED_AT: {"N": str(now_ms)},
            a.CONFIRMED_BY: {"S": audit.who},
            a.CONFIRMED_WHY: {"S": audit.why},
        }
        return {"Key": list_key(self.id), **update(as_read, sets)}

    def require_confirmable(self, caller: Caller, second: SecondPerson, now_ms: int) -> None:
        """Refuse a confirmation by the proposer's principal, or after its time.

        Raises:
            CannotResolve: naming it.
        """
        require_other(f"list {self.id}", self.who, self.user_id, caller, second)
        if now_ms >= self.expires_at:
            ago = (now_ms - self.expires_at) // 1_000
            raise CannotResolve(f"list {self.id} expired {ago} s ago; list the sagas, and propose them again")


def list_key(list_id: str) -> dict[str, dict[str, str]]:
    """Primary key of a proposal's item, in a table of request records."""
    return {RecordAttribute.ID: {"S": LIST_PREFIX + list_id}}


def outlook(record: RequestRecord, parked: str | None) -> str:
    """Describe the action of a command to resume a saga.

    Args:
        record: as it was read.
        parked: the execution that had parked it when it was listed; empty: it was not parked; None: not known.
    """
    if record.settled:
        return "is settled"
    if record.parked_by is None:
        return "is not parked: recovered if it does not run"
    if parked not in (None, record.parked_by):
        return LEFT
    return FOR_AN_OPERATOR if is_doubtful(record) else RESUMED


def is_doubtful(record: RequestRecord) -> bool:
    """Test whether a saga was parked because its record may not be true: it was restored, or edited."""
    return stuck_at(record).get("error") in (ParkedFor.OWNER_SUCCEEDED, ParkedFor.OWNER_UNKNOWN)


def stuck_at(record: RequestRecord) -> Mapping[str, Any]:
    """Step and error at which a saga was parked; empty for a text of another form."""
    try:
        found = json.loads(record.parked_reason or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}
