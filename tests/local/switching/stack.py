"""One stack in three releases: the operation is a saga's, is direct, or is both, as during a deploy."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    IdempotencyTable,
    Operation,
    Retry,
    SagaStateMachine,
    Step,
    StepFunction,
    TransactionApi,
)

_FUNCTIONS: Final = Path(__file__).parent / "functions"
_COUNTING: Final = Path(__file__).parent.parent / "counting" / "functions"
NAME: Final = "Switching"
_PATIENT: Final = Retry(in_doubt_attempts=4, in_doubt_interval=10, in_doubt_cap=80)


class Release(StrEnum):
    """Kinds of the operation."""

    SAGA = "saga"
    DIRECT = "direct"
    BOTH = "both"


class SwitchingStack(Stack):
    """``POST /pay`` counts once, whatever it is. In the release ``BOTH`` each kind has an API of its own."""

    def __init__(self, scope: Construct, id: str, *, release: Release) -> None:
        super().__init__(scope, id)
        counters = dynamodb.TableV2(
            self, "Counters", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        environment = {"COUNTERS": counters.table_name}
        requests = IdempotencyTable(self, "Requests")
        step = StepFunction(
            self,
            "Step",
            code=_COUNTING,
            handler="steps.step",
            environment=environment,
            timeout=Duration.seconds(120),
        )
        pay = [Step.atomic("Pay", fn=step, retry=_PATIENT)]
        saga = SagaStateMachine(self, "Saga", requests=requests, steps=pay, timeout=Duration.hours(2))
        direct = DirectFunction(
            self,
            "Direct",
            code=_FUNCTIONS,
            handler="direct.handler",
            environment=environment,
            timeout=Duration.seconds(28),
        )
        for function in (step, direct):
            counters.grant(function, "dynamodb:UpdateItem")
        operations: dict[Release, Operation | DirectOperation] = {
            Release.SAGA: Operation(saga=saga, max_wait=Duration.seconds(20)),
            Release.DIRECT: DirectOperation(fn=direct, requests=requests, previous=saga),
        }
        kinds = [Release.SAGA, Release.DIRECT] if release is Release.BOTH else [release]
        outputs = {"CounterTableName": counters.table_name, "MachineArn": saga.state_machine.state_machine_arn}
        for index, kind in enumerate(kinds):
            front = TransactionApi(
                self, "Api" if index == 0 else "Second", operations={"pay": operations[kind]}, cloud_watch_role=False
            )
            outputs[f"{kind.capitalize()}ApiId"] = front.api.rest_api_id
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def synthesize(folder: Path, release: Release) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    SwitchingStack(app, NAME, release=release)
    app.synth()
    return folder
