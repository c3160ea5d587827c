"""From a cart to its delivery: paid for, reviewed, picked, fetched by a carrier; or everything is undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    CallbackIntegration,
    HmacSignature,
    IdempotencyTable,
    Notify,
    Operation,
    Outbox,
    Provider,
    Retry,
    SagaMonitoring,
    SagaStateMachine,
    StandardWebhooks,
    Step,
    StepFunction,
    StepGroup,
    StripeSignature,
    TimeoutReconciler,
    TokenTable,
    TransactionApi,
)
from examples.cart_fulfilment.investigation import READ_SECONDS, Investigation, unanswered_queue
from examples.cart_fulfilment.waits import Waits
from examples.dead_letters import dead_letter_queue
from examples.on_call import on_call
from examples.provider_secret import provider_secret

FUNCTIONS: Final = Path(__file__).parent / "functions"

MOMENT: Final = Duration.seconds(5)
_SIGNS: Final = "Signs a provider's webhooks; known to it and to us"
QUICK: Final = Retry(transient_attempts=2, in_doubt_attempts=2)
"""Of the first phase: whatever happens in it, it is over in the five minutes that an Express phase has."""

CART_SCHEMA: Final = {
    "type": "object",
    "required": ["customer", "card", "address", "items"],
    "additionalProperties": False,
    "properties": {
        "customer": {"type": "string", "minLength": 1, "maxLength": 64},
        "card": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "the provider's token of a card"},
        "address": {"type": "string", "minLength": 1, "maxLength": 200},
        "coupon": {"type": "string", "pattern": "^[A-Z0-9-]{1,32}$"},
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

_OF_THE_SHOP: Final = ("validate.", "inventory.", "investigation.look", "investigation.keep")
"""Handlers that read or write the shop's table."""
START: Final = "$states.context.Execution.Input"
TO_WHOM: Final = f'"customer": $parse({START}.request).customer, "order": {START}.saga_id'
NOTHING_KEPT: Final = '"detail": $failure.detail & ": nothing is charged, and nothing is kept for you"'
FAILED: Final = (
    f'{{"status": "FAILED", {TO_WHOM}, "step": $failure.step, "error": $failure.error, "detail": $failure.detail}}'
)
OUT_OF_STOCK: Final = f'{{"status": "OUT_OF_STOCK", {TO_WHOM}, {NOTHING_KEPT}}}'
DECLINED: Final = f'{{"status": "DECLINED", {TO_WHOM}, {NOTHING_KEPT}}}'
SHIPPED: Final = (
    '{"status": "SHIPPED", "customer": $request.customer, "order": $outputs.CommitOrder.order, '
    '"tracking": $outputs.ShipOrder.tracking, "amount": $outputs.CapturePayment.amount, '
    '"currency": $outputs.CapturePayment.currency}'
)


