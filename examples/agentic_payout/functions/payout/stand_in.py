"""A simulated model, for local AWS: it answers differently each time, and records its calls, which cost money."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .errors import ModelUnavailable
from .model import Answer
from .prompt import Prompt

VERSION: Final = "stand-in-1"
LATENCY: Final = "PAYOUT_STAND_IN_MILLISECONDS"
HOLD, GREEDY, BABBLE = "test-hold", "test-greedy", "test-babble"
"""Payees whose names begin like this make it hold, ask for more than was asked for, or talk: as test cards do."""
_LEAST: Final = 90
_CONFIG: Final = Config(connect_timeout=2, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 1})


class StandInModel:
    """Recommends some share of the requested amount, by the operating system's randomness.

    One call is one item in its books, written before it answers: each item was paid for, whether the answer
    arrived or not.

    Args:
        books: name of the DynamoDB table of its books.
        client: a DynamoDB client of your own. Its retries must be off: each would be a call.
    """

    def __init__(self, books: str, client: Any = None) -> None:
        self._books = books
        self._client: Any = client or boto3.client("dynamodb", config=_CONFIG)
        self._seconds = int(os.environ.get(LATENCY, "0")) / 1_000

    def ask(self, prompt: Prompt) -> Answer:
        """Answer once, and never the same way twice.

        Raises:
            ModelUnavailable: if its books cannot be written.
        """
        content = _answer(json.loads(prompt.question)["request"])
        call_id = os.urandom(16).hex()
        item = {
            "id": {"S": call_id},
            "prompt": {"S": prompt.fingerprint},
            "question": {"S": prompt.question},
            "answer": {"S": json.dumps(content)},
        }
        try:
            self._client.put_item(TableName=self._books, Item=item)
        except (BotoCoreError, ClientError) as error:
            raise ModelUnavailable("the model did not answer") from error
        time.sleep(self._seconds)
        return Answer(content=content, version=VERSION, call_id=call_id)


def _answer(request: dict[str, Any]) -> Any:
    payee, asked = str(request["payee"]), int(request["amount"])
    mood = os.urandom(4).hex()
    if payee.startswith(HOLD):
        return {"decision": "hold", "amount": 0, "reason": f"a person should check this ({mood})"}
    if payee.startswith(GREEDY):
        return {"decision": "pay", "amount": asked + 1, "reason": f"a little more will do no harm ({mood})"}
    if payee.startswith(BABBLE):
        return f"Of course! I would be happy to pay {asked} ({mood})."
    least = max(1, asked * _LEAST // 100)
    amount = least + int.from_bytes(os.urandom(8), "big") % (asked - least + 1)
    return {"decision": "pay", "amount": amount, "reason": f"looks right to me ({mood})"}
