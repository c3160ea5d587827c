"""Reading many items of a table at once: what DynamoDB leaves out for the moment is asked for again, ever later."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEYS_AT_ONCE: Final = 100
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 10.0


def batch_of(dynamodb: DynamoDBClient, table: str, asked: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Items of a table, as ``BatchGetItem`` is asked for them, in any order; those that are not there are left out.

    A table that is throttled answers with some of them, or with none: it is asked for the others until it has answered
    for all, after a random time up to a pause that doubles, and is short again once it answers.

    Args:
        dynamodb: the client.
        table: where.
        asked: ``Keys``, at most a hundred, and what else the operation knows.
    """
    left, pause = list(asked["Keys"]), FIRST_PAUSE_SECONDS
    while left:
        request: Any = {table: {**asked, "Keys": left}}
        answer: Any = dynamodb.batch_get_item(RequestItems=request)
        found = answer["Responses"].get(table, [])
        yield from found
        left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
        if left:
            pause = FIRST_PAUSE_SECONDS if found else min(2 * pause, LONGEST_PAUSE_SECONDS)
            time.sleep(pause * random.random())
