"""The system that waits for callbacks, with a reconciler for its saga."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput
from constructs import Construct

from constructs_lib import SagaStateMachine, TimeoutReconciler

from .callbacks.stack import CallbacksStack


class ReconciledStack(CallbacksStack):
    """The callbacks stack with a reconciler."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        (saga,) = (found for found in self.node.find_all() if isinstance(found, SagaStateMachine))
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=[saga])
        outputs = {
            "ReconcilerName": reconciler.function.function.function_name,
            "EventsUrl": reconciler.queue.queue_url,
            "EndedRule": reconciler.ended.rule_name,
            "ScheduleRule": reconciler.schedule.rule_name,
            "MeasureRule": reconciler.measure.rule_name,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def synthesize(folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    ReconciledStack(app, "Callbacks")
    app.synth()
    return folder
