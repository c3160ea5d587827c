"""Permissions of a state machine's role: exactly those of its definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from aws_cdk import Acknowledgment, ArnFormat, IResource, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.functions.access import policy_elsewhere
from constructs_lib.functions.policy_room import take_room
from constructs_lib.saga.asl import State
from constructs_lib.saga.asl.nested import states_of
from constructs_lib.saga.steps.kind import FunctionGrant, declared_kind
from constructs_lib.saga.steps.step import Step
from constructs_lib.shared.accepted import AnyFunction, AnyKey
from constructs_lib.shared.arguments import known_to_differ
from constructs_lib.shared.nag_ids import executions_id
from constructs_lib.shared.stacks import refer_to
from constructs_lib.tables.interfaces import IIdempotencyTable
from constructs_lib.tables.payload_bucket import PayloadBucket
from constructs_lib.tables.saga_log import SagaLog

_ITEM_ACTIONS: Final = {
    "getItem": "dynamodb:GetItem",
    "putItem": "dynamodb:PutItem",
    "query": "dynamodb:Query",
    "updateItem": "dynamodb:UpdateItem",
}
_TRANSACTION_ACTIONS: Final = {
    "ConditionCheck": "dynamodb:ConditionCheckItem",
    "Delete": "dynamodb:DeleteItem",
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
}
_MOST_RESOURCES: Final = 25
"""Of a statement. The CDK moves whole statements from a role's policy that is too long into managed ones, which have
6,144 characters: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"""


def grant_invoke(role: iam.IRole, definition: State) -> None:
    """Invoke the functions that the definition invokes: not every machine reaches every compensation."""
    arguments = (state.get("Arguments", {}) for _, state in states_of(definition))
    found = (fields["FunctionName"] for fields in arguments if isinstance(fields, dict) and "FunctionName" in fields)
    arns = list(dict.fromkeys(found))
    for first in range(0, len(arns), _MOST_RESOURCES):
        some = arns[first : first + _MOST_RESOURCES]
        iam.Grant.add_to_principal(grantee=role, actions=["lambda:InvokeFunction"], resource_arns=some)


Queues = Mapping[str, AnyKey | None]
"""Queues' keys, by the queues' ARNs."""


def queues_of(queues: Iterable[sqs.IQueue]) -> Queues:
    """Each queue, asked once for what its grants need."""
    return {queue.queue_arn: queue.encryption_master_key for queue in dict.fromkeys(queues)}


def grant_send(queues: Queues, grantee: iam.IGrantable) -> None:
    """Send, and nothing else: ``grant_send_messages`` allows reading the queue's attributes, too."""
    for arn, key in queues.items():
        iam.Grant.add_to_principal(grantee=grantee, actions=["sqs:SendMessage"], resource_arns=[arn])
        if key is not None:
            key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")


def grant_direct(role: iam.IRole, steps: Iterable[Step]) -> None:
    """Grant the state machine its calls of services, as their steps declare them."""
    for step in steps:
        if step.direct is not None:
            for policy in step.direct.policies:
                role.add_to_principal_policy(policy.copy())


def function_grants(
    steps: Iterable[Step], *, log: SagaLog, payloads: PayloadBucket | None, per_item: bool
) -> list[FunctionGrant]:
    """Grants of each function, once: one function may run many steps.

    Args:
        steps: the plain steps, in order.
        log: the saga log.
        payloads: bucket of large requests and outputs.
        per_item: whether the saga has steps that run once for each item.
    """
    needed: list[FunctionGrant] = []
    for step in steps:
        needed += declared_kind(step).grants(step, log)
        # An integration grants what its functions need of the log: they serve several sagas.
        asked = step.via.dispatcher if step.via is not None else step.fn
        functions = [function for function in (asked, step.compensate) if function is not None]
        if step.provider is not None and per_item:
            # What items of a map answered is read by the names of their rows, which the function does not know.
            needed += [(log.grant_query, function) for function in functions]
        if payloads is not None:
            needed += [
                (grant, function) for function in functions for grant in (payloads.grant_read, payloads.grant_write)
            ]
    return list(dict.fromkeys(needed))


def require_here(scope: Construct, steps: Iterable[Step], notified: Mapping[str, sqs.IQueue]) -> None:
    """Refuse what a state would look for where its machine is: it has the name of a table or a bus, not its ARN.

    A queue's URL has its account, too, but Step Functions calls the services of its own region.

    Args:
        scope: the saga.
        steps: its steps.
        notified: queues of its other messages, by the argument that declares them.

    Raises:
        ValueError: for what is in another account or region, as far as both are known.
    """
    here = Stack.of(scope)
    for name, what, resource in _named_by(steps, notified):
        places = {"account": (here.account, resource.env.account), "region": (here.region, resource.env.region)}
        for place in ("region",) if what == "queue" else places:
            ours, theirs = places[place]
            if known_to_differ(ours, theirs):
                raise ValueError(
                    f"{what} of {name} must be of the {place} of {scope.node.path}, {ours}, got {theirs}; name a "
                    f"{what} there, or reach this one by a function"
                )


