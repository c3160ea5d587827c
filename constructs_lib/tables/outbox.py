"""Outbox: events that are published because a transaction committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, runtime_metric
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_match
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import checked
from constructs_lib.tables.stateful_table import StatefulTable
from saga_runtime.protocol import Env, Metric, OutboxAttribute

_INTERVAL: Final = Duration.minutes(1)
_TIMEOUT: Final = Duration.seconds(50)
"""Shorter than the interval: two sweeps at once would publish events twice."""
_BATCH: Final = 100
_STREAM_AGE: Final = Duration.hours(1)
"""An older row is left to the sweep."""
_LATE_MINUTES: Final = 15
_SOURCE: Final = r"^(?!aws\.)[\x21-\x7e]{1,128}$"


class Outbox(StatefulTable):
    """Events that are published on a bus because a transaction committed, and only then.

    Creates a DynamoDB table with a stream (on demand, encrypted with the AWS managed key, point-in-time recovery,
    deletion protection, retained), a function that publishes what is put into it, a schedule on which the function
    publishes what is left, and an alarm. Functions put events with ``saga_runtime.Outbox``, as one of the writes of
    their step, compensation or direct operation.

    Guaranteed: an event whose write committed is published at least once, always with the same ``event_id``, the step
    key; one whose transaction did not commit is never published. A row that cannot be published does not hold back
    the others.
    Not guaranteed: once, and order.

    Example::

        outbox = Outbox(self, "Outbox", bus=bus, source="shop.orders")
        commit = StepFunction(self, "Commit", code="functions", handler="shop.commit", environment=outbox.environment)
        outbox.grant_put(commit)

    Args:
        scope: parent construct.
        id: construct id.
        bus: where the events are published. Its consumers declare rules of their own.
        source: the events' source, e.g. ``shop.orders``: 1 to 128 printable characters without blanks, not
            ``aws.`` first.
        encryption_key: a KMS key of your own instead of the AWS managed one.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the table and the log group; retained by default. Anything else also turns deletion
            protection off.

    Attributes:
        publisher: the function that publishes.
        schedule: invokes it every minute.
        unpublished_alarm: an event has waited for more than 15 minutes, or nothing was reported for so long. It has no
            action: add yours.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bus: events.IEventBus,
        source: str,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        require_match("source", source, _SOURCE, "use a name like shop.orders; aws. is AWS's own")
        super().__init__(
            scope,
            id,
            partition_key=OutboxAttribute.ID,
            stream=dynamodb.StreamViewType.NEW_IMAGE,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )
        if function_options is not None:
            function_options.apply_to(self)
        self.publisher = RuntimeFunction(
            self,
            "Publisher",
            code=own_code(),
            handler="handlers.outbox.handler",
            description="Publishes the events of an outbox",
            environment={
                **self.environment,
                Env.OUTBOX_BUS: bus.event_bus_name if _is_near(bus, self) else bus.event_bus_arn,
                Env.OUTBOX_SOURCE: source,
            },
            timeout=_TIMEOUT,
            longest_timeout=_TIMEOUT,
            removal_policy=removal_policy,
        )
        name_role(self.publisher, "the publisher of the outbox")
        self._grant(self.publisher, "dynamodb:DeleteItem", "dynamodb:Scan")
        iam.Grant.add_to_principal(
            grantee=self.publisher, actions=["events:PutEvents"], resource_arns=[bus.event_bus_arn]
        )
        self.publisher.function.add_event_source(
            event_sources.DynamoEventSource(
                self.table,
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                batch_size=_BATCH,
                filters=[lambda_.FilterCriteria.filter({"eventName": lambda_.FilterRule.is_equal("INSERT")})],
                max_record_age=_STREAM_AGE,
                retry_attempts=2,
            )
        )
        self.schedule = run_every(
            self, "Schedule", self.publisher, _INTERVAL, description="Publishes what is left in an outbox"
        )
        self.unpublished_alarm = SagaAlarm(
            self,
            "Unpublished",
            runbook=Runbook.EVENT_UNPUBLISHED,
            text="An event has waited to be published for more than 15 minutes, or the publisher does not "
            "run: see its log event publish_failed",
            metric=runtime_metric(Metric.OLDEST_UNPUBLISHED, service_of(self.publisher), "Maximum", _LATE_MINUTES),
            above=60 * _LATE_MINUTES,
            silence_breaches=True,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of a function for ``Outbox.from_env()``."""
        return {Env.OUTBOX_TABLE: self.table_name}

    def metric_oldest_unpublished(self) -> cloudwatch.Metric:
        """Age in seconds of the oldest event that is not published: the maximum of 5 minutes."""
        return runtime_metric(Metric.OLDEST_UNPUBLISHED, service_of(self.publisher), "Maximum")

    def metric_published(self) -> cloudwatch.Metric:
        """Events published: the sum of 5 minutes."""
        return runtime_metric(Metric.EVENT_PUBLISHED, service_of(self.publisher), "Sum")

    @checked
    def grant_put(self, grantee: iam.IGrantable) -> iam.Grant:
        """Put events in transactions. No read, no delete."""
        return self._grant(grantee, "dynamodb:PutItem")


def _is_near(bus: events.IEventBus, scope: Construct) -> bool:
    """Test whether a bus is in the outbox' account and region: its name is enough there, and not elsewhere."""
    stack = Stack.of(scope)
    return (bus.env.account, bus.env.region) == (stack.account, stack.region)
