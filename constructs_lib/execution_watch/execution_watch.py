"""ExecutionWatch: calls a function for each failed execution of a state machine that is not a saga's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Final

from aws_cdk import Acknowledgment, ArnFormat, Duration, RemovalPolicy, Stack, Token, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.execution_watch.watched_machine import (
    GRACE_SECONDS,
    MARGIN_SECONDS,
    WatchedMachine,
    require_each_once_and_here,
)
from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, depth_alarm, runtime_metric
from constructs_lib.monitoring.queues import dead_letters_of, queue_for, rule_for
from constructs_lib.saga.synthesis.permissions import grant_send, queues_of
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_minutes, require_seconds
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part, QueueRole
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import checked
from constructs_lib.tables.stateful_table import StatefulTable, sparse_index
from saga_runtime.protocol import DUE_INDEX, Env, FailedStatus, Metric, WatchAttribute, WatchedField
from saga_runtime.watch.decisions import LONGEST_PAUSE_MS

_DAY: Final = 86_400
_YEAR: Final = 366 * _DAY
_LEAST_SECONDS: Final = 60
_PERIOD_MINUTES: Final = 30
"""Evaluation of an overdue end, unless checks are further apart, or calls take longer."""
_MISSED: Final = 3
"""Silence is alarming after so many looks that did not come."""
_MAX_ENVIRONMENT_BYTES: Final = 3_072
"""A function's environment holds 4 KB, and not only this."""
_LONGEST_ARN: Final = 160


