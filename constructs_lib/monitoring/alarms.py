"""Alarms, each with the page of its runbook."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, cast

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib.shared.arguments import require_match
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from saga_runtime.protocol import METRIC_NAMESPACE, SERVICE_DIMENSION, Metric

RUNBOOK: Final = "docs/runbook"
"""Folder of the runbook, from the root of the project."""
_PAGE: Final = "{page}"
"""Place of a page's name in an address."""
_URL: Final = r"https?://[A-Za-z0-9][A-Za-z0-9._~:/?&%=#@+-]{0,400}([/#=]|\{page\}[A-Za-z0-9._~/?&%=#-]{0,40})"
_SILENT: Final = {
    True: cloudwatch.TreatMissingData.BREACHING,
    False: cloudwatch.TreatMissingData.NOT_BREACHING,
}


class Runbook(StrEnum):
    """Pages of the runbook: ``docs/runbook/<value>.md``. Each kind of alarm has one."""

    API_ERRORS = "api-errors"
    API_SLOW = "api-slow"
    CALLBACK_CONFLICT = "callback-conflict"
    CALLBACK_DEAD_LETTERS = "callback-dead-letters"
    CALLBACK_UNDELIVERED = "callback-undelivered"
    CALLBACK_OVERDUE = "callback-overdue"
    CALLBACK_REFUSED = "callback-refused"
    CALLBACK_UNKNOWN_JOB = "callback-unknown-job"
    EVENT_DEAD_LETTERS = "event-dead-letters"
    EVENT_PARKED = "event-parked"
    EVENT_REFUSED = "event-refused"
    EVENT_UNPUBLISHED = "event-unpublished"
    EXECUTIONS_ABORTED = "executions-aborted"
    EXECUTIONS_FAILED = "executions-failed"
    EXECUTIONS_TIMED_OUT = "executions-timed-out"
    GATEKEEPER_ERRORS = "gatekeeper-errors"
    GATEKEEPER_SLOW = "gatekeeper-slow"
    GATEKEEPER_THROTTLED = "gatekeeper-throttled"
    INLINE_DELEGATED = "inline-delegated"
    KEY_MISSING = "key-missing"
    LATE_EFFECT = "late-effect"
    LEDGER_SUSPENSE = "ledger-suspense"
    LEDGER_UNSWEPT = "ledger-unswept"
    MANY_RECOVERIES = "many-recoveries"
    MIGRATION_DIFFERENCE = "migration-difference"
    MIGRATION_FAILING = "migration-failing"
    MONEY_IN_FLIGHT = "money-in-flight"
    RECONCILER_FAILING = "reconciler-failing"
    RECONCILER_HELD = "reconciler-held"
    RECONCILER_INCOMPLETE = "reconciler-incomplete"
    RECONCILER_OVERDUE = "reconciler-overdue"
    SAGA_IN_FLIGHT_TOO_LONG = "saga-in-flight-too-long"
    SAGA_PARKED = "saga-parked"
    SAGA_PARKED_TOO_LONG = "saga-parked-too-long"
    SAGA_UNSETTLED = "saga-unsettled"
    SAGA_WITHOUT_RECORD = "saga-without-record"
    SAGAS_UNRECONCILED = "sagas-unreconciled"
    START_REFUSED = "start-refused"
    STATUS_EVENT_DEAD_LETTERS = "status-event-dead-letters"
    TABLE_ERRORS = "table-errors"
    TABLE_THROTTLED = "table-throttled"
    TRANSACTION_CONFLICTS = "transaction-conflicts"
    WATCH_DEAD_LETTERS = "watch-dead-letters"
    WATCH_EXECUTION_FAILED = "watch-execution-failed"
    WATCH_NOTIFICATION_DELAYED = "watch-notification-delayed"
    WATCH_HANDLER_FAILED = "watch-handler-failed"
    WEBHOOK_SIGNATURE = "webhook-signature"

    @property
    def path(self) -> str:
        """The page, from the root of the project."""
        return f"{RUNBOOK}/{self}.md"


