"""The saga that investigates jobs of carts that no provider reported."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import EventIntake, IdempotencyTable, Notify, SagaStateMachine, Step, StepFunction
from examples.dead_letters import dead_letter_queue

READ_SECONDS: Final = 10
FINDING: Final = (
    '{"job": $request.job, "order": $request.order, "step": $request.step, '
    '"provider": $outputs.KeepFinding.provider, "state": $outputs.KeepFinding.state}'
)
UNFINISHED: Final = (
    '{"request": $states.context.Execution.Input.request, "step": $failure.step, "error": $failure.error}'
)


class Investigation(Construct):
    """Begins a saga by each entry of an unanswered job: asks the provider, reads the order, informs operators.

    Args:
        scope: parent construct.
        id: construct id.
        requests: where its requests' records are.
        read: decorated with ``event_saga``; reads entries.
        ask: asks the provider.
        look: reads the order.
        keep: keeps what was found.
        unanswered: the queue of entries, for ``CallbackIntegration(unanswered=…)``.

    Attributes:
        saga: the saga.
        findings: what was found, for operators.
        alarm: there is a finding. It has no action: add yours.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        requests: IdempotencyTable,
        read: StepFunction,
        ask: StepFunction,
        look: StepFunction,
        keep: StepFunction,
        unanswered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        kept = Duration.days(14)
        unread = dead_letter_queue(self, "Unread", fifo=True)
        self.findings = sqs.Queue(
            self,
            "Findings",
            fifo=True,
            enforce_ssl=True,
            retention_period=kept,
            dead_letter_queue=sqs.DeadLetterQueue(queue=unread, max_receive_count=10),
        )
        self.saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            steps=[
                Step.read_only("AskProvider", fn=ask),
                Step.read_only("LookAtOrder", fn=look),
                Step.atomic("KeepFinding", fn=keep, pivot=True),
                Step.notify("InformOperators", queue=self.findings, message=FINDING),
            ],
            on_failed=Notify(queue=self.findings, message=UNFINISHED),
        )
        EventIntake(self, "Intake", operation="investigations", fn=read, saga=self.saga).add_queue(unanswered)
        self.alarm = cloudwatch.Alarm(
            self,
            "Found",
            alarm_description="A job that was never reported has been investigated: read what was found",
            metric=self.findings.metric_approximate_number_of_messages_visible(period=Duration.minutes(1)),
            threshold=0,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )


def unanswered_queue(scope: Construct) -> sqs.Queue:
    """Create the queue of entries of unanswered jobs, and an alarm on those that cannot be investigated."""
    kept = Duration.days(14)
    dead = dead_letter_queue(scope, "NotInvestigated")
    cloudwatch.Alarm(
        scope,
        "NotInvestigatedAlarm",
        alarm_description="The investigation of an unanswered job does not begin: see the logs of its reader",
        metric=dead.metric_approximate_number_of_messages_visible(period=Duration.minutes(1)),
        threshold=0,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        evaluation_periods=1,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )
    return sqs.Queue(
        scope,
        "Unanswered",
        enforce_ssl=True,
        retention_period=kept,
        visibility_timeout=Duration.seconds(6 * READ_SECONDS),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=10),
    )
