"""``POST /picks`` waits to be released, if requested, and has a warehouse pick. No other step takes time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    IdempotencyTable,
    Provider,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"


class ManyCallbacksStack(Stack):
    """A saga with a job, in front of it a wait by which a test holds the job back, and direct ways back in."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        requests = IdempotencyTable(self, "Requests", removal_policy=RemovalPolicy.DESTROY)
        books = dynamodb.TableV2(
            self,
            "Books",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            removal_policy=RemovalPolicy.DESTROY,
        )
        hand_over = StepFunction(
            self,
            "HandOver",
            code=_FUNCTIONS,
            handler="steps.hand_over",
            timeout=Duration.seconds(60),
            environment={"BOOKS": books.table_name},
        )
        books.grant(hand_over.function, "dynamodb:GetItem", "dynamodb:UpdateItem")
        warehouse = CallbackIntegration(self, "Warehouse", fn=hand_over)
        people = CallbackIntegration(self, "People")
        beat, whole = Duration.hours(1), Duration.hours(2)
        saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            result="$outputs",
            steps=[
                Step.wait_for("Go", via=people, heartbeat=beat, timeout=whole, when="$request.go"),
                Step.callback("Pick", via=warehouse, provider=Provider(verify=True), heartbeat=beat, timeout=whole),
            ],
        )
        front_door = TransactionApi(
            self, "Api", operations={"picks": saga}, rate_limit=5_000, burst_limit=5_000, cloud_watch_role=False
        )
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "RequestTableName": requests.table.table_name,
            "LogTableName": saga.log.table.table_name,
            "BooksTableName": books.table_name,
            "WarehouseTokens": warehouse.tokens.table.table_name,
            "PeopleTokens": people.tokens.table.table_name,
            "FromWarehouse": warehouse.add_direct_receiver("Direct").function.function_name,
            "FromPeople": people.add_direct_receiver("Direct").function.function_name,
            "HandOverName": hand_over.function.function_name,
            "MachineArn": saga.state_machine.state_machine_arn,
            "RecoveryMachineArn": saga.recovery_machine.state_machine_arn,
            "JobsUrl": warehouse.queue.queue_url,
            "DeadLettersUrl": warehouse.dead_letters.queue_url,
            "PeopleDeadLettersUrl": people.dead_letters.queue_url,
            "OperatorsUrl": saga.operators.queue_url,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
