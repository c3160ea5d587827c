"""Actions of commands on deployed resources: what operators are granted, or have to be, and nothing else."""

from __future__ import annotations

from typing import Final

# cdk-sagas callbacks; CallbackIntegration.grant_operate grants them.
TOKEN_TABLE_ACTIONS: Final = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Scan", "dynamodb:UpdateItem")
"""Token table: rows, all of them with ``--all``; the record of a delivery with ``--redeliver``, of a decision with
``--forget``."""
TOKEN_INDEX_ACTIONS: Final = ("dynamodb:Query",)
DEAD_LETTER_ACTIONS: Final = (
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ReceiveMessage",
)
QUEUE_ACTIONS: Final = ("sqs:GetQueueAttributes", "sqs:SendMessage")
REQUEST_TABLE_ACTIONS: Final = ("dynamodb:GetItem", "dynamodb:UpdateItem")
"""Request records: a delivery that finds no task makes the saga due."""
MACHINE_ACTIONS: Final = ("states:SendTaskFailure", "states:SendTaskSuccess")
"""State machines: to deliver outcomes."""

# cdk-sagas hold; TimeoutReconciler.grant_hold grants them.
HOLD_ACTIONS: Final = (
    "dynamodb:DeleteItem",
    "dynamodb:DescribeTable",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Scan",
)

# cdk-sagas doctor; docs/how-to/find-stuck-sagas.md has a policy to copy.
DOCTOR_LOOKS: Final = (
    "cloudformation:DescribeStacks",
    "dynamodb:BatchGetItem",
    "dynamodb:DescribeTable",
    "dynamodb:GetItem",
    "dynamodb:Query",
    "dynamodb:Scan",
    "events:DescribeRule",
    "lambda:GetEventSourceMapping",
    "lambda:GetFunctionConcurrency",
    "sqs:GetQueueAttributes",
    "states:DescribeExecution",
    "states:DescribeStateMachine",
    "states:DescribeStateMachineForExecution",
    "states:GetExecutionHistory",
    "states:ListExecutions",
)
"""Actions of a check; ``Scan`` with ``--full-scan`` only, ``ListExecutions`` otherwise of many sagas in flight."""
DOCTOR_REPAIRS: Final = (
    "dynamodb:UpdateItem",
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:ReceiveMessage",
    "sqs:SendMessage",
    "states:SendTaskFailure",
    "states:SendTaskSuccess",
    "states:StartExecution",
    "states:StopExecution",
)
"""What ``--repair`` takes besides."""
