"""Operations that belong to no saga and to no request, once: a marker in the transaction of their writes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.errors import PermanentError
from saga_runtime.idempotency.identity import canonical_json, fingerprint_of, parse_json
from saga_runtime.saga_log.transaction import Committed, commit_first
from saga_runtime.saga_log.write import Write
from saga_runtime.shared import aws, clock
from saga_runtime.shared.backoff import Backoff
from saga_runtime.shared.writes import Tries
from saga_runtime.steps.step import Commit
from saga_runtime.versions.errors import OperationReused
from saga_runtime.versions.items import Item, VersionedItem

_FINGERPRINT: Final = "fingerprint"
_RESULT: Final = "result"
_WRITER: Final = "writer"
EXPIRATION: Final = "expiration"
_OWN: Final = frozenset({_FINGERPRINT, _RESULT, _WRITER, EXPIRATION})
_BACKOFF: Final = Backoff()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of an operation.

    Attributes:
        output: the first commit's output; fractions are ``Decimal``.
        replayed: whether it was committed before, and nothing was written now.
    """

    output: Any
    replayed: bool


def commit_once(
    plan: Callable[[], Commit],
    *,
    marker: VersionedItem,
    request: Any,
    remember_seconds: int = 34_560_000,
    remaining_ms: Callable[[], int] = lambda: 60_000,
    backoff: Backoff = _BACKOFF,
) -> Outcome:
    """Commit an operation's writes with its marker: all of them, once.

    For a job, a script or a queue's consumer. A step and a direct operation have a row and a record that do the same.

    Guaranteed: of all calls with one marker the writes of one take effect, and all get its output, also after a lost
    answer, and if the writes would be refused by now because they took effect before.
    Not guaranteed: the same after ``remember_seconds``, when DynamoDB may delete the marker. That a refusal is final: a
    later call with the marker may commit, and so may, within seconds, what an earlier call sent that never returned.

    Args:
        plan: reads strongly, and returns writes and output; again after a conflict.
        marker: where the marker is: an item of its own, e.g. ``{"id": {"S": f"op#{operation_id}"}}``, in a table whose
            time to live is attribute ``expiration``.
        request: what the operation is to do, as JSON: another request under the same marker is refused. Leave versions
            out that a repetition reads again.
        remember_seconds: how long the marker is kept; 400 days by default. Longer than anything repeats the operation.
        remaining_ms: time that is left, in milliseconds.
        backoff: tries of a transaction that conflicts or is throttled.

    Raises:
        OperationReused: the marker is that of another request.
        PermanentError: a write, or the plan, refuses; this call has written nothing.
        TransientError: conflicts outlasted the tries, or no answer, or a refusal after a try without an answer, which
            may still arrive: call again with the same marker.
        ValueError: if ``remember_seconds`` is not an integer of 1 or more, or an attribute of the marker's key has the
            name of one of its own: ``fingerprint``, ``result``, ``writer``, ``expiration``.
    """
    if type(remember_seconds) is not int or remember_seconds < 1:
        raise ValueError(f"remember_seconds must be an integer of 1 or more, got {remember_seconds!r}; raise it")
    if taken := _OWN & marker.key.keys():
        raise ValueError(
            f"marker must have a key without {', '.join(sorted(_OWN))}, got {', '.join(sorted(taken))}; "
            "keep it in a table with another key"
        )
    fingerprint = fingerprint_of("once", canonical_json(request))
    expiration = clock.now_ms() // 1_000 + remember_seconds
    writer, output = uuid.uuid4().hex, ""

    def planned() -> tuple[Any, Sequence[Write]]:
        nonlocal output
        commit: object = plan()
        if not isinstance(commit, Commit):
            raise TypeError(f"plan must return a Commit, got {type(commit).__name__}; return its writes in one")
        output = canonical_json(commit.output)
        item = {
            **marker.key,
            _FINGERPRINT: {"S": fingerprint},
            _RESULT: {"S": output},
            _WRITER: {"S": writer},
            EXPIRATION: {"N": str(expiration)},
        }
        put = {
            "TableName": marker.table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": next(iter(marker.key))},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return {"Put": put}, commit.writes

    tries = Tries()
    try:
        result = commit_first(planned, remaining_ms=remaining_ms, backoff=backoff, tries=tries)
    except Exception as error:
        # An earlier attempt may have changed the very state that refuses, or fails, this one.
        key: Any = marker.key
        found = aws.dynamodb().get_item(TableName=marker.table, Key=key, ConsistentRead=True).get("Item")
        if found is not None:
            return _found(found, fingerprint, writer)
        if isinstance(error, PermanentError) and tries.unsure is not None:
            # An earlier try was not answered, and may still arrive: this refusal is not the end.
            raise tries.unsure from error
        raise
    if isinstance(result, Committed):
        return Outcome(output=parse_json(output), replayed=False)
    return _found(result.item or {}, fingerprint, writer)


def _found(marker: Item, fingerprint: str, writer: str) -> Outcome:
    if marker.get(_FINGERPRINT) != {"S": fingerprint}:
        raise OperationReused("the operation's id was used for another request; use a new id")
    # This call's own: the answer to an earlier try was lost.
    replayed = marker.get(_WRITER) != {"S": writer}
    return Outcome(output=parse_json(marker[_RESULT]["S"]), replayed=replayed)
