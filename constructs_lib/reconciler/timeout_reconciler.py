"""TimeoutReconciler: nothing stays stuck, nothing stays half done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aws_cdk import Duration, RemovalPolicy, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.monitoring.alarms import runtime_metric
from constructs_lib.monitoring.queues import MOST_MACHINES, dead_letters_of, queue_for, rule_for
from constructs_lib.reconciler.alarms import LONGEST_SECONDS, AlarmLimits, ReconcilerAlarms
from constructs_lib.reconciler.grants import grant_reconciling
from constructs_lib.reconciler.sagas import fields_of, require_sagas, told_of
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.arguments import require_between, require_minutes
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part, QueueRole
from constructs_lib.shared.operator_actions import HOLD_ACTIONS
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.types import checked
from constructs_lib.tables.stateful_table import StatefulTable
from constructs_lib.tables.units import AmountsByUnit, unit_argument
from saga_runtime.money import Unit
from saga_runtime.protocol import (
    Env,
    HoldAttribute,
    Look,
    LookField,
    Metric,
)

_SECONDS: Final = 50
"""Shorter than the minute after which the next look begins: two would do no harm, and twice the work."""
_VISIBLE_AFTER: Final = 6 * _SECONDS
_HOUR: Final = 3_600


class TimeoutReconciler(Construct):
    """Recovers interrupted sagas, whatever the cause, and parks those that need an operator.

    A state machine that times out or is stopped runs no Catch; a reserved request may never be
    started; an event can be lost. Creates a function that checks every due request record, by a schedule,
    and those whose executions failed, by Step Functions' status events (through a queue); and alarms.

    Guaranteed: a saga in progress whose owner's execution timed out, was stopped or failed is transferred to a recovery
    by one conditional write, or is parked after ``max_recoveries`` of them; a request that was
    reserved and not started is started, by its name and with its stored bytes; late effects are compensated, of
    settled sagas too. Any call may be repeated, run concurrently, or be a crashing function's last: the
    result is the same. Running, redriven and parked sagas are not changed.
    Not guaranteed: how soon. Status events arrive within seconds, if at all; a check finds the rest when due:
    young sagas every minute, old ones every 15 minutes. After a failed recovery the next one waits,
    from a minute doubling to an hour.

    One reconciler may serve several sagas, with different tables, also of other stacks of its app in the same
    account and region. It also measures what is in flight: sagas, their ages, and the money that they move,
    and removes expired responses with their requests.

    An ``ExecutionWatch`` watches state machines that are not sagas.

    The function reports its metrics under its stack's name and its own path (dimension ``service``).

    Example::

        TimeoutReconciler(self, "Reconciler", sagas=[transfer, order])

    Args:
        scope: parent construct.
        id: construct id.
        sagas: the sagas to reconcile; each saga needs one reconciler.
        check_interval: interval of checks; whole minutes, 1 to 60, 1 by default.
        metrics_interval: interval of measurements of what is in flight, and of its money; whole minutes, 1 to 60, 5 by
            default. It reads all that is not settled: this costs with what is in flight.
        longest_interval: how long an old or parked saga is not checked, at most; whole minutes, 1 to 60, 15 by default.
            Status events announce most ends at once; this is for lost ones. Longer means fewer calls.
        max_recoveries: failed recoveries of one saga before it is parked; 1 to 100, 20 by default.
        recovery_rate_threshold: alarm threshold: recoveries started within 15 minutes, of
            all sagas together: then it is not a single one that died; 1 to 1,000,000, 20 by default.
        max_in_flight_age: alarm threshold: age of a saga in progress; 1 minute to 366 days. By default an
            hour more than the longest ``timeout`` of the sagas.
        max_parked_age: alarm threshold: time parked; 1 minute to 366 days,
            1 day by default.
        max_money_in_flight: alarm thresholds by currency, in minor units:
            ``{"EUR": 5_000_000}``, of a unit of your own ``{Unit("POINT", 0): 100_000}``. Only amounts in requests
            count: see ``Operation(money=…)``. None by default.
        longest_hold: alarm threshold: time held by ``hold``; 1 minute to 366 days, 4
            hours by default.
        encryption_key: a KMS key of your own for the queues. Of an imported one, its policy must let EventBridge
            use it: a warning has the statement.
        function_options: ``FunctionOptions`` for the functions and log groups of this construct.
        removal_policy: of log groups; retained by default.

    Attributes:
        sagas: those that it reconciles.
        environment: of its function: the sagas and the limits.
        function: the reconciler's function.
        queue: waiting status events: names of executions, without their data.
        dead_letters: status events that could not be delivered (whole) or handled.
        ended: the rule for status events; with more than six sagas, recoveries have another one.
        schedule: the rule of the checks.
        hold: the table whose item keeps it from acting, for a restore of tables: it checks and measures, and changes
            nothing. ``cdk-sagas hold`` puts and deletes the item; no deployment does. It is deleted with the stack,
            whatever ``removal_policy`` is.
        measure: the rule that adds up what is in flight, and removes responses that have expired.
        recovery_rate_alarm: many recoveries are started: find out why executions fail.
        unsettled_execution_alarm: a saga was parked whose owner succeeded: its record was restored or edited.
        in_flight_age_alarm: a saga is in progress for too long, or there is no data.
        parked_age_alarm: a saga is parked for too long, or there is no data.
        unreconciled_sagas_alarm: sagas of other state machines on the same request tables have been due for hours:
            theirs was replaced, or no reconciler names it. Run ``cdk-sagas doctor``. A saga without a reconciler that
            takes longer than three hours needs its own request table.
        money_alarms: by currency: more is in flight than ``max_money_in_flight``.
        late_effect_alarm: a late effect could not be compensated: operator action is required.
        request_record_missing_alarm: a failed execution's saga has no record.
        reconcile_failure_alarm: every check for 15 minutes failed to reconcile a saga (an unreadable record, a
            permanently refused call), or there is no data.
        incomplete_alarm: no check for 15 minutes completed: raise a quota, or ``longest_interval``.
        held_alarm: it has been held for longer than ``longest_hold``.
        overdue_alarm: in every check for 15 minutes a saga had been due for longer than that.
        dead_letter_queue_alarm: a status event could not be handled; a later look finds its saga nevertheless.
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
        sagas: Sequence[SagaStateMachine],
        check_interval: Duration | None = None,
        metrics_interval: Duration | None = None,
        longest_interval: Duration | None = None,
        max_recoveries: int = 20,
        recovery_rate_threshold: int = 20,
        max_in_flight_age: Duration | None = None,
        max_parked_age: Duration | None = None,
        max_money_in_flight: AmountsByUnit | None = None,
        longest_hold: Duration | None = None,
        encryption_key: AnyKey | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        require_sagas(self, sagas)
        every = require_minutes("check_interval", check_interval or Duration.minutes(1))
        measured = require_minutes("metrics_interval", metrics_interval or Duration.minutes(5))
        longest = require_minutes("longest_interval", longest_interval or Duration.minutes(15))
        require_between("max_recoveries", max_recoveries, at_least=1, at_most=100)
        timeout = max(saga.description.timeout for saga in sagas) + _HOUR
        limits = AlarmLimits.of(
            looks_minutes=every,
            measures_minutes=measured,
            recoveries=recovery_rate_threshold,
            max_in_flight_age=max_in_flight_age or Duration.seconds(min(timeout, LONGEST_SECONDS)),
            max_parked_age=max_parked_age or Duration.days(1),
            money=max_money_in_flight or {},
            longest_hold=longest_hold or Duration.hours(4),
        )
        told: dict[str, str] = {
            Env.RECONCILED: told_of(self, sagas),
            Env.RECOVERIES_LIMIT: str(max_recoveries),
            Env.LONGEST_LOOK: str(longest * 60),
        }
        self.sagas, self.environment = tuple(sagas), told
        self._look_after(sagas, every, measured, told, limits, encryption_key, removal_policy)
        self.node.add_validation(WhenAllIsKnown(lambda: self._warn_of_unmeasured(limits.money)))

    def metric_in_flight(self) -> cloudwatch.Metric:
        """Number of sagas that are not settled, parked ones included: the maximum of 5 minutes."""
        return runtime_metric(Metric.IN_FLIGHT, service_of(self.function), "Maximum")

    def metric_oldest_in_flight(self) -> cloudwatch.Metric:
        """Age in seconds of the oldest saga in progress: the maximum of 5 minutes."""
        return runtime_metric(Metric.OLDEST_IN_FLIGHT, service_of(self.function), "Maximum")

    def metric_oldest_parked(self) -> cloudwatch.Metric:
        """Seconds for which the saga that was parked first has been parked: the maximum of 5 minutes."""
        return runtime_metric(Metric.OLDEST_PARKED, service_of(self.function), "Maximum")

    def metric_parked(self) -> cloudwatch.Metric:
        """Number of parked sagas: the maximum of 5 minutes."""
        return runtime_metric(Metric.PARKED, service_of(self.function), "Maximum")

    def metric_unreconciled(self) -> cloudwatch.Metric:
        """Number of open sagas on the same tables that no reconciler monitors: the maximum of 5 minutes."""
        return runtime_metric(Metric.UNATTENDED, service_of(self.function), "Maximum")

    def metric_money_in_flight(self, unit: str | Unit) -> cloudwatch.Metric:
        """Money in flight in one unit, in its smallest part: the maximum of 5 minutes.

        Args:
            unit: ISO 4217 code, or a ``Unit``.

        Raises:
            ValueError: if it is neither.
        """
        code = {"currency": unit_argument("unit", unit).code}
        return runtime_metric(Metric.MONEY_IN_FLIGHT, service_of(self.function), "Maximum", dimensions=code)

    def metric_recoveries(self) -> cloudwatch.Metric:
        """Recoveries started: the sum of 5 minutes."""
        return runtime_metric(Metric.RECOVERIES, service_of(self.function), "Sum")

    @checked
    def grant_hold(self, grantee: iam.IGrantable) -> iam.Grant:
        """Hold this reconciler, and end a hold: what ``cdk-sagas hold`` needs. For operators only."""
        Manifest.of(self).grant_read(grantee)
        for requests in self._requests:
            requests.grant_look(grantee)
        return self.hold.grant_hold(grantee)

    def _warn_of_unmeasured(self, currencies: Iterable[str]) -> None:
        """Warn of alarms that cannot fire: no request states an amount in their currency."""
        amounts = [money for saga in self.sagas for money in saga.amounts]
        for currency in sorted(currencies):
            if not any(money.may_be_in(currency) for money in amounts):
                Validations.of(self).add_warning(
                    "cdk-sagas-money-unmeasured",
                    f"max_money_in_flight[{currency!r}] of {self.node.path} must be of a currency that requests state, "
                    "got none that do; give the operations, or intakes, of its sagas money=MoneyField(…)",
                )

    def _look_after(
        self,
        sagas: Sequence[SagaStateMachine],
        every: int,
        measured: int,
        told: Mapping[str, str],
        limits: AlarmLimits,
        encryption_key: AnyKey | None,
        removal_policy: RemovalPolicy,
    ) -> None:
        self.function = RuntimeFunction(
            self,
            "Function",
            code=own_code(),
            handler="handlers.reconciler.handler",
            description="Recovers interrupted sagas",
            timeout=Duration.seconds(_SECONDS),
            longest_timeout=Duration.seconds(_SECONDS),
            environment=told,
            removal_policy=removal_policy,
        )
        name_role(self.function, "the reconciler")
        self._requests = list(dict.fromkeys(saga.requests for saga in sagas))
        self.hold = HoldTable(self, "Hold")
        self.function.function.add_environment(Env.HOLD_TABLE, self.hold.table_name)
        self.hold.grant_look(self.function)
        for saga in sagas:
            grant_reconciling(self.function, saga)
            saga.look_after(reconciler=self.node.path, every=every * 60)
        self.dead_letters = dead_letters_of(self, encryption_key)
        self.queue = queue_for(
            self.function,
            self,
            encryption_key,
            dead_letters=self.dead_letters,
            role=QueueRole.EVENTS,
            visible_after=Duration.seconds(_VISIBLE_AFTER),
        )
        self.ended = self._when_executions_end(sagas)
        self.schedule = run_every(
            self, "Schedule", self.function, Duration.minutes(every), description="Checks sagas that are due"
        )
        self.measure = run_every(
            self,
            "Measure",
            self.function,
            Duration.minutes(measured),
            description="Adds up what is in flight",
            event={LookField.LOOK: Look.IN_FLIGHT},
        )
        self._add_alarms(limits)
        Manifest.of(self).add(
            Part.RECONCILERS,
            function=self.function.function.function_name,
            hold=self.hold.table_name,
            limit=int(told[Env.RECOVERIES_LIMIT]),
            serves=[fields_of(saga) for saga in sagas],
        )

    def _when_executions_end(self, sagas: Sequence[SagaStateMachine]) -> events.Rule:
        """Create the rule for status events; a second one, where one pattern has no room for all state machines."""

        def rule(id: str, machines: Sequence[sfn.StateMachine]) -> events.Rule:
            return rule_for(self, machines, queue=self.queue, dead_letters=self.dead_letters, id=id)

        machines = [machine for saga in sagas for machine in (saga.state_machine, saga.recovery_machine)]
        if len(machines) <= MOST_MACHINES:
            return rule("Ended", machines)
        rule("EndedRecoveries", [saga.recovery_machine for saga in sagas])
        return rule("Ended", [saga.state_machine for saga in sagas])

    def _add_alarms(self, limits: AlarmLimits) -> None:
        alarms = ReconcilerAlarms(
            self,
            "Alarms",
            service=service_of(self.function),
            dead_letters=self.dead_letters,
            limits=limits,
        )
        self.recovery_rate_alarm = alarms.recoveries
        self.unsettled_execution_alarm = alarms.unsettled
        self.in_flight_age_alarm = alarms.max_in_flight_age
        self.parked_age_alarm = alarms.max_parked_age
        self.unreconciled_sagas_alarm = alarms.unattended
        self.money_alarms = alarms.money
        self.late_effect_alarm = alarms.late
        self.request_record_missing_alarm = alarms.record_missing
        self.reconcile_failure_alarm = alarms.failing
        self.incomplete_alarm = alarms.incomplete
        self.overdue_alarm = alarms.overdue
        self.held_alarm = alarms.held
        self.dead_letter_queue_alarm = alarms.dead_letters
        self.alarms = alarms.all


class HoldTable(StatefulTable):
    """The table whose items keep a reconciler from acting. It goes with the stack: it holds no saga's data."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id, partition_key=HoldAttribute.ID, removal_policy=RemovalPolicy.DESTROY)

    @checked
    def grant_look(self, grantee: iam.IGrantable) -> iam.Grant:
        """Read the item."""
        return self._grant(grantee, "dynamodb:GetItem")

    @checked
    def grant_hold(self, grantee: iam.IGrantable) -> iam.Grant:
        """Put, read and delete holds."""
        return self._grant(grantee, *HOLD_ACTIONS)
