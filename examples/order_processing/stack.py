"""Orders: goods are reserved, a card is charged at a provider outside, goods leave, or all of it is undone."""

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    KeySource,
    Notify,
    Operation,
    Provider,
    Run,
    SagaMonitoring,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)
from examples.dead_letters import dead_letter_queue
from examples.on_call import on_call
from examples.order_processing.mailer import Mailer

FUNCTIONS = Path(__file__).parent / "functions"
INLINE_DEFINITION = Path(__file__).parent / "inline.json"
LONGEST_WAIT = Duration.seconds(10)
"""For a client that prefers to wait for its response."""

ORDER_SCHEMA = {
    "type": "object",
    "required": ["order_id", "customer", "card", "items"],
    "additionalProperties": False,
    "properties": {
        "order_id": {"type": "string", "minLength": 1, "maxLength": 128, "description": "the shop's: one per order"},
        "customer": {"type": "string", "minLength": 1, "maxLength": 64},
        "card": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "the gateway's token of a card"},
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": 10,
            "items": {
                "type": "object",
                "required": ["sku", "quantity"],
                "additionalProperties": False,
                "properties": {
                    "sku": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 1000},
                },
            },
        },
    },
}

START = "$states.context.Execution.Input"

TO_WHOM = f'"customer": $parse({START}.request).customer, "order": {START}.saga_id'
CONFIRMATION = (
    '{"status": "COMPLETED", "customer": $request.customer, "order": $outputs.UpdateInventory.order, '
    '"amount": $outputs.ProcessPayment.amount, "currency": $outputs.ProcessPayment.currency}'
)
FAILED = f'{{"status": "FAILED", {TO_WHOM}, "step": $failure.step, "error": $failure.error, "detail": $failure.detail}}'
DECLINED = (
    f'{{"status": "DECLINED", {TO_WHOM}, '
    '"detail": "your card was declined: nothing was charged, and nothing is kept for you"}'
)


