"""Least privilege, both ways: kinds of roles and resources, and the grants that no fixed run needs, with their reasons.

A grant counts by the kind of its role and the kind of its resource, where the library decides both: what a reconciler
needs in one example, every reconciler may need. What an example grants its own function counts for that function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from constructs_lib.testing.simulator import Grant

_HASH: Final = re.compile(r"[0-9A-F]{8}$")
_OWN: Final = "own: "

ROLES: Final[Mapping[str, str]] = {
    "gatekeeper": "ApiGatekeeper.*",
    "state machine": ".*StateMachine",
    "recovery": ".*Recovery",
    "state machine of a phase": "CartCheckCart|CartFulfil|CartNotify",
    "notifier": ".*Notifier",
    "reconciler": "Reconciler",
    "direct operation": "(Admin|Customer|Merchant|Terminal).*",
    "event intake": "Stripe|Investigate",
    "dispatcher of callbacks": "Authorize|Review|Pick|Look",
    "receiver of callbacks": "PaymentEvents|PickEvents|PublishScan|Scan",
    "approval page": "ReviewersPage",
    "operator": "ann|ben",
    "operators' function": "Operators",
    "worker of a migration": "SplitWorker",
    "watch over state machines": "Watch",
    "sweeper of a ledger": "LedgerSweeper",
    "sweeper of callbacks": "TokensSweeper",
    "publisher of an outbox": "OutboxPublisher",
    "read-only step": "Validate|Price|Assess|Analyze|Recommend|Ask|LookAtOrder",
    "atomic step": "Transfer|Debit|Credit|Reserve|Update|Shipment|Claim|Act|Commit|Ship|KeepFinding",
    "external step": "(Charge|Deliver)Step|Charge|Capture|Label",
    "compensation": "ChargeCompensation|Refund|Release|Cancel|Void|VoidLabel|PutBack",
    "function of the app": "Mailer|Apply|Undo|Verify(Undo)?|Send|Sent|Teller|Writer",
    "hand-written state machine": "Import",
}
"""Kinds of roles, and what their names are without stack and hash."""
RESOURCES: Final[Mapping[str, str]] = {
    "log group": ".*Logs",
    "operators' function": "OperatorsFunction",
    "stack": "stack",
    "table of a watch": "WatchEndsTable",
    "index of the table of a watch": "WatchEndsTable/index/.*",
    "queue of a watch": "Watch(Queue|DeadLetters)",
    "everything": r"\*",
    "request table": "RequestsTable",
    "index of the request table": "RequestsTable/index/.*",
    "saga log": ".*LogTable",
    "token table": "TokensTable",
    "index of the token table": "TokensTable/index/.*",
    "outbox": "OutboxTable",
    "hold table": "ReconcilerHoldTable",
    "operators' queue": ".*Operators",
    "reconciler's queue": "ReconcilerQueue",
    "integration's queue": "(Payments|Reviewers|Warehouse|Carrier)Queue",
    "state machine": ".*StateMachine",
    "recovery": ".*Recovery",
    "state machine of a phase": "CartCheckCart|CartFulfil|CartNotify",
    "Step Functions' rule": "StepFunctionsGetEventsForStepFunctionsExecutionRule",
}
"""Kinds of the library's resources, likewise; others are an example's own."""


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """A grant by kinds.

    Attributes:
        role: kind of role; ``own: `` and a name, where the resource is an example's own.
        action: the action.
        resource: kind of resource, or its name.
        condition: of the statement, if it has one.
    """

    role: str
    action: str
    resource: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Grants that no fixed run needs, with one reason. Nothing else may be listed.

    Attributes:
        role: kind of role, or ``own: `` and its name.
        actions: the actions.
        resource: kind of resource, or its name.
        reason: what needs them.
        condition: of the statement, if it has one.
    """

    role: str
    actions: tuple[str, ...]
    resource: str
    reason: str
    condition: str = ""

    def units(self) -> Iterator[Unit]:
        """The grants."""
        return (Unit(self.role, action, self.resource, self.condition) for action in self.actions)


def unit_of(grant: Grant) -> Unit:
    """Kinds of a grant.

    Raises:
        LookupError: if its role has no kind.
    """
    name = _bare(grant.role).removesuffix("Role").removesuffix("Function")
    role = _kind(ROLES, name)
    if role is None:
        raise LookupError(f"role {name} has no kind; add it to ROLES of {__name__}")
    bare = _resource(grant.resource)
    resource = _kind(RESOURCES, bare)
    if resource is None:
        return Unit(f"{_OWN}{name}", grant.action, bare, grant.condition)
    return Unit(role, grant.action, resource, grant.condition)