class CartFulfilmentStack(Stack):
    """``POST /carts`` is one order per Idempotency-Key: paid for and sent, or every effect is compensated.

    Args:
        scope: parent construct.
        id: construct id.
        payments_url: where the payment provider listens.
        warehouse_url: where the warehouse listens.
        carrier_url: where the carrier listens.
        review_from: amount in minor units from which on a cart needs an approval.
        waits: how long the cart waits for others.
        due_after: when an order in progress is reconciled, as for ``IdempotencyTable``.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        payments_url: str = "https://payments.example.com",
        warehouse_url: str = "https://warehouse.example.com",
        carrier_url: str = "https://carrier.example.com",
        review_from: int = 100_000,
        waits: Waits | None = None,
        due_after: Duration | None = None,
    ) -> None:
        super().__init__(scope, id, description="Carts that are paid for and delivered, or have no effect left")
        self._waits = waits or Waits()
        self._shop = self._shop_table()
        self._payments_url = {"PAYMENTS_URL": payments_url}
        self._warehouse_url = {"WAREHOUSE_URL": warehouse_url}
        self._carrier_url = {"CARRIER_URL": carrier_url}
        self._tokens = TokenTable(self, "Tokens")
        orders = events.EventBus(self, "Orders")
        self._outbox = Outbox(self, "Outbox", bus=orders, source="shop.orders")
        self._notices, self._texts = self._notices_queue("Notices"), self._notices_queue("Texts")
        self._unanswered = unanswered_queue(self)
        self._out_of_stock = Notify(queue=self._notices, message=OUT_OF_STOCK)
        # Longer than a cart can take: a client that repeats a request for so long must not begin another one.
        requests = IdempotencyTable(self, "Requests", due_after=due_after, replay_for=Duration.days(30))

        saga = SagaStateMachine(
            self,
            "Cart",
            requests=requests,
            steps=[self._check(review_from), *self._pay(), self._fulfil(), self._tell()],
            result='{"order": $outputs.CommitOrder.order, "tracking": $outputs.ShipOrder.tracking}',
            on_failed=Notify(queue=self._notices, message=FAILED),
            http_status_by_error={"Declined": 402, "Rejected": 403, "UnknownItem": 404},
        )
        investigation = self._investigation(requests)
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=[saga, investigation.saga])
        front_door = TransactionApi(
            self, "Api", operations={"carts": Operation(saga=saga, schema=CART_SCHEMA)}, waf=True
        )
        self._outputs(
            ApiId=front_door.api.rest_api_id,
            ApiStage=front_door.api.deployment_stage.stage_name,
            ShopTableName=self._shop.table_name,
            RequestTableName=requests.table.table_name,
            LogTableName=saga.log.table.table_name,
            OrderBusName=orders.event_bus_name,
            OutboxTableName=self._outbox.table_name,
            TokenTableName=self._tokens.table_name,
            NoticeQueueUrl=self._notices.queue_url,
            TextQueueUrl=self._texts.queue_url,
            FindingQueueUrl=investigation.findings.queue_url,
            UnansweredQueueUrl=self._unanswered.queue_url,
            OperatorsQueueUrl=saga.operators.queue_url,
            StateMachineArn=saga.state_machine.state_machine_arn,
            RecoveryMachineArn=saga.recovery_machine.state_machine_arn,
            ReconcilerName=reconciler.function.function.function_name,
            ReconcilerEndedRule=reconciler.ended.rule_name,
            ReconcilerScheduleRule=reconciler.schedule.rule_name,
            ReconcilerMeasureRule=reconciler.measure.rule_name,
            ReconcilerQueueUrl=reconciler.queue.queue_url,
        )
        SagaMonitoring(self, "Monitoring", alarm_actions=on_call(self))

    def _check(self, review_from: int) -> StepGroup:
        """Create the first phase, in one call: price, approval needed or not, and the hold of the goods."""
        reads = {"REVIEW_FROM": str(review_from)}
        holds = {
            "HOLD_SECONDS": str(self._waits.hold(reviewed=False).to_seconds()),
            "HOLD_SECONDS_REVIEWED": str(self._waits.hold(reviewed=True).to_seconds()),
        }
        price = self._function("PriceFunction", "validate.price", "GetItem", "Query", environment=reads, timeout=MOMENT)
        assess = self._function("AssessFunction", "validate.assess", environment=reads, timeout=MOMENT)
        reserve = self._function(
            "ReserveFunction", "inventory.reserve", "GetItem", "Query", "PutItem", "UpdateItem", environment=holds,
            timeout=MOMENT,
        )  # fmt: skip
        release = self._function("ReleaseFunction", "inventory.release", "DeleteItem", timeout=MOMENT)
        stock = {"OutOfStock": self._out_of_stock}
        return Step.express(
            "CheckCart",
            steps=[
                Step.read_only(
                    "PriceCart", fn=price, retry=QUICK, refusals=["OutOfStock", "UnknownItem"], on_error=stock
                ),
                Step.read_only("AssessRisk", fn=assess, retry=QUICK),
                Step.atomic(
                    "ReserveInventory",
                    fn=reserve,
                    compensate=release,
                    retry=QUICK,
                    refusals=["OutOfStock", "UnknownItem"],
                    on_error=stock,
                ),
            ],
        )

    def _pay(self) -> Sequence[Step]:
        """The second phase: the amount is held, a person may have to agree, the goods are sold, the money is taken."""
        waits = self._waits
        payments, reviewers = self._payments(), self._reviewers()
        commit = self._function(
            "CommitFunction", "inventory.commit", "GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"
        )
        cancel = self._function("CancelFunction", "inventory.cancel", "PutItem", "UpdateItem")
        for publishes in (commit, cancel):
            self._outbox.grant_put(publishes)
        return [
            Step.callback(
                "AuthorizePayment",
                via=payments,
                compensate=self._function("VoidFunction", "payment.void", environment=self._payments_url),
                provider=_provider(),
                expected_duration=waits.authorize.expected,
                timeout=waits.authorize.timeout,
                on_error={"Declined": Notify(queue=self._notices, message=DECLINED)},
            ),
            Step.wait_for(
                "FraudReview",
                via=reviewers,
                when="$outputs.AssessRisk.review",
                heartbeat=waits.remind,
                timeout=waits.review,
                refusals=["Rejected"],
            ),
            Step.atomic("CommitOrder", fn=commit, compensate=cancel, refusals=["ReservationLost"]),
            Step.external(
                "CapturePayment",
                fn=self._function("CaptureFunction", "payment.capture", environment=self._payments_url),
                compensate=self._function("RefundFunction", "payment.refund", environment=self._payments_url),
                provider=_provider(),
            ),
        ]

    def _fulfil(self) -> StepGroup:
        """The third phase, of days: in a state machine with a history of its own."""
        waits = self._waits
        warehouse, carrier = self._warehouse(), self._carrier()
        return Step.child(
            "Fulfil",
            timeout=waits.fulfilment,
            steps=[
                Step.external(
                    "ShippingLabel",
                    fn=self._function("LabelFunction", "shipping.label", environment=self._carrier_url),
                    compensate=self._function("VoidLabelFunction", "shipping.void", environment=self._carrier_url),
                    provider=_provider(),
                    refusals=["AddressUnknown"],
                ),
                Step.callback(
                    "Pick",
                    via=warehouse,
                    compensate=self._function("PutBackFunction", "picking.cancel", environment=self._warehouse_url),
                    provider=_provider(),
                    expected_duration=waits.pick.expected,
                    timeout=waits.pick.timeout,
                    refusals=["OutOfStock", "PickRefused"],
                    on_error={"OutOfStock": self._out_of_stock},
                ),
                Step.wait_for(
                    "PickupScan",
                    via=carrier,
                    expected_duration=waits.pickup_expected,
                    timeout=waits.pickup,
                    refusals=["ParcelLost"],
                ),
                Step.atomic("ShipOrder", fn=self._function("ShipFunction", "inventory.ship", "UpdateItem"), pivot=True),
            ],
        )

    def _tell(self) -> StepGroup:
        """Create the last phase, in one call: the customer gets the tracking number by e-mail and by text message."""
        return Step.express(
            "Notify",
            steps=[
                Step.notify("Tracking", queue=self._notices, message=SHIPPED),
                Step.notify("TrackingText", queue=self._texts, message=SHIPPED),
            ],
        )

    def _investigation(self, requests: IdempotencyTable) -> Investigation:
        """Investigate jobs that no provider reported."""
        urls = {**self._payments_url, **self._warehouse_url, "ASK_SECONDS": "5"}
        of, short = "investigation", Duration.seconds(READ_SECONDS)
        return Investigation(
            self,
            "Investigation",
            requests=requests,
            read=self._function("InvestigateFunction", f"{of}.begin", timeout=short),
            ask=self._function("AskFunction", f"{of}.ask", environment=urls),
            look=self._function("LookAtOrderFunction", f"{of}.look", "GetItem"),
            keep=self._function("KeepFindingFunction", f"{of}.keep", "PutItem"),
            unanswered=self._unanswered,
        )

    # --- Those who answer later

    def _payments(self) -> CallbackIntegration:
        """Events as Stripe signs them; the provider names payments by ids of its own."""
        within = {"AUTHORIZE_SECONDS": str(self._waits.authorize.within.to_seconds())}
        authorize = self._function(
            "AuthorizeFunction", "payment.authorize", environment={**self._payments_url, **within}
        )
        payments = CallbackIntegration(self, "Payments", fn=authorize, tokens=self._tokens, unanswered=self._unanswered)
        secret = provider_secret(self, "PaymentsSecret", _SIGNS)
        webhook = payments.add_webhook(
            "Webhook",
            fn=self._function("PaymentEventsFunction", "payment.from_provider", environment=self._payments_url),
            scheme=StripeSignature(secrets=[secret]),
        )
        self._outputs(PaymentsWebhookUrl=webhook.url, PaymentsSecretArn=secret.secret_arn)
        return payments

    def _reviewers(self) -> CallbackIntegration:
        """A person, and a page of ours."""
        mail = sqs.Queue(
            self,
            "ReviewMail",
            enforce_ssl=True,
            retention_period=Duration.days(4),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=dead_letter_queue(self, "UndeliveredReviewMail"),
                max_receive_count=5,
            ),
        )
        ask = self._function(
            "ReviewFunction",
            "review.ask",
            environment={
                "REVIEWERS_QUEUE_URL": mail.queue_url,
                "REVIEW_SECONDS": str(self._waits.review.to_seconds()),
            },
        )
        iam.Grant.add_to_principal(grantee=ask, actions=["sqs:SendMessage"], resource_arns=[mail.queue_arn])
        reviewers = CallbackIntegration(self, "Reviewers", fn=ask, tokens=self._tokens)
        page = reviewers.add_approval_page("Page", waf=True)
        self._outputs(ReviewMailQueueUrl=mail.queue_url, ReviewPageUrl=page.url)
        return reviewers

    def _warehouse(self) -> CallbackIntegration:
        """Events as Standard Webhooks has them; the warehouse names jobs by our ids."""
        within = {"PICK_SECONDS": str(self._waits.pick.within.to_seconds())}
        pick = self._function("PickFunction", "picking.pick", environment={**self._warehouse_url, **within})
        warehouse = CallbackIntegration(self, "Warehouse", fn=pick, tokens=self._tokens, unanswered=self._unanswered)
        secret = provider_secret(self, "WarehouseSecret", _SIGNS)
        webhook = warehouse.add_webhook(
            "Webhook",
            fn=self._function("PickEventsFunction", "picking.from_warehouse", environment=self._warehouse_url),
            scheme=StandardWebhooks(secrets=[secret]),
        )
        self._outputs(WarehouseWebhookUrl=webhook.url, WarehouseSecretArn=secret.secret_arn)
        return warehouse

    def _carrier(self) -> CallbackIntegration:
        """Create the integration that publishes scans; the saga is one subscriber, and its functions poll, too."""
        bus = events.EventBus(self, "Parcels")
        secret = provider_secret(self, "CarrierSecret", _SIGNS)
        publishes = {**self._carrier_url, "EVENT_BUS_NAME": bus.event_bus_name}
        publish = self._function("PublishScanFunction", "shipping.publish_scan", environment=publishes)
        look = self._function("LookFunction", "shipping.look", environment=publishes)
        for function in (publish, look):
            bus.grant_put_events_to(function)
        carrier = CallbackIntegration(self, "Carrier", fn=look, tokens=self._tokens)
        webhook = carrier.add_webhook(
            "Webhook",
            fn=publish,
            scheme=HmacSignature(
                secrets=[secret],
                header="X-Carrier-Signature",
                prefix="sha256=",
                timestamp_header="X-Carrier-Timestamp",
                template="{timestamp}.{body}",
            ),
        )
        carrier.add_event_rule(
            "Scans",
            bus=bus,
            pattern=events.EventPattern(source=["shop.parcels"], detail_type=["Parcel scanned"]),
            fn=self._function("ScanFunction", "shipping.from_carrier", environment=self._carrier_url),
        )
        self._outputs(
            CarrierWebhookUrl=webhook.url, CarrierSecretArn=secret.secret_arn, ParcelBusName=bus.event_bus_name
        )
        return carrier

    # --- What they are made of

    def _function(
        self,
        id: str,
        handler: str,
        *actions: str,
        environment: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> StepFunction:
        """A function, and what it may do to the shop's table: nothing, unless it is named."""
        shop = {"SHOP_TABLE": self._shop.table_name} if handler.startswith(_OF_THE_SHOP) else {}
        outbox = self._outbox.environment if handler.startswith("inventory.") else {}
        function = StepFunction(
            self,
            id,
            code=FUNCTIONS,
            handler=f"cart.{handler}",
            environment={**(environment or {}), **shop, **outbox},
            timeout=timeout or Duration.seconds(15),
        )
        if actions:
            iam.Grant.add_to_principal(
                grantee=function,
                actions=[f"dynamodb:{action}" for action in actions],
                resource_arns=[self._shop.table_arn],
            )
        return function

    def _shop_table(self) -> dynamodb.TableV2:
        """Goods, who holds them, their movements, and orders. Holds that are over are deleted some day."""
        return dynamodb.TableV2(
            self,
            "Shop",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="entry", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expiration",
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.aws_managed_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _notices_queue(self, id: str) -> sqs.Queue:
        """Create a queue of notices to customers: tracking numbers, and by e-mail refusals and failures."""
        undelivered = dead_letter_queue(self, f"Undelivered{id}", fifo=True)
        return sqs.Queue(
            self,
            id,
            fifo=True,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            dead_letter_queue=sqs.DeadLetterQueue(queue=undelivered, max_receive_count=5),
        )

    def _outputs(self, **values: str) -> None:
        for name, value in values.items():
            CfnOutput(self, name, value=value)


def _provider() -> Provider:
    """Return the guarantees in the documentation of each of the three."""
    day = Duration.hours(24)
    return Provider(
        idempotent_for=day, verify=True, compensation_idempotent_for=day, verify_undo=True, grace=Duration.seconds(10)
    )
