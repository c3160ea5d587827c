"""A saga whose request and first output are too large to travel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    Operation,
    PayloadBucket,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"


class LargeStack(Stack):
    """``POST /reports`` makes a large output of a large request, and reads both."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self._counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        requests = IdempotencyTable(self, "Requests")
        payloads = PayloadBucket(self, "Payloads")
        saga = SagaStateMachine(
            self,
            "Report",
            requests=requests,
            result="$outputs",
            payloads=payloads,
            steps=[
                Step.atomic(
                    "Make",
                    fn=self._function("Make", "steps.make"),
                    compensate=self._function("Undo", "steps.undo"),
                ),
                Step.atomic("Check", fn=self._function("Check", "steps.check")),
            ],
        )
        front_door = TransactionApi(
            self,
            "Api",
            operations={"reports": Operation(saga=saga, max_body_bytes=3_000_000)},
            cloud_watch_role=False,
        )
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "CounterTableName": self._counters.table_name,
            "RequestTableName": requests.table.table_name,
            "LogTableName": saga.log.table.table_name,
            "PayloadBucketName": payloads.bucket.bucket_name,
            "MachineArn": saga.state_machine.state_machine_arn,
            "RecoveryMachineArn": saga.recovery_machine.state_machine_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _function(self, id: str, handler: str) -> StepFunction:
        function = StepFunction(
            self, id, code=_FUNCTIONS, handler=handler, environment={"COUNTERS": self._counters.table_name}
        )
        self._counters.grant(function, "dynamodb:UpdateItem", "dynamodb:PutItem")
        return function
