"""The funds transfer with an intake: messages of two queues begin transfers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import EventIntake, Run, SagaStateMachine, StepFunction
from examples.funds_transfer.stack import FundsTransferStack

OPERATION: Final = "ordered"
_FUNCTIONS: Final = Path(__file__).parent / "functions"


class BegunTransferStack(FundsTransferStack):
    """The example, whose transfers messages begin, too."""

    def __init__(self, scope: Construct, id: str, *, run: Run) -> None:
        super().__init__(scope, id, run=run)
        saga = self.node.find_child("Transfer")
        if not isinstance(saga, SagaStateMachine):
            raise TypeError("Transfer must be the saga; correct its id")
        reader = StepFunction(self, "Reader", code=_FUNCTIONS, handler="reader.handler")
        intake = EventIntake(self, "Intake", operation=OPERATION, fn=reader, saga=saga)
        visible = Duration.seconds(6 * reader.timeout_seconds)
        for name, fifo in (("Queue", None), ("Fifo", True)):
            dead = sqs.Queue(self, f"{name}Dead", fifo=fifo)
            queue = sqs.Queue(
                self,
                name,
                fifo=fifo,
                visibility_timeout=visible,
                dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=50),
            )
            intake.add_queue(queue)
            self._outputs(**{f"{name}Url": queue.queue_url, f"{name}DeadUrl": dead.queue_url})
        self._outputs(ParkedUrl=intake.parked.queue_url)
