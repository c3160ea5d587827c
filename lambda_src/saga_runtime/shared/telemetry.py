"""Logs and metrics of the runtime: one structured event per decision; no body, no key, no token, no person.

Threads may call all of it at once.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from saga_runtime.protocol import CURRENCY_DIMENSION, METRIC_NAMESPACE, SERVICE_DIMENSION, Metric

_logger: Final = Logger()
_ERRORS: Final = frozenset(
    {
        "direct_unclear",
        "response_payload_unreadable",
        "response_unavailable",
        "approval_failed",
        "dispatch_failed",
        "notification_failed",
        "in_flight_not_measured",
        "ledger_sweep_failed",
        "read_failed",
        "posted_to_suspense",
        "publish_failed",
        "receiver_failed",
        "reconcile_failed",
        "remove_failed",
        "reserve_failed",
        "request_record_missing",
        "secret_not_read",
        "secret_unusable",
        "start_refused",
        "status_event_failed",
        "sweep_failed",
        "operators_queue_missing",
        "watch_failed",
        "watch_message_failed",
    }
)
"""Events of something that failed: a call, a row, a message, a function, a secret."""
_WARNINGS: Final = frozenset(
    {
        "callback_delivery_deferred",
        "dispatch_deferred",
        "unknown_execution",
        "event_parked",
        "job_failed",
        "job_unverifiable",
        "job_taken_over",
        "late_capture",
        "migration_left",
        "delivery_unconfirmed",
        "inline_not_settled",
        "inline_not_started",
        "inline_unclear",
        "start_unconfirmed",
        "step_fenced",
        "step_taken_over",
        "thread_awaited",
        "unanswered_entry_dropped",
        "wait_ended",
    }
)
"""Events that follow a failure and need no action: a dead attempt, a lost outcome, a message that is too late."""
_metrics: Final = Metrics(namespace=METRIC_NAMESPACE)
_collecting: Final = threading.Lock()
"""What is counted is kept in one place, and written from there when that is full."""


def event(name: str, **fields: Any) -> None:
    """Log one decision. ``name`` is a stable key, not a sentence, and decides the level."""
    write = {logging.ERROR: _logger.error, logging.WARNING: _logger.warning}.get(level_of(name), _logger.info)
    write(name, extra=fields)


def level_of(name: str) -> int:
    """The level at which an event is logged: failures are found by it, and survive a log level of WARN."""
    if name in _ERRORS:
        return logging.ERROR
    return logging.WARNING if name in _WARNINGS else logging.INFO


def count(metric: Metric, **fields: str) -> None:
    """Count an event; written by ``flush``, with these fields: one line is both metric and log."""
    with _collecting:
        _metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)
        for name, value in fields.items():
            _metrics.add_metadata(name, value)


def count_at(service: str, metric: Metric) -> None:
    """Count an event of what functions share, as that service's instead of the function's; written at once."""
    with _collecting, single_metric(metric, MetricUnit.Count, 1, namespace=METRIC_NAMESPACE) as told:
        told.add_dimension(SERVICE_DIMENSION, service)


def seconds(metric: Metric, value: float) -> None:
    """Measure how long something takes, or has taken; written by ``flush``."""
    with _collecting:
        _metrics.add_metric(name=metric, unit=MetricUnit.Seconds, value=value)


def gauge(metric: Metric, value: int) -> None:
    """Set a gauge; written by ``flush``."""
    with _collecting:
        _metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)


def money(metric: Metric, amount: int, currency: str) -> None:
    """Emit an amount of money, in minor units of its currency; written at once, a line for each currency.

    Metrics are doubles: beyond 2^53 minor units the last digits are lost.
    """
    with (
        _collecting,
        single_metric(metric, MetricUnit.Count, amount, namespace=METRIC_NAMESPACE) as told,
    ):
        told.add_dimension(CURRENCY_DIMENSION, currency)


def flush() -> None:
    """Write what was counted in this invocation."""
    with _collecting:
        if _metrics.metric_set:
            _metrics.flush_metrics()
