"""A function's log level: its metrics are lines of its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Validations
from aws_cdk import aws_lambda as lambda_

_WITH_METRICS: Final = frozenset({"TRACE", "DEBUG", "INFO"})


def require_metrics(function: lambda_.Function, properties: Mapping[str, Any]) -> None:
    """Refuse a log level at which Lambda drops the function's metrics, on which alarms depend.

    Not found: one that ``add_property_override`` sets.

    A line of the embedded metric format has no level, and Lambda takes such a line for one of ``INFO``.
    https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html

    Args:
        function: it.
        properties: resolved, at synth.
    """
    level = (properties["loggingConfig"] or {}).get("applicationLogLevel")
    if isinstance(level, str) and level not in _WITH_METRICS:
        Validations.of(function).add_error(
            "cdk-sagas-log-level",
            f"application log level of {function.node.path} must be INFO, DEBUG or TRACE, got {level}: Lambda would "
            "drop its metrics, which are lines of the log without a level, and no alarm would go off; set "
            "POWERTOOLS_LOG_LEVEL in its environment instead",
        )
