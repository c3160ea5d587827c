"""Callback integrations for tests, small and whole."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    IdempotencyTable,
    IIdempotencyTable,
    Provider,
    SagaStateMachine,
    Step,
    StepFunction,
    StripeSignature,
)
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.sagas import FUNCTIONS

SIGNING = "arn:aws:secretsmanager:eu-west-1:111111111111:secret:Signing-AbCdEf"
PROVIDER = Provider(verify=True, compensation_idempotent_for=Duration.hours(24))


def own(scope: Construct, id: str, **options: Any) -> StepFunction:
    """A step function of ours."""
    return StepFunction(scope, id, code=FUNCTIONS, handler="plain.handler", **options)


def integration(scope: Construct, id: str = "Warehouse", **options: Any) -> CallbackIntegration:
    """An integration that dispatches jobs."""
    return CallbackIntegration(scope, id, fn=own(scope, f"{id}HandOver"), **options)


def job(via: CallbackIntegration, name: str = "Pick", **options: Any) -> Step:
    """A job at an integration."""
    return Step.callback(
        name,
        via=via,
        provider=PROVIDER,
        expected_duration=Duration.minutes(5),
        timeout=Duration.hours(1),
        **options,
    )


def saga_of(
    scope: Construct, *steps: Step, id: str = "Saga", requests: IIdempotencyTable | None = None, **options: Any
) -> SagaStateMachine:
    """A saga of these steps."""
    table = requests or IdempotencyTable(scope, f"{id}Requests")
    return SagaStateMachine(scope, id, requests=table, steps=list(steps), **options)


def secret(scope: Construct, id: str = "Signing") -> secretsmanager.ISecret:
    """A provider's imported secret."""
    arn = f"arn:aws:secretsmanager:eu-west-1:111111111111:secret:{id}-AbCdEf"
    return secretsmanager.Secret.from_secret_complete_arn(scope, id, arn)


def environment(cloud: Cloud, function: str) -> dict[str, Any]:
    """Variables of a function of ours."""
    variables: dict[str, Any] = cloud.one(f"{function}/Function").properties["Environment"]["Variables"]
    return variables


class WarehouseStack(Stack):
    """Everything that an integration can have, used by one saga with a job and a wait."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.warehouse = CallbackIntegration(self, "Warehouse", fn=own(self, "HandOver"))
        self.webhook = self.warehouse.add_webhook(
            "Webhook",
            fn=own(self, "FromWarehouse"),
            scheme=StripeSignature(secrets=[secret(self)]),
            path="events",
        )
        self.rule = self.warehouse.add_event_rule(
            "Scans",
            bus=events.EventBus(self, "Bus"),
            pattern=events.EventPattern(source=["carrier"]),
            fn=own(self, "FromCarrier"),
        )
        self.direct = self.warehouse.add_direct_receiver("Direct")
        self.saga = saga_of(
            self,
            job(self.warehouse, compensate=own(self, "Cancel")),
            Step.wait_for("Scan", via=self.warehouse, expected_duration=Duration.hours(1), timeout=Duration.days(1)),
        )
        # After the saga: receivers that are added later have the same permissions and configuration.
        self.review = self.warehouse.add_approval_page("Review", waf=True)
