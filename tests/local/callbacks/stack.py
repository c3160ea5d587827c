"""``POST /picks`` reserves, waits for an approval, has a warehouse pick, commits, and waits for a scan."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    IdempotencyTable,
    Provider,
    Retry,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"
FUNCTION_SECONDS: Final = 600
"""In the emulator's time: long enough for a process to start on a busy machine."""
HEARTBEAT_SECONDS: Final = 900
TIMEOUT_SECONDS: Final = 1_800


class CallbacksStack(Stack):
    """A saga with a job and with waits, and direct ways back in."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        requests = IdempotencyTable(self, "Requests")
        self.books = dynamodb.TableV2(
            self,
            "Books",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            removal_policy=RemovalPolicy.DESTROY,
        )
        retry = Retry(in_doubt_attempts=3, in_doubt_interval=FUNCTION_SECONDS, in_doubt_cap=FUNCTION_SECONDS)
        provider = Provider(verify=True, verify_undo=True, grace=Duration.seconds(5))
        warehouse = CallbackIntegration(self, "Warehouse", fn=self._function("hand_over"), max_receives=2)
        people = CallbackIntegration(self, "People")
        beat, whole = Duration.seconds(HEARTBEAT_SECONDS), Duration.seconds(TIMEOUT_SECONDS)
        saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            result="$outputs",
            steps=[
                Step.atomic("Reserve", fn=self._function("reserve"), compensate=self._function("release"), retry=retry),
                Step.wait_for(
                    "Go", via=people, heartbeat=beat, timeout=whole, when="$request.go = true", refusals=["Rejected"]
                ),
                Step.callback(
                    "Pick",
                    via=warehouse,
                    provider=provider,
                    compensate=self._function("cancel"),
                    heartbeat=beat,
                    timeout=whole,
                    retry=retry,
                    refusals=["OutOfStock"],
                ),
                Step.atomic("Commit", fn=self._function("commit"), pivot=True, retry=retry),
                Step.wait_for("Scan", via=people, heartbeat=beat, timeout=whole, when="$request.scan = true"),
            ],
            timeout=Duration.days(30),
        )
        front_door = TransactionApi(self, "Api", operations={"picks": saga}, cloud_watch_role=False)
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "RequestTableName": requests.table.table_name,
            "LogTableName": saga.log.table.table_name,
            "BooksTableName": self.books.table_name,
            "WarehouseTokens": warehouse.tokens.table.table_name,
            "PeopleTokens": people.tokens.table.table_name,
            "FromWarehouse": warehouse.add_direct_receiver("Direct").function.function_name,
            "FromPeople": people.add_direct_receiver("Direct").function.function_name,
            "SweeperName": warehouse.sweeper.function.function_name,
            "DeadLettersUrl": warehouse.dead_letters.queue_url,
            "JobsUrl": warehouse.queue.queue_url,
            "PeopleJobsUrl": people.queue.queue_url,
            "OperatorsQueueUrl": saga.operators.queue_url,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _function(self, handler: str) -> StepFunction:
        made = StepFunction(
            self,
            f"{handler.title().replace('_', '')}Function",
            code=_FUNCTIONS,
            handler=f"steps.{handler}",
            timeout=Duration.seconds(FUNCTION_SECONDS),
            environment={"BOOKS": self.books.table_name},
        )
        self.books.grant_read_write_data(made.function)
        return made


def synthesize(folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    CallbacksStack(app, "Callbacks")
    app.synth()
    return folder
