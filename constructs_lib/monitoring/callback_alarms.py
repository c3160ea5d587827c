"""Alarms of an integration: one per kind of failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from saga_runtime.protocol import METRIC_NAMESPACE, Metric

_SERVICE: Final = "service"
"""Dimension of every metric of our functions."""
_PERIOD: Final = Duration.minutes(5)


def oldest_waiting_alarm(scope: Construct, sweeper: str, seconds: int) -> cloudwatch.Alarm:
    """Create the alarm of a wait that is too long. Missing data breaches too: the sweeper reports every minute.

    A wait that is overdue for a moment, until its state machine retries, does not alarm: it takes several periods.
    """
    metric = _metric(Metric.OLDEST_WAITING, sweeper, "Maximum")
    return _alarm(
        scope,
        "OldestWaiting",
        f"A job is overdue, or its outcome not delivered, for more than {seconds} s, or there is no data: "
        "see cdk-sagas callbacks",
        metric,
        threshold=seconds,
        missing=cloudwatch.TreatMissingData.BREACHING,
        periods=3,
    )


def counted_alarm(
    scope: Construct, id: str, description: str, metrics: Sequence[Metric], services: Sequence[str]
) -> cloudwatch.Alarm:
    """One of these was counted, by any of these services."""
    parts = {
        f"m{number}": _metric(metric, service, "Sum")
        for number, (metric, service) in enumerate((m, s) for m in metrics for s in services)
    }
    (first, *others) = parts.values()
    total: cloudwatch.IMetric = first
    if others:
        total = cloudwatch.MathExpression(
            expression=" + ".join(f"FILL({name}, 0)" for name in parts), using_metrics=parts, period=_PERIOD, label=id
        )
    return _alarm(scope, id, description, total)


def depth_alarm(scope: Construct, id: str, description: str, queue: sqs.IQueue) -> cloudwatch.Alarm:
    """Something is in a queue that should be empty."""
    metric = queue.metric_approximate_number_of_messages_visible(period=Duration.minutes(1), statistic="Maximum")
    return _alarm(scope, id, description, metric)


def _metric(metric: Metric, service: str, statistic: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=METRIC_NAMESPACE,
        metric_name=metric,
        dimensions_map={_SERVICE: service},
        statistic=statistic,
        period=_PERIOD,
    )


def _alarm(
    scope: Construct,
    id: str,
    description: str,
    metric: cloudwatch.IMetric,
    *,
    threshold: int = 0,
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    periods: int = 1,
) -> cloudwatch.Alarm:
    return cloudwatch.Alarm(
        scope,
        id,
        alarm_description=description,
        metric=metric,
        threshold=threshold,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        evaluation_periods=periods,
        treat_missing_data=missing,
    )
