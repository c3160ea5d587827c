"""A wallet of several units in one table; four faces move it, each with functions and an API of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import (
    Backoff,
    DirectFunction,
    DirectOperation,
    EventIntake,
    IdempotencyTable,
    KeyPolicy,
    SagaMonitoring,
    StepFunction,
    StripeSignature,
    TransactionApi,
)
from examples.on_call import on_call
from examples.provider_secret import provider_secret
from examples.wallet.functions.wallet import operations

FUNCTIONS: Final = Path(__file__).parent / "functions"
CAP: Final = 1_000
"""Most that a card may hold in ECOPAY, unless the stack is given another cap."""
REPLAYED_DAYS: Final = 90
RETRIES: Final = Backoff(attempts=4, base_ms=50, cap_ms=200, full=False)
"""Three retries of a conflict, 50, 100 and 200 ms later, and up to half as much again."""
_ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"}
_AMOUNT: Final = {"type": "integer", "minimum": 1, "maximum": 1_000_000_000}
_UNIT: Final = {"type": "string", "pattern": "^(ECOPAY|POINT|JCREDIT|REGIONAL:[a-z0-9-]{1,32})$"}
_TEXT: Final = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}
_PROFILE: Final = {"name": _TEXT, "email": _TEXT, "phone_number": _TEXT}


def _schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": {**required, **(optional or {})},
    }


SCHEMAS: Final = {
    "payments": _schema({"card": _ID, "merchant": _ID, "amount": _AMOUNT}, {"points": {**_AMOUNT, "minimum": 0}}),
    "top-ups": _schema({"card": _ID, "amount": _AMOUNT}),
    "refunds": _schema({"card": _ID, "merchant": _ID, "payment": _ID, "amount": _AMOUNT}),
    "transfers": _schema({"card": _ID, "to": _ID, "amount": _AMOUNT, "unit": _UNIT}),
    "cards": _schema({"card": _ID}, _PROFILE),
    "profiles": _schema({"card": _ID}, _PROFILE),
    "issues": _schema({"card": _ID, "amount": _AMOUNT, "unit": _UNIT}),
}
FACES: Final[Mapping[str, Collection[str]]] = {
    "Customer": ("payments", "transfers"),
    "Merchant": ("refunds",),
    "Admin": ("cards", "profiles", "issues", "refunds"),
    "Terminal": ("payments", "top-ups"),
}
"""Operations of each face. One that two faces have is one builder, and two functions."""
ALL_ACTIONS: Final = ("PutItem", "UpdateItem", "ConditionCheckItem")
ACTIONS: Final = {"cards": ("PutItem", "UpdateItem"), "profiles": ("UpdateItem", "ConditionCheckItem")}
"""Actions of the operations that do not need all of them."""
FAILURE_STATUS: Final = {
    "CardUnknown": 404,
    "PaymentUnknown": 404,
    "InsufficientFunds": 400,
    "CapExceeded": 400,
    "CardExists": 409,
    "KeyTaken": 409,
    "RefundExceeded": 409,
}


class WalletStack(Stack):
    """Four APIs, one table: pay, top up, refund and transfer, each in one transaction, answered at once.

    Args:
        scope: parent construct.
        id: construct id.
        cap: most that a card may hold in ECOPAY.
        optional_keys: faces whose requests may come without an ``Idempotency-Key``, while their clients learn to send
            one. Each such request is counted, and sets off an alarm.
    """

    def __init__(self, scope: Construct, id: str, *, cap: int = CAP, optional_keys: Collection[str] = ()) -> None:
        super().__init__(scope, id, description="A wallet: each payment once, answered at once")
        unknown = sorted(set(optional_keys) - set(FACES))
        if unknown:
            raise ValueError(f"optional_keys must be of {sorted(FACES)}, got {unknown}; name faces")
        self.table = dynamodb.TableV2(
            self,
            "Wallet",
            partition_key=dynamodb.Attribute(name="uuid", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="type", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="ttl",
            encryption=dynamodb.TableEncryptionV2.aws_managed_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
            removal_policy=RemovalPolicy.RETAIN,
        )
        self.requests = IdempotencyTable(self, "Requests", replay_for=Duration.days(REPLAYED_DAYS))
        self._variables = {operations.TABLE: self.table.table_name, operations.CAP: str(cap)}
        outputs = {"WalletTableName": self.table.table_name, "RequestTableName": self.requests.table.table_name}
        for index, (face, names) in enumerate(FACES.items()):
            policy = KeyPolicy.OPTIONAL if face in optional_keys else KeyPolicy.REQUIRED
            api = self._face(face, names, policy, cloud_watch_role=index == 0)
            outputs |= {f"{face}ApiId": api.api.rest_api_id}
        self.secret = provider_secret(self, "StripeSecret", "The webhook's signing secret: replace it by Stripe's")
        self.stripe = self._stripe()
        outputs |= {
            "StripeApiId": self._webhook.api.rest_api_id,
            "StripeSecretArn": self.secret.secret_arn,
            "KeptQueueUrl": self.stripe.kept.queue_url,
            "ParkedQueueUrl": self.stripe.parked.queue_url,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        SagaMonitoring(self, "Monitoring", alarm_actions=on_call(self))

    def _face(self, face: str, names: Collection[str], policy: KeyPolicy, *, cloud_watch_role: bool) -> TransactionApi:
        scope = Construct(self, face)
        functions = {name: self._function(scope, face, name) for name in names}
        return TransactionApi(
            scope,
            "Api",
            operations={
                name: DirectOperation(
                    fn=fn,
                    requests=self.requests,
                    previous=None,
                    http_status_by_error=FAILURE_STATUS,
                    key_policy=policy,
                )
                for name, fn in functions.items()
            },
            waf=True,
            cloud_watch_role=cloud_watch_role,
        )

    def _function(self, scope: Construct, face: str, name: str) -> DirectFunction:
        fn = DirectFunction(
            scope,
            "".join(part.capitalize() for part in name.split("-")),
            code=FUNCTIONS,
            handler=f"wallet.{face.lower()}.{name.replace('-', '_')}",
            schema=SCHEMAS[name],
            backoff=RETRIES,
            environment=self._variables,
        )
        self._grant(fn, *ACTIONS.get(name, ALL_ACTIONS))
        return fn

    def _stripe(self) -> EventIntake:
        fn = StepFunction(self, "Stripe", code=FUNCTIONS, handler="wallet.stripe.handler", environment=self._variables)
        self._grant(fn, *ALL_ACTIONS)
        intake = EventIntake(self, "StripeEvents", operation="stripe", fn=fn, requests=self.requests, backoff=RETRIES)
        scheme = StripeSignature(secrets=[self.secret])
        self._webhook = intake.add_webhook("Webhook", scheme=scheme, cloud_watch_role=False)
        return intake

    def _grant(self, fn: DirectFunction | StepFunction, *actions: str) -> None:
        """Write items, or check conditions of them. Nothing is read."""
        self.table.grant(fn, *(f"dynamodb:{action}" for action in actions))
