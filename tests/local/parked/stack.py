"""A saga that needs an operator when a call of its provider is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, Stack
from constructs import Construct

from constructs_lib import IdempotencyTable, Provider, Retry, SagaStateMachine, Step, StepFunction, TransactionApi

_FUNCTIONS: Final = Path(__file__).parent / "functions"
FUNCTION_SECONDS: Final = 120
"""In the emulator's time: long enough for a process to start on a busy machine."""


class ParkedStack(Stack):
    """``POST /orders`` charges, commits, and charges the delivery; a refused commit is compensated."""

    def __init__(self, scope: Construct, id: str, *, gateway_url: str) -> None:
        super().__init__(scope, id)
        requests = IdempotencyTable(self, "Requests")
        provider = Provider(verify=True, verify_undo=True, grace=Duration.seconds(5))
        # The delays exceed the timeout, the clock skew and the grace together: only the provider knows the outcome.
        retry = Retry(in_doubt_attempts=2, in_doubt_interval=FUNCTION_SECONDS, in_doubt_cap=FUNCTION_SECONDS)
        charge = self._function("Charge", "steps.charge", gateway_url)
        refund = self._function("Refund", "steps.refund", gateway_url)
        deliver = self._function("Deliver", "steps.charge", gateway_url)
        commit = self._function("Commit", "steps.commit", gateway_url)
        self.saga = saga = SagaStateMachine(
            self,
            "Saga",
            requests=requests,
            steps=[
                Step.external("Charge", fn=charge, compensate=refund, provider=provider, retry=retry),
                Step.atomic("Commit", fn=commit, pivot=True, refusals=["Refused"], retry=retry),
                Step.external("Deliver", fn=deliver, provider=provider, retry=retry),
            ],
            timeout=Duration.hours(12),
        )
        front_door = TransactionApi(self, "Api", operations={"orders": saga}, cloud_watch_role=False)
        outputs = {
            "ApiId": front_door.api.rest_api_id,
            "ApiStage": front_door.api.deployment_stage.stage_name,
            "RequestTableName": requests.table.table_name,
            "LogTableName": saga.log.table.table_name,
            "OperatorsQueueUrl": saga.operators.queue_url,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _function(self, id: str, handler: str, gateway_url: str) -> StepFunction:
        return StepFunction(
            self,
            f"{id}Function",
            code=_FUNCTIONS,
            handler=handler,
            timeout=Duration.seconds(FUNCTION_SECONDS),
            environment={"GATEWAY": gateway_url},
        )


def synthesize(gateway_url: str, folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    ParkedStack(app, "Parked", gateway_url=gateway_url)
    app.synth()
    return folder