class SagaAlarm(cloudwatch.Alarm):
    """An alarm of this library. It has no action until one is added: ``SagaMonitoring`` adds yours to all of them.

    Args:
        scope: parent construct.
        id: construct id.
        runbook: its page, which its description names.
        text: the first part of its description.
        metric: a metric, or an expression over at most ten.
        above: the threshold, which a value must exceed.
        periods: number of successive periods in which it must.
        silence_breaches: whether missing data is alarming, too: for metrics that are reported regularly.

    Attributes:
        runbook: its page.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        runbook: Runbook,
        text: str,
        metric: cloudwatch.IMetric,
        above: float = 0,
        periods: int = 1,
        silence_breaches: bool = False,
    ) -> None:
        super().__init__(
            scope,
            id,
            alarm_description=f"{text}. Runbook: {runbook.path}",
            metric=metric,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=periods,
            treat_missing_data=_SILENT[silence_breaches],
        )
        Manifest.of(self).add(Part.ALARMS, name=self.alarm_name, runbook=runbook)
        self.runbook = runbook
        self._text = text

    def link_runbook(self, runbook_url: str) -> None:
        """Name the page in the description by its address: see ``require_runbook_url``."""
        alarm = cast("cloudwatch.CfnAlarm", self.node.default_child)
        page = str(self.runbook)
        address = runbook_url.replace(_PAGE, page) if _PAGE in runbook_url else runbook_url + page
        alarm.alarm_description = f"{self._text}. Runbook: {address}"


def require_runbook_url(runbook_url: str | None) -> None:
    """Refuse an address that no page's name can follow, or that does not fit into a description.

    Raises:
        ValueError: naming the address and the remedy.
    """
    if runbook_url is not None:
        remedy = f"write an address that ends with /, # or =, or has {_PAGE} where a page's name belongs"
        require_match("runbook_url", runbook_url, _URL, remedy)


@functools.cache
def whole_minutes(number: int) -> Duration:
    """A period, made once."""
    return Duration.minutes(number)


def runtime_metric(
    metric: Metric, service: str, statistic: str, minutes: int = 5, dimensions: Mapping[str, str] | None = None
) -> cloudwatch.Metric:
    """A metric that our functions emit under this service."""
    return cloudwatch.Metric(
        namespace=METRIC_NAMESPACE,
        metric_name=metric,
        dimensions_map={SERVICE_DIMENSION: service, **(dimensions or {})},
        statistic=statistic,
        period=whole_minutes(minutes),
    )


def total_of(parts: Sequence[cloudwatch.IMetric], label: str, minutes: int = 5) -> cloudwatch.IMetric:
    """The sum of metrics, at most ten in an alarm. Where one has no data, the others count."""
    if len(parts) == 1:
        return parts[0]
    named = {f"m{number}": part for number, part in enumerate(parts)}
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({name}, 0)" for name in named),
        using_metrics=named,
        period=whole_minutes(minutes),
        label=label,
    )


def counted_alarm(
    scope: Construct,
    id: str,
    runbook: Runbook,
    text: str,
    metrics: Sequence[Metric],
    services: Sequence[str],
    *,
    above: int = 0,
) -> SagaAlarm:
    """More of these were counted within 5 minutes, by any of these services."""
    parts = [runtime_metric(metric, service, "Sum") for metric in metrics for service in services]
    return SagaAlarm(scope, id, runbook=runbook, text=text, metric=total_of(parts, id), above=above)


def errors_of(function: lambda_.IFunction) -> cloudwatch.Metric:
    """Invocations that failed, or were ended: such a function counts nothing of its own. The sum of 5 minutes."""
    return function.metric_errors(statistic="Sum", period=whole_minutes(5))


def depth_alarm(scope: Construct, id: str, runbook: Runbook, text: str, queue: sqs.IQueue) -> SagaAlarm:
    """A message is in a queue that should be empty."""
    metric = queue.metric_approximate_number_of_messages_visible(period=whole_minutes(1), statistic="Maximum")
    return SagaAlarm(scope, id, runbook=runbook, text=text, metric=metric)
