"""Grants that no simulated call is sure to need: each with the reason why it is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from constructs_lib.testing.simulator.aws.roles import Grant

_HASH: Final = re.compile(r"[0-9A-F]{8}$")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Grants with one reason.

    Attributes:
        role: pattern of roles' names without stack and hash, such as ``TokensSweeper``.
        actions: pattern of actions.
        resource: pattern of resources, spelled like roles.
        reason: what needs them.
    """

    role: str
    actions: str
    resource: str
    reason: str

    def covers(self, grant: Grant) -> bool:
        """Test whether a grant has this reason."""
        role = _HASH.sub("", grant.role.partition("-")[2]).removesuffix("Role").removesuffix("Function")
        given = (role, grant.action, resource_name(grant.resource))
        patterns = (self.role, self.actions, self.resource)
        return all(re.fullmatch(pattern, one) for pattern, one in zip(patterns, given, strict=True))


def resource_name(arn: str) -> str:
    """Name of a resource without stack and hash; an ARN of another form as it is."""
    name = re.split(r"[/:]", arn.removesuffix(":*").removesuffix(".fifo").removesuffix(".StreamArn"))[-1]
    return _HASH.sub("", name.partition("-")[2] or name)


_RECEIVERS: Final = "Authorize|PaymentEvents|PickEvents|Pick|PublishScan|Look|Scan|Review|ReviewersPage"
"""Functions that report outcomes of callbacks, and those that dispatch jobs."""
_MACHINES: Final = ".*StateMachine|.*Recovery|CartCheckCart|CartFulfil|CartNotify"

REVIEWED: Final = (
    # --- Calls that a service of AWS makes with the role of a function or state machine
    Reviewed(
        ".*", "logs:(CreateLogStream|PutLogEvents)", ".*", "the Lambda service writes a function's log with its role"
    ),
    Reviewed(".*", "xray:PutT.*", r"\*", "the services send traces; IAM has no resource for it"),
    Reviewed(_MACHINES, "xray:GetSampling.*", r"\*", "Step Functions samples traces; IAM has no resource for it"),
    Reviewed(_MACHINES, "logs:.*", r"\*", "log delivery of Step Functions, as its documentation lists the actions"),
    Reviewed(
        ".*", "sqs:(ReceiveMessage|DeleteMessage|GetQueueAttributes)", ".*", "an event source mapping polls the queue"
    ),
    Reviewed(
        "OutboxPublisher",
        "dynamodb:.*Stream.*|dynamodb:GetRecords|dynamodb:GetShardIterator",
        "StreamArn|Outbox.*",
        "an event source mapping reads the stream",
    ),
    Reviewed(
        "Mailer",
        "sqs:(ChangeMessageVisibility|GetQueueUrl)",
        "Notices",
        "the example uses the CDK's SqsEventSource, as its readers do",
    ),
    Reviewed(
        "Scan|Review",
        "sqs:GetQueue.*",
        "CarrierEventDeadLetters|ReviewMail",
        "grant_send_messages of the CDK; they read a queue's address and settings",
    ),
    Reviewed(
        "Scan",
        "sqs:SendMessage",
        "CarrierEventDeadLetters",
        "the Lambda service sends an event that failed three times",
    ),
    Reviewed(
        "CartStateMachine",
        "states:(DescribeExecution|StopExecution)|events:.*",
        "CartFulfil|StepFunctionsGetEventsForStepFunctionsExecutionRule",
        "startExecution.sync: as the documentation of Step Functions lists its actions",
    ),
    # --- Rare: after a fault at one call, or what a second fault makes of it
    Reviewed(
        ".*", "dynamodb:GetItem", ".*LogTable", "an attempt whose write was refused reads the row of an earlier one"
    ),
    Reviewed(
        f"{_MACHINES}|Reconciler",
        "dynamodb:(PutItem|Query|UpdateItem)",
        ".*LogTable",
        "compensations of a recovery, and rows of sagas that are open for long",
    ),
    Reviewed(
        f"{_MACHINES}|Reconciler",
        "sqs:SendMessage",
        ".*Operators|InvestigationFindings",
        "a saga that only an operator can decide is parked; a notice of a failed one",
    ),
    Reviewed(
        "Reconciler",
        "sqs:ChangeMessageVisibility",
        ".*Operators|InvestigationFindings",
        "an entry of a saga that is still parked is released when it was read",
    ),
    Reviewed(
        ".*Recovery|Reconciler",
        "states:.*",
        ".*StateMachine|.*Recovery",
        "a saga whose start or execution was lost is started, described or recovered; lists of running executions, "
        "with more open sagas than one sweep describes",
    ),
    Reviewed(
        f"{_MACHINES}|{_RECEIVERS}|Validate|.*Payments|.*Transfers|.*TopUps|.*Cards|.*Issues|.*Profiles|.*Refunds",
        "dynamodb:(GetItem|UpdateItem)",
        "RequestsTable",
        "a record that was decided meanwhile is read; an outcome resumes a parked saga, or makes it due",
    ),
    Reviewed(
        "Validate", "dynamodb:DeleteItem", "RequestsTable", "Powertools deletes its record of a function that raised"
    ),
    Reviewed(
        "Investigate",
        "sqs:SendMessage",
        "InvestigationIntake.*",
        "an event that comes before its time is kept, one that cannot be applied parked",
    ),
    # --- Receipts: one policy for every function that receives outcomes, because each may receive any of its jobs'
    Reviewed(
        f"{_RECEIVERS}|TokensSweeper",
        "dynamodb:.*Item",
        "TokensTable|CartLogTable|RequestsTable",
        "a receipt is one transaction over job, row of the log and record",
    ),
    Reviewed(
        f"{_RECEIVERS}|TokensSweeper",
        "states:SendTask.*",
        "CartStateMachine|CartFulfil",
        "an outcome goes to the task that waits: in each state machine that may wait, in flight also where an earlier "
        "version had the step",
    ),
    Reviewed(
        f"{_RECEIVERS}|TokensSweeper", "sqs:SendMessage", "CartOperators", "a contradiction is reported to operators"
    ),
    # --- Not driven by a workload of the simulator; tests/local/test_wallet.py calls every operation
    Reviewed(
        "Admin.*|Merchant.*|Terminal.*|Customer.*",
        "dynamodb:(PutItem|UpdateItem|ConditionCheckItem)",
        "Wallet|RequestsTable",
        "one table, whose items a face's functions write, and check conditions of",
    ),
)
"""Each reason names what needs the grants. A grant that nothing needs is not listed, but removed."""
