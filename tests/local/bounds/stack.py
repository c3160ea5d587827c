"""Sagas at the bounds of their state machines: a path without a pivot, exact items, outputs that are large together."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import IdempotencyTable, Provider, Retry, SagaStateMachine, Step, StepFunction, TransactionApi

FUNCTIONS: Final = Path(__file__).parent / "functions"
ITEMS: Final = 12
_WHO: Final = '{"who": $request.counter}'
_PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)


class BoundsStack(Stack):
    """``POST /around``, ``/exact``, ``/texts`` and ``/large``, each with a saga of that name."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self._counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        requests = IdempotencyTable(self, "Requests", due_after=Duration.seconds(60))
        count, uncount = self._function("Count", "steps.count"), self._function("Uncount", "steps.uncount")
        charge, refund = self._function("Charge", "steps.charge"), self._function("Refund", "steps.refund")
        seen, bus = sqs.Queue(self, "Seen", enforce_ssl=True), events.EventBus(self, "Bus")
        events.Rule(self, "Rule", event_bus=bus, event_pattern=events.EventPattern(source=["bounds"])).add_target(
            targets.SqsQueue(seen)
        )
        provider = Provider(verify=True, verify_undo=True, grace=Duration.seconds(5))
        pack = Step.external("Pack", fn=charge, compensate=refund, provider=provider, retry=_PATIENT)
        end = Step.atomic("End", fn=count, retry=_PATIENT)
        sagas = {
            "around": SagaStateMachine(
                self,
                "Around",
                requests=requests,
                steps=[
                    Step.atomic("Debit", fn=count, compensate=uncount, retry=_PATIENT),
                    Step.atomic("Fee", fn=count, pivot=True, when="$request.fee", retry=_PATIENT),
                    Step.event(
                        "Said", bus=bus, source="bounds", detail_type="Paid", detail='{"who": $request.counter}'
                    ),
                ],
            ),
            "exact": self._shown("Exact", requests, key="$item.key", end=end),
            "texts": self._shown("Texts", requests, key="$item", end=end),
            "large": SagaStateMachine(
                self,
                "Large",
                requests=requests,
                steps=[
                    Step.map(
                        "All",
                        items="$request.items",
                        key="$item.sku",
                        max_items=ITEMS,
                        max_concurrency=ITEMS,
                        steps=[pack],
                    ),
                    end,
                ],
            ),
        }
        api = TransactionApi(self, "Api", operations=sagas, cloud_watch_role=False)
        outputs = {
            "ApiId": api.api.rest_api_id,
            "ApiStage": api.api.deployment_stage.stage_name,
            "CounterTableName": self._counters.table_name,
            "RequestTableName": requests.table.table_name,
            "SeenQueueUrl": seen.queue_url,
        }
        for saga in sagas.values():
            outputs |= {
                f"{saga.node.id}MachineArn": saga.state_machine.state_machine_arn,
                f"{saga.node.id}LogTableName": saga.log.table.table_name,
            }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _shown(self, id: str, requests: IdempotencyTable, *, key: str, end: Step) -> SagaStateMachine:
        """A saga whose steps return their items as they arrived."""
        show = self._function(f"{id}Show", "steps.show")
        uncount = self._function(f"{id}Uncount", "steps.uncount")
        step = Step.atomic("Show", fn=show, compensate=uncount, retry=_PATIENT)
        shown = Step.map("All", items="$request.items", key=key, steps=[step])
        return SagaStateMachine(self, id, requests=requests, result="$outputs", steps=[shown, end])

    def _function(self, id: str, handler: str) -> StepFunction:
        function = StepFunction(
            self,
            id,
            code=FUNCTIONS,
            handler=handler,
            environment={"COUNTERS": self._counters.table_name},
            timeout=Duration.seconds(80),
        )
        self._counters.grant(function, "dynamodb:UpdateItem", "dynamodb:GetItem")
        return function
