"""Two generations of one stack: the second lets the operation start another saga, and keeps the first one to drain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    Operation,
    Retry,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent.parent / "counting" / "functions"
NAME: Final = "Replacing"
DUE_AFTER_SECONDS: Final = 60
REPLAY_SECONDS: Final = 60
"""Of the stack that replays responses only briefly."""
FUNCTION_SECONDS: Final = 120
"""In the emulator's time: long enough for a process to start on a busy machine."""
_PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)
STRICT: Final[Mapping[str, Any]] = {"type": "object", "required": ["counter", "reference"]}
"""A schema that refuses what the first generation accepted."""


class ReplacingStack(Stack):
    """``POST /pay`` counts once, by the saga V1; from the second generation on by V2.

    Args:
        scope, id: as of any stack.
        generation: number of sagas.
        schema: of the body.
        brief: whether responses are replayed only briefly.
        deleted: whether state machines that a deployment leaves out are deleted.
        again: whether state machines have other logical ids: a deployment replaces them, and leaves the logs alone.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        generation: int,
        schema: Mapping[str, Any] | None,
        brief: bool,
        deleted: bool,
        again: bool,
    ) -> None:
        super().__init__(scope, id)
        self._removal = RemovalPolicy.DESTROY if deleted else RemovalPolicy.RETAIN
        self._counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        requests = IdempotencyTable(
            self,
            "Requests",
            due_after=Duration.seconds(DUE_AFTER_SECONDS),
            replay_for=Duration.seconds(REPLAY_SECONDS) if brief else None,
        )
        self._step = self._function()
        sagas = [self._saga(f"V{number}", requests) for number in range(1, generation + 1)]
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=sagas)
        operation = Operation(saga=sagas[-1], schema=schema)
        front_door = TransactionApi(self, "Api", operations={"pay": operation}, cloud_watch_role=False)
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "CounterTableName": self._counters.table_name,
            "RequestTableName": requests.table.table_name,
            "ReconcilerName": reconciler.function.function.function_name,
            "ReconcilerQueueUrl": reconciler.queue.queue_url,
            "ReconcilerEndedRule": reconciler.ended.rule_name,
            "ReconcilerScheduleRule": reconciler.schedule.rule_name,
            "ReconcilerMeasureRule": reconciler.measure.rule_name,
        }
        for saga in sagas:
            outputs[f"{saga.node.id}MachineArn"] = saga.state_machine.state_machine_arn
            outputs[f"{saga.node.id}LogName"] = saga.log.table.table_name
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
        for machine in self.node.find_all() if again else ():
            if isinstance(machine, sfn.CfnStateMachine):
                machine.override_logical_id(f"{self.get_logical_id(machine)}Again")

    def _saga(self, id: str, requests: IdempotencyTable) -> SagaStateMachine:
        steps = [Step.atomic("Pay", fn=self._step, retry=_PATIENT)]
        return SagaStateMachine(
            self, id, requests=requests, steps=steps, timeout=Duration.hours(2), removal_policy=self._removal
        )

    def _function(self) -> StepFunction:
        function = StepFunction(
            self,
            "Step",
            code=_FUNCTIONS,
            handler="steps.step",
            environment={"COUNTERS": self._counters.table_name},
            timeout=Duration.seconds(FUNCTION_SECONDS),
        )
        self._counters.grant(function, "dynamodb:UpdateItem")
        return function


def synthesize(
    folder: Path,
    *,
    generation: int,
    schema: Mapping[str, Any] | None = None,
    brief: bool = False,
    deleted: bool = False,
    again: bool = False,
) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    ReplacingStack(app, NAME, generation=generation, schema=schema, brief=brief, deleted=deleted, again=again)
    app.synth()
    return folder
