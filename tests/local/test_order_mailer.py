"""The mailer on a real queue: what it reports comes again, what is after it waits, and each notice is one row."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import LocalAws
from constructs_lib.testing.invariants import read_table

from .support import eventually

SPEED: Final = 10.0
STACK: Final = "Mail"
MAILER: Final = f"{STACK}/Mailer/Function/Function"
RECEIVES: Final = 2
OUT_OF_SIGHT_SECONDS: Final = 20
FUNCTION_SECONDS: Final = 100
"""In the emulator's time: long enough for a process to start on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSystem:
    """A queue of notices, its mailer, and the table with the outbox."""

    aws: LocalAws
    outputs: Mapping[str, str]

    @contextmanager
    def waiting_for_all(self) -> Iterator[None]:
        """Nothing is received before everything is sent, however long that takes."""
        functions = self.aws.client("lambda")
        name = self.aws.resolve_function(MAILER)
        (mapping,) = functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        yield
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)

    def send(self, *bodies: str, group: str) -> None:
        """Send messages of one group, one after the other."""
        for number, body in enumerate(bodies):
            self.aws.client("sqs").send_message(
                QueueUrl=self.outputs["NoticeQueueUrl"],
                MessageBody=body,
                MessageGroupId=group,
                MessageDeduplicationId=f"{group}-{number}",
            )

    def outbox(self) -> set[tuple[str, str]]:
        """Keys of the rows."""
        rows = read_table(self.aws.client("dynamodb"), self.outputs["ShopTableName"])
        return {(row["id"]["S"], row["entry"]["S"]) for row in rows}

    def undelivered(self) -> list[str]:
        """Messages in the dead-letter queue."""
        found = self.aws.client("sqs").receive_message(
            QueueUrl=self.outputs["UndeliveredQueueUrl"], MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        return [message["Body"] for message in found.get("Messages", [])]

    def waiting(self) -> int:
        """Messages in the queue of notices, in sight or not."""
        names: list[Any] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.aws.client("sqs").get_queue_attributes(
            QueueUrl=self.outputs["NoticeQueueUrl"], AttributeNames=names
        )["Attributes"]
        return sum(int(attributes[name]) for name in names)


@pytest.fixture(scope="module")
def system() -> Iterator[MailSystem]:
    with LocalAws(speed=SPEED) as aws, tempfile.TemporaryDirectory(prefix="cdk-sagas-test-") as folder:
        outputs = aws.deploy(_synthesized(Path(folder)))[STACK]
        name = aws.resolve_function(MAILER)
        aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
        # A process starts in real time, messages come into sight again in the emulator's: started beforehand.
        aws.client("lambda").invoke(FunctionName=name, Payload='{"Records": []}')
        yield MailSystem(aws=aws, outputs=outputs)


def _synthesized(folder: Path) -> Path:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App, CfnOutput, Duration, Stack
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_sqs as sqs

    from examples.order_processing.mailer import Mailer

    app = App(outdir=str(folder))
    stack = Stack(app, STACK)
    text = dynamodb.AttributeType.STRING
    shop = dynamodb.TableV2(
        stack,
        "Shop",
        partition_key=dynamodb.Attribute(name="id", type=text),
        sort_key=dynamodb.Attribute(name="entry", type=text),
    )
    undelivered = sqs.Queue(stack, "Undelivered", fifo=True)
    given_up = sqs.DeadLetterQueue(queue=undelivered, max_receive_count=RECEIVES)
    out_of_sight = Duration.seconds(OUT_OF_SIGHT_SECONDS)
    notices = sqs.Queue(stack, "Notices", fifo=True, dead_letter_queue=given_up, visibility_timeout=out_of_sight)
    Mailer(stack, "Mailer", notices=notices, shop=shop)
    CfnOutput(stack, "ShopTableName", value=shop.table_name)
    CfnOutput(stack, "NoticeQueueUrl", value=notices.queue_url)
    CfnOutput(stack, "UndeliveredQueueUrl", value=undelivered.queue_url)
    app.synth()
    return folder


def declined(order: str, customer: str) -> str:
    return json.dumps({"status": "DECLINED", "customer": customer, "order": order, "detail": "declined"})


def test_a_bad_message_is_dead_lettered_with_the_rest_of_its_group(system: MailSystem) -> None:
    with system.waiting_for_all():
        system.send(
            declined("a-1", "ada"), declined("a-1", "ada"), "Good morning,", declined("a-2", "ada"), group="ada"
        )
        system.send(declined("b-1", "bob"), declined("b-2", "bob"), group="bob")

    assert eventually(lambda: found if len(found := system.undelivered()) == 2 else None) == [
        "Good morning,", declined("a-2", "ada"),
    ]  # fmt: skip
    eventually(lambda: True if system.waiting() == 0 else None)
    assert system.outbox() == {
        ("mail#ada", "a-1#DECLINED"), ("mail#bob", "b-1#DECLINED"), ("mail#bob", "b-2#DECLINED"),
    }  # fmt: skip
