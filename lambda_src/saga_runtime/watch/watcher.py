"""Settings and AWS calls of every check of watched state machines.

Each write is conditional, and repeatable. Two watchers at once, or one that crashes
between any two calls, are harmless: an end that was found is pending until its function succeeded, and a list is read
until every end that it shows is kept.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.protocol import Env, Metric, WatchAttribute
from saga_runtime.shared import aws, clock, telemetry, writes
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.backoff import Backoff
from saga_runtime.watch.decisions import Execution
from saga_runtime.watch.rows import AttributeMap, EndRow, Watched, found_put, watched_of

SPARE_MS: Final = 10_000
"""A sweep ends this long before its time is up, and a call of a function before its caller's is."""
BACKOFF: Final = Backoff(attempts=4, base_ms=200, cap_ms=3_000)
"""For what was throttled; the next look tries again, too."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Watches state machines.

    Attributes:
        watched: the machines.
        table: what is kept of them.
        queue: URL of the queue whose messages are processed one by one.
        dead_letters: URL of the queue for operators.
        remaining_ms: time that is left.
    """

    watched: Sequence[Watched]
    table: str
    queue: str
    dead_letters: str
    remaining_ms: Callable[[], int]

    @classmethod
    def from_env(cls, remaining_ms: Callable[[], int]) -> Watcher:
        """The watcher that the environment describes."""
        return cls(
            watched=watched_of(os.environ[Env.WATCHED]),
            table=os.environ[Env.WATCH_TABLE],
            queue=os.environ[Env.WATCH_QUEUE],
            dead_letters=os.environ[Env.DEAD_LETTERS],
            remaining_ms=remaining_ms,
        )

    def patiently(self, look: Callable[[], Result]) -> Result:
        """Do something, again after a pause if it was throttled.

        Raises:
            ClientError, BotoCoreError: it failed too often, or for good.
        """
        for failures in range(1, BACKOFF.attempts):
            try:
                return look()
            except (ClientError, BotoCoreError) as error:
                delay = BACKOFF.delay_ms(failures, random.random())
                if not aws.is_transient(error) or self.remaining_ms() < SPARE_MS + delay:
                    raise
                time.sleep(delay / 1_000)
        return look()

    def keep(self, watched: Watched, execution: Execution) -> bool:
        """Keep an end, and return whether it was unknown; a known one is unchanged."""
        if execution.end is None or execution.end not in watched.ends:
            return False
        now_ms = clock.now_ms()
        stopped_at = execution.stopped_at or now_ms  # an answer without a time must not end the grace
        put = found_put(
            id=execution.id,
            end=execution.end,
            started_at=execution.started_at,
            stopped_at=stopped_at,
            not_before=max(stopped_at + watched.grace_ms, now_ms),
            now_ms=now_ms,
        )
        if self.put(put):
            telemetry.count(Metric.BAD_ENDS, row_id=execution.id)
            return True
        return False

    def machine_of(self, execution_arn: str) -> Watched | None:
        """The machine that an execution belongs to; None: it is not watched."""
        machine = machine_of(execution_arn)
        return next((watched for watched in self.watched if watched.machine == machine), None)

    def described(self, execution_arn: str) -> Mapping[str, Any] | None:
        """Description of an execution; None: Step Functions has none."""
        try:
            said: Mapping[str, Any] = aws.step_functions().describe_execution(executionArn=execution_arn)
        except ClientError as error:
            if aws.error_code(error) != "ExecutionDoesNotExist":
                raise
            return None
        return said

    def item(self, row_id: str) -> AttributeMap | None:
        """An item, read strongly."""
        key: dict[str, dict[str, str]] = {WatchAttribute.ID: {"S": row_id}}
        item: AttributeMap | None = (
            aws.dynamodb().get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        )
        return item

    def row(self, row_id: str) -> EndRow | None:
        """Row of an end, read strongly."""
        item = self.item(row_id)
        return None if item is None else EndRow.from_item(item)

    def put(self, arguments: dict[str, Any]) -> bool:
        """Test whether a conditional put took effect."""
        return writes.write({"Put": {"TableName": self.table, **arguments}}) is None

    def updated(self, arguments: dict[str, Any]) -> bool:
        """Test whether a conditional update was applied; refused, another process has handled it."""
        return writes.write({"Update": {"TableName": self.table, **arguments}}) is None
