"""Sagas with steps of every kind, and functions that only count."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    Effect,
    IdempotencyTable,
    Provider,
    Retry,
    SagaStateMachine,
    Step,
    StepFunction,
    StepGroup,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"
PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)
"""Outlasts functions that have long timeouts: emulated time is fast, and a process that starts is not."""


class KindsStack(Stack):
    """``POST /kinds`` goes through every kind of step; ``/items`` maps over what a step answered, without a pivot."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self._counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        requests = IdempotencyTable(self, "Requests", due_after=Duration.seconds(60))
        self._step = self._function("Step", "steps.step")
        self._undo = self._function("Undo", "steps.undo")
        self._quote = self._function("Quote", "steps.quote")
        self._charge = self._function("Charge", "steps.charge")
        self._refund = self._function("Refund", "steps.refund")
        self._provider = Provider(verify=True, verify_undo=True, grace=Duration.seconds(5))
        self._notices = sqs.Queue(self, "Notices", fifo=True)
        self._seen = sqs.Queue(self, "Seen")
        sagas = {
            "kinds": SagaStateMachine(self, "Kinds", requests=requests, result="$outputs", steps=self._every_kind()),
            "items": SagaStateMachine(self, "Items", requests=requests, result="$outputs", steps=self._items()),
            "phase": SagaStateMachine(self, "Phase", requests=requests, steps=[self._five_steps()]),
        }
        front_door = TransactionApi(self, "Api", operations=sagas, cloud_watch_role=False)
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "CounterTableName": self._counters.table_name,
            "RequestTableName": requests.table.table_name,
            "NoticeQueueUrl": self._notices.queue_url,
            "SeenQueueUrl": self._seen.queue_url,
        }
        for saga in sagas.values():
            outputs[f"{saga.node.id}MachineArn"] = saga.state_machine.state_machine_arn
            outputs[f"{saga.node.id}LogTableName"] = saga.log.table.table_name
            outputs[f"{saga.node.id}OperatorsUrl"] = saga.operators.queue_url
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _every_kind(self) -> list[Step | StepGroup]:
        bus = events.EventBus(self, "Bus")
        rule = events.Rule(self, "Rule", event_bus=bus, event_pattern=events.EventPattern(source=["shop.kinds"]))
        rule.add_target(targets.SqsQueue(self._seen))
        parameter = iam.PolicyStatement(actions=["dynamodb:DescribeTable"], resources=[self._counters.table_arn])
        return [
            Step.read_only("Quote", fn=self._quote, retry=PATIENT),
            Step.service(
                "Look",
                service="dynamodb",
                action="describeTable",
                parameters={"TableName": self._counters.table_name},
                effect=Effect.READ,
                policies=[parameter],
                output='{"status": $states.result.Table.TableStatus}',
            ),
            Step.express(
                "Prepare",
                steps=[
                    self._atomic("Reserve"),
                    Step.read_only(
                        "Rate",
                        fn=self._quote,
                        retry=PATIENT,
                        record=False,
                        when="$exists($request.rate) ? $request.rate : false",
                    ),
                    self._atomic("Hold"),
                ],
            ),
            Step.parallel(
                "Both",
                branches=[
                    [self._atomic("Left")],
                    [self._external("Right"), self._atomic("Further", when="$exists($outputs.Right.receipt)")],
                ],
            ),
            Step.map(
                "Ship",
                items="$request.items",
                key="$item.sku",
                max_items=5,
                when="$exists($request.items)",
                steps=[self._atomic("Pack"), self._external("Label")],
            ),
            Step.dynamodb(
                "Mark",
                table=self._counters,
                writes=[_add(f"{{% $request.counter & '/' & {_MARK} %}}", "1", ConditionExpression=_UNMARKED)],
                compensate=[_add("{% $request.counter & '/' & $output.what %}", "-1")],
                output=f'{{"what": {_MARK}, "key": $step_key}}',
                retry=PATIENT,
            ),
            self._external("Pay", pivot=True),
            Step.child(
                "Fulfil",
                timeout=Duration.minutes(10),
                steps=[self._atomic("Dispatch", undone=False), Step.notify("Tell", queue=self._notices)],
            ),
            Step.event(
                "Announce", bus=bus, source="shop.kinds", detail_type="Paid", detail='{"who": $request.counter}'
            ),
            Step.custom("Pause", state={"Type": "Wait", "Seconds": 2}, output='{"rested": true}'),
            Step.notify("Receipt", queue=self._notices, message='{"done": $request.counter}'),
        ]

    def _items(self) -> list[Step | StepGroup]:
        """A saga without a pivot, whose last steps run in parallel."""
        return [
            Step.read_only("Plan", fn=self._quote, retry=PATIENT),
            Step.map(
                "Parcels",
                items="$outputs.Plan.parcels",
                key="$item.id",
                steps=[self._atomic("Load"), self._external("Book", when="$exists($request.book)")],
            ),
        ]

    def _five_steps(self) -> StepGroup:
        """Five local steps in one phase; the last one is the pivot."""
        return Step.express("All", steps=[self._atomic(name) for name in ("One", "Two", "Three", "Four", "Five")])

    def _atomic(self, name: str, *, undone: bool = True, when: str | None = None) -> Step:
        return Step.atomic(name, fn=self._step, compensate=self._undo if undone else None, when=when, retry=PATIENT)

    def _external(self, name: str, *, pivot: bool = False, when: str | None = None) -> Step:
        return Step.external(
            name,
            fn=self._charge,
            compensate=self._refund,
            provider=self._provider,
            pivot=pivot,
            when=when,
            retry=PATIENT,
        )

    def _function(self, id: str, handler: str) -> StepFunction:
        function = StepFunction(
            self,
            id,
            code=_FUNCTIONS,
            handler=handler,
            environment={"COUNTERS": self._counters.table_name},
            timeout=Duration.seconds(80),
        )
        self._counters.grant(function, "dynamodb:UpdateItem", "dynamodb:GetItem")
        return function


_MARK: Final = "($exists($request.mark) ? $request.mark : 'Mark')"
_UNMARKED: Final = "attribute_not_exists(#n)"


def _add(key: str, by: str, **more: str) -> dict[str, dict[str, object]]:
    return {
        "Update": {
            "Key": {"id": {"S": key}},
            "UpdateExpression": "ADD #n :by",
            "ExpressionAttributeNames": {"#n": "n"},
            "ExpressionAttributeValues": {":by": {"N": by}},
            **more,
        }
    }
