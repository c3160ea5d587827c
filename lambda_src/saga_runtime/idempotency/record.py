"""Decisions about the request record. Pure: data in, data out.

::

    (absent) --reserve--> IN_PROGRESS --settle--> COMPLETED | FAILED --key forgotten, reserve--> IN_PROGRESS (new saga)
    (absent) --direct operation--> COMPLETED | FAILED

Every update of a record in progress requires that it exists, is IN_PROGRESS and is still owned by the execution that
the writer means. No update ever creates an item, and a record in progress never expires.

A settled record has two ends. Until its response expires, the response is replayed. Then the response and the request
are removed, and the rest, a tombstone, refuses the key until it is forgotten. Times in the record decide, never the
moment at which something is removed or deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.idempotency.amounts import StatedMoney
from saga_runtime.idempotency.identity import due_shard_of
from saga_runtime.protocol import (
    EXPRESS_MARK,
    LEAST_NAME_DAYS,
    PROTOCOL_VERSION,
    SAGA_CANCELLED,
    SETTLED,
    Direction,
    RecordAttribute,
    RecordStatus,
    StartField,
)
from saga_runtime.shared.expressions import RETURNS_ITEM, Arguments, Value, names_in, update, when

AttributeMap = Mapping[str, Mapping[str, Any]]
"""A DynamoDB item in its typed form: ``{"id": {"S": "…"}}``."""

_DAY_MS: Final = 86_400_000

OWNED: Final = "attribute_exists(#id) AND #status = :in_progress AND #owner = :owner"
"""Condition of every update of a record after its reservation."""

OWNED_NAMES: Final = names_in(OWNED)


def owned(owner: str, condition: str = OWNED, **values: Value) -> Arguments:
    """Build the arguments of a condition that contains ``OWNED``."""
    return when(condition, in_progress={"S": RecordStatus.IN_PROGRESS}, owner={"S": owner}, **values)


RESERVE: Final = "attribute_not_exists(#id) OR (#status IN (:completed, :failed) AND #expiration <= :now_seconds)"
RESPONSE_OVER: Final = "#response_expires_at <= :now_seconds"
"""Only settled records have a response expiry; of a missing or new record, the comparison is false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Reservation of a gatekeeper. Times are epoch milliseconds.

    Attributes:
        express: whether Express executions are started for the saga.
        alias: of the state machine, by which the saga is started; None: it has none.
    """

    request_id: str
    saga_id: str
    scope: str
    operation: str
    fingerprint: str
    request: str
    definition: str
    execution_arn: str
    recovery_machine_arn: str
    now_ms: int
    due_after_ms: int
    due_shards: int
    money: StatedMoney | None = None
    express: bool = False
    alias: str | None = None

    @property
    def start_input(self) -> str:
        """The bytes that every start of this saga uses, now or later, by any component."""
        return start_input_of(
            saga_id=self.saga_id,
            request_id=self.request_id,
            request=self.request,
            definition=self.definition + (EXPRESS_MARK if self.express else ""),
        )


def start_input_of(*, saga_id: str, request_id: str, request: str, definition: str) -> str:
    """Input of a saga's execution. The request travels as text: JSONata would turn its numbers into doubles.

    Two characters are escaped in it that SQS refuses, as a part of a job; control characters are in each JSON text.
    """
    request = request.replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")
    fields = {
        StartField.PROTOCOL: PROTOCOL_VERSION,
        StartField.SAGA_ID: saga_id,
        StartField.REQUEST_ID: request_id,
        StartField.REQUEST: request,
        StartField.DEFINITION: definition,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def reserve_put(reservation: Reservation) -> dict[str, Any]:
    """Arguments of the ONE conditional put that reserves. A refusal contains the existing record.

    What every duplicate reads back is kept small: absent attributes mean no update yet and no recovery.
    """
    a = RecordAttribute
    now = str(reservation.now_ms)
    put: dict[str, Any] = {
        "Item": {
            a.ID: {"S": reservation.request_id},
            a.STATUS: {"S": RecordStatus.IN_PROGRESS},
            a.FINGERPRINT: {"S": reservation.fingerprint},
            a.SCOPE: {"S": reservation.scope},
            a.OPERATION: {"S": reservation.operation},
            a.INPUT: {"S": reservation.start_input},
            a.SAGA_ID: {"S": reservation.saga_id},
            a.OWNER: {"S": reservation.saga_id},
            a.DEFINITION: {"S": reservation.definition},
            a.EXECUTION_ARN: {"S": reservation.execution_arn},
            a.RECOVERY_MACHINE_ARN: {"S": reservation.recovery_machine_arn},
            a.CREATED_AT: {"N": now},
            a.DUE_AT: {"N": str(reservation.now_ms + reservation.due_after_ms)},
            a.DUE_SHARD: {"S": due_shard_of(reservation.request_id, reservation.due_shards)},
        },
        **_where_free(reservation.now_ms),
    }
    if reservation.money is not None:
        put["Item"] |= {
            a.AMOUNT: {"N": str(reservation.money.amount)},
            a.CURRENCY: {"S": reservation.money.currency},
        }
    if reservation.alias is not None:
        put["Item"][a.ALIAS] = {"S": reservation.alias}
    return put


def _where_free(now_ms: int) -> dict[str, Any]:
    """Condition of a put that takes a key: no record, or a forgotten key. The record that refuses it comes back."""
    free = when(
        RESERVE,
        completed={"S": RecordStatus.COMPLETED},
        failed={"S": RecordStatus.FAILED},
        now_seconds={"N": str(now_ms // 1000)},
    )
    return free | RETURNS_ITEM


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectRecord:
    """The record of a direct operation: written once, settled. Times are epoch milliseconds.

    Attributes:
        owner: unique per invocation: by it an invocation knows its own record after an answer was lost.
        body: the response, byte for byte.
        replay_seconds: how long it is replayed.
        remember_seconds: how long the key is remembered.
        due_shards: partitions of the index in which it is found when its response expires.
    """

    request_id: str
    saga_id: str
    scope: str
    operation: str
    fingerprint: str
    owner: str
    status: RecordStatus
    http_status: int
    body: str
    now_ms: int
    replay_seconds: int
    remember_seconds: int
    due_shards: int


def direct_put(record: DirectRecord) -> dict[str, Any]:
    """Arguments of the conditional put of a direct operation's record; a refusal carries the record that exists.

    It is a settled saga's record, so that either kind of operation replays the other's.
    """
    a = RecordAttribute
    now_seconds = record.now_ms // 1_000
    put: dict[str, Any] = {
        "Item": {
            a.ID: {"S": record.request_id},
            a.STATUS: {"S": record.status},
            a.FINGERPRINT: {"S": record.fingerprint},
            a.SCOPE: {"S": record.scope},
            a.OPERATION: {"S": record.operation},
            a.SAGA_ID: {"S": record.saga_id},
            a.OWNER: {"S": record.owner},
            a.EXECUTION_ARN: {"S": ""},
            a.RECOVERY_MACHINE_ARN: {"S": ""},
            a.CREATED_AT: {"N": str(record.now_ms)},
            a.HTTP_STATUS: {"N": str(record.http_status)},
            a.RESPONSE: {"S": record.body},
            a.EXPIRATION: {"N": str(now_seconds + record.remember_seconds)},
            a.RESPONSE_EXPIRES_AT: {"N": str(now_seconds + record.replay_seconds)},
        },
        **_where_free(record.now_ms),
    }
    if record.remember_seconds > record.replay_seconds:
        put["Item"][a.RESPONSE_SHARD] = {"S": due_shard_of(record.request_id, record.due_shards)}
    return put


def remove_response_update(request_id: str, now_ms: int) -> dict[str, Any]:
    """Arguments of the update that makes a tombstone of a record whose response has expired.

    It removes what a client sent or received, and errors' messages. The rest refuses the key, and states how
    the saga ended.
    """
    a = RecordAttribute
    removed = (a.INPUT, a.RESPONSE, a.FAILURE, a.PARKED_REASON, a.PROPOSALS, a.AMOUNT, a.CURRENCY, a.RESPONSE_SHARD)
    over = when(RESPONSE_OVER, now_seconds={"N": str(now_ms // 1_000)})
    return {"Key": {a.ID: {"S": request_id}}, **update(over, removes=removed)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request record, read back. Times are epoch milliseconds; those when something expires are epoch seconds.

    Attributes:
        input: what its executions are started with; empty: it is a tombstone, or a direct operation's.
        failure: why it compensates, as JSON; None: no reason is written.
        decisions: how many of operators it keeps.
        decisions_size: their bytes, at most.
        alias: by which its first execution is started; None: by its state machine.
        definition: fingerprint of the definition under which its last owner ran; empty: none is written.
    """

    request_id: str
    saga_id: str
    status: RecordStatus
    scope: str
    fingerprint: str
    input: str
    owner: str
    execution_arn: str
    recovery_machine_arn: str
    recoveries: int
    direction: Direction | None
    created_at: int
    updated_at: int
    due_at: int | None
    expiration: int | None
    response_expires_at: int | None
    parked_by: str | None
    http_status: int | None
    body: str | None
    log_expires_at: int | None = None
    late_tried: int | None = None
    late_at: int | None = None
    parked_reason: str | None = None
    failure: str | None = None
    parked_at: int | None = None
    decisions: int = 0
    decisions_size: int = 0
    alias: str | None = None
    definition: str = ""

    @classmethod
    def from_item(cls, item: AttributeMap) -> RequestRecord:
        """Read an item.

        Raises:
            ValueError: if the item is not a request record (a missing attribute, an unknown status).
        """
        a = RecordAttribute
        try:
            status = RecordStatus(item[a.STATUS]["S"])
            return cls(
                request_id=item[a.ID]["S"],
                saga_id=item[a.SAGA_ID]["S"],
                status=status,
                scope=item[a.SCOPE]["S"],
                fingerprint=item[a.FINGERPRINT]["S"],
                input=(_text(item, a.INPUT) or "") if status in SETTLED else item[a.INPUT]["S"],
                owner=item[a.OWNER]["S"],
                execution_arn=item[a.EXECUTION_ARN]["S"],
                recovery_machine_arn=item[a.RECOVERY_MACHINE_ARN]["S"],
                recoveries=_number(item, a.RECOVERIES) or 0,
                direction=Direction(item[a.DIRECTION]["S"]) if a.DIRECTION in item else None,
                created_at=int(item[a.CREATED_AT]["N"]),
                updated_at=_number(item, a.UPDATED_AT) or int(item[a.CREATED_AT]["N"]),
                due_at=_number(item, a.DUE_AT),
                expiration=_number(item, a.EXPIRATION),
                response_expires_at=_number(item, a.RESPONSE_EXPIRES_AT),
                parked_by=_text(item, a.PARKED_BY),
                http_status=_number(item, a.HTTP_STATUS),
                body=_text(item, a.RESPONSE),
                log_expires_at=_number(item, a.LOG_EXPIRES_AT),
                late_tried=_number(item, a.LATE_TRIED),
                late_at=_number(item, a.LATE_AT),
                parked_reason=_text(item, a.PARKED_REASON),
                failure=_text(item, a.FAILURE),
                parked_at=_number(item, a.PARKED_AT),
                decisions=len(decisions := item.get(a.DECISIONS, {}).get("L", [])),
                decisions_size=len(json.dumps(decisions, ensure_ascii=False).encode()),
                alias=_text(item, a.ALIAS),
                definition=_text(item, a.DEFINITION) or "",
            )
        except KeyError as error:
            raise ValueError(f"not a request record: attribute {error} is missing") from error

    @property
    def start_input(self) -> str:
        """Input of its executions, as of a ``Reservation``."""
        return self.input

    @property
    def settled(self) -> bool:
        """True if the record holds its final answer."""
        return self.status in SETTLED

    @property
    def express(self) -> bool:
        """True if Express executions are started for its saga, which is in progress."""
        return bool(self.input) and str(json.loads(self.input)[StartField.DEFINITION]).endswith(EXPRESS_MARK)

    @property
    def cancelled(self) -> bool:
        """True if an operator cancelled its saga, and no recovery has taken it over since."""
        first = not self.settled and self.direction is None and self.owner == self.saga_id
        return first and self.was_cancelled

    @property
    def was_cancelled(self) -> bool:
        """True if an operator cancelled its saga, however it continued; unknown of a tombstone."""
        failure = json.loads(self.failure) if self.failure is not None else None
        # A step, too, may be refused by an error of this name.
        return isinstance(failure, dict) and failure.get("error") == SAGA_CANCELLED and not failure.get("step")

    @property
    def tombstone(self) -> bool:
        """True if response and request were removed: nothing of this saga can be replayed, started or undone."""
        return self.settled and self.body is None and not self.input

    def response_expired(self, now_ms: int) -> bool:
        """Test whether a settled record's response is not replayed any more, removed or not."""
        over = self.response_expires_at is not None and self.response_expires_at <= now_ms // 1_000
        return self.tombstone or (self.settled and over)

    def forgotten(self, now_ms: int) -> bool:
        """Test whether the key is free again: the record is treated as absent, deleted or not."""
        return self.settled and self.expiration is not None and self.expiration <= now_ms // 1_000


