"""What somebody should know of sagas that were interrupted: one alarm per thing that can go wrong."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib._callback_alarms import depth_alarm
from saga_runtime.protocol import METRIC_NAMESPACE, Metric

_PERIOD: Final = Duration.minutes(15)
"""What is old, or parked, is looked at once in that time."""


class ReconcilerAlarms(Construct):
    """The alarms of one reconciler. They have no actions.

    Args:
        scope: parent construct.
        id: construct id.
        service: dimension of the function's metrics.
        dead_letters: the queue that should be empty.
        in_flight: seconds that a saga in progress may be old.
        parked: seconds for which a saga may wait for a person.
    """

    def __init__(
        self, scope: Construct, id: str, *, service: str, dead_letters: sqs.IQueue, in_flight: int, parked: int
    ) -> None:
        super().__init__(scope, id)
        self._service = service
        self.orphans = self._alarm(
            "Orphans", "A saga was found that nobody looked after; it is taken up again", Metric.ORPHANS
        )
        self.unsettled = self._alarm(
            "Unsettled", "An execution succeeded, and left its saga in progress", Metric.UNSETTLED
        )
        self.oldest_in_flight = self._alarm(
            "OldestInFlight",
            f"A saga has been in progress for more than {in_flight} s, or nobody looks: see cdk-sagas inspect",
            Metric.OLDEST_IN_FLIGHT,
            above=in_flight,
        )
        self.oldest_parked = self._alarm(
            "OldestParked",
            f"A saga has waited for a person for more than {parked} s: see cdk-sagas inspect",
            Metric.OLDEST_PARKED,
            above=parked,
        )
        self.late = self._alarm(
            "Late", "What took effect late could not be undone: see cdk-sagas recover", Metric.LATE_STANDS
        )
        self.dead_letters = depth_alarm(self, "DeadLetters", "A status event could not be handled", dead_letters)

    @property
    def all(self) -> list[cloudwatch.Alarm]:
        """Every one of them."""
        return [
            self.orphans,
            self.unsettled,
            self.oldest_in_flight,
            self.oldest_parked,
            self.late,
            self.dead_letters,
        ]

    def _alarm(self, id: str, description: str, metric: Metric, *, above: int | None = None) -> cloudwatch.Alarm:
        """Counted at all, or an age above a limit. Ages are measured by every look: silence is alarming, too."""
        counted = above is None
        return cloudwatch.Alarm(
            self,
            id,
            alarm_description=description,
            metric=cloudwatch.Metric(
                namespace=METRIC_NAMESPACE,
                metric_name=metric.value,
                dimensions_map={"service": self._service},
                statistic="Sum" if counted else "Maximum",
                period=_PERIOD,
            ),
            threshold=above or 0,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING
            if counted
            else cloudwatch.TreatMissingData.BREACHING,
        )