def _kind(kinds: Mapping[str, str], name: str) -> str | None:
    return next((kind for kind, pattern in kinds.items() if re.fullmatch(pattern, name)), None)


def _bare(name: str) -> str:
    return _HASH.sub("", name.partition("-")[2] or name)


def _resource(arn: str) -> str:
    """Name of a resource without stack and hash; of an index with its table's. A stack is granted by its own name."""
    if ":stack/" in arn:
        return "stack"
    path, _, index = arn.removesuffix(":*").removesuffix(".fifo").removesuffix(".StreamArn").partition("/index/")
    name = _bare(re.split(r"[/:]", path)[-1])
    return f"{name}/index/{index}" if index else name


def role_kind(unit: Unit) -> str:
    """Kind of role, also of a grant that an example makes to its own function."""
    name = unit.role.removeprefix(_OWN)
    return (_kind(ROLES, name) or name) if name != unit.role else name


def table(grants: Mapping[str, set[Grant]], unused: Mapping[str, set[Grant]]) -> str:
    """Markdown: per kind of role, how many grants the examples make, fixed runs needed, and reviews explain."""
    needed = {unit_of(grant) for name, found in grants.items() for grant in found - unused[name]}
    lines = ["| role | grants | needed | needed of the kind | reviewed |", "|---|--:|--:|--:|--:|"]
    every: dict[str, list[tuple[bool, bool]]] = {kind: [] for kind in ROLES}
    for name, found in grants.items():
        for grant in found:
            every[role_kind(unit_of(grant))].append((grant not in unused[name], unit_of(grant) in needed))
    every["**all**"] = [one for kind in every.values() for one in kind]
    for kind, ones in every.items():
        used, by_kind = sum(used for used, _ in ones), sum(by_kind and not used for used, by_kind in ones)
        lines.append(f"| {kind} | {len(ones)} | {used} | {by_kind} | {len(ones) - used - by_kind} |")
    lines += ["", "| role | action | resource | reason why it stays |", "|---|---|---|---|"]
    for one in REVIEWED:
        where = f"{one.resource}, {one.condition}" if one.condition else one.resource
        lines.append(f"| {one.role} | {'<br>'.join(one.actions)} | {where} | {one.reason} |")
    return "\n".join(lines) + "\n"


