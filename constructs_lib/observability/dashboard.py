"""The dashboard of a system: requests, sagas, what is in flight, callbacks, conflicts, throttles, alarms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from constructs_lib.api.operations import OperationsApi
from constructs_lib.callbacks.callback_integration import CallbackIntegration
from constructs_lib.monitoring.alarms import RUNBOOK, runtime_metric, whole_minutes
from constructs_lib.observability.functions import functions_of
from constructs_lib.reconciler.timeout_reconciler import TimeoutReconciler
from constructs_lib.saga.asl.ending import PARK, SETTLE_COMPLETED, SETTLE_FAILED
from constructs_lib.saga.cost.estimate import estimate_of
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.service_names import service_of
from constructs_lib.tables.stateful_table import StatefulTable
from saga_runtime.protocol import CURRENCY_DIMENSION, METRIC_NAMESPACE, Metric

DASHBOARD: Final = "Dashboard"
"""Construct id."""
_MINUTES: Final = 5
_WIDTH: Final = 8
"""Of 24 columns: three graphs in a row."""
_HEIGHT: Final = 6
_MOST_ALARMS: Final = 100
"""That a widget shows."""
_ANSWERS: Final = {
    Metric.RESERVED: "202 reserved",
    Metric.INLINE_SETTLED: "settled in the first response",
    Metric.REPLAYED: "replayed",
    Metric.DUPLICATE_IN_PROGRESS: "409 in progress",
    Metric.KEY_REUSED: "422 key reused",
    Metric.KEY_EXPIRED: "410 key expired",
    Metric.KEY_MISSING: "without a key",
    Metric.START_REFUSED: "503 start refused",
}
_CALLBACKS: Final = {
    Metric.CALLBACK_RECEIVED: "received",
    Metric.CALLBACK_DUPLICATE: "duplicate",
    Metric.CALLBACK_EARLY: "early",
    Metric.CALLBACK_LATE: "undelivered",
    Metric.CALLBACK_APPLIED_LATE: "applied late",
    Metric.CALLBACK_CONFLICT: "conflict",
    Metric.CALLBACK_UNKNOWN: "unknown job",
    Metric.CALLBACK_REFUSED: "refused",
}
_STEPS: Final = {
    Metric.CONFLICT: "transaction conflicts",
    Metric.STEP_REPLAYED: "steps replayed",
    Metric.STEP_FENCED: "steps fenced",
}
_RECOVERIES: Final = {
    Metric.ORPHANS: "orphans found",
    Metric.RECOVERIES: "recoveries started",
    Metric.RECONCILE_FAILED: "not reconciled",
}
_IN_FLIGHT: Final = {Metric.IN_FLIGHT: "in flight", Metric.PARKED: "parked"}
_AGES: Final = {
    Metric.OLDEST_IN_FLIGHT: "in flight",
    Metric.OLDEST_PARKED: "parked",
    Metric.OLDEST_OVERDUE: "overdue",
}
DELIVERING: Final = (SETTLE_COMPLETED, SETTLE_FAILED, PARK)
"""States in which a saga ends: completed, compensated or refused, parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of a system that a dashboard shows."""

    apis: Sequence[OperationsApi]
    sagas: Sequence[SagaStateMachine]
    reconcilers: Sequence[TimeoutReconciler]
    integrations: Sequence[CallbackIntegration]
    tables: Sequence[StatefulTable]
    alarms: Sequence[cloudwatch.AlarmBase]
    linked: bool
    """Whether the alarms' descriptions have the addresses of their pages."""


def dashboard_of(scope: Construct, parts: Parts) -> cloudwatch.Dashboard:
    """Create the dashboard of these parts. A part that does not exist has no graph."""
    dashboard = cloudwatch.Dashboard(scope, DASHBOARD, default_interval=Duration.hours(3))
    dashboard.add_widgets(cloudwatch.TextWidget(markdown=_heading(parts), width=24, height=2))
    for row in (_requests(parts), _reconciled(parts), _behind(parts), _called_back(parts)):
        if row:
            dashboard.add_widgets(*row)
    if parts.alarms:
        alarms = list(parts.alarms[:_MOST_ALARMS])
        dashboard.add_widgets(cloudwatch.AlarmStatusWidget(alarms=alarms, title="Alarms", width=24, height=4))
    return dashboard


def _heading(parts: Parts) -> str:
    prices = [
        f"{_name_of(saga)} {estimate_of(saga.description).happy.for_sagas(1_000):.2f} USD" for saga in parts.sagas
    ]
    costs = f"1,000 completed sagas cost at list prices: {', '.join(prices)}. " if prices else ""
    pages = (
        "Each alarm's description has the address of its page" if parts.linked else f"Each alarm's page is in {RUNBOOK}"
    )
    return f"{costs}{pages}. `cdk-sagas doctor` lists what needs an operator."


def _name_of(saga: SagaStateMachine) -> str:
    """The saga's path in its stack."""
    return saga.node.path.removeprefix(Stack.of(saga).node.path).strip("/")