def _number(item: AttributeMap, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _text(item: AttributeMap, name: str) -> str | None:
    return str(item[name]["S"]) if name in item else None


class Met(StrEnum):
    """Results of a refused reservation."""

    OWN = "OWN"
    """One's own reservation, on one's own state machine: the answer to the put was lost, and it was sent again."""
    OTHER_BODY = "OTHER_BODY"
    RUNNING = "RUNNING"
    RUNNING_DUE = "RUNNING_DUE"
    """In progress, and perhaps never started: start it on the spot, with the stored bytes."""
    SETTLED = "SETTLED"
    EXPIRED = "EXPIRED"
    """Settled, and its response has expired: the key is refused."""


def final_met(record: RequestRecord, fingerprint: str, now_ms: int) -> Met | None:
    """Decide what needs nothing to be started; None: the record's saga is in progress."""
    if record.fingerprint != fingerprint:
        return Met.OTHER_BODY
    if record.settled:
        return Met.EXPIRED if record.response_expired(now_ms) else Met.SETTLED
    return None


def what_was_met(record: RequestRecord, reservation: Reservation) -> Met:
    """Decide the action after a refused reservation, from the record in that refusal."""
    if (final := final_met(record, reservation.fingerprint, reservation.now_ms)) is not None:
        return final
    if record.execution_arn == reservation.execution_arn and _may_run_first(record):
        return Met.OWN
    return Met.RUNNING_DUE if _may_start(record, reservation) else Met.RUNNING


def _may_start(record: RequestRecord, reservation: Reservation) -> bool:
    """Test whether starting by the first execution's name can heal and cannot harm.

    Not on another state machine than the gatekeeper's own: a name is taken on one machine only, and another one, which
    has another log, would run the saga a second time. Not before ``due_at``: another gatekeeper is starting it right
    now. Not when parked or taken over: the first execution is history. Not when cancelled: a recovery settles it. Not
    when the name could be free again, in whatever account, and rows could be gone: the saga would run again. A
    reconciler, which knows how long rows are kept, starts what is older, and what is another machine's.
    """
    same_machine = _machine_in(record.execution_arn) == _machine_in(reservation.execution_arn)
    due = record.due_at is not None and record.due_at <= reservation.now_ms
    name_is_taken = reservation.now_ms - record.created_at < (LEAST_NAME_DAYS - 1) * _DAY_MS
    return same_machine and due and name_is_taken and record.parked_by is None and _may_run_first(record)


def _may_run_first(record: RequestRecord) -> bool:
    """Test whether the first execution may be started: it owns the saga, which no operator has cancelled."""
    return record.owner == record.saga_id and not record.cancelled


def _machine_in(execution_arn: str) -> str:
    """An execution's ARN up to its state machine: all but the execution's name."""
    return execution_arn.rpartition(":")[0]
