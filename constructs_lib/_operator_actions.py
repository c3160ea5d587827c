"""What ``cdk-sagas callbacks`` does to an integration's resources: what operators are granted, and nothing else."""

from __future__ import annotations

from typing import Final

TOKEN_TABLE_ACTIONS: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Scan", "dynamodb:UpdateItem")
"""Of the token table: rows, all of them with ``--all``; and, with ``--send-again``, that one was told."""
TOKEN_INDEX_ACTIONS: Final = ("dynamodb:Query",)
DEAD_LETTER_ACTIONS: Final = (
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ReceiveMessage",
)
QUEUE_ACTIONS: Final = ("sqs:GetQueueAttributes", "sqs:SendMessage")
REQUEST_TABLE_ACTIONS: Final = ("dynamodb:GetItem", "dynamodb:UpdateItem")
"""Of the sagas' request records: who waits no more when he is told lets his saga be looked at."""
MACHINE_ACTIONS: Final = ("states:SendTaskFailure", "states:SendTaskSuccess")
"""Of the sagas' state machines: to tell again what was not told."""