def _requests(parts: Parts) -> list[cloudwatch.IWidget]:
    services = [service_of(gatekeeper) for api in parts.apis for gatekeeper in api.gatekeepers.values()]
    found: list[cloudwatch.IWidget] = []
    if services:
        found.append(_graph("Requests by answer", _totals(_ANSWERS, services), stacked=True))
    if parts.sagas:
        machines = [machine for saga in parts.sagas for machine in (saga.state_machine, saga.recovery_machine)]
        period = whole_minutes(_MINUTES)
        started: list[cloudwatch.IMetric] = []
        for saga in parts.sagas:
            name = _name_of(saga)
            started.append(saga.state_machine.metric_started(period=period, label=name))
            if saga.express_machine is not None:
                started.append(saga.express_machine.metric_started(period=period, label=f"{name}, inline"))
        ended = {
            "failed": [machine.metric_failed(period=period) for machine in machines],
            "timed out": [machine.metric_timed_out(period=period) for machine in machines],
            "stopped": [machine.metric_aborted(period=period) for machine in machines],
        }
        totals = [_total(f"e{number}", label, metrics) for number, (label, metrics) in enumerate(ended.items())]
        found.append(_graph("Sagas started, executions that failed", started, right=totals))
        groups = [saga.log_group.log_group_name for saga in parts.sagas]
        names = ", ".join(f'"{name}"' for name in DELIVERING)
        found.append(
            cloudwatch.LogQueryWidget(
                title="Sagas completed, compensated, parked",
                log_group_names=groups,
                query_lines=[
                    f'filter type = "TaskStateExited" and details.name in [{names}]',
                    f"stats count(*) by bin({_MINUTES}m), details.name",
                ],
                view=cloudwatch.LogQueryVisualizationType.STACKEDAREA,
                width=_WIDTH,
                height=_HEIGHT,
            )
        )
        inline = [
            saga.express_machine.metric_succeeded(period=period, label=_name_of(saga))
            for saga in parts.sagas
            if saga.express_machine is not None
        ]
        if inline:
            found.append(_graph("Sagas settled inline", inline, stacked=True))
    return found


def _reconciled(parts: Parts) -> list[cloudwatch.IWidget]:
    services = [service_of(reconciler.function) for reconciler in parts.reconcilers]
    if not services:
        return []
    money = [_money_of(service) for service in services]
    return [
        _graph("Sagas in flight", _each(_IN_FLIGHT, services, "Maximum")),
        _graph("Age of the oldest, seconds", _each(_AGES, services, "Maximum")),
        _graph("Money in flight, minor units by currency", money),
    ]


def _money_of(service: str) -> cloudwatch.IMetric:
    """A line for each currency: the dashboard finds them."""
    name = f'MetricName="{Metric.MONEY_IN_FLIGHT}" service="{service}"'
    where = f"{{{METRIC_NAMESPACE},service,{CURRENCY_DIMENSION}}} {name}"
    return cloudwatch.MathExpression(
        expression=f"SEARCH('{where}', 'Maximum', {60 * _MINUTES})",
        using_metrics={},
        label="",
        period=whole_minutes(_MINUTES),
    )


def _behind(parts: Parts) -> list[cloudwatch.IWidget]:
    steps = list(dict.fromkeys(service_of(fn) for saga in parts.sagas for fn in functions_of(saga)))
    found: list[cloudwatch.IWidget] = []
    if steps:
        found.append(_graph("Conflicts and repeated steps", _totals(_STEPS, steps)))
    reconcilers = [service_of(reconciler.function) for reconciler in parts.reconcilers]
    if reconcilers:
        found.append(_graph("Recoveries", _totals(_RECOVERIES, reconcilers)))
    period = whole_minutes(_MINUTES)
    throttles = {
        "functions": [
            gatekeeper.function.metric_throttles(period=period)
            for api in parts.apis
            for gatekeeper in api.gatekeepers.values()
        ],
        "tables": [
            cloudwatch.Metric(
                namespace="AWS/DynamoDB",
                metric_name=name,
                dimensions_map={"TableName": table.table_name},
                statistic="Sum",
                period=period,
            )
            for table in parts.tables
            for name in ("ReadThrottleEvents", "WriteThrottleEvents")
        ],
    }
    totals = [_total(f"t{n}", label, metrics) for n, (label, metrics) in enumerate(throttles.items()) if metrics]
    if totals:
        found.append(_graph("Throttles", totals))
    return found


def _called_back(parts: Parts) -> list[cloudwatch.IWidget]:
    if not parts.integrations:
        return []
    sweepers = list(dict.fromkeys(integration.tokens.service for integration in parts.integrations))
    services = [*(integration.service for integration in parts.integrations), *sweepers]
    return [
        _graph("Callbacks", _totals(_CALLBACKS, services), stacked=True, width=2 * _WIDTH),
        _graph("Longest overdue job, seconds", _each({Metric.OLDEST_WAITING: "overdue"}, sweepers, "Maximum")),
    ]


def _graph(
    title: str,
    metrics: Sequence[cloudwatch.IMetric],
    *,
    right: Sequence[cloudwatch.IMetric] = (),
    stacked: bool = False,
    width: int = _WIDTH,
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        right=list(right),
        left_y_axis=cloudwatch.YAxisProps(min=0),
        stacked=stacked,
        width=width,
        height=_HEIGHT,
    )


def _totals(labels: dict[Metric, str], services: Iterable[str]) -> list[cloudwatch.IMetric]:
    """One line for each metric: the sum over all services."""
    known = list(services)
    return [
        _total(f"s{number}", label, [runtime_metric(metric, service, "Sum", _MINUTES) for service in known])
        for number, (metric, label) in enumerate(labels.items())
    ]


def _total(prefix: str, label: str, parts: Sequence[cloudwatch.Metric]) -> cloudwatch.IMetric:
    if len(parts) == 1:
        return parts[0].with_(label=label)
    named = {f"{prefix}m{number}": part for number, part in enumerate(parts)}
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({name}, 0)" for name in named),
        using_metrics=dict(named),
        label=label,
        period=whole_minutes(_MINUTES),
    )


def _each(labels: dict[Metric, str], services: Sequence[str], statistic: str) -> list[cloudwatch.IMetric]:
    """One line for each metric and service."""
    return [
        runtime_metric(metric, service, statistic, _MINUTES).with_(
            label=label if len(services) == 1 else f"{label}: {service}"
        )
        for service in services
        for metric, label in labels.items()
    ]
