"""The sweeper of a ledger: its function, and its alarm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.functions.schedules import run_every
from constructs_lib.monitoring.alarms import Runbook, SagaAlarm, runtime_metric
from constructs_lib.shared.service_names import service_of
from saga_runtime.protocol import Metric

_INTERVAL: Final = Duration.minutes(5)
_TIMEOUT: Final = Duration.minutes(4)
_PERIOD_MINUTES: Final = 15
_LATE_SECONDS: Final = 3_600


class LedgerSweeper(Construct):
    """Releases holds whose time is over, and moves what collecting accounts received to the accounts.

    Attributes:
        function: the function.
        schedule: invokes it every 5 minutes. What one run does not reach, the next one does.
        unswept_alarm: something has been due for more than an hour, or nothing was reported for a quarter of one.
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
            longest_timeout=_TIMEOUT,
            removal_policy=removal_policy,
        )
        name_role(self.function, "the sweeper of the ledger")
        iam.Grant.add_to_principal(grantee=self.function, actions=["dynamodb:Query"], resource_arns=[index_arn])
        self.schedule = run_every(
            self, "Schedule", self.function, _INTERVAL, description="Sweeps what is due in a ledger"
        )
        self.unswept_alarm = SagaAlarm(
            self,
            "Unswept",
            runbook=Runbook.LEDGER_UNSWEPT,
            text="A hold or a window has been due for more than an hour, or the sweeper does not run: see its log",
            metric=runtime_metric(Metric.OLDEST_UNSWEPT, service_of(self.function), "Maximum", _PERIOD_MINUTES),
            above=_LATE_SECONDS,
            silence_breaches=True,
        )
