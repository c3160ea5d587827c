"""Queues of dead letters, and why they have none themselves."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Duration, Validations
from aws_cdk import aws_sqs as sqs
from constructs import Construct

_KEPT: Final = Duration.days(14)
"""The longest that SQS keeps a message."""
_LAST: Final = Acknowledgment(
    id="Serverless-SQSRedrivePolicy",
    reason="The queue receives messages that another queue's reader could not handle. No function reads it: operators "
    "do, and move its messages back when the cause is gone, so that no message in it can fail.",
)


def dead_letter_queue(scope: Construct, id: str, *, fifo: bool | None = None) -> sqs.Queue:
    """Create the dead-letter queue of another queue.

    Args:
        scope: parent construct.
        id: construct id.
        fifo: whether the other queue is a FIFO queue.
    """
    queue = sqs.Queue(scope, id, fifo=fifo, enforce_ssl=True, retention_period=_KEPT)
    Validations.of(queue.node.default_child or queue).acknowledge(_LAST)
    return queue
