"""A trip: hotel and flight in branches, seats in a map, then the payment."""

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
    Run,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)

NAME: Final = "Trips"
WAIT_SECONDS: Final = 15
_COUNTING: Final = Path(__file__).parent.parent / "counting" / "functions"
_PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)


class TripStack(Stack):
    """Each step of a trip counts once, or is counted down.

    Args:
        scope: parent construct.
        id: construct id.
        definition: where the saga's definition is kept.
    """

    def __init__(self, scope: Construct, id: str, *, definition: Path) -> None:
        super().__init__(scope, id)
        self._counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        self._step, self._undo = self._function("Step", "steps.step"), self._function("Undo", "steps.undo")
        requests = IdempotencyTable(self, "Requests")
        saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            steps=[
                Step.parallel(
                    "Travel", branches=[[self._undone("Hotel")], [self._undone("Flight"), self._undone("Transfer")]]
                ),
                Step.map("Seats", items="$request.seats", key="$item.id", steps=[self._undone("Seat")]),
                Step.atomic("Pay", fn=self._step, pivot=True, retry=_PATIENT),
            ],
            result='{"seats": $count($keys($outputs.Seat))}',
            run=Run.INLINE,
            definition_file=definition,
        )
        TimeoutReconciler(self, "Reconciler", sagas=[saga])
        trips = Operation(saga=saga, max_wait=Duration.seconds(WAIT_SECONDS))
        api = TransactionApi(self, "Api", operations={"trips": trips})
        for name, value in {
            "ApiId": api.api.rest_api_id,
            "ApiStage": api.api.deployment_stage.stage_name,
            "CounterTableName": self._counters.table_name,
            "RequestTableName": requests.table.table_name,
            "MachineArn": saga.state_machine.state_machine_arn,
        }.items():
            CfnOutput(self, name, value=value)

    def _undone(self, name: str) -> Step:
        return Step.atomic(name, fn=self._step, compensate=self._undo, retry=_PATIENT)

    def _function(self, id: str, handler: str) -> StepFunction:
        function = StepFunction(
            self,
            id,
            code=_COUNTING,
            handler=handler,
            environment={"COUNTERS": self._counters.table_name},
            timeout=Duration.seconds(40),
        )
        self._counters.grant(function, "dynamodb:UpdateItem")
        return function


def synthesize(folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    TripStack(app, NAME, definition=folder / "saga.json")
    app.synth()
    return folder