class ExecutionWatch(Construct):
    """Calls a function of yours for each execution of a state machine, not a saga's, that timed out or was stopped.

    A state machine that times out runs no Catch, and one that is stopped neither. Creates a function that lists
    executions by a schedule and receives Step Functions' status events (through a queue), a table, and alarms.

    Guaranteed: for each end the function is called until it returns, or, after as many failures as are allowed, an
    alarm fires and an entry waits in the dead-letter queue. Any call may be repeated.
    Not guaranteed: that it is called once, or how soon.

    The function reports its metrics under its stack's name and its own path (dimension ``service``).

    Example::

        ExecutionWatch(self, "Watch", machines=[WatchedMachine(machine=nightly, on_timeout=release)])

    Args:
        scope: parent construct.
        id: construct id.
        machines: Standard state machines, and the function that is called for executions of each.
        check_interval: interval of checks; whole minutes, 1 to 60, 1 by default.
        max_notification_delay: an alarm fires when a call is delayed for longer than this; 1 minute to 366 days, 1 hour
            by default.
        encryption_key: a KMS key of your own for the queues. Of an imported one, its policy must let EventBridge
            use it: a warning contains the statement.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the table and the log group; retained by default.

    Attributes:
        function: the function that checks executions, and that calls the ``on_timeout`` functions.
        table: one row per end.
        queue: ends to process one by one: names of executions, without their data.
        dead_letters: events that could not be handled, and ends whose function kept failing. Moved back into the
            queue, they are retried.
        ended: the rules for status events.
        schedule: the rule of the checks.
        execution_failed_alarm: an execution failed; its function is called automatically.
        handler_failed_alarm: a function failed as often as is allowed: an operator decides.
        notification_delay_alarm: a call is delayed for more than ``max_notification_delay``, or checks are missing,
            failing or incomplete. Evaluated over half an hour, three checks, or the time of a call, its pause and two
            checks.
        dead_letter_queue_alarm: the dead-letter queue is not empty.
        alarms: all of them. They have no actions: add yours.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        machines: Sequence[WatchedMachine],
        check_interval: Duration | None = None,
        max_notification_delay: Duration | None = None,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        require_each_once_and_here(self, machines)
        every = Duration.minutes(require_minutes("check_interval", check_interval or Duration.minutes(1)))
        oldest = require_seconds(
            "max_notification_delay", max_notification_delay or Duration.hours(1), at_least=60, at_most=_YEAR
        )
        life = max(_LEAST_SECONDS, *(machine.function_seconds + MARGIN_SECONDS for machine in machines))
        self._period_minutes = _measured_within(int(every.to_minutes()), life)
        self.table = _WatchTable(self, "Ends", removal_policy=removal_policy)
        self.dead_letters = dead_letters_of(self, encryption_key)
        self.function = RuntimeFunction(
            self,
            "Function",
            code=own_code(),
            handler="handlers.watch.handler",
            description="Calls functions for failed executions",
            timeout=Duration.seconds(life),
            longest_timeout=Duration.seconds(life),
            environment={
                Env.WATCHED: self._told(machines),
                Env.WATCH_TABLE: self.table.table_name,
                Env.DEAD_LETTERS: self.dead_letters.queue_url,
            },
            removal_policy=removal_policy,
        )
        name_role(self.function, "the watch over state machines")
        self.queue = queue_for(
            self.function,
            self,
            encryption_key,
            dead_letters=self.dead_letters,
            role=QueueRole.DEAD,
            visible_after=Duration.seconds(6 * life),
            batch_size=1,  # one end at a time: each may have to wait for its function
        )
        self.function.function.add_environment(Env.WATCH_QUEUE, self.queue.queue_url)
        self._grant(machines)
        self.ended = [self._when_executions_end(end, machines) for end in FailedStatus if _with(end, machines)]
        self.schedule = run_every(
            self,
            "Schedule",
            self.function,
            every,
            description="Checks for failed executions, and ends that are due",
        )
        self._add_alarms(oldest)
        Manifest.of(self).add(
            Part.WATCHES,
            function=self.function.function.function_name,
            table=self.table.table_name,
            watched=[_fields(machine) for machine in machines],
        )

    def metric_failed(self) -> cloudwatch.Metric:
        """Executions that failed, timed out or were aborted: the sum of 5 minutes."""
        return self._metric(Metric.BAD_ENDS)

    def metric_notified(self) -> cloudwatch.Metric:
        """Failed executions whose function succeeded: the sum of 5 minutes."""
        return self._metric(Metric.BAD_ENDS_TOLD)

    def metric_dead_lettered(self) -> cloudwatch.Metric:
        """Failed executions whose function failed on every allowed attempt: the sum of 5 minutes."""
        return self._metric(Metric.BAD_ENDS_STUCK)

    def metric_oldest_unnotified(self) -> cloudwatch.Metric:
        """Seconds for which a call has been due after its grace, at most: the maximum of 5 minutes."""
        return self._metric(Metric.OLDEST_BAD_END, "Maximum")

    def _metric(self, metric: Metric, statistic: str = "Sum") -> cloudwatch.Metric:
        return runtime_metric(metric, service_of(self.function), statistic)

    def _told(self, machines: Sequence[WatchedMachine]) -> str:
        fields = [_fields(machine) for machine in machines]
        length = len(_text([{name: _widest(value) for name, value in entry.items()} for entry in fields]))
        if length > _MAX_ENVIRONMENT_BYTES:
            raise ValueError(
                f"{self.node.path} must watch machines that its function's environment has room for, got "
                f"{len(machines)} of {length} bytes of {_MAX_ENVIRONMENT_BYTES}; make another ExecutionWatch"
            )
        return _text(fields)

    def _grant(self, machines: Sequence[WatchedMachine]) -> None:
        """Read the status of executions, store it, call functions; and nothing else."""
        self.table.grant_watch(self.function)
        grant_send(queues_of([self.queue, self.dead_letters]), self.function)
        _allow(self.function, "states:ListExecutions", [machine.machine.state_machine_arn for machine in machines])
        executions = [self._executions_of(machine.machine) for machine in machines]
        _allow(self.function, "states:DescribeExecution", executions)
        functions = dict.fromkeys(machine.function.function_arn for machine in machines)
        # This function, and none of its versions: ``grant_invoke`` would allow them all.
        _allow(self.function, "lambda:InvokeFunction", list(functions))

    def _executions_of(self, machine: sfn.IStateMachine) -> str:
        stack = Stack.of(self)
        if isinstance(machine, sfn.StateMachine):
            name, there = machine.state_machine_name, Stack.of(machine)
            if there is not stack:
                # It crosses as an export. Made here, the export's own name is known, by which the finding below goes.
                name = there.export_value(name)
        else:
            name = str(stack.split_arn(machine.state_machine_arn, ArnFormat.COLON_RESOURCE_NAME).resource_name)
        arn = stack.format_arn(
            service="states",
            resource="execution",
            resource_name=f"{name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        Validations.of(self.function.role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::{_flat(stack.resolve(arn))}]",
                reason="Executions of this one state machine: their names are made when they start, and "
                "their status is read.",
            )
        )
        return arn

    def _when_executions_end(self, end: FailedStatus, machines: Sequence[WatchedMachine]) -> events.Rule:
        return rule_for(
            self,
            [watched.machine for watched in _with(end, machines)],
            queue=self.queue,
            dead_letters=self.dead_letters,
            id=f"Ended{end.title().replace('_', '')}",
            description=f"Executions of hand-written state machines that are {end}",
            ends=[end],
        )

    def _add_alarms(self, oldest: int) -> None:
        scope = Construct(self, "Alarms")
        service = service_of(self.function)
        minutes = self._period_minutes
        self.execution_failed_alarm = SagaAlarm(
            scope,
            "ExecutionFailed",
            runbook=Runbook.WATCH_EXECUTION_FAILED,
            text="An execution failed; its function is called automatically",
            metric=runtime_metric(Metric.BAD_ENDS, service, "Sum", minutes),
        )
        self.handler_failed_alarm = SagaAlarm(
            scope,
            "HandlerFailed",
            runbook=Runbook.WATCH_HANDLER_FAILED,
            text="The function of a failed execution failed on every attempt",
            metric=runtime_metric(Metric.BAD_ENDS_STUCK, service, "Sum", minutes),
        )
        self.notification_delay_alarm = SagaAlarm(
            scope,
            "NotificationDelay",
            runbook=Runbook.WATCH_NOTIFICATION_DELAYED,
            text=f"A function's call for a failed execution is delayed by more than {oldest} s, or there is no data",
            metric=runtime_metric(Metric.OLDEST_BAD_END, service, "Maximum", minutes),
            above=oldest,
            silence_breaches=True,
        )
        self.dead_letter_queue_alarm = depth_alarm(
            scope,
            "DeadLetterQueue",
            Runbook.WATCH_DEAD_LETTERS,
            "An execution's end could not be handled or reported",
            self.dead_letters,
        )
        self.alarms: list[cloudwatch.Alarm] = [
            self.execution_failed_alarm,
            self.handler_failed_alarm,
            self.notification_delay_alarm,
            self.dead_letter_queue_alarm,
        ]


class _WatchTable(StatefulTable):
    """Failed executions, with a sparse index of those to check again; and how far executions were listed."""

    def __init__(self, scope: Construct, id: str, *, removal_policy: RemovalPolicy) -> None:
        super().__init__(
            scope,
            id,
            partition_key=WatchAttribute.ID,
            time_to_live=WatchAttribute.EXPIRATION,
            global_secondary_indexes=[sparse_index(WatchAttribute.DUE_SHARD, WatchAttribute.DUE_AT)],
            removal_policy=removal_policy,
        )

    @checked
    def grant_watch(self, grantee: iam.IGrantable) -> None:
        """Read and write single rows, and query the index."""
        self._grant(grantee, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
        _allow(grantee, "dynamodb:Query", [f"{self.table_arn}/index/{DUE_INDEX}"])


def _measured_within(every: int, life: int) -> int:
    """Minutes within which an overdue end is certainly checked: after a call, its pause, and a check or two."""
    return max(_PERIOD_MINUTES, _MISSED * every, ceil((life + LONGEST_PAUSE_MS // 1_000) / 60) + 2 * every)


def _with(end: FailedStatus, machines: Sequence[WatchedMachine]) -> list[WatchedMachine]:
    return [machine for machine in machines if end in machine.ends]


def _fields(watched: WatchedMachine) -> dict[str, Any]:
    """Fields of a machine for the function; ARNs are tokens until the deployment."""
    f = WatchedField
    return {
        f.MACHINE: watched.machine.state_machine_arn,
        f.FUNCTION: watched.function.function_arn,
        f.ENDS: [end for end in FailedStatus if end in watched.ends],
        f.GRACE: int(watched.grace.to_seconds()) if watched.grace is not None else GRACE_SECONDS,
        f.LEASE: watched.lease_seconds,
        f.ATTEMPTS: watched.attempts,
    }


def _text(fields: Sequence[dict[str, Any]]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _widest(value: Any) -> Any:
    """The value, with ARNs that CloudFormation makes as long as they can be."""
    return "x" * _LONGEST_ARN if isinstance(value, str) and Token.is_unresolved(value) else value


def _flat(resolved: Any) -> str:
    """An ARN as findings spell it: references in angle brackets."""
    return "".join(_parts(resolved))


def _parts(resolved: Any) -> Iterator[str]:
    if isinstance(resolved, str):
        yield resolved
        return
    ((function, argument),) = resolved.items()
    match function:
        case "Fn::Join":
            for part in argument[1]:
                yield from _parts(part)
        case "Ref":
            yield f"<{argument}>"
        case "Fn::ImportValue":
            yield str(argument)
        case "Fn::GetAtt":
            yield f"<{argument[0]}.{argument[1]}>"
        case _:
            yield json.dumps(resolved, separators=(",", ":"))


def _allow(grantee: iam.IGrantable, action: str, resources: list[str]) -> None:
    iam.Grant.add_to_principal(grantee=grantee, actions=[action], resource_arns=resources)
