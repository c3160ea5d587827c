"""Migration: its worker, schedules, metrics and alarms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, counted_alarm, runtime_metric
from constructs_lib.shared.arguments import require_between, require_seconds
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import refer_to
from constructs_lib.shared.types import checked
from saga_runtime.migration.layout import Layout
from saga_runtime.migration.progress import Job
from saga_runtime.migration.terms import Terms
from saga_runtime.protocol import Env, Metric

_MOST_SEGMENTS: Final = 8
_EVERY: Final = {Job.BACKFILL: Duration.minutes(5), Job.VERIFY: Duration.minutes(60)}
_FAILED_PERIODS: Final = 3
_TIMEOUT: Final = Duration.minutes(4)
"""Shorter than the shorter interval: runs of one segment rarely meet, and are harmless if they do."""
_DAY_SECONDS: Final = 86_400
_MOST_BYTES: Final = 3_072
"""Of 4 KB of a function: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""
_REFERENCE_BYTES: Final = 64
"""Longest name of a function."""
_LEAST_ENDED: Final = 900
"""The longest timeout of a function."""
_WORKER_ACTIONS: Final = (
    *("GetItem", "BatchGetItem", "Scan"),
    *("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"),
)
_WRITER_ACTIONS: Final = ("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "ConditionCheckItem")


class Migration(Construct):
    """Moves each customer's concerns from one item to one item per concern, while operations run.

    Creates a worker function with a schedule for each job and segment, and alarms. Phases are changed by
    ``cdk-sagas migrate advance`` and ``back``, never by a deployment.

    Guaranteed: at each moment one item, or both with equal values, is the truth about a concern of a customer, whatever
    dies, and however many workers and phases meet. A phase advances only when everything of it has moved, comparisons
    were clean for ``clean_for``, and no code of the phase before can still run.

    Not guaranteed: that functions outside ``writers`` follow. Code that writes old items without
    ``saga_runtime.migration`` must be gone before phase 2. That customers can be deleted otherwise than with
    ``Store.gone``, while items move.

    Example::

        layout = Layout(name="split", old_item="customer", groups=((profile,), (points, cash)))
        Migration(self, "Split", table=table, layout=layout, phase=1, writers=[pay, refund])

    Args:
        scope: parent construct.
        id: construct id.
        table: the table, with a partition key and a sort key of type text.
        layout: concerns, their items and attributes, in groups; with the gates' times at most 3 KB in a function's
            environment.
        phase: up to which phase operators may advance; 0 to ``layout.last``. Raise it by one with each deployment.
        writers: every function that writes items of customers, of one migration only. Each gets the layout and
            the table's name in its environment, and the rights to read and write the table's items.
        segments: parts of the table that are worked on in parallel; 1 to 8, 1 by default.
        ended_after: after which time no code of the release, or phase, before runs: the longest timeout, and for how
            long Lambda keeps asynchronous events; 15 minutes to 7 days, 6 hours and 15 minutes by default.
        clean_for: for how long comparisons must find no difference; 1 day by default, at most 30 days.
        kept_for: for how long old items are kept when nothing reads them any more; 30 days by default.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of the worker's log group; retained by default.

    Attributes:
        writers: every function that writes items of customers, each once.
        worker: the worker.
        difference_alarm: old and new item of a concern differ.
        failed_alarm: the worker failed in three periods of 5 minutes in a row, or does not run.
        failed_hourly_alarm: the worker failed in three hours in a row, as it does if only comparisons fail.
        not_compared_alarm: no comparison began for three hours in some segment: its schedule is disabled, or deleted.
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
        table: dynamodb.ITableV2,
        layout: Layout,
        phase: int,
        writers: Sequence[RuntimeFunction],
        segments: int = 1,
        ended_after: Duration | None = None,
        clean_for: Duration | None = None,
        kept_for: Duration | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        require_between("phase", phase, at_least=0, at_most=layout.last)
        require_between("segments", segments, at_least=1, at_most=_MOST_SEGMENTS)
        if not writers:
            raise ValueError(f"writers of Migration {id} must name a function, got none; name all that write items")
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        self.writers = list(dict.fromkeys(writers))
        self._require_own_writers()
        for fn in self.writers:
            refer_to(self, f"writer {fn.node.id} of Migration {id}", fn, {f"table of Migration {id}": table})
        terms = Terms(
            layout=layout,
            most_phase=phase,
            segments=segments,
            ended_after_seconds=require_seconds(
                "ended_after", ended_after or Duration.minutes(375), at_least=_LEAST_ENDED, at_most=7 * _DAY_SECONDS
            ),
            clean_for_seconds=require_seconds(
                "clean_for", clean_for or Duration.days(1), at_least=0, at_most=30 * _DAY_SECONDS
            ),
            kept_for_seconds=require_seconds(
                "kept_for", kept_for or Duration.days(30), at_least=0, at_most=3_650 * _DAY_SECONDS
            ),
            writers=tuple(fn.function.function_name for fn in self.writers),
        )
        stack = Stack.of(self)
        deployed = stack.to_json_string(terms.to_json())
        _require_room(stack, id, deployed)
        self.worker = RuntimeFunction(
            self,
            "Worker",
            code=own_code(),
            handler="handlers.migration.handler",
            description="Moves items of a migration, and compares them",
            environment={
                Env.MIGRATION: deployed,
                Env.MIGRATION_TABLE: table.table_name,
            },
            timeout=_TIMEOUT,
            longest_timeout=_TIMEOUT,
            removal_policy=removal_policy,
        )
        name_role(self.worker, "the worker of the migration")
        Manifest.of(self).add(Part.MIGRATIONS, layout=terms.to_json(), table=table.table_name)
        _grant(table, self.worker, _WORKER_ACTIONS)
        # Writers need the layout alone: so a deployment that allows the next phase does not replace them.
        followed = stack.to_json_string(layout.to_json())
        for fn in self.writers:
            fn.function.add_environment(Env.MIGRATION, followed)
            fn.function.add_environment(Env.MIGRATION_TABLE, table.table_name)
            _grant(table, fn, _WRITER_ACTIONS)
        self._table = table
        schedules = {
            (job, segment): run_every(
                self,
                f"{job.capitalize()}{segment}",
                self.worker,
                interval,
                description=f"Runs {job} of a migration, segment {segment}",
                event={"job": job, "segment": str(segment)},
            )
            for job, interval in _EVERY.items()
            for segment in range(segments)
        }
        self.difference_alarm: cloudwatch.Alarm = counted_alarm(
            self,
            "Different",
            Runbook.MIGRATION_DIFFERENCE,
            "Old and new item of a concern differ: see cdk-sagas migrate status",
            [Metric.MIGRATION_DIFFERENCE],
            [service_of(self.worker)],
        )
        self.failed_alarm: cloudwatch.Alarm = self._failed_alarm(
            "Failed",
            "The worker of a migration failed in three successive periods of 5 minutes, or does not run: see its log",
            _EVERY[Job.BACKFILL],
            silence=True,
        )
        self.failed_hourly_alarm: cloudwatch.Alarm = self._failed_alarm(
            "FailedHourly",
            "The worker of a migration failed in three successive hours: see its log",
            _EVERY[Job.VERIFY],
            silence=False,
        )
        self.not_compared_alarm: cloudwatch.Alarm = SagaAlarm(
            self,
            "NotCompared",
            runbook=Runbook.MIGRATION_FAILING,
            text="Items of a migration were not compared for three hours: a schedule is disabled or deleted",
            metric=_silent([rule for (job, _), rule in schedules.items() if job is Job.VERIFY], _EVERY[Job.VERIFY]),
            periods=_FAILED_PERIODS,
            silence_breaches=True,
        )
        self.alarms = [self.difference_alarm, self.failed_alarm, self.failed_hourly_alarm, self.not_compared_alarm]

    def _failed_alarm(self, id: str, text: str, period: Duration, *, silence: bool) -> SagaAlarm:
        return SagaAlarm(
            self,
            id,
            runbook=Runbook.MIGRATION_FAILING,
            text=text,
            metric=self.worker.function.metric_errors(statistic="Sum", period=period),
            periods=_FAILED_PERIODS,
            silence_breaches=silence,
        )

    def metric_moved(self) -> cloudwatch.Metric:
        """Concerns of customers that moved one step: the sum of 5 minutes."""
        return runtime_metric(Metric.MIGRATED, service_of(self.worker), "Sum")

    def metric_left(self) -> cloudwatch.Metric:
        """Concerns of customers that a complete pass could not move: the maximum of an hour."""
        return runtime_metric(Metric.MIGRATION_LEFT, service_of(self.worker), "Maximum", 60)

    def metric_differences(self) -> cloudwatch.Metric:
        """Comparisons that found a difference between old and new item: the sum of 5 minutes."""
        return runtime_metric(Metric.MIGRATION_DIFFERENCE, service_of(self.worker), "Sum")

    def metric_clean_seconds(self) -> cloudwatch.Metric:
        """Seconds for which comparisons have found no difference: the minimum of an hour."""
        return runtime_metric(Metric.MIGRATION_CLEAN, service_of(self.worker), "Minimum", 60)

    @checked
    def grant_delete(self, writer: RuntimeFunction) -> None:
        """Let a writer delete customers, with ``Store.gone``.

        Raises:
            ValueError: if it is not a writer of this migration.
        """
        if writer not in self.writers:
            raise ValueError(
                f"writer must be one of the writers of Migration {self.node.id}, got {writer.node.path}; name it there"
            )
        _grant(self._table, writer, ("DeleteItem",))

    def _require_own_writers(self) -> None:
        """A function has one layout in its environment."""
        for other in self.node.root.node.find_all():
            if isinstance(other, Migration) and other is not self:
                for fn in self.writers:
                    if fn in other.writers:
                        raise ValueError(
                            f"writers of Migration {self.node.id} must be of no other one, got {fn.node.path} of "
                            f"{other.node.path} too; move the concerns of both in one layout, or one after the other"
                        )


def _silent(rules: Sequence[events.Rule], period: Duration) -> cloudwatch.MathExpression:
    """Number of schedules that did not run in a period; without data of any, there is no value."""
    runs = {
        f"m{number}": cloudwatch.Metric(
            namespace="AWS/Events",
            metric_name="TriggeredRules",
            dimensions_map={"RuleName": rule.rule_name},
            statistic="Sum",
            period=period,
        )
        for number, rule in enumerate(rules)
    }
    expression = " + ".join(f"IF(FILL({name}, 0) < 1, 1, 0)" for name in runs)
    return cloudwatch.MathExpression(
        expression=expression, using_metrics=runs, period=period, label="Schedules that did not run"
    )


def _require_room(stack: Stack, id: str, text: str) -> None:
    """Refuse a layout that leaves no room in an environment: Lambda takes 4 KB of variables in all."""
    size = _size(stack.resolve(text))
    if size > _MOST_BYTES:
        raise ValueError(
            f"layout of Migration {id} must have at most {_MOST_BYTES} bytes in a function's environment, got {size}; "
            "shorten names, or split it into two migrations, one after the other"
        )


def _size(value: object) -> int:
    """Bytes of a resolved value; what only the deployment knows is taken for a function's name."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict) and list(value) == ["Fn::Join"]:
        return sum(map(_size, value["Fn::Join"][1]))
    return _REFERENCE_BYTES


def _grant(table: dynamodb.ITableV2, fn: RuntimeFunction, actions: Sequence[str]) -> None:
    iam.Grant.add_to_principal(
        grantee=fn, actions=[f"dynamodb:{name}" for name in actions], resource_arns=[table.table_arn]
    )
    if table.encryption_key is not None:
        table.encryption_key.grant_encrypt_decrypt(fn)
