"""Price the order and check the stock. Reads, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
)
from aws_lambda_powertools.utilities.validation import SchemaValidationError, validate

from saga_runtime import Invalid, StepCall, TransientError, masked_logger, read_only_step
from saga_runtime.shared import aws

from .shop import OutOfStock, Shop, UnknownItem, goods_key

KEY_PREFIX = "quotes"
"""Of Powertools' records in the table of requests; the grant names the same one."""

GOODS = {
    "type": "object",
    "required": ["price", "currency", "stock"],
    "properties": {
        "price": {"type": "integer", "minimum": 1, "description": "minor units"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "stock": {"type": "integer", "minimum": 0},
        "digital": {"type": "boolean"},
    },
}
"""What must hold of goods before anything is priced by them. Others write them, so it is not taken for granted."""

Goods = dict[str, Any]
Question = dict[str, Any]

logger = masked_logger()
shop = Shop.from_env()
config = IdempotencyConfig(expires_after_seconds=3600)
quotes = DynamoDBPersistenceLayer(table_name=os.environ["QUOTES_TABLE"], boto3_client=aws.dynamodb())


def read_goods(skus: list[str]) -> list[Goods | None]:
    """Return the goods in the order of the SKUs; None for what the shop does not sell."""
    keys: Any = [goods_key(sku) for sku in skus]
    answer = aws.dynamodb().batch_get_item(RequestItems={shop.table: {"Keys": keys, "ConsistentRead": True}})
    if answer.get("UnprocessedKeys"):
        raise TransientError("the database is busy")
    found = {item["id"]["S"]: item for item in answer["Responses"][shop.table]}
    return [_plain(found.get(f"goods#{sku}")) for sku in skus]


def _answer(*, question: Question) -> list[Goods | None]:
    return read_goods(question["skus"])


look_up: Callable[..., list[Goods | None]] = idempotent_function(
    _answer, data_keyword_argument="question", persistence_store=quotes, config=config, key_prefix=KEY_PREFIX
)
"""Read goods once per order: every attempt of the step gets the same prices.

Powertools suffices here. It writes its record after the read, and a function that dies in between reads
twice: which changes nothing, since a read has no effect.
"""


def quote(call: StepCall) -> dict[str, Any]:
    """Price the order, or refuse it with the reason."""
    lines = call.request["items"]
    skus = [line["sku"] for line in lines]
    if len(set(skus)) != len(skus):
        raise Invalid("list each item once in an order, with its quantity")
    try:
        goods = look_up(question={"order": call.key, "skus": skus})
    except (IdempotencyAlreadyInProgressError, IdempotencyPersistenceLayerError) as error:
        # Another attempt reads, or died reading, or the record cannot be read. It only saves a read.
        logger.info("read again", extra={"saga_id": call.saga_id, "why": type(error).__name__})
        goods = read_goods(skus)
    amount, currency, physical = 0, "", False
    for line, found in zip(lines, goods, strict=True):
        item = _checked(line["sku"], found)
        if item["stock"] < line["quantity"]:
            raise OutOfStock(f"{line['sku']} is out of stock")
        if currency not in {"", item["currency"]}:
            raise Invalid("the items of an order are sold in one currency")
        currency = item["currency"]
        amount += item["price"] * line["quantity"]
        physical = physical or not item.get("digital", False)
    return {"amount": str(amount), "currency": currency, "physical": physical}


def _checked(sku: str, item: Goods | None) -> Goods:
    if item is None:
        raise UnknownItem(f"{sku} is not sold here")
    try:
        validate(event=item, schema=GOODS)
    except SchemaValidationError:
        logger.error("goods are not as they should be", extra={"sku": sku})
        raise Invalid(f"{sku} cannot be sold: its row in the shop is invalid") from None
    return item


def _plain(item: Any) -> Goods | None:
    """An item of DynamoDB as plain values; whole numbers only, so that anything else is noticed."""
    if item is None:
        return None
    return {
        name: _whole(value) if kind == "N" else value for name, typed in item.items() for kind, value in typed.items()
    }


def _whole(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdigit() else text


_step = read_only_step(quote)


def handler(event: Any, context: Any) -> Any:
    """Handle the step's call. Powertools reads from the context how long the function can run at most."""
    config.register_lambda_context(context)
    return _step(event, context)
