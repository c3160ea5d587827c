"""Small constructs for tests to put together."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from constructs_lib import IdempotencyTable, IIdempotencyTable, PayloadBucket, SagaStateMachine, Step, StepFunction

FUNCTIONS = Path(__file__).parent / "functions"


def step_function(scope: Construct, id: str = "Move") -> StepFunction:
    """A step function of ours."""
    return StepFunction(scope, id, code=FUNCTIONS, handler="plain.handler")


def plain_function(scope: Construct, id: str, *, timeout: Duration | None = None) -> lambda_.Function:
    """A custom function."""
    return lambda_.Function(
        scope,
        id,
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): ..."),
        timeout=timeout or Duration.seconds(15),
    )


def saga(
    scope: Construct,
    id: str = "Saga",
    *,
    requests: IIdempotencyTable | None = None,
    payloads: PayloadBucket | None = None,
) -> SagaStateMachine:
    """A saga of one step."""
    return SagaStateMachine(
        scope,
        id,
        requests=requests or IdempotencyTable(scope, f"{id}Requests"),
        steps=[Step.atomic("Move", fn=plain_function(scope, f"{id}Function"))],
        payloads=payloads,
    )
