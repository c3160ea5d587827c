"""One stack in releases: a saga that gets another step, with and without published versions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    Operation,
    Retry,
    SagaStateMachine,
    Step,
    StepFunction,
    StepGroup,
    TimeoutReconciler,
    TransactionApi,
    Versions,
)
from tests.local.replacing.stack import FUNCTION_SECONDS

_FUNCTIONS: Final = Path(__file__).parent.parent / "counting" / "functions"
NAME: Final = "Published"
DUE_AFTER_SECONDS: Final = 60
_PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)


class PublishedStack(Stack):
    """``POST /pay`` counts ``Pay``, ``Fee`` in an Express phase, and from the second release on ``Thank``.

    Args:
        scope, id: as of any stack.
        release: 1 or 2.
        versions: as of a saga.
    """

    def __init__(self, scope: Construct, id: str, *, release: int, versions: Versions | None) -> None:
        super().__init__(scope, id)
        counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        requests = IdempotencyTable(self, "Requests", due_after=Duration.seconds(DUE_AFTER_SECONDS))
        function = StepFunction(
            self,
            "Step",
            code=_FUNCTIONS,
            handler="steps.step",
            environment={"COUNTERS": counters.table_name},
            timeout=Duration.seconds(FUNCTION_SECONDS),
        )
        counters.grant(function, "dynamodb:UpdateItem")
        steps: list[Step | StepGroup] = [
            Step.atomic("Pay", fn=function, pivot=True, retry=_PATIENT),
            Step.express("Phase", steps=[Step.atomic("Fee", fn=function, retry=_PATIENT)]),
            *([Step.atomic("Thank", fn=function, retry=_PATIENT)] if release == 2 else []),
        ]
        saga = SagaStateMachine(
            self, "Saga", requests=requests, steps=steps, timeout=Duration.hours(3), versions=versions
        )
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=[saga])
        front = TransactionApi(self, "Api", operations={"pay": Operation(saga=saga)}, cloud_watch_role=False)
        outputs = {
            "ApiId": front.api.rest_api_id,
            "ApiStage": front.api.deployment_stage.stage_name,
            "CounterTableName": counters.table_name,
            "RequestTableName": requests.table.table_name,
            "MachineArn": saga.state_machine.state_machine_arn,
            "ReconcilerName": reconciler.function.function.function_name,
            "ReconcilerQueueUrl": reconciler.queue.queue_url,
            "ReconcilerEndedRule": reconciler.ended.rule_name,
            "ReconcilerScheduleRule": reconciler.schedule.rule_name,
            "ReconcilerMeasureRule": reconciler.measure.rule_name,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def synthesize(folder: Path, *, release: int, versions: Versions | None) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    PublishedStack(app, NAME, release=release, versions=versions)
    app.synth()
    return folder
