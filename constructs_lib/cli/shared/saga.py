"""Shared by commands about one saga: its id, its record, the time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.cli.shared.aws import add_aws_options, session_of
from constructs_lib.cli.shared.errors import CommandError

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

    from constructs_lib.cli.saga.definition import DeployedSaga
    from saga_runtime.idempotency.record import RequestRecord
    from saga_runtime.recovery.audit import Audit
    from saga_runtime.recovery.takeover import Recoverer


PLACEHOLDER: Final = "WHY"
"""The reason in a command that is printed for an operator to complete."""


def add_saga_options(parser: argparse.ArgumentParser) -> None:
    """Add ``SAGA``, ``--table``, and the options of AWS."""
    parser.add_argument("saga", metavar="SAGA", help="saga id, as in the answer of the API")
    parser.add_argument("--table", required=True, help="name of the IdempotencyTable's table")
    add_aws_options(parser)


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-table``, for users without the right to read what names it."""
    parser.add_argument("--log-table", help="name of the saga log (the saga's state machine names it)")


def add_reason_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--reason``, which is kept with the decision."""
    parser.add_argument("--reason", required=True, help="why; kept with the saga, and shown by cdk-sagas inspect")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSaga:
    """A saga whose record was read strongly.

    Attributes:
        record: the record.
        item: the same, as it is stored.
        recoverer: describes executions, and starts them.
        now_ms: AWS's time.
        session: the caller's.
    """

    record: RequestRecord
    item: Mapping[str, Any]
    recoverer: Recoverer
    now_ms: int
    session: boto3.Session

    @property
    def dynamodb(self) -> DynamoDBClient:
        """Client of DynamoDB."""
        return self.recoverer.dynamodb

    @property
    def step_functions(self) -> SFNClient:
        """Client of Step Functions."""
        return self.recoverer.step_functions


def find_saga(options: argparse.Namespace) -> FoundSaga:
    """Read the record of the saga that the options name.

    Raises:
        CommandError: if it is not a saga id, or the table has no such saga.
    """
    session = session_of(options)
    from saga_runtime.idempotency.identity import is_saga_id, request_id_from
    from saga_runtime.idempotency.record import RequestRecord
    from saga_runtime.protocol import RecordAttribute
    from saga_runtime.recovery.takeover import Recoverer

    if not is_saga_id(options.saga):
        raise CommandError(f"not a saga id: {options.saga!r}; give it as the API answered it")
    recoverer = Recoverer(
        table=options.table, dynamodb=session.client("dynamodb"), step_functions=session.client("stepfunctions")
    )
    key: dict[str, dict[str, str]] = {RecordAttribute.ID: {"S": request_id_from(options.saga)}}
    answer = recoverer.dynamodb.get_item(TableName=options.table, Key=key, ConsistentRead=True)
    item = answer.get("Item")
    record = RequestRecord.from_item(item) if item and RecordAttribute.SAGA_ID in item else None
    if item is None or record is None or record.saga_id != options.saga:
        raise CommandError(f"table {options.table} has no saga {options.saga}; check the table's name and the id")
    return FoundSaga(record=record, item=item, recoverer=recoverer, now_ms=time_of(answer), session=session)


def audit_of(found: FoundSaga, reason: str) -> Audit:
    """Return the caller of this command, as AWS knows it, and the reason.

    Raises:
        CommandError: if the reason is blank or too long.
    """
    from saga_runtime.recovery.audit import Audit

    if reason.strip() == PLACEHOLDER:
        raise CommandError(f"--reason must be yours, got {PLACEHOLDER}; write one sentence")
    try:
        return Audit(who=found.session.client("sts").get_caller_identity()["Arn"], why=reason.strip())
    except ValueError as refusal:
        raise CommandError(f"--reason: {refusal}") from None


def deployed(found: FoundSaga, log_table: str | None) -> DeployedSaga:
    """Properties of the saga from the deployed definitions; only its log's name if they cannot be read.

    Raises:
        CommandError: if nothing names the saga log.
    """
    from botocore.exceptions import ClientError

    from constructs_lib.cli.saga.definition import DeployedSaga, deployed_saga, read_definitions

    try:
        read = deployed_saga(read_definitions(found.step_functions, found.record), log_table)
    except ClientError as error:
        if log_table is None:
            code = error.response.get("Error", {}).get("Code")
            if code == "StateMachineDoesNotExist":
                raise CommandError(
                    f"the state machine of saga {found.record.saga_id} must exist, got none; move the saga to another "
                    "one with cdk-sagas adopt, or name its log with --log-table to inspect it"
                ) from None
            raise CommandError(
                f"the saga's state machine cannot be described ({code}); name its log with --log-table"
            ) from None
        read = None
    if read is not None:
        return read
    if log_table is None:
        raise CommandError("the saga's state machine names no saga log; name it with --log-table")
    return DeployedSaga(log_table=log_table, log_days=None, steps={})


def time_of(answer: Any) -> int:
    """The time by AWS's clock: a person's computer may be wrong, and a deadline must have passed for everybody."""
    from saga_runtime.protocol import Env
    from saga_runtime.shared import clock

    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if os.environ.get(Env.CLOCK) or not date:
        return clock.now_ms()
    return int(parsedate_to_datetime(date).timestamp() * 1_000)
