"""A stack as users write it: those classes of the CDK that Pyright does not take for the CDK's own interfaces.

``test_tutorial.py`` lets Pyright check it. Nothing synthesizes it.
"""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    ExecutionWatch,
    FunctionOptions,
    HmacSignature,
    IdempotencyTable,
    LedgerTable,
    Operation,
    PayloadBucket,
    Provider,
    SagaMonitoring,
    SagaStateMachine,
    StandardWebhooks,
    Step,
    StepHost,
    StripeSignature,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
    WatchedMachine,
)


class ConcreteStack(Stack):
    """Passes each of them to each argument that takes its interface."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: lambda_.Function,
        alias: lambda_.Alias,
        key: kms.Key,
        secret: secretsmanager.Secret,
        machine: sfn.StateMachine,
        action: actions.SnsAction,
    ) -> None:
        super().__init__(scope, id)
        provider = Provider(verify=True, verify_undo=True)
        host = StepHost(
            self,
            "Host",
            apply=function,
            provider=provider,
            verify=alias,
            undo=function,
            verify_undo=function,
            function_options=FunctionOptions(log_key=key),
        )
        LedgerTable(self, "Ledger", encryption_key=key)
        tokens = TokenTable(self, "Tokens", encryption_key=key)
        warehouse = CallbackIntegration(self, "Warehouse", fn=function, tokens=tokens, encryption_key=key)
        warehouse.add_webhook("Stripe", fn=function, scheme=StripeSignature(secrets=[secret]))
        warehouse.add_webhook("Standard", fn=function, scheme=StandardWebhooks(secrets=[secret]))
        warehouse.add_webhook("Hmac", fn=function, scheme=HmacSignature(secrets=[secret], header="X-Signature"))
        saga = SagaStateMachine(
            self,
            "Order",
            requests=IdempotencyTable(self, "Requests", encryption_key=key),
            payloads=PayloadBucket(self, "Payloads", encryption_key=key),
            encryption_key=key,
            steps=[
                Step.atomic("Reserve", fn=function, compensate=alias, compensate_timeout=Duration.seconds(9)),
                Step.external("Charge", fn=host.step, compensate=host.compensation, provider=provider),
                Step.callback(
                    "Pick",
                    via=warehouse,
                    provider=provider,
                    compensate=function,
                    expected_duration=Duration.hours(1),
                    timeout=Duration.days(1),
                ),
            ],
        )
        TimeoutReconciler(self, "Reconciler", sagas=[saga], encryption_key=key)
        watched = WatchedMachine(machine=machine, on_timeout=function)
        ExecutionWatch(self, "Watch", machines=[watched], encryption_key=key)
        TransactionApi(self, "Api", operations={"orders": Operation(saga=saga)}).grant_invoke(function)
        SagaMonitoring(self, "Monitoring", alarm_actions=[action], ok_actions=[action])
