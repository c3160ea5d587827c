"""The demo's sweeper: finds the requests that are due, and does for each what ``cdk-sagas recover`` does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing import LocalAws
from saga_runtime.protocol import DUE_INDEX, RecordAttribute
from saga_runtime.recovery import Recoverer

from .accounts import LEDGERS, MAIN, close_account

_DUE_SHARDS: Final = 16
_PAUSE_SECONDS: Final = 0.5


class Sweeper:
    """Sweeps in a thread of its own while it is entered. What it meets twice is as good as met once.

    Args:
        aws: Local AWS.
        outputs: The stack's outputs.
        speed: How many times faster than real time local AWS runs.
        closing: Accounts of the main ledger that are closed before a request is recovered, by request id.
    """

    def __init__(self, aws: LocalAws, outputs: Mapping[str, str], *, speed: float, closing: Mapping[str, str]) -> None:
        self._aws = aws
        self._outputs = outputs
        self._speed = speed
        self._closing = dict(closing)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._recoverer = Recoverer(
            table=outputs["RequestTableName"],
            dynamodb=aws.client("dynamodb"),
            step_functions=aws.client("stepfunctions"),
        )
        self._began, self._stamped = _what_time_is_it(aws)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_SECONDS):
            try:
                self._sweep()
            except (ClientError, BotoCoreError):
                # Whatever it was: what is still due is due at the next sweep, too; what never ends breaks an invariant.
                continue

    def _sweep(self) -> None:
        now_ms = int(self._stamped + (time.time() - self._began) * 1000 * self._speed)
        for request_id in list(self._due(now_ms)):
            record = self._recoverer.read(request_id)
            if record is None or self._stopped.is_set():
                return
            account = self._closing.get(request_id)
            if account is not None and close_account(self._aws, self._outputs[LEDGERS[MAIN]], account):
                del self._closing[request_id]
            self._recoverer.recover(record, now_ms)

    def _due(self, now_ms: int) -> Iterator[str]:
        pages = self._aws.client("dynamodb").get_paginator("query")
        a = RecordAttribute
        for shard in range(_DUE_SHARDS):
            for page in pages.paginate(
                TableName=self._outputs["RequestTableName"],
                IndexName=DUE_INDEX,
                KeyConditionExpression="#shard = :shard AND #due <= :now",
                ExpressionAttributeNames={"#shard": a.DUE_SHARD.value, "#due": a.DUE_AT.value},
                ExpressionAttributeValues={":shard": {"S": f"{shard:02d}"}, ":now": {"N": str(now_ms)}},
            ):
                yield from (item[a.ID.value]["S"] for item in page["Items"])


def _what_time_is_it(aws: LocalAws) -> tuple[float, int]:
    """The real time, and the emulator's in milliseconds: it stamps a message with it."""
    sqs = aws.client("sqs")
    queue = sqs.create_queue(QueueName="what-time-is-it")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="now")
    real = time.time()
    message = sqs.receive_message(QueueUrl=queue, AttributeNames=["SentTimestamp"])["Messages"][0]
    sqs.delete_queue(QueueUrl=queue)
    return real, int(message["Attributes"]["SentTimestamp"])
