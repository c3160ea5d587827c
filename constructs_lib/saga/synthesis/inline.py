"""Alarm of sagas that run inline."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.monitoring.alarms import Runbook, SagaAlarm

_PERCENT: Final = 20
"""A saga that Standard continues costs what it costs there, and its Express execution."""
_PERIOD_MINUTES: Final = 5
_PERIODS: Final = 3


def delegated_alarm(scope: Construct, express: sfn.StateMachine, standard: sfn.StateMachine) -> SagaAlarm:
    """Create the alarm of inline sagas that the Standard machine runs.

    Their Express executions were refused, which no metric of these counts, or delegated, failed or timed out.
    """
    period = Duration.minutes(_PERIOD_MINUTES)
    counted = {"started": standard.metric_started(period=period), "settled": express.metric_succeeded(period=period)}
    return SagaAlarm(
        scope,
        "DelegatedAlarm",
        runbook=Runbook.INLINE_DELEGATED,
        text=f"More than {_PERCENT} % of the sagas are not settled by Express executions: the Standard machine runs "
        "them, slower and at its price; see the Express machine's log, and the metric InlineNotStarted",
        metric=cloudwatch.MathExpression(
            expression="100 * FILL(started, 0) / (FILL(started, 0) + FILL(settled, 0))",
            using_metrics=dict(counted),
            period=period,
            label="Delegated, %",
        ),
        above=_PERCENT,
        periods=_PERIODS,
    )
