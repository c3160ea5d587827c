"""A market whose signals begin sagas, deployed in local AWS."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constructs_lib.testing import LocalAws
from saga_runtime import DirectCall, Outbox
from saga_runtime.protocol import RecordAttribute

from .begun.stack import NAME, SOURCE, synthesize
from .support import eventually


@dataclass(frozen=True)
class Market:
    """The deployed stack."""

    aws: LocalAws
    outputs: Mapping[str, str]

    def publish(self, *trades: str, kind: str = "trade") -> None:
        """Publish a signal for each trade."""
        entries = [
            {
                "Source": SOURCE,
                "DetailType": "signal",
                "EventBusName": self.outputs["BusName"],
                "Detail": json.dumps({"kind": kind, "trade": trade}),
            }
            for trade in trades
        ]
        answer = self.aws.client("events").put_events(Entries=entries)
        assert answer["FailedEntryCount"] == 0

    def send(self, trade: str, *, fifo: bool = False) -> None:
        """Send a signal to a queue."""
        body = json.dumps({"detail": {"kind": "trade", "trade": trade}})
        sqs = self.aws.client("sqs")
        if fifo:
            sqs.send_message(
                QueueUrl=self.outputs["FifoUrl"],
                MessageBody=body,
                MessageGroupId="g",
                MessageDeduplicationId=uuid.uuid4().hex,
            )
        else:
            sqs.send_message(QueueUrl=self.outputs["QueueUrl"], MessageBody=body)

    def put(self, trade: str) -> None:
        """Put a trade into the table."""
        item = {"id": {"S": trade}, "seen": {"S": uuid.uuid4().hex}}
        self.aws.client("dynamodb").put_item(TableName=self.outputs["TradeTableName"], Item=item)

    def commit(self, *trades: str) -> None:
        """Commit an event of each trade, as a step does."""
        for trade in trades:
            call = DirectCall(key=trade, idempotency_key=trade, request={}, now_ms=1_000)
            write = Outbox(table=self.outputs["OutboxTableName"]).event(
                call, "signal", {"kind": "trade", "trade": trade}
            )
            entries: Any = [write.action]
            self.aws.client("dynamodb").transact_write_items(TransactItems=entries)

    def unpublished(self) -> list[Any]:
        """Events that wait."""
        return list(self.aws.client("dynamodb").scan(TableName=self.outputs["OutboxTableName"])["Items"])

    def effects(self) -> dict[str, int]:
        """Count the effects of each trade."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["CounterTableName"])["Items"]
        return {item["id"]["S"].removesuffix("/Pay"): int(item["n"]["N"]) for item in items}

    def executions(self) -> int:
        """Count the sagas that were started."""
        found = self.aws.client("stepfunctions").list_executions(stateMachineArn=self.outputs["MachineArn"])
        return len(found["executions"])

    def until(self, *trades: str) -> None:
        """Wait until each of these trades has an effect."""
        eventually(lambda: True if set(trades) <= self.effects().keys() else None)

    def ran(self) -> dict[str, str]:
        """Types of the machines that settled the sagas, by the saga's id."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["RequestTableName"])["Items"]
        return {
            item[RecordAttribute.SAGA_ID]["S"]: item[RecordAttribute.RAN]["S"]
            for item in items
            if RecordAttribute.RAN in item
        }


@contextmanager
def deployed_market(folder: Path, *, speed: float, inline: bool = False) -> Iterator[Market]:
    """Local AWS with the stack; functions have more time than deployed: on a busy machine processes start slowly."""
    assembly = synthesize(folder / "cdk.out", inline=inline)
    with LocalAws(speed=speed, concurrency=3) as aws:
        outputs = aws.deploy(assembly)[NAME]
        for function in ("Reader", "Step", "Outbox/Publisher"):
            name = aws.resolve_function(f"{NAME}/{function}/Function")
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=280)
        yield Market(aws, outputs)
