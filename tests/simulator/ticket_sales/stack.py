"""A ticket is charged at a payment provider, ordered at a venue that reports by a webhook, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    HmacSignature,
    IdempotencyTable,
    Operation,
    Provider,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)

GATEWAY: Final = "https://gateway.example"
VENUE: Final = "https://venue.example"


class TicketStack(Stack):
    """``POST /tickets`` buys a ticket."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        shows = dynamodb.TableV2(
            self, "Shows", partition_key=dynamodb.Attribute(name="show", type=dynamodb.AttributeType.STRING)
        )

        def function(name: str, handler: str) -> StepFunction:
            environment = {"GATEWAY": GATEWAY, "VENUE": VENUE, "SHOWS": shows.table_name}
            code = Path(__file__).parent / "functions"
            return StepFunction(self, name, code=code, handler=f"sale.{handler}", environment=environment)

        count = function("Count", "count")
        shows.grant_write_data(count)
        venue = CallbackIntegration(self, "Venue", fn=function("Order", "order"))
        secret = secretsmanager.Secret(self, "Secret")
        signature = HmacSignature(
            secrets=[secret], header="X-Signature", timestamp_header="X-Time", template="{timestamp}.{body}"
        )
        webhook = venue.add_webhook("Webhook", fn=function("Reported", "reported"), scheme=signature)
        provider = Provider(
            idempotent_for=Duration.hours(24),
            verify=True,
            compensation_idempotent_for=Duration.hours(24),
            verify_undo=True,
        )
        saga = SagaStateMachine(
            self,
            "Sale",
            requests=IdempotencyTable(self, "Requests"),
            steps=[
                Step.external(
                    "Charge",
                    fn=function("Charge", "charge"),
                    compensate=function("Refund", "refund"),
                    provider=provider,
                ),
                Step.callback(
                    "Ticket",
                    via=venue,
                    provider=provider,
                    compensate=function("GiveBack", "give_back"),
                    expected_duration=Duration.minutes(10),
                    timeout=Duration.hours(2),
                ),
                Step.atomic("Count", fn=count),
            ],
        )
        TimeoutReconciler(self, "Reconciler", sagas=[saga])
        TransactionApi(self, "Api", operations={"tickets": Operation(saga=saga)})
        CfnOutput(self, "ShowsName", value=shows.table_name)
        CfnOutput(self, "LogName", value=saga.log.table_name)
        CfnOutput(self, "WebhookUrl", value=webhook.url)
        CfnOutput(self, "SecretArn", value=secret.secret_arn)
