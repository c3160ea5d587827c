"""Puts every notice of an order into its customer's outbox, once. Not a step of the saga: it reads the saga's queue.

A notice is sent at least once, and a queue delivers at least once. The outbox row has a key that only this notice has,
and is put on the condition that it does not exist: a repeated notice is one row, and so one mail. The outbox's mails
are sent outside of this example; the sender must mark rows as sent and keep them: without its row, a repeated notice
is a new one.

A notice that cannot be filed is reported, and so are those behind it in its group: they keep their order. The rest of
the batch is done. After five deliveries the queue moves the reported ones to ``UndeliveredNotices``, for an operator.
"""

from __future__ import annotations

import json
from typing import Any, Final

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext
from aws_lambda_powertools.utilities.validation import SchemaValidationError, validate

from saga_runtime import masked_logger
from saga_runtime.shared import aws

from .shop import Shop

TEXT: Final = {"type": "string", "minLength": 1}


def _notice(status: str, **fields: dict[str, Any]) -> dict[str, Any]:
    properties = {"status": {"const": status}, "customer": TEXT, "order": TEXT, "detail": {"type": "string"}, **fields}
    return {"type": "object", "required": ["status", "customer", "order", *fields], "properties": properties}


NOTICE: Final = {
    "oneOf": [
        _notice("COMPLETED", amount={"type": "string", "pattern": "^[0-9]+$"}, currency=TEXT),
        _notice("FAILED", step={"type": "string"}, error={"type": "string"}),
        _notice("DECLINED"),
    ]
}
"""Schema of a notice that can be filed. Further fields are filed, too: the sender of mails may need them."""

logger = masked_logger()
shop = Shop.from_env()
processor = SqsFifoPartialProcessor(skip_group_on_error=True)


class UnreadableNotice(ValueError):
    """The message is not a notice, and another delivery will not change that."""


def file_notice(record: SQSRecord) -> None:
    """Put one notice into its customer's outbox, unless it is there."""
    told = {"message_id": record.message_id}
    try:
        notice = _read(record)
        told["saga_id"] = notice["order"]
        filed = _put(notice, record.message_id)
    except Exception as error:
        # The name only: texts of errors may quote the notice.
        logger.warning("notice not filed", extra={**told, "why": type(error).__name__})
        raise
    logger.info("notice filed" if filed else "notice was filed before", extra=told)


def _read(record: SQSRecord) -> dict[str, Any]:
    try:
        notice: dict[str, Any] = json.loads(record.body)
        validate(event=notice, schema=NOTICE)
    except (ValueError, SchemaValidationError):
        # Without its cause, which quotes the message: Powertools logs it when a whole batch fails.
        raise UnreadableNotice(f"message {record.message_id} is not a notice; correct it, and send it again") from None
    return notice


def _put(notice: dict[str, Any], message_id: str) -> bool:
    """Test whether the row is new."""
    row = {
        "id": {"S": f"mail#{notice['customer']}"},
        "entry": {"S": f"{notice['order']}#{notice['status']}"},
        "notice": {"S": json.dumps(notice)},
        "message_id": {"S": message_id},
    }
    try:
        aws.dynamodb().put_item(TableName=shop.table, Item=row, ConditionExpression="attribute_not_exists(id)")
    except aws.dynamodb().exceptions.ConditionalCheckFailedException:
        return False
    return True


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """File a batch of notices, and return to the queue those that it must deliver again."""
    return process_partial_response(event=event, record_handler=file_notice, processor=processor, context=context)
