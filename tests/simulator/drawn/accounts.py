"""Ledger, outbox and consumer of a stack of drawn sagas: the constructs, made when the first step needs them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import CollectingAccounts, LedgerTable, Outbox, StepFunction

from .names import CONSUMED, LEDGER, PUBLISHED_BY

_SECONDS: Final = 20
"""A consumer's timeout."""


class Accounts:
    """Constructs of steps that post, or publish.

    Args:
        scope: the stack.
        bus: where events are published.
        code: the functions' folder.
    """

    def __init__(self, scope: Construct, bus: events.EventBus, code: Path) -> None:
        self._scope = scope
        self._bus = bus
        self._code = code

    @cached_property
    def ledger(self) -> LedgerTable:
        """The ledger."""
        collecting = [CollectingAccounts(prefix="merchant:", unit="EUR", shards=2)]
        made = LedgerTable(self._scope, "Ledger", holds=True, collecting=collecting)
        CfnOutput(self._scope, LEDGER, value=made.table.table_name)
        return made

    @cached_property
    def outbox(self) -> Outbox:
        """The outbox."""
        self.consume()
        return Outbox(self._scope, "Outbox", bus=self._bus, source=PUBLISHED_BY[0])

    def consume(self) -> None:
        """Have the bus' events consumed."""
        _ = self._consumer

    def serve(self, function: StepFunction) -> None:
        """Let a function post, and publish."""
        self.ledger.grant_post(function)
        self.outbox.grant_put(function)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a function that posts, and publishes."""
        return {**self.ledger.environment, **self.outbox.environment}

    @cached_property
    def _consumer(self) -> StepFunction:
        table = dynamodb.TableV2(
            self._scope,
            "Consumed",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expiration",
        )
        consumer = StepFunction(
            self._scope,
            "Consumer",
            code=self._code,
            handler="work.consumer.handler",
            timeout=Duration.seconds(_SECONDS),
            environment={"CONSUMED_TABLE": table.table_name},
        )
        table.grant(consumer, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
        dead = sqs.DeadLetterQueue(queue=sqs.Queue(self._scope, "Unconsumed"), max_receive_count=1_000)
        queue = sqs.Queue(
            self._scope, "Published", visibility_timeout=Duration.seconds(6 * _SECONDS), dead_letter_queue=dead
        )
        consumer.function.add_event_source(sources.SqsEventSource(queue))
        pattern = events.EventPattern(source=[*PUBLISHED_BY])
        events.Rule(
            self._scope, "Consume", event_bus=self._bus, event_pattern=pattern, targets=[targets.SqsQueue(queue)]
        )
        CfnOutput(self._scope, CONSUMED, value=table.table_name)
        return consumer
