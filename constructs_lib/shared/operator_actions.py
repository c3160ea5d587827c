"""What commands do to deployed resources: what operators are granted, or have to be, and nothing else."""

from __future__ import annotations

from typing import Final

# cdk-sagas callbacks; CallbackIntegration.grant_operate grants them.
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

# cdk-sagas doctor; a policy to copy stands in docs/how-to/find-what-is-stuck.md.
DOCTOR_LOOKS: Final = (
    "cloudformation:ListStackResources",
    "dynamodb:BatchGetItem",
    "dynamodb:DescribeTable",
    "dynamodb:GetItem",
    "dynamodb:Query",
    "dynamodb:Scan",
    "events:DescribeRule",
    "events:ListTargetsByRule",
    "lambda:GetEventSourceMapping",
    "lambda:GetFunctionConcurrency",
    "lambda:GetFunctionConfiguration",
    "lambda:GetFunctionEventInvokeConfig",
    "sqs:GetQueueAttributes",
    "states:DescribeExecution",
    "states:DescribeStateMachine",
    "states:ListExecutions",
)
"""What a look takes; ``Scan`` and ``ListExecutions`` with ``--deep`` only."""
DOCTOR_REPAIRS: Final = (
    "dynamodb:UpdateItem",
    "sqs:SendMessage",
    "states:SendTaskFailure",
    "states:SendTaskSuccess",
    "states:StartExecution",
)
"""What ``--repair`` takes besides."""
