"""The operator queue: entries of parked sagas, and its alarm."""

from __future__ import annotations

from functools import cache
from typing import Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib.monitoring.alarms import Runbook, SagaAlarm

_READ_BY_PEOPLE: Final = Acknowledgment(
    id="AwsSolutions-SQS3",
    reason="This queue is the last destination of sagas that need an operator: operators read it, the reconciler "
    "deletes entries of sagas that are not parked any more, and the saga's record says the same.",
)


def operators_of(
    scope: Construct, given: sqs.IQueue | None, removal_policy: RemovalPolicy
) -> tuple[sqs.IQueue, SagaAlarm]:
    """The operators' queue, the construct's own if none was given, and its alarm.

    Raises:
        ValueError: if the queue is a FIFO queue.
    """
    if given is not None and given.fifo:
        raise ValueError(
            f"operators must be a standard queue, got the FIFO queue {given.node.path}: an entry that comes twice does "
            "no harm, and one that is not deduplicated is never lost; give a standard queue"
        )
    queue = given or _own_queue(scope, removal_policy)
    text = "A saga is parked until an operator resolves it: see cdk-sagas inspect"
    return queue, SagaAlarm(scope, "ParkedAlarm", runbook=Runbook.SAGA_PARKED, text=text, metric=entries_of(queue))


def entries_of(queue: sqs.IQueue) -> cloudwatch.IMetric:
    """All entries: for a moment a reconciler hides those that it reads, which must not switch the alarm off and on."""
    minute = Duration.minutes(1)
    return cloudwatch.MathExpression(
        expression="visible + hidden",
        label="Entries",
        period=minute,
        using_metrics={
            "visible": queue.metric_approximate_number_of_messages_visible(period=minute, statistic="Maximum"),
            "hidden": queue.metric_approximate_number_of_messages_not_visible(period=minute, statistic="Maximum"),
        },
    )


def _own_queue(scope: Construct, removal_policy: RemovalPolicy) -> sqs.Queue:
    queue = sqs.Queue(
        scope,
        "Operators",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=_fortnight(),
        removal_policy=removal_policy,
    )
    Validations.of(queue).acknowledge(_READ_BY_PEOPLE)
    return queue


@cache
def _fortnight() -> Duration:
    return Duration.days(14)
