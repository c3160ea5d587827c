"""Logs and metrics of the runtime: one structured event per decision; no body, no key, no token, no person.

Threads may call all of it at once.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from saga_runtime.protocol import CURRENCY_DIMENSION, METRIC_NAMESPACE, Metric

_logger: Final = Logger()
_metrics: Final = Metrics(namespace=METRIC_NAMESPACE)
_collecting: Final = threading.Lock()
"""What is counted is kept in one place, and written from there when that is full."""


def event(name: str, **fields: Any) -> None:
    """Log one decision. ``name`` is a stable key, not a sentence."""
    _logger.info(name, extra=fields)


def count(metric: Metric, **fields: str) -> None:
    """Count something; written by ``flush``, with these fields beside it: one line is both metric and log."""
    with _collecting:
        _metrics.add_metric(name=metric.value, unit=MetricUnit.Count, value=1)
        for name, value in fields.items():
            _metrics.add_metadata(name, value)


def seconds(metric: Metric, value: float) -> None:
    """Measure how long something takes, or has taken; written by ``flush``."""
    with _collecting:
        _metrics.add_metric(name=metric.value, unit=MetricUnit.Seconds, value=value)


def gauge(metric: Metric, value: int) -> None:
    """Say how many there are; written by ``flush``."""
    with _collecting:
        _metrics.add_metric(name=metric.value, unit=MetricUnit.Count, value=value)


def money(metric: Metric, amount: int, currency: str) -> None:
    """Say how much money there is, in minor units of its currency; written at once, a line for each currency.

    Metrics are doubles: beyond 2^53 minor units the last digits are lost.
    """
    with (
        _collecting,
        single_metric(metric.value, MetricUnit.Count, amount, namespace=METRIC_NAMESPACE) as told,
    ):
        told.add_dimension(CURRENCY_DIMENSION, currency)


def flush() -> None:
    """Write what was counted in this invocation."""
    with _collecting:
        if _metrics.metric_set:
            _metrics.flush_metrics()
