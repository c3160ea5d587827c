"""Stacks with what no example has: step hosts, operators who ask a function, migrations, watched state machines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    OperatorAccess,
    Provider,
    Retry,
    SagaStateMachine,
    SecondPerson,
    Step,
    StepFunction,
    StepHost,
    TimeoutReconciler,
    TransactionApi,
)
from examples.cart_fulfilment.stack import CartFulfilmentStack
from tests.local.ledger.stack import LedgerStack
from tests.local.migrating.stack import MigratingStack
from tests.local.watched.stack import ImportStack

FUNCTIONS: Final = Path(__file__).parent / "functions"
OPERATORS: Final = ("ann", "ben")
_GRACE: Final = Duration.minutes(2)
"""The timeout of the provider's functions, and how long their own requests can travel."""


class HostedStack(Stack):
    """``POST /orders`` charges by a step host, commits, and delivers; one that exists already is refunded."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self._payments = self._table("Payments")
        orders = self._table("Orders")
        provider = Provider(verify=True, verify_undo=True, grace=_GRACE)
        delivery = Provider(verify=True, grace=_GRACE)
        soon = Retry(in_doubt_attempts=2, in_doubt_interval=120, in_doubt_cap=240)
        host = StepHost(
            self,
            "Charge",
            apply=self._function("Apply", "apply", "PutItem").function,
            verify=self._function("Verify", "verify", "GetItem").function,
            undo=self._function("Undo", "undo", "PutItem").function,
            verify_undo=self._function("VerifyUndo", "verify", "GetItem").function,
            provider=provider,
        )
        deliver = StepHost(
            self,
            "Deliver",
            apply=self._function("Send", "apply", "PutItem").function,
            verify=self._function("Sent", "verify", "GetItem").function,
            provider=delivery,
        )
        saga = SagaStateMachine(
            self,
            "Order",
            requests=IdempotencyTable(self, "Requests"),
            steps=[
                Step.external("Charge", fn=host.step, compensate=host.compensation, provider=provider),
                Step.dynamodb(
                    "Commit",
                    table=orders,
                    writes=[
                        {
                            "Put": {
                                "Item": {"id": {"S": "{% $request.order %}"}},
                                "ConditionExpression": "attribute_not_exists(id)",
                            }
                        }
                    ],
                    pivot=True,
                ),
                Step.external("Deliver", fn=deliver.step, provider=delivery, retry=soon),
            ],
        )
        add_operators(self, TimeoutReconciler(self, "Reconciler", sagas=[saga], max_recoveries=2))
        CfnOutput(self, "OperatorsQueueUrl", value=saga.operators.queue_url)
        TransactionApi(self, "Api", operations={"orders": saga}, cloud_watch_role=False)

    def _table(self, id: str) -> dynamodb.TableV2:
        return dynamodb.TableV2(
            self, id, partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )

    def _function(self, id: str, handler: str, action: str) -> StepFunction:
        function = StepFunction(
            self,
            f"{id}Function",
            code=FUNCTIONS,
            handler=f"payments.{handler}",
            timeout=Duration.seconds(10),
            environment={"PAYMENTS": self._payments.table_name},
        )
        self._payments.grant(function, f"dynamodb:{action}")
        return function


class OperatedStack(CartFulfilmentStack):
    """The carts of the example, about which two operators decide together."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        reconciler = self.node.find_child("Reconciler")
        if not isinstance(reconciler, TimeoutReconciler):
            raise TypeError("Reconciler must be the reconciler; correct its id")
        add_operators(self, reconciler)


def add_operators(stack: Stack, reconciler: TimeoutReconciler) -> None:
    """Add the function that two operators ask."""
    access = OperatorAccess(stack, "Operators", reconciler=reconciler, second_person=SecondPerson.OTHER_ROLE)
    for name in OPERATORS:
        access.grant_operate(iam.Role.from_role_arn(stack, name, f"arn:aws:iam::{stack.account}:role/{name}"))
    CfnOutput(stack, "OperatorsFunctionArn", value=access.function.function.function_arn)


def add_hosted(app: Construct) -> object:
    """Add the orders behind step hosts."""
    return HostedStack(app, "Hosted")


def add_operated(app: Construct) -> object:
    """Add the carts that two operators decide about."""
    return OperatedStack(app, "CartFulfilment")


def add_migrating(app: Construct) -> object:
    """Add a table of customers whose items move."""
    return MigratingStack(app, "Migrating")


def add_imports(app: Construct) -> object:
    """Add a hand-written state machine that is watched."""
    return ImportStack(app, "Imports")


def add_bank(app: Construct) -> object:
    """Add a ledger with holds and collecting accounts."""
    return LedgerStack(app, "Bank")
