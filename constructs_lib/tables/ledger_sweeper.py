"""The sweeper of a ledger: its function, and its alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.shared.service_names import service_of
from saga_runtime.protocol import METRIC_NAMESPACE, Metric

_INTERVAL: Final = Duration.minutes(5)
_TIMEOUT: Final = Duration.minutes(4)
_PERIOD: Final = Duration.minutes(15)
_LATE_SECONDS: Final = 3_600


class LedgerSweeper(Construct):
    """Releases holds whose time is over, and moves what collecting accounts received to the accounts.

    Attributes:
        function: the function.
        schedule: invokes it every 5 minutes. What one run does not reach, the next one does.
        unswept_alarm: something has been due for more than an hour, or nothing was reported for a quarter of one.
        suspense_alarm: an account could not take what was collected for it: it waits in the suspense account.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Mapping[str, str],
        index_arn: str,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        self.function = RuntimeFunction(
            self,
            "Function",
            code=own_code(),
            handler="handlers.ledger_sweeper.handler",
            description="Releases holds whose time is over, and sweeps collecting accounts",
            environment=environment,
            timeout=_TIMEOUT,
            removal_policy=removal_policy,
        )
        iam.Grant.add_to_principal(grantee=self.function, actions=["dynamodb:Query"], resource_arns=[index_arn])
        self.schedule = run_every(
            self, "Schedule", self.function, _INTERVAL, description="Sweeps what is due in a ledger"
        )
        self.unswept_alarm = self._alarm(
            "Unswept",
            "A hold or a window has been due for more than an hour, or the sweeper does not run: see its log",
            Metric.OLDEST_UNSWEPT,
            statistic="Maximum",
            above=_LATE_SECONDS,
            silence=cloudwatch.TreatMissingData.BREACHING,
        )
        self.suspense_alarm = self._alarm(
            "Suspense",
            "An account could not take what was collected for it: see the suspense account",
            Metric.SUSPENDED,
            statistic="Sum",
            above=0,
            silence=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _alarm(
        self,
        id: str,
        description: str,
        metric: Metric,
        *,
        statistic: str,
        above: int,
        silence: cloudwatch.TreatMissingData,
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            id,
            alarm_description=description,
            metric=cloudwatch.Metric(
                namespace=METRIC_NAMESPACE,
                metric_name=metric,
                dimensions_map={"service": service_of(self.function)},
                statistic=statistic,
                period=_PERIOD,
            ),
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=silence,
        )