def write_table(path: Path, grants: Mapping[str, set[Grant]], unused: Mapping[str, set[Grant]]) -> None:
    """Write the table as an artifact."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table(grants, unused), "utf-8")


def reviewed() -> dict[Unit, str]:
    """Reason of each reviewed grant.

    Raises:
        ValueError: if one has two.
    """
    found: dict[Unit, str] = {}
    for one in REVIEWED:
        for unit in one.units():
            if unit in found:
                raise ValueError(f"{unit} must have one reason, got two; remove one")
            found[unit] = one.reason
    return found


def units_of(grants: Iterable[Grant]) -> set[Unit]:
    """Kinds of grants."""
    return {unit_of(grant) for grant in grants}


_RECEIPT: Final = (
    "a receipt is one transaction over the job, its log row and the saga's record: a row that it need not change is "
    "checked, and one that is in doubt changed; which of it, the provider's report decides"
)
_CONTRADICTION: Final = "a provider that contradicts itself is reported to operators"
_MOVED: Final = "a job may wait in each state machine of its saga: an earlier version may have had its step elsewhere"
_OF_CDK: Final = "the CDK's grant of this target; it reads a queue's address and settings, and no message"

REVIEWED: Final[tuple[Reviewed, ...]] = (
    # --- Callbacks: what is reported, and when, is the provider's
    Reviewed("approval page", ("dynamodb:ConditionCheckItem",), "saga log", _RECEIPT),
    Reviewed("approval page", ("dynamodb:ConditionCheckItem",), "token table", _RECEIPT),
    Reviewed("approval page", ("dynamodb:UpdateItem",), "saga log", _RECEIPT),
    Reviewed("approval page", ("dynamodb:UpdateItem",), "request table", _RECEIPT),
    Reviewed("dispatcher of callbacks", ("dynamodb:ConditionCheckItem",), "saga log", _RECEIPT),
    Reviewed("dispatcher of callbacks", ("dynamodb:ConditionCheckItem",), "token table", _RECEIPT),
    Reviewed(
        "approval page",
        ("dynamodb:GetItem",),
        "saga log",
        "the row is read alone where several sagas have a step of this name",
    ),
    Reviewed(
        "receiver of callbacks",
        ("dynamodb:GetItem",),
        "saga log",
        "the row is read alone where several sagas have a step of this name",
    ),
    Reviewed(
        "sweeper of callbacks",
        ("dynamodb:DeleteItem",),
        "token table",
        _CONTRADICTION,
        condition="dynamodb:LeadingKeys=notice#*",
    ),
    Reviewed("sweeper of callbacks", ("sqs:SendMessage",), "operators' queue", _CONTRADICTION),
    Reviewed("approval page", ("states:SendTaskFailure", "states:SendTaskSuccess"), "state machine of a phase", _MOVED),
    Reviewed(
        "approval page",
        ("states:SendTaskFailure",),
        "state machine",
        "a reviewer who rejects ends the wait; those of the fixed runs approve",
    ),
    Reviewed(
        "receiver of callbacks",
        ("states:SendTaskFailure",),
        "state machine",
        "a provider reports either outcome; in the fixed runs, a card is declined when the payment is dispatched",
    ),
    Reviewed(
        "receiver of callbacks",
        ("states:SendTaskHeartbeat",),
        "state machine",
        "a provider may report that it still works; the one that does works for a phase",
    ),
    Reviewed(
        "sweeper of callbacks",
        ("dynamodb:UpdateItem",),
        "request table",
        "an outcome that no task waits for any more makes its saga due; the next sweep may be the first to find out",
    ),
    Reviewed(
        "sweeper of callbacks",
        ("dynamodb:UpdateItem",),
        "saga log",
        "rows of a late effect are kept until it is compensated: extended when they would expire within a month",
    ),
    Reviewed(
        "sweeper of callbacks",
        ("states:SendTaskFailure",),
        "state machine of a phase",
        "the sweeper delivers what a receiver stored and could not deliver, whichever outcome that is",
    ),
    # --- Reconciler: what takes long, or comes in numbers
    Reviewed(
        "reconciler",
        ("states:ListExecutions",),
        "state machine",
        "with more than 50 due sagas, running executions are listed instead of described one by one",
    ),
    Reviewed(
        "reconciler",
        ("states:ListExecutions",),
        "recovery",
        "with more than 50 due sagas, running executions are listed instead of described one by one",
    ),
    Reviewed(
        "reconciler",
        ("states:StopExecution",),
        "state machine",
        "a cancelled saga is stopped by the operator's command; if that ends before it does, by the reconciler",
    ),
    Reviewed(
        "reconciler",
        ("dynamodb:Query", "dynamodb:UpdateItem"),
        "saga log",
        "rows of a saga that is open for almost as long as its log is kept are extended",
    ),
    Reviewed(
        "reconciler",
        ("dynamodb:GetItem",),
        "token table",
        "a condition on attributes must name the table's keys, which the request has, as DynamoDB documents it",
        condition="dynamodb:Attributes=id",
    ),
    Reviewed(
        "operators' function",
        ("dynamodb:GetItem",),
        "token table",
        "a condition on attributes must name the table's keys, which the request has, as DynamoDB documents it",
        condition="dynamodb:Attributes=id",
    ),
    # --- Operators
    Reviewed(
        "operator",
        ("cloudformation:DescribeStacks",),
        "stack",
        "commands read the stack's manifest, by which they find the function; the simulator has no CloudFormation",
    ),
    # --- Steps
    Reviewed(
        "external step",
        ("dynamodb:GetItem",),
        "saga log",
        "a refused write without an item: the row is read, which has expired or changed meanwhile",
    ),
    Reviewed(
        "direct operation",
        ("dynamodb:GetItem",),
        "request table",
        "a repeated request whose operation raises by now is answered by its record",
    ),
    Reviewed(
        "read-only step",
        ("dynamodb:GetItem",),
        "request table",
        "Powertools reads its record if a refused write does not return it",
        condition="dynamodb:LeadingKeys=quotes#*",
    ),
    # --- Events and messages
    Reviewed(
        "own: Investigate",
        ("sqs:SendMessage",),
        "InvestigationIntakeKept",
        "an event that comes before its time is kept; the intake cannot know that its function never asks for that",
    ),
    Reviewed(
        "own: Investigate",
        ("sqs:SendMessage",),
        "InvestigationIntakeParked",
        "an event that can never be applied is parked; the intake cannot know that its function never asks for that",
    ),
    Reviewed("own: Scan", ("sqs:GetQueueAttributes", "sqs:GetQueueUrl"), "CarrierEventDeadLetters", _OF_CDK),
    Reviewed(
        "publisher of an outbox",
        ("dynamodb:ListStreams",),
        "outbox",
        "the CDK's event source of a stream grants it with the stream's ARN, which allows nothing",
    ),
    Reviewed("own: Mailer", ("sqs:ChangeMessageVisibility", "sqs:GetQueueUrl"), "Notices", _OF_CDK),
)
"""Each reason names what needs the grants. What nothing needs is not listed, but removed."""
