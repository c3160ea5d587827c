"""Sagas whose steps only count: two plain steps, and steps with routes of their own for named refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    ContinueWith,
    IdempotencyTable,
    Notify,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"


class CountingStack(Stack):
    """``POST /plain`` counts twice. ``POST /routed`` does, too, and knows what to do about two refusals."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        requests = IdempotencyTable(self, "Requests")
        step = self._function("Step", "steps.step", counters)
        undo = self._function("Undo", "steps.undo", counters)
        plain = SagaStateMachine(
            self,
            "Plain",
            requests=requests,
            result="$outputs",
            steps=[Step.atomic("First", fn=step, compensate=undo), Step.atomic("Second", fn=step)],
        )
        alarms = sqs.Queue(self, "Alarms", fifo=True)
        routed = SagaStateMachine(
            self,
            "Routed",
            requests=requests,
            result="$outputs",
            steps=[
                Step.atomic(
                    "First",
                    fn=step,
                    compensate=undo,
                    refusals=["SoldOut", "Declined"],
                    on_error={"SoldOut": ContinueWith(output={"instead": "nothing"})},
                ),
                Step.atomic(
                    "Second",
                    fn=step,
                    pivot=True,
                    refusals=["Declined", "SoldOut"],
                    on_error={"Declined": Notify(queue=alarms, message='{"declined": $failure.step}')},
                ),
            ],
        )
        front_door = TransactionApi(self, "Api", operations={"plain": plain, "routed": routed}, cloud_watch_role=False)
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "CounterTableName": counters.table_name,
            "RequestTableName": requests.table.table_name,
            "PlainLogTableName": plain.log.table.table_name,
            "RoutedLogTableName": routed.log.table.table_name,
            "AlarmQueueUrl": alarms.queue_url,
            "PlainMachineArn": plain.state_machine.state_machine_arn,
            "RoutedMachineArn": routed.state_machine.state_machine_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _function(self, id: str, handler: str, counters: dynamodb.TableV2) -> StepFunction:
        function = StepFunction(
            self, id, code=_FUNCTIONS, handler=handler, environment={"COUNTERS": counters.table_name}
        )
        counters.grant(function, "dynamodb:UpdateItem")
        return function
