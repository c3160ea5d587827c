"""Decisions of operators, kept with what they are about: who, when, what, why. Pure: data in, data out.

A decision is appended to the list of a saga's record by the very update, or transaction, that carries it out: both are
written, or neither. Nothing changes or removes an entry; the list ends with the record, and a full one takes no more.
What a start of an execution decides is appended right before it, by an update of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import RecordAttribute
from saga_runtime.shared.decisions import Audit, Decision, decided, stored
from saga_runtime.shared.expressions import Arguments, update, when

SAME_SAGA: Final = "#saga_id = :saga_id"
"""The key still has the saga that was read: a forgotten key may be a newer request's."""
AS_READ: Final = f"{SAME_SAGA} AND #status = :was_status AND #owner = :was_owner"
"""And it is in the state, and has the owner, that were read."""
MOST_BYTES: Final = 150_000
"""Of the decisions before a new one: a record that is full could not be written any more, and its saga not settled."""
MOST_BEFORE_PROPOSALS: Final = 100_000
"""The same, before a proposal: its confirmation has room left."""
MOST_BEFORE_LISTS: Final = 50_000
"""The same, before what is done to a list of sagas: decisions about this one have room left."""
_NO_LIST: Final = f"attribute_not_exists(#{RecordAttribute.DECISIONS})"
Appended = tuple[Mapping[Any, str], Mapping[str, Any]]
"""What an update assigns in addition, and the values of it."""
NOTHING: Final[Appended] = ({}, {})
_APPEND: Final = f"list_append(if_not_exists(#{RecordAttribute.DECISIONS}, :no_decisions), :decision)"


def appended(
    audit: Audit, what: str, record: RequestRecord, now_ms: int, *before: Decision, most: int | None = None
) -> Appended:
    """Assignments and values of an update that appends a decision.

    Args:
        audit: its author and reason.
        what: the decision.
        record: as it was read.
        now_ms: the time.
        before: what is appended before it.
        most: bytes of the list before it; ``MOST_BYTES`` by default.

    Raises:
        ValueError: if the record's list is full.
    """
    most = most if most is not None else MOST_BYTES
    if record.decisions_size > most:
        rest = {
            MOST_BEFORE_LISTS: "decide about it alone, with cdk-sagas resolve",
            MOST_BEFORE_PROPOSALS: "confirm an open proposal, or end it by hand",
        }.get(most, "end it by hand")
        raise ValueError(
            f"the decisions about saga {record.saga_id} must have at most {most:,} bytes, got "
            f"{record.decisions_size:,}; find out why it was decided about so often, and {rest}"
        )
    new = decided(audit, what, now_ms, parked_reason=_parked_at(record))
    values = {"no_decisions": {"L": []}, "decision": stored((*before, new))}
    return {RecordAttribute.DECISIONS: _APPEND}, values


def list_as_read(record: RequestRecord) -> Arguments:
    """Arguments of the condition that a record is its saga's, in the state, with the owner and the decisions as read.

    So an update that is sent again because its answer was lost appends nothing twice.
    """
    count = record.decisions
    as_read = f"size(#{RecordAttribute.DECISIONS}) = :count" if count else _NO_LIST
    return when(
        f"{AS_READ} AND {as_read}",
        saga_id={"S": record.saga_id},
        was_status={"S": record.status},
        was_owner={"S": record.owner},
        **({"count": {"N": str(count)}} if count else {}),
    )


def decision_update(
    audit: Audit, what: str, record: RequestRecord, now_ms: int, condition: Arguments | None = None
) -> Arguments:
    """Arguments of an update that appends a decision, and changes nothing else.

    Args:
        audit: its author and reason.
        what: the decision.
        record: as it was read.
        now_ms: the time.
        condition: arguments of it, from ``when``; the saga is the same, by default.
    """
    sets, values = appended(audit, what, record, now_ms)
    condition = condition or when(SAME_SAGA, saga_id={"S": record.saga_id})
    return {"Key": {RecordAttribute.ID: {"S": record.request_id}}, **update(condition, sets, values=values)}


def _parked_at(record: RequestRecord) -> str | None:
    """Step and error of a parked saga. Not its message: that is removed with the response, when it expires."""
    if record.parked_reason is None:
        return None
    told = json.loads(record.parked_reason)
    return ": ".join(str(told[name]) for name in ("step", "error") if told.get(name))