class OrderProcessingStack(Stack):
    """``POST /orders`` is one order per ``order_id``: paid for once and sent, or not paid for at all.

    Args:
        scope: parent construct.
        id: construct id.
        gateway_url: where the payment gateway listens.
        provider: guarantees of the payment gateway; default: those of ``examples/payment_gateway``.
        due_after: when an order in progress is reconciled, as for ``IdempotencyTable``.
        mailer: whether a function of ours reads the notices, and puts them into an outbox. Without it, they wait for a
            reader of yours.
        run: in which type of state machine orders begin; a client of an inline one may wait for its response.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        gateway_url: str = "https://payments.example.com",
        provider: Provider | None = None,
        due_after: Duration | None = None,
        mailer: bool = False,
        run: Run = Run.STANDARD,
    ) -> None:
        super().__init__(scope, id, description="Orders that are paid for at most once")
        self._shop = self._shop_table()
        requests = IdempotencyTable(self, "Requests", due_after=due_after)
        notices = self._notices()
        gateway = {"PAYMENT_GATEWAY_URL": gateway_url}
        if mailer:
            Mailer(self, "Mailer", notices=notices, shop=self._shop)

        validate = self._function("ValidateFunction", "validate.handler", "dynamodb:BatchGetItem")
        validate.function.add_environment("QUOTES_TABLE", requests.table.table_name)
        requests.grant_powertools(validate, key_prefix="quotes")
        reserve = self._function("ReserveFunction", "inventory.reserve", "dynamodb:PutItem", "dynamodb:UpdateItem")
        release = self._function("ReleaseFunction", "inventory.release", "dynamodb:PutItem", "dynamodb:UpdateItem")
        charge = self._function("ChargeFunction", "payment.charge", environment=gateway)
        refund = self._function("RefundFunction", "payment.refund", environment=gateway)
        update = self._function("UpdateFunction", "inventory.update", "dynamodb:PutItem", "dynamodb:UpdateItem")
        ship = self._function("ShipmentFunction", "shipment.create", "dynamodb:PutItem")

        saga = SagaStateMachine(
            self,
            "Order",
            requests=requests,
            steps=[
                Step.read_only("ValidateInventory", fn=validate, record=True, refusals=["UnknownItem", "OutOfStock"]),
                Step.atomic("ReserveInventory", fn=reserve, compensate=release, refusals=["OutOfStock"]),
                Step.external(
                    "ProcessPayment",
                    fn=charge,
                    compensate=refund,
                    provider=provider or _gateway(),
                    on_error={"Declined": Notify(queue=notices, message=DECLINED)},
                ),
                Step.atomic("UpdateInventory", fn=update, pivot=True, refusals=["NotOnShelf"]),
                Step.atomic("CreateShipment", fn=ship, when="$outputs.ValidateInventory.physical"),
                Step.notify("Confirmation", queue=notices, message=CONFIRMATION),
            ],
            result='{"order": $outputs.UpdateInventory.order}',
            on_failed=Notify(queue=notices, message=FAILED),
            http_status_by_error={"Declined": 402, "UnknownItem": 404},
            run=run,
            definition_file=INLINE_DEFINITION if run is not Run.STANDARD else None,
        )
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=[saga])
        orders = Operation(
            saga=saga,
            schema=ORDER_SCHEMA,
            key_source=KeySource.natural("/order_id"),
            max_wait=LONGEST_WAIT if run is Run.INLINE else None,
        )
        front_door = TransactionApi(self, "Api", operations={"orders": orders}, waf=True)
        self._outputs(
            ApiId=front_door.api.rest_api_id,
            ApiStage=front_door.api.deployment_stage.stage_name,
            ShopTableName=self._shop.table_name,
            RequestTableName=requests.table.table_name,
            LogTableName=saga.log.table.table_name,
            NoticeQueueUrl=notices.queue_url,
            StateMachineArn=saga.state_machine.state_machine_arn,
            RecoveryMachineArn=saga.recovery_machine.state_machine_arn,
            ReconcilerName=reconciler.function.function.function_name,
            ReconcilerEndedRule=reconciler.ended.rule_name,
            ReconcilerScheduleRule=reconciler.schedule.rule_name,
            ReconcilerMeasureRule=reconciler.measure.rule_name,
            ReconcilerQueueUrl=reconciler.queue.queue_url,
        )
        SagaMonitoring(self, "Monitoring", alarm_actions=on_call(self))

    def _function(
        self, id: str, handler: str, *actions: str, environment: Mapping[str, str] | None = None
    ) -> StepFunction:
        """A step function, and what it may do to the shop's table: nothing, unless it is named."""
        function = StepFunction(
            self,
            id,
            code=FUNCTIONS,
            handler=f"steps.{handler}",
            environment={**(environment or {}), **({"SHOP_TABLE": self._shop.table_name} if actions else {})},
        )
        if actions:
            iam.Grant.add_to_principal(grantee=function, actions=list(actions), resource_arns=[self._shop.table_arn])
        return function

    def _shop_table(self) -> dynamodb.TableV2:
        """Goods, their movements, orders and shipments, and the outbox."""
        return dynamodb.TableV2(
            self,
            "Shop",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="entry", type=dynamodb.AttributeType.STRING),
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.aws_managed_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _notices(self) -> sqs.Queue:
        """Return the queue of confirmations and failures, for the function that notifies the customer."""
        undelivered = dead_letter_queue(self, "UndeliveredNotices", fifo=True)
        return sqs.Queue(
            self,
            "Notices",
            fifo=True,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            dead_letter_queue=sqs.DeadLetterQueue(queue=undelivered, max_receive_count=5),
        )

    def _outputs(self, **values: str) -> None:
        for name, value in values.items():
            CfnOutput(self, name, value=value)


def _gateway() -> Provider:
    """Return the guarantees in the payment gateway's documentation."""
    day = Duration.hours(24)
    return Provider(
        idempotent_for=day, verify=True, compensation_idempotent_for=day, verify_undo=True, grace=Duration.seconds(10)
    )
