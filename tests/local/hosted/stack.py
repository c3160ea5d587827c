"""A saga whose charge is written in Node.js, and run by a step host."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from constructs_lib import IdempotencyTable, Provider, Retry, SagaStateMachine, Step, StepHost, TransactionApi

FUNCTIONS: Final = Path(__file__).parent / "functions"
FUNCTION_SECONDS: Final = 100
"""In the emulator's time: long enough for a process to start on a busy machine."""


class HostedStack(Stack):
    """``POST /orders`` charges in Node.js and commits; an order that exists already is refused and compensated."""

    def __init__(self, scope: Construct, id: str, *, gateway_url: str) -> None:
        super().__init__(scope, id)
        requests = IdempotencyTable(self, "Requests")
        orders = dynamodb.TableV2(
            self, "Orders", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        provider = Provider(verify=True, verify_undo=True, grace=Duration.seconds(FUNCTION_SECONDS))
        host = StepHost(
            self,
            "Charge",
            apply=self._function("Apply", "troubled.apply", gateway_url),
            verify=self._function("Verify", "payments.verify", gateway_url),
            undo=self._function("Undo", "payments.undo", gateway_url),
            verify_undo=self._function("VerifyUndo", "payments.verifyUndo", gateway_url),
            provider=provider,
        )
        saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            result="$outputs",
            steps=[
                Step.external(
                    "Charge",
                    fn=host.step,
                    compensate=host.compensation,
                    provider=provider,
                    refusals=["CardDeclined"],
                    retry=Retry(in_doubt_attempts=6, in_doubt_interval=80, in_doubt_rate=1.0, in_doubt_cap=80),
                ),
                Step.dynamodb(
                    "Commit",
                    table=orders,
                    writes=[
                        {
                            "Put": {
                                "Item": {
                                    "id": {"S": "{% $request.order %}"},
                                    "charge": {"S": "{% $outputs.Charge.charge %}"},
                                },
                                "ConditionExpression": "attribute_not_exists(id)",
                            }
                        }
                    ],
                    pivot=True,
                ),
            ],
            http_status_by_error={"CardDeclined": 402},
        )
        front_door = TransactionApi(self, "Api", operations={"orders": saga}, cloud_watch_role=False)
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "RequestTableName": requests.table.table_name,
            "LogTableName": saga.log.table.table_name,
            "OrderTableName": orders.table_name,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _function(self, id: str, handler: str, gateway_url: str) -> lambda_.Function:
        return lambda_.Function(
            self,
            id,
            runtime=lambda_.Runtime.NODEJS_22_X,
            handler=handler,
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            timeout=Duration.seconds(FUNCTION_SECONDS),
            environment={"PAYMENT_GATEWAY_URL": gateway_url},
        )


def synthesize(gateway_url: str, folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    HostedStack(app, "Hosted", gateway_url=gateway_url)
    app.synth()
    return folder
