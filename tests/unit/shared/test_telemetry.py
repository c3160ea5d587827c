"""Logs and metrics as they are written, with Powertools' own classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aws_lambda_powertools.metrics.provider import cold_start

from saga_runtime.protocol import CURRENCY_DIMENSION, METRIC_NAMESPACE, Env, Metric
from saga_runtime.shared import telemetry


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No metric of an earlier test, and the dimension that Powertools wants."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "unit")
    monkeypatch.setattr(cold_start, "is_cold_start", False)
    telemetry._metrics.clear_metrics()
    yield
    telemetry._metrics.clear_metrics()


def test_metrics_are_written_once_in_the_embedded_metric_format(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.count(Metric.REPLAYED, saga_id="s-1")
    telemetry.flush()
    telemetry.flush()

    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert document["IdempotencyReplay"] == [1.0]
    assert document["saga_id"] == "s-1"
    metrics = document["_aws"]["CloudWatchMetrics"][0]
    assert metrics["Metrics"] == [{"Name": "IdempotencyReplay", "Unit": "Count"}]
    assert "saga_id" not in str(metrics), "a saga id as a dimension would be a metric of its own"


@pytest.mark.parametrize(
    ("event", "level"), [("reserve_failed", "ERROR"), ("start_unconfirmed", "WARNING"), ("step_done", "INFO")]
)
def test_a_failure_is_logged_as_one(event: str, level: str) -> None:
    """In a process that starts as a function does, with its own logger."""
    script = f"from saga_runtime.shared import telemetry; telemetry.event({event!r}, saga_id='s-1')"
    written = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ}, capture_output=True, text=True, check=True
    ).stdout

    line = json.loads(written)
    assert (line["level"], line["message"], line["saga_id"]) == (level, event, "s-1")


def test_an_invocation_that_counted_nothing_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.flush()

    assert capsys.readouterr().out == ""


def test_fields_of_one_invocation_do_not_stay_for_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.count(Metric.REPLAYED, saga_id="s-1")
    telemetry.flush()
    telemetry.count(Metric.RESTARTED)
    telemetry.flush()

    assert "saga_id" not in json.loads(capsys.readouterr().out.splitlines()[1])


def test_money_is_reported_by_currency_with_the_other_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.gauge(Metric.IN_FLIGHT, 3)
    telemetry.money(Metric.MONEY_IN_FLIGHT, 1200, "EUR")
    telemetry.money(Metric.MONEY_IN_FLIGHT, 7, "JPY")
    telemetry.flush()

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    euros, yen, sagas = lines
    assert (euros["MoneyInFlight"], euros["currency"], euros["service"]) == ([1200.0], "EUR", "unit")
    assert (yen["MoneyInFlight"], yen["currency"]) == ([7.0], "JPY")
    (directive,) = euros["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "CdkSagas"
    assert [sorted(dimensions) for dimensions in directive["Dimensions"]] == [["currency", "service"]]
    assert sagas["SagasInFlight"] == [3.0]
    assert "currency" not in json.dumps(sagas)


def test_what_functions_share_is_written_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.count(Metric.CONFLICT)
    telemetry.count_at("the-ledger", Metric.SUSPENDED)

    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert (document["PostedToSuspense"], document["service"]) == ([1.0], "the-ledger")
    assert "TransactionConflict" not in document


def test_alarms_use_the_metrics_that_functions_write() -> None:
    """Namespace, dimensions and units, of a process that knows its service when it starts, as a function does."""
    script = """
from saga_runtime.shared import telemetry
from saga_runtime.protocol import Metric
telemetry.count(Metric.ORPHANS, saga_id="s-1")
telemetry.gauge(Metric.RECONCILE_FAILED, 0)
telemetry.seconds(Metric.OLDEST_IN_FLIGHT, 5)
telemetry.money(Metric.MONEY_IN_FLIGHT, 7, "EUR")
telemetry.count_at("the-ledger", Metric.SUSPENDED)
telemetry.flush()
"""
    environment = {**os.environ, Env.SERVICE: "Shop-Reconciler-Function"}
    written = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=True, text=True
    )

    found: dict[str, tuple[str, dict[str, str], str]] = {}
    for document in map(json.loads, written.stdout.splitlines()):
        (directive,) = document["_aws"]["CloudWatchMetrics"]
        (names,) = directive["Dimensions"]
        for metric in directive["Metrics"]:
            dimensions = {name: document[name] for name in names}
            found[metric["Name"]] = (directive["Namespace"], dimensions, metric["Unit"])
    service = {"service": "Shop-Reconciler-Function"}
    assert found == {
        Metric.ORPHANS: (METRIC_NAMESPACE, service, "Count"),
        Metric.RECONCILE_FAILED: (METRIC_NAMESPACE, service, "Count"),
        Metric.OLDEST_IN_FLIGHT: (METRIC_NAMESPACE, service, "Seconds"),
        Metric.MONEY_IN_FLIGHT: (METRIC_NAMESPACE, {**service, CURRENCY_DIMENSION: "EUR"}, "Count"),
        Metric.SUSPENDED: (METRIC_NAMESPACE, {"service": "the-ledger"}, "Count"),
    }


def test_threads_that_count_at_once_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        for _ in range(1_000):
            telemetry.count(Metric.ORPHANS, saga_id="s-1")
            telemetry.gauge(Metric.IN_FLIGHT, 1)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()
    telemetry.flush()

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for metric in (Metric.ORPHANS, Metric.IN_FLIGHT):
        assert sum(len(line.get(metric, [])) for line in lines) == 8_000
