"""Alarms of metrics that AWS emits: of functions, APIs, tables and executions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.api.http_transaction_api import HttpTransactionApi
from constructs_lib.api.operations import Operation, OperationsApi
from constructs_lib.api.transaction_api import TransactionApi
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, counted_alarm, runtime_metric, total_of, whole_minutes
from constructs_lib.observability.functions import functions_of
from constructs_lib.rest.rest_api import GATEWAY_SECONDS
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.service_names import service_of
from constructs_lib.tables.stateful_table import StatefulTable
from saga_runtime.protocol import KeyPolicy, Metric

_TABLE_OPERATIONS: Final = ("GetItem", "Query", "PutItem", "UpdateItem", "TransactWriteItems")
"""Those on which requests and steps wait. An alarm is billed for each metric that it adds up."""
_METRICS_OF_AN_ALARM: Final = 10
_COMMITTING: Final = frozenset({"atomic_step", "compensation"})
"""Decorators of functions that commit transactions with effects of the user's."""
_FEW: Final = 5
"""A few failures pass: clients and state machines repeat their calls."""
_PERIOD_MINUTES: Final = 5
_LASTING_PERIODS: Final = 3
_FAILED_WITHIN_MINUTES: Final = 15
_DAY_MINUTES: Final = 1_440


def api_alarms(
    scope: Construct, api: TransactionApi | HttpTransactionApi, slow_after: Duration, sharing: Sequence[OperationsApi]
) -> Iterator[SagaAlarm]:
    """The alarms of an API, and of the functions that answer its requests.

    Args:
        scope: of the alarms.
        api: of the operations.
        slow_after: above which a response is slow, in addition to ``max_wait``.
        sharing: those that are operations of the same API, in their order: the first has the API's own alarms.
    """
    if sharing[0] is api:
        yield from _gateway_alarms(scope, api, slow_after, sharing)
    yield from _operation_alarms(scope, api, slow_after)


def _gateway_alarms(
    scope: Construct, api: TransactionApi | HttpTransactionApi, slow_after: Duration, sharing: Sequence[OperationsApi]
) -> Iterator[SagaAlarm]:
    """The alarms of the API itself. An HTTP API's are of all its stages: each of them serves the routes."""
    measured = api.api.deployment_stage if isinstance(api, TransactionApi) else api.api
    yield _errors_alarm(scope, measured)
    waits = [
        int(operation.max_wait.to_seconds())
        for each in sharing
        for operation in each.operations.values()
        if isinstance(operation, Operation) and operation.max_wait
    ]
    slowest = int(slow_after.to_seconds()) + max(waits, default=0)
    _require_shorter(slowest, GATEWAY_SECONDS, f"{api.node.path}: API Gateway waits for")
    yield SagaAlarm(
        scope,
        "Slow",
        runbook=Runbook.API_SLOW,
        text=f"One response in a hundred takes more than {slowest} s, for 15 minutes",
        metric=measured.metric_latency(statistic="p99", period=whole_minutes(_PERIOD_MINUTES)),
        above=1_000 * slowest,
        periods=_LASTING_PERIODS,
    )


def _operation_alarms(scope: Construct, api: OperationsApi, slow_after: Duration) -> Iterator[SagaAlarm]:
    """The alarms of the functions that answer an API's requests."""
    slow = int(slow_after.to_seconds())
    for name, gatekeeper in api.gatekeepers.items():
        operation = api.operations[name]
        wait = operation.max_wait if isinstance(operation, Operation) else None
        within = slow + (int(wait.to_seconds()) if wait is not None else 0)
        _require_shorter(within, gatekeeper.timeout_seconds, f"{gatekeeper.node.path}: it ends after")
        room = Construct(scope, name)
        yield from _gatekeeper_alarms(room, name, gatekeeper, within)
        if isinstance(operation, DirectOperation):
            yield _conflicts_alarm(room, "Conflicts", name, [service_of(gatekeeper)])
        if operation.key_policy is KeyPolicy.OPTIONAL:
            yield SagaAlarm(
                room,
                "KeyMissing",
                runbook=Runbook.KEY_MISSING,
                text=f"Within a day, a request to {name} had no Idempotency-Key: do not require keys yet",
                metric=runtime_metric(Metric.KEY_MISSING, service_of(gatekeeper), "Sum", _DAY_MINUTES),
            )


def _require_shorter(seconds: int, longest: int, of: str) -> None:
    """Refuse the threshold of an alarm that no response exceeds."""
    if seconds >= longest:
        raise ValueError(
            f"slow_after, with max_wait, must be shorter than any response can take, got {seconds} s for {of} "
            f"{longest} s; shorten slow_after or max_wait"
        )


def stage_alarms(scope: Construct, api: apigateway.RestApi) -> Iterator[SagaAlarm]:
    """The alarm of an API's own errors."""
    yield _errors_alarm(scope, api.deployment_stage)


def _errors_alarm(scope: Construct, of: apigateway.Stage | apigatewayv2.IHttpApi) -> SagaAlarm:
    return SagaAlarm(
        scope,
        "Errors",
        runbook=Runbook.API_ERRORS,
        text=f"An API answered more than {_FEW} requests within 5 minutes with a 5xx status",
        metric=of.metric_server_error(statistic="Sum", period=whole_minutes(_PERIOD_MINUTES)),
        above=_FEW,
    )


