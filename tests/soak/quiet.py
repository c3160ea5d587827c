"""When it is over: nothing runs, nothing waits, nothing is on its way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus, StepStatus, TokenAttribute
from tests.local.two_ledgers import TwoLedgers

from .world import World

_LOOK_SECONDS: Final = 1.0
_UNREAD: Final = ("NoticeQueueUrl", "OperatorsQueueUrl", "ReviewMailQueueUrl", "TextQueueUrl", "FindingQueueUrl")
"""Queues that no function in this world reads, or that operators read."""
_DAY_MS: Final = 86_400_000
_IN_DOUBT: Final = (StepStatus.INTENT, StepStatus.COMPENSATING, StepStatus.APPLIED_LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stir:
    """Unfinished work.

    Attributes:
        counts: number by kind.
    """

    counts: Mapping[str, int]

    @property
    def is_quiet(self) -> bool:
        """True if there is no unfinished work."""
        return not any(self.counts.values())

    def __str__(self) -> str:
        """Unfinished work, in one line."""
        return ", ".join(f"{count} {what}" for what, count in self.counts.items() if count) or "nothing"


def look(world: World) -> Stir:
    """Look once, at everything."""
    found: Counter[str] = Counter()
    for example, system in world.systems.items():
        found[f"{example}: sagas in progress"] = _in_progress(system)
        found[f"{example}: effects in doubt"] = _in_doubt(system)
    for what, count in (*_executions(world), *_messages(world), *_events(world)):
        found[what] += count
    return Stir(counts=found)


def await_quiet(world: World, *, seconds: float, at_least: float = 0.0) -> tuple[Stir, float | None]:
    """Look until two looks in a row find nothing, or the time is over.

    Args:
        world: where.
        seconds: how long, at most.
        at_least: how long, at least: something may be to come that no look finds.

    Returns:
        The last look; and since when it has been quiet, in the emulator's epoch seconds: None if it is not.
    """
    began = time.monotonic()
    since: float | None = None
    while True:
        now = world.aws.now().timestamp()
        stir = look(world)
        if not stir.is_quiet:
            since = None
        passed = time.monotonic() - began
        if (since is not None and passed >= at_least) or passed >= seconds:
            return stir, since
        if stir.is_quiet and since is None:
            since = now
        time.sleep(_LOOK_SECONDS)


def _in_progress(system: TwoLedgers) -> int:
    """Records in progress; a parked one waits for an operator, and is excluded."""
    a = RecordAttribute
    return _count(
        system,
        "RequestTableName",
        f"#status = :status AND attribute_not_exists({a.PARKED_BY})",
        {"#status": a.STATUS},
        {":status": {"S": RecordStatus.IN_PROGRESS}},
    )


def _in_doubt(system: TwoLedgers) -> int:
    """Rows that are not decided yet, or whose late effect is not compensated yet."""
    values = {f":s{number}": {"S": status} for number, status in enumerate(_IN_DOUBT)}
    parked = _parked(system)
    pages = (
        system.aws.client("dynamodb")
        .get_paginator("scan")
        .paginate(
            TableName=system.outputs["LogTableName"],
            ConsistentRead=True,
            FilterExpression=f"#status IN ({', '.join(values)})",
            ProjectionExpression="#id",
            ExpressionAttributeNames={"#status": LogAttribute.STATUS, "#id": LogAttribute.SAGA_ID},
            ExpressionAttributeValues=values,
        )
    )
    return sum(item[LogAttribute.SAGA_ID]["S"] not in parked for page in pages for item in page["Items"])


def _parked(system: TwoLedgers) -> set[str]:
    a = RecordAttribute
    pages = (
        system.aws.client("dynamodb")
        .get_paginator("scan")
        .paginate(
            TableName=system.outputs["RequestTableName"],
            ConsistentRead=True,
            FilterExpression="attribute_exists(#parked_by)",
            ExpressionAttributeNames={"#parked_by": a.PARKED_BY},
        )
    )
    return {item[a.SAGA_ID]["S"] for page in pages for item in page["Items"]}


def _count(
    system: TwoLedgers, table: str, condition: str, names: dict[str, str], values: dict[str, dict[str, str]]
) -> int:
    pages = (
        system.aws.client("dynamodb")
        .get_paginator("scan")
        .paginate(
            TableName=system.outputs[table],
            ConsistentRead=True,
            Select="COUNT",
            FilterExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )
    )
    return sum(page["Count"] for page in pages)


def _executions(world: World) -> Iterator[tuple[str, int]]:
    states = world.aws.client("stepfunctions")
    for machine in world.machines:
        if machine.express:
            continue
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=machine.arn, statusFilter="RUNNING")
        yield f"{machine.example}: executions that run", sum(len(page["executions"]) for page in pages)


def _messages(world: World) -> Iterator[tuple[str, int]]:
    """Messages that a function has yet to process; dead letters wait for an operator."""
    sqs = world.aws.client("sqs")
    unread = {system.outputs.get(name) for system in world.systems.values() for name in _UNREAD}
    for queue in world.resources("AWS::SQS::Queue"):
        if queue.physical_id in unread or is_for_dead_letters(queue.path):
            continue
        found = sqs.get_queue_attributes(
            QueueUrl=queue.physical_id,
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        yield f"messages in {queue.path}", sum(map(int, found.values()))


def is_for_dead_letters(path: str) -> bool:
    """True if a queue contains undeliverable messages."""
    return "DeadLetters" in path or "Undeliver" in path


def _events(world: World) -> Iterator[tuple[str, int]]:
    """Webhooks that are to be delivered, and token rows that are to be swept.

    What only a person can do something about, an answer that contradicts the one that counts, is due when it expires.
    """
    for kind, provider in world.providers.items():
        yield f"webhooks of the {kind} provider", sum(delivery.open for delivery in provider.deliveries())
    a = TokenAttribute
    pages = (
        world.aws.client("dynamodb")
        .get_paginator("scan")
        .paginate(
            TableName=world.carts.outputs["TokenTableName"],
            ConsistentRead=True,
            Select="COUNT",
            FilterExpression="#due_at < :soon",
            ExpressionAttributeNames={"#due_at": a.DUE_AT},
            ExpressionAttributeValues={":soon": {"N": str(world.carts.now_ms() + _DAY_MS)}},
        )
    )
    yield "token rows that are to be swept", sum(page["Count"] for page in pages)