def _named_by(steps: Iterable[Step], notified: Mapping[str, sqs.IQueue]) -> Iterator[tuple[str, str, IResource]]:
    for step in steps:
        bus = step.direct.bus if step.direct is not None else None
        found: dict[str, IResource | None] = {"table": step.table, "queue": step.queue, "bus": bus}
        yield from ((f"step {step.name}", what, each) for what, each in found.items() if each is not None)
    yield from ((name, "queue", queue) for name, queue in notified.items())


def policies_elsewhere(scope: Construct, steps: Iterable[Step]) -> dict[iam.IGrantable, iam.Policy]:
    """Policies of functions in other stacks than their saga, to which the saga's grants belong.

    They are in the saga's stack, which names the functions in any case: a grant in the function's own stack would name
    the saga log, so that each stack would depend on the other.

    Raises:
        ValueError: for a function in another stage, account or region.
    """
    named: dict[AnyFunction, str] = {}
    for step in steps:
        if step.fn is not None and step.via is None:
            named.setdefault(step.fn, f"fn of step {step.name}")
        if step.compensate is not None:
            named.setdefault(step.compensate, f"compensate of step {step.name}")
    here, made = Stack.of(scope), dict[iam.IGrantable, iam.Policy]()
    for function, name in named.items():
        # An imported function has no resource, and its role's policy is where it was imported.
        if Stack.of(function) is here or function.node.default_child is None:
            continue
        refer_to(scope, name, function)
        if function.role is not None:
            made[function] = policy_elsewhere(scope, f"Grants{function.node.addr}", function.role)
    return made


def require_room(policies: Mapping[iam.IGrantable, iam.Policy]) -> None:
    """Refuse a saga whose policies have no room in the roles of functions in other stacks.

    Args:
        policies: of ``policies_elsewhere``, with all their grants.

    Raises:
        ValueError: naming the role and its size.
    """
    for function, policy in policies.items():
        if isinstance(function, lambda_.FunctionBase) and function.role is not None:
            take_room(function, function.role, policy, "give further sagas a function of their own")


def grant_tables(
    role: iam.IRole, definition: State, steps: Iterable[Step], *, requests: IIdempotencyTable, log: SagaLog
) -> None:
    """Read and write items as the definition does: not every machine settles, fences, or undoes every transaction.

    Raises:
        ValueError: for a state of the user's own that calls DynamoDB without a table.
    """
    own: dict[str, tuple[str, AnyKey | None]] = {
        table.table_name: (table.table_arn, table.encryption_key) for table in (requests, log)
    }
    theirs = dict.fromkeys(step.table for step in steps if step.table is not None)
    tables = own | {table.table_name: (table.table_arn, table.encryption_key) for table in theirs}
    needed: dict[str, set[str]] = {}
    for state_name, state in states_of(definition):
        for name, action in _item_actions(state_name, state):
            if name in tables:
                needed.setdefault(name, set()).add(action)
    for name, actions in needed.items():
        arn, key = tables[name]
        iam.Grant.add_to_principal(grantee=role, actions=sorted(actions), resource_arns=[arn])
        if key is not None:
            key.grant_encrypt_decrypt(role)


def _item_actions(name: str, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tables that a state names, and what it does to their items."""
    integration = str(state.get("Resource", "")).rpartition(":")[2]
    arguments = state.get("Arguments", {})
    if not isinstance(arguments, Mapping):  # an expression, of a state whose step names its policies
        return
    if integration == "transactWriteItems":
        for entry in _required(name, arguments, "TransactItems"):
            for action, fields in entry.items():
                yield _required(name, fields, "TableName"), _TRANSACTION_ACTIONS[action]
    elif integration in _ITEM_ACTIONS:
        yield _required(name, arguments, "TableName"), _ITEM_ACTIONS[integration]


def _required(name: str, arguments: Mapping[str, Any], argument: str) -> Any:
    if argument not in arguments:
        raise ValueError(f"arguments of state {name} must have {argument}, got {list(arguments)}; add it")
    return arguments[argument]


def grant_run(role: iam.IRole, child: sfn.StateMachine, *, express: bool) -> None:
    """Run a phase in a state machine of its own and wait for it."""
    if express:
        actions = ["states:StartSyncExecution"]
        iam.Grant.add_to_principal(grantee=role, actions=actions, resource_arns=[child.state_machine_arn])
        return
    stack = Stack.of(child)
    iam.Grant.add_to_principal(grantee=role, actions=["states:StartExecution"], resource_arns=[child.state_machine_arn])
    executions = stack.format_arn(
        service="states",
        resource="execution",
        resource_name=f"{child.state_machine_name}:*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    iam.Grant.add_to_principal(
        grantee=role, actions=["states:DescribeExecution", "states:StopExecution"], resource_arns=[executions]
    )
    rule = stack.format_arn(
        service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
    )
    iam.Grant.add_to_principal(
        grantee=role, actions=["events:PutTargets", "events:PutRule", "events:DescribeRule"], resource_arns=[rule]
    )
    name = stack.resolve(child.state_machine_name)["Fn::GetAtt"][0]
    Validations.of(role).acknowledge(
        Acknowledgment(
            id=executions_id(stack, f"<{name}.Name>"),
            reason="Executions of this one phase: their names are made when they start. Waiting for an execution and "
            "stopping it with its saga need them.",
        )
    )
