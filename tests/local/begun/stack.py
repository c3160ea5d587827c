"""A bus whose events begin sagas of one step that counts, and an outbox that publishes on it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    EventIntake,
    IdempotencyTable,
    Outbox,
    Retry,
    Run,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"
_COUNTING: Final = Path(__file__).parent.parent / "counting" / "functions"
NAME: Final = "Begun"
SOURCE: Final = "market"
_PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)


class BegunStack(Stack):
    """Each trade that a signal reports counts once.

    Args:
        scope: parent construct.
        id: construct id.
        definition: where an inline saga's definition is kept; None: the saga runs in the Standard machine.
    """

    def __init__(self, scope: Construct, id: str, *, definition: Path | None = None) -> None:
        super().__init__(scope, id)
        inline = definition is not None
        counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        step = StepFunction(
            self,
            "Step",
            code=_COUNTING,
            handler="steps.step",
            environment={"COUNTERS": counters.table_name},
            timeout=Duration.seconds(40 if inline else 120),
        )
        counters.grant(step, "dynamodb:UpdateItem")
        requests = IdempotencyTable(self, "Requests", due_after=Duration.seconds(10) if inline else None)
        pay = [Step.atomic("Pay", fn=step, retry=_PATIENT)]
        saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            steps=pay,
            timeout=Duration.hours(2),
            run=Run.INLINE if inline else Run.STANDARD,
            definition_file=definition,
        )
        if inline:
            TimeoutReconciler(self, "Reconciler", sagas=[saga])
        seconds = 10 if inline else 28
        reader = StepFunction(
            self, "Reader", code=_FUNCTIONS, handler="placed.handler", timeout=Duration.seconds(seconds)
        )
        intake = EventIntake(self, "Signals", operation="trades", fn=reader, saga=saga)
        bus = events.EventBus(self, "Bus")
        intake.add_event_rule("Rule", bus=bus, pattern=events.EventPattern(source=[SOURCE]))
        visible = Duration.seconds(6 * seconds)
        dead = sqs.Queue(self, "Dead")
        queue = sqs.Queue(
            self,
            "Queue",
            visibility_timeout=visible,
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=9),
        )
        dead_fifo = sqs.Queue(self, "DeadFifo", fifo=True)
        fifo = sqs.Queue(
            self,
            "Fifo",
            fifo=True,
            visibility_timeout=visible,
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_fifo, max_receive_count=9),
        )
        trades = dynamodb.TableV2(
            self,
            "Trades",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            dynamo_stream=dynamodb.StreamViewType.KEYS_ONLY,
        )
        intake.add_queue(queue)
        intake.add_queue(fifo)
        intake.add_stream(trades)
        outbox = Outbox(self, "Outbox", bus=bus, source=SOURCE)
        for name, value in {
            "OutboxTableName": outbox.table_name,
            "QueueUrl": queue.queue_url,
            "FifoUrl": fifo.queue_url,
            "TradeTableName": trades.table_name,
            "BusName": bus.event_bus_name,
            "CounterTableName": counters.table_name,
            "ParkedQueueUrl": intake.parked.queue_url,
            "MachineArn": saga.state_machine.state_machine_arn,
            "RequestTableName": requests.table.table_name,
        }.items():
            CfnOutput(self, name, value=value)


def synthesize(folder: Path, *, inline: bool = False) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    BegunStack(app, NAME, definition=folder / "saga.json" if inline else None)
    app.synth()
    return folder
