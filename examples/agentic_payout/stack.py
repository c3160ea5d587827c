"""Payouts that software agents ask for: analyzed, recommended by a model, made once, within a cap per agent and day."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct, Node

from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    MoneyField,
    Notify,
    Operation,
    Retry,
    SagaMonitoring,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)
from examples.agentic_payout.functions.payout import controls, model
from examples.agentic_payout.functions.payout.intent import PERIOD_PATTERN, PURPOSE_PATTERN
from examples.dead_letters import dead_letter_queue
from examples.on_call import on_call
from saga_runtime import ACCOUNT_ID_PATTERN

FUNCTIONS: Final = Path(__file__).parent / "functions"
AGENT_PATTERN: Final = r"^[a-z][a-z0-9-]{0,39}$"
CAPS: Final = {"procurement": 500_000, "travel": 100_000}
"""Default of what each agent may spend per day, in cents."""
MODEL_CONTEXT: Final = "agentic-payout-model"
ROUTES_CONTEXT: Final = "agentic-payout-routes"

PAYOUT_SCHEMA: Final = {
    "type": "object",
    "required": ["agent", "payer", "payee", "amount", "currency", "purpose", "period"],
    "additionalProperties": False,
    "properties": {
        "agent": {"type": "string", "pattern": AGENT_PATTERN},
        "payer": {"type": "string", "pattern": ACCOUNT_ID_PATTERN},
        "payee": {"type": "string", "pattern": ACCOUNT_ID_PATTERN},
        "amount": {"type": "integer", "minimum": 1, "description": "minor units, e.g. cents"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "purpose": {"type": "string", "pattern": PURPOSE_PATTERN},
        "period": {"type": "string", "pattern": PERIOD_PATTERN},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockGrant:
    """The one model of Amazon Bedrock that may be asked.

    Attributes:
        arn: ARN of the foundation model or of the inference profile.
        routes_to: for an inference profile, the ARNs of the foundation models that it routes to. They are granted for
            calls through this profile only.
    """

    arn: str
    routes_to: Sequence[str] = ()

    def __post_init__(self) -> None:
        for arn in (self.arn, *self.routes_to):
            if not arn.startswith("arn:") or ":bedrock:" not in arn or "*" in arn:
                raise ValueError(f"a model is granted by its exact ARN in Bedrock, got {arn!r}; no wildcard, no id")

    @property
    def model_id(self) -> str:
        """The id in calls: of a foundation model its id, of an inference profile its ARN."""
        return self.arn.rpartition("/")[2] if ":foundation-model/" in self.arn else self.arn

    @classmethod
    def from_context(cls, node: Node) -> BedrockGrant | None:
        """The model of the context ``agentic-payout-model`` (``cdk deploy -c …``); None without it."""
        arn = node.try_get_context(MODEL_CONTEXT)
        routes = node.try_get_context(ROUTES_CONTEXT) or ""
        return cls(arn=arn, routes_to=tuple(filter(None, routes.split(",")))) if arn else None

    def to(self, grantee: iam.IGrantable) -> None:
        """Allow calling it, and nothing else of Bedrock."""
        action = "bedrock:InvokeModel"  # what Converse asks for
        iam.Grant.add_to_principal(grantee=grantee, actions=[action], resource_arns=[self.arn])
        if self.routes_to:
            iam.Grant.add_to_principal(
                grantee=grantee,
                actions=[action],
                resource_arns=list(self.routes_to),
                conditions={"StringEquals": {"bedrock:InferenceProfileArn": self.arn}},
            )


class AgenticPayoutStack(Stack):
    """``POST /payouts`` under an intent's key pays once; ``GET /payouts/{saga_id}`` returns the payout.

    Args:
        scope: parent construct.
        id: construct id.
        bedrock: the model that recommends. By default a simulated one that recommends at random and keeps books of
            its calls: for local AWS, never for money of yours.
        caps: what each agent may spend per day (UTC), in minor units. An agent that is not named may spend nothing.
        currency: of the caps, and with it of all payouts.
        due_after: when a payout in progress is reconciled, as for ``IdempotencyTable``; tests set it short.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bedrock: BedrockGrant | None = None,
        caps: Mapping[str, int] = CAPS,
        currency: str = "EUR",
        due_after: Duration | None = None,
    ) -> None:
        super().__init__(scope, id, description="Payouts that software agents ask for, each made at most once")
        self.ledger = LedgerTable(self, "Ledger")
        self.controls = self._table("Controls", time_to_live="expiration")
        requests = IdempotencyTable(self, "Requests", due_after=due_after)
        notices = self._notices()
        self._variables = {
            **self.ledger.environment,
            controls.TABLE: self.controls.table_name,
            controls.CAPS: json.dumps(dict(caps), sort_keys=True),
            controls.CURRENCY: currency,
        }

        analyze = self._function("Analyze", "payout.analyze.handler")
        self.ledger.table.grant(analyze, "dynamodb:BatchGetItem")
        self.controls.grant(analyze, "dynamodb:GetItem")
        claim = self._function("Claim", "payout.claim.handler")
        self.controls.grant(claim, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
        release = self._function("Release", "payout.claim.release")
        self.controls.grant(release, "dynamodb:UpdateItem")
        recommend = self._recommender(bedrock)
        act = self._function("Act", "payout.act.handler")
        self.ledger.grant_post(act)
        self.controls.grant(act, "dynamodb:UpdateItem")

        saga = SagaStateMachine(
            self,
            "Payout",
            requests=requests,
            steps=[
                Step.read_only("Analyze", fn=analyze, record=True, refusals=["AgentUnknown", "SpendingCapExceeded"]),
                Step.atomic("Claim", fn=claim, compensate=release, refusals=["IntentTaken"]),
                Step.read_only(
                    "Recommend",
                    fn=recommend,
                    record=True,
                    refusals=["ModelAnswerRefused"],
                    transient=["ModelUnavailable"],
                    retry=Retry(transient_attempts=3, transient_interval=2, in_doubt_interval=3),
                ),
                Step.atomic(
                    "Act",
                    fn=act,
                    pivot=True,
                    refusals=["AgentUnknown", "IntentTaken", "ModelAnswerRefused", "SpendingCapExceeded"],
                ),
                Step.notify("Notify", queue=notices),
            ],
            on_failed=Notify(queue=notices),
            result="$merge([$outputs.Act, $sift($outputs.Recommend, function($v, $k) { $k in ['reason', 'model'] })])",
            http_status_by_error={
                "AccountNotFound": 404,
                "AgentUnknown": 403,
                "InsufficientFunds": 402,
                "IntentTaken": 409,
                "SpendingCapExceeded": 403,
            },
        )
        # More than all agents may spend in a day: they ask for what they cannot have, or nothing settles.
        most = {currency: sum(caps.values())}
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=[saga], max_money_in_flight=most)
        payouts = Operation(saga=saga, schema=PAYOUT_SCHEMA, money=MoneyField(amount="/amount", currency="/currency"))
        front_door = TransactionApi(self, "Api", operations={"payouts": payouts}, waf=True)
        self._outputs(
            ApiId=front_door.api.rest_api_id,
            ApiStage=front_door.api.deployment_stage.stage_name,
            LedgerTableName=self.ledger.table.table_name,
            ControlsTableName=self.controls.table_name,
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

    def _recommender(self, bedrock: BedrockGrant | None) -> StepFunction:
        """The one function that may ask a model. It may neither see the ledger nor move anything."""
        timeout = Duration.seconds(30)  # longer than the client of the model waits
        code, handler = FUNCTIONS, "payout.recommend.handler"
        if bedrock is not None:
            asked = {model.BEDROCK_MODEL: bedrock.model_id}
            function = StepFunction(self, "Recommend", code=code, handler=handler, environment=asked, timeout=timeout)
            bedrock.to(function)
            return function
        books = self._table("StandInBooks")
        asked = {model.STAND_IN_BOOKS: books.table_name}
        function = StepFunction(self, "Recommend", code=code, handler=handler, environment=asked, timeout=timeout)
        books.grant(function, "dynamodb:PutItem")
        self._outputs(StandInBooksTableName=books.table_name)
        return function

    def _function(self, id: str, handler: str) -> StepFunction:
        return StepFunction(self, id, code=FUNCTIONS, handler=handler, environment=self._variables)

    def _table(self, id: str, *, time_to_live: str | None = None) -> dynamodb.TableV2:
        """Create a table that outlives the stack, as every table does that records payments."""
        return dynamodb.TableV2(
            self,
            id,
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute=time_to_live,
            encryption=dynamodb.TableEncryptionV2.aws_managed_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _notices(self) -> sqs.Queue:
        """Create the queue of notices for the agents' operators: payments, holds and refusals, in order per request."""
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