def _gatekeeper_alarms(
    scope: Construct, name: str, gatekeeper: RuntimeFunction, slow_seconds: int
) -> Iterator[SagaAlarm]:
    function = gatekeeper.function
    yield SagaAlarm(
        scope,
        "Errors",
        runbook=Runbook.GATEKEEPER_ERRORS,
        text=f"The function that answers {name} failed, or ran out of time, more than {_FEW} times within 5 minutes",
        metric=function.metric_errors(statistic="Sum", period=whole_minutes(_PERIOD_MINUTES)),
        above=_FEW,
    )
    yield SagaAlarm(
        scope,
        "Throttled",
        runbook=Runbook.GATEKEEPER_THROTTLED,
        text=f"Lambda refused more than {_FEW} invocations of the function that answers {name} within 5 minutes",
        metric=function.metric_throttles(statistic="Sum", period=whole_minutes(_PERIOD_MINUTES)),
        above=_FEW,
    )
    yield SagaAlarm(
        scope,
        "Slow",
        runbook=Runbook.GATEKEEPER_SLOW,
        text=f"One request to {name} in a hundred takes its function more than {slow_seconds} s, for 15 minutes",
        metric=function.metric_duration(statistic="p99", period=whole_minutes(_PERIOD_MINUTES)),
        above=1_000 * slow_seconds,
        periods=_LASTING_PERIODS,
    )


def table_alarms(scope: Construct, table: StatefulTable) -> Iterator[SagaAlarm]:
    """The alarms of a table."""
    yield SagaAlarm(
        scope,
        "Throttled",
        runbook=Runbook.TABLE_THROTTLED,
        text="DynamoDB throttled requests to a table, for 15 minutes",
        metric=_by_operation(table, "ThrottledRequests"),
        periods=_LASTING_PERIODS,
    )
    yield SagaAlarm(
        scope,
        "SystemErrors",
        runbook=Runbook.TABLE_ERRORS,
        text=f"DynamoDB answered more than {_FEW} requests to a table within 5 minutes with errors of its own",
        metric=_by_operation(table, "SystemErrors"),
        above=_FEW,
    )


def _by_operation(table: StatefulTable, name: str) -> cloudwatch.IMetric:
    return total_of([_table_metric(table, name, Operation=operation) for operation in _TABLE_OPERATIONS], name)


def _table_metric(table: StatefulTable, name: str, **dimensions: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=name,
        dimensions_map={"TableName": table.table_name, **dimensions},
        statistic="Sum",
        period=whole_minutes(_PERIOD_MINUTES),
    )


def _conflicts_alarm(scope: Construct, id: str, of: str, services: Sequence[str]) -> SagaAlarm:
    return counted_alarm(
        scope,
        id,
        Runbook.TRANSACTION_CONFLICTS,
        f"More than {_FEW} transactions of {of} conflicted with others within 5 minutes",
        [Metric.CONFLICT],
        services,
        above=_FEW,
    )


def saga_alarms(scope: Construct, saga: SagaStateMachine) -> Iterator[SagaAlarm]:
    """The alarms of a saga's executions, and of its functions' transactions."""
    yield from _execution_alarms(scope, saga)
    atomic = functions_of(saga, kind="atomic")  # a decorator is not always in the text
    services = [service_of(fn) for fn in functions_of(saga) if fn.decorator in _COMMITTING or fn in atomic]
    for first in range(0, len(services), _METRICS_OF_AN_ALARM):
        number = f"{first // _METRICS_OF_AN_ALARM + 1}" if first else ""
        yield _conflicts_alarm(
            scope, f"Conflicts{number}", saga.node.id, services[first : first + _METRICS_OF_AN_ALARM]
        )


def _execution_alarms(scope: Construct, saga: SagaStateMachine) -> Iterator[SagaAlarm]:
    """Recoveries included. An Express machine's executions are its saga's own concern."""
    machines = (saga.state_machine, saga.recovery_machine)
    failed, longer = "Failed", whole_minutes(_FAILED_WITHIN_MINUTES)
    yield SagaAlarm(
        scope,
        failed,
        runbook=Runbook.EXECUTIONS_FAILED,
        text=f"More than {_FEW} executions of a saga failed within {_FAILED_WITHIN_MINUTES} minutes",
        metric=total_of([m.metric_failed(period=longer) for m in machines], failed, _FAILED_WITHIN_MINUTES),
        above=_FEW,
    )
    late, ended = "TimedOut", "Aborted"
    yield SagaAlarm(
        scope,
        late,
        runbook=Runbook.EXECUTIONS_TIMED_OUT,
        text="An execution of a saga timed out",
        metric=total_of([m.metric_timed_out(period=whole_minutes(_PERIOD_MINUTES)) for m in machines], late),
    )
    yield SagaAlarm(
        scope,
        ended,
        runbook=Runbook.EXECUTIONS_ABORTED,
        text="An execution of a saga was stopped",
        metric=total_of([m.metric_aborted(period=whole_minutes(_PERIOD_MINUTES)) for m in machines], ended),
    )
