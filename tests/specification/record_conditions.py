"""Conditions and promises of the request record."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tests.specification.conditions import Because, Condition

RECORD: Final = "lambda_src/saga_runtime/idempotency/record.py"
GATEKEEPER: Final = "lambda_src/handlers/gatekeeper.py"
STARTING: Final = "lambda_src/saga_runtime/http/starting.py"
HTTP_OPERATION: Final = "lambda_src/saga_runtime/http/operation.py"
ENDING: Final = "constructs_lib/saga/asl/ending.py"
RECOVERY: Final = "lambda_src/saga_runtime/recovery/takeover.py"


class RecordCondition(Condition):
    """Conditions of the record's life."""

    RESERVE = Because(
        "reading and reserving are one conditional put: nothing comes in between", RECORD, "attribute_not_exists(#id)"
    )
    RESERVE_OR_EXPIRED_SETTLED = Because(
        "only a settled record can be over", RECORD, "#status IN (:completed, :failed) AND"
    )
    RESERVE_OR_EXPIRED_TIME = Because(
        "a settled record answers duplicates until its key is forgotten", RECORD, "#expiration <= :now_seconds"
    )
    RESPONSE_OVER = Because(
        "only a settled record has an expiration of its response: an index that is behind names other records, too",
        RECORD,
        '"#response_expires_at <= :now_seconds"',
    )
    TOMBSTONE_IS_EXPIRED = Because(
        "what has no response any more is expired, whatever the time is", RECORD, "return self.tombstone or"
    )
    EXPIRATION_AT_SETTLE = Because(
        "a record in progress never expires, however long its saga takes",
        ENDING,
        "#expiration = :expiration, #response_expires_at",
    )
    RESERVATION_STAYS = Because(
        "a start without an answer may still arrive: its reservation is never deleted",
        STARTING,
        "Unclear: the next duplicate after ``due_at``, or the reconciler, starts it.",
    )
    MET_OWN = Because(
        "a gatekeeper that meets its own reservation continues with the start", GATEKEEPER, "if met is Met.OWN:"
    )
    MET_RUNNING_DUE = Because(
        "a saga that was never started is started by the next duplicate", GATEKEEPER, "if met is Met.RUNNING_DUE:"
    )
    STORED_START = Because(
        "everybody starts the saga that the record names, never one of their own",
        GATEKEEPER,
        "if not start(record):",
    )
    SAME_MACHINE = Because(
        "a duplicate starts only the state machine that the record names: on another one the name is free",
        RECORD,
        "_machine_in(record.execution_arn) == _machine_in(reservation.execution_arn)",
    )
    MET_OTHER_BODY = Because(
        "a key answers only for the request that it was first used for",
        RECORD,
        "record.fingerprint != fingerprint",
    )
    REFUSAL_LOOKS_FIRST = Because(
        "a request that limits of today refuse may have been recorded under those of yesterday",
        HTTP_OPERATION,
        "record = read_record(self.common.request_table, request_id_of(scope, key))",
    )
    OWNED_EXISTS = Because("no update creates a record", RECORD, "attribute_exists(#id) AND")
    OWNED_IN_PROGRESS = Because("an answer that was given stays", RECORD, "#status = :in_progress AND")
    OWNED_OWNER = Because("only the owner of the record decides about it", RECORD, '#owner = :owner"')
    OWNER_NAMES_THE_SAGA = Because(
        "an owner's name contains the saga's id: a key that was reserved again is safe from the saga before",
        RECOVERY,
        'return f"{saga_id}-r{number}"',
    )


class RecordPromise(StrEnum):
    """Promises of the model."""

    COMPLETED_WITHOUT_EFFECT = "COMPLETED_WITHOUT_EFFECT"
    FAILED_WITH_EFFECT = "FAILED_WITH_EFFECT"
    SECOND_SAGA_WHILE_FIRST_IS_OPEN = "SECOND_SAGA_WHILE_FIRST_IS_OPEN"
    SECOND_SAGA_WITHIN_RETENTION = "SECOND_SAGA_WITHIN_RETENTION"
    SETTLED_BY_ANOTHER_SAGA = "SETTLED_BY_ANOTHER_SAGA"
    ANSWER_CHANGED = "ANSWER_CHANGED"
    ANSWER_OF_ANOTHER_REQUEST = "ANSWER_OF_ANOTHER_REQUEST"
    OWNER_OF_ANOTHER_SAGA = "OWNER_OF_ANOTHER_SAGA"
    UPDATE_CREATED_A_RECORD = "UPDATE_CREATED_A_RECORD"
    FIRST_CLIENT_TURNED_AWAY = "FIRST_CLIENT_TURNED_AWAY"
    SAGA_ON_TWO_MACHINES = "SAGA_ON_TWO_MACHINES"
    REFUSED_ALTHOUGH_RECORDED = "REFUSED_ALTHOUGH_RECORDED"
    REQUEST_REMOVED = "REQUEST_REMOVED"
    RESPONSE_REMOVED_TOO_EARLY = "RESPONSE_REMOVED_TOO_EARLY"
    ANSWERED_WITHOUT_RESPONSE = "ANSWERED_WITHOUT_RESPONSE"
