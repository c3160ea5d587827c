"""Alarms of a reconciler: one per kind of failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, depth_alarm, runtime_metric
from constructs_lib.shared.arguments import require_between, require_seconds
from constructs_lib.shared.types import shown
from constructs_lib.tables.units import AmountsByUnit, unit_argument
from saga_runtime.protocol import CURRENCY_DIMENSION, Metric

LONGEST_SECONDS: Final = 366 * 86_400
_MINUTES: Final = 15
"""Over so long is counted, and measured."""
_MISSED: Final = 3
"""Silence is alarming after so many looks that did not come."""
_MOST_MONEY: Final = 2**53
"""Metrics are doubles."""
_MOST_RECOVERIES: Final = 1_000_000
_RUNBOOKS: Final = {
    Metric.RECOVERIES: Runbook.MANY_RECOVERIES,
    Metric.UNSETTLED: Runbook.SAGA_UNSETTLED,
    Metric.OLDEST_IN_FLIGHT: Runbook.SAGA_IN_FLIGHT_TOO_LONG,
    Metric.OLDEST_PARKED: Runbook.SAGA_PARKED_TOO_LONG,
    Metric.UNATTENDED: Runbook.SAGAS_UNRECONCILED,
    Metric.MONEY_IN_FLIGHT: Runbook.MONEY_IN_FLIGHT,
    Metric.LATE_STANDS: Runbook.LATE_EFFECT,
    Metric.RECORD_MISSING: Runbook.SAGA_WITHOUT_RECORD,
    Metric.RECONCILE_FAILED: Runbook.RECONCILER_FAILING,
    Metric.LOOK_INCOMPLETE: Runbook.RECONCILER_INCOMPLETE,
    Metric.OLDEST_OVERDUE: Runbook.RECONCILER_OVERDUE,
    Metric.HOLD_AGE: Runbook.RECONCILER_HELD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmLimits:
    """Thresholds.

    Attributes:
        looks_minutes: interval of checks.
        measures_minutes: interval of measurements.
        recoveries: recoveries that may be started within a quarter of an hour.
        max_in_flight_age: seconds that a saga in progress may be old.
        max_parked_age: seconds for which a saga may be parked.
        money: by currency, minor units that may be in flight.
        longest_hold: seconds for which it may be kept from acting.
    """

    looks_minutes: int
    measures_minutes: int
    recoveries: int
    max_in_flight_age: int
    max_parked_age: int
    money: Mapping[str, int]
    longest_hold: int

    @classmethod
    def of(
        cls,
        *,
        looks_minutes: int,
        measures_minutes: int,
        recoveries: int,
        max_in_flight_age: Duration,
        max_parked_age: Duration,
        money: AmountsByUnit,
        longest_hold: Duration,
    ) -> AlarmLimits:
        """The limits, checked.

        Raises:
            ValueError: for one that is out of range, naming it, its value and the remedy.
        """
        require_between("recovery_rate_threshold", recoveries, at_least=1, at_most=_MOST_RECOVERIES)
        for currency, amount in money.items():
            unit_argument("a currency of max_money_in_flight", currency)
            if not 0 <= amount <= _MOST_MONEY:
                raise ValueError(
                    f"max_money_in_flight[{currency!r}] must be 0 to {_MOST_MONEY} minor units, got "
                    f"{shown(amount)}; metrics are doubles, and hold no larger one exactly"
                )
        return cls(
            looks_minutes=looks_minutes,
            measures_minutes=measures_minutes,
            recoveries=recoveries,
            max_in_flight_age=_age("max_in_flight_age", max_in_flight_age),
            max_parked_age=_age("max_parked_age", max_parked_age),
            money={unit_argument("max_money_in_flight", unit).code: amount for unit, amount in money.items()},
            longest_hold=_age("longest_hold", longest_hold),
        )


def _age(name: str, limit: Duration) -> int:
    return require_seconds(name, limit, at_least=60, at_most=LONGEST_SECONDS)


class ReconcilerAlarms(Construct):
    """The alarms of one reconciler. They have no actions.

    Three signals show that it works: every check reports how many sagas it could not reconcile, every measurement
    the ages of what is in flight, and status events that cannot be handled end in a queue. Missing data of either of
    the first two is alarming, so that a function that fails, is throttled, or is never called is noticed, too.

    Args:
        scope: parent construct.
        id: construct id.
        service: dimension of the function's metrics.
        dead_letters: the queue that should be empty.
        limits: what is too much.
    """

    def __init__(
        self, scope: Construct, id: str, *, service: str, dead_letters: sqs.IQueue, limits: AlarmLimits
    ) -> None:
        super().__init__(scope, id)
        self._service = service
        self._measured = max(_MINUTES, _MISSED * limits.measures_minutes)
        looked = max(_MINUTES, _MISSED * limits.looks_minutes)
        self.recoveries = self._counted(
            "RecoveryRate",
            f"More than {limits.recoveries} recoveries within {_MINUTES} minutes: look what kills executions",
            Metric.RECOVERIES,
            above=limits.recoveries,
        )
        self.unsettled = self._counted(
            "ExecutionUnsettled",
            "A saga was parked whose owner succeeded: see cdk-sagas inspect",
            Metric.UNSETTLED,
        )
        self.max_in_flight_age = self._age(
            "InFlightAge",
            f"A saga has been in progress for more than {limits.max_in_flight_age} s, or there is no data: "
            "see cdk-sagas inspect",
            Metric.OLDEST_IN_FLIGHT,
            limits.max_in_flight_age,
        )
        self.max_parked_age = self._age(
            "ParkedAge",
            f"A saga has been parked for more than {limits.max_parked_age} s, or there is no data: "
            "see cdk-sagas inspect",
            Metric.OLDEST_PARKED,
            limits.max_parked_age,
        )
        self.unattended = self._alarm(
            "UnreconciledSagas",
            "Sagas of other state machines on the same request tables have been due for hours, and no reconciler "
            "handles them: see cdk-sagas doctor",
            Metric.UNATTENDED,
            statistic="Maximum",
            minutes=self._measured,
            above=0,
            silence=False,
        )
        self.money = self._money(limits.money)
        self.late = self._counted(
            "LateEffect", "A late effect could not be compensated: see cdk-sagas recover", Metric.LATE_STANDS
        )
        self.record_missing = self._counted(
            "RequestRecordMissing", "A failed execution's saga has no record", Metric.RECORD_MISSING
        )
        self.failing = self._alarm(
            "ReconcileFailures",
            "Every check fails to reconcile a saga, or there is no data: see the function's log",
            Metric.RECONCILE_FAILED,
            statistic="Minimum",
            minutes=looked,
            above=0,
            silence=True,
        )
        self.incomplete = self._alarm(
            "Incomplete",
            "No look gets to the end of what is due: raise Step Functions' quotas, or longest_interval",
            Metric.LOOK_INCOMPLETE,
            statistic="Minimum",
            minutes=looked,
            above=0,
            silence=False,
        )
        self.overdue = self._alarm(
            "Overdue",
            f"A saga has been due for more than {looked} minutes: see cdk-sagas doctor",
            Metric.OLDEST_OVERDUE,
            statistic="Minimum",
            minutes=looked,
            above=looked * 60,
            silence=False,
        )
        self.held = self._alarm(
            "Held",
            f"The reconciler has been held for more than {limits.longest_hold} s: see cdk-sagas hold",
            Metric.HOLD_AGE,
            statistic="Maximum",
            minutes=looked,
            above=limits.longest_hold,
            silence=False,
        )
        self.dead_letters = depth_alarm(
            self,
            "DeadLetterQueue",
            Runbook.STATUS_EVENT_DEAD_LETTERS,
            "A status event could not be handled",
            dead_letters,
        )

    @property
    def all(self) -> list[SagaAlarm]:
        """Every one of them."""
        return [
            self.recoveries,
            self.unsettled,
            self.max_in_flight_age,
            self.max_parked_age,
            self.unattended,
            *self.money.values(),
            self.late,
            self.record_missing,
            self.failing,
            self.incomplete,
            self.overdue,
            self.held,
            self.dead_letters,
        ]

    def _counted(self, id: str, description: str, metric: Metric, *, above: int = 0) -> SagaAlarm:
        return self._alarm(id, description, metric, statistic="Sum", minutes=_MINUTES, above=above, silence=False)

    def _age(self, id: str, description: str, metric: Metric, above: int) -> SagaAlarm:
        minutes = self._measured
        return self._alarm(id, description, metric, statistic="Maximum", minutes=minutes, above=above, silence=True)

    def _money(self, limits: Mapping[str, int]) -> dict[str, SagaAlarm]:
        """Without money of a currency in flight there is no data; the ages' alarms detect missing measurements."""
        scope = Construct(self, "MoneyInFlight") if limits else self
        return {
            currency: self._alarm(
                currency,
                f"More than {limit} minor units of {currency} are in flight: see the reconciler's log event in_flight",
                Metric.MONEY_IN_FLIGHT,
                scope=scope,
                statistic="Maximum",
                minutes=self._measured,
                above=limit,
                silence=False,
                dimensions={CURRENCY_DIMENSION: currency},
            )
            for currency, limit in sorted(limits.items())
        }

    def _alarm(
        self,
        id: str,
        description: str,
        metric: Metric,
        *,
        statistic: str,
        minutes: int,
        above: int,
        silence: bool,
        scope: Construct | None = None,
        dimensions: Mapping[str, str] | None = None,
    ) -> SagaAlarm:
        return SagaAlarm(
            scope or self,
            id,
            runbook=_RUNBOOKS[metric],
            text=description,
            metric=runtime_metric(metric, self._service, statistic, minutes, dimensions),
            above=above,
            silence_breaches=silence,
        )
