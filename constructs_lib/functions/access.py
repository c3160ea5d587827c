"""Access of functions to queues, secrets and other stacks: what they need, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from aws_cdk import Names, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.accepted import AnySecret
from constructs_lib.shared.arguments import known_to_differ
from constructs_lib.shared.stacks import root_of

_POLL: Final = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""Actions of an event source mapping (docs.aws.amazon.com/lambda, "Using Lambda with Amazon SQS")."""


def grant_value(secret: AnySecret, grantee: RuntimeFunction | lambda_.Function) -> None:
    """Allow to read a secret's value; ``ISecret.grant_read`` allows to describe it, too.

    The key is granted to the role, as every key of ours: an imported key's policy cannot be changed from here, and that
    of a key in another stack would make each stack depend on the other.

    Raises:
        ValueError: for a secret of another region: a function asks the Secrets Manager of its own.
    """
    here, there = Stack.of(grantee).region, secret.env.region
    if known_to_differ(here, there):
        raise ValueError(
            f"secret {secret.node.path} must be of the region of {grantee.node.path}, {here}, got {there}; replicate "
            "it there, and name the replica by secretsmanager.Secret.from_secret_name_v2"
        )
    iam.Grant.add_to_principal(
        grantee=grantee,
        actions=["secretsmanager:GetSecretValue"],
        # Of an imported secret the suffix of six characters may be unknown.
        resource_arns=[secret.secret_full_arn or f"{secret.secret_arn}-??????"],
    )
    if secret.encryption_key is not None:
        service = f"secretsmanager.{Stack.of(secret).region}.amazonaws.com"
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["kms:Decrypt"],
            resource_arns=[secret.encryption_key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": service}},
        )


def poll(
    queue: sqs.IQueue, function: lambda_.Function, *, batch_size: int, max_concurrency: int | None = None
) -> lambda_.EventSourceMapping:
    """Invoke a function with a queue's messages, each of which may fail alone.

    Args:
        queue: the source.
        function: the target.
        batch_size: messages per invocation.
        max_concurrency: invocations at once; None: no limit.

    Returns:
        The mapping, under the id that ``SqsEventSource`` gives it. That one grants actions that polling does not need.
    """
    iam.Grant.add_to_principal(grantee=function, actions=list(_POLL), resource_arns=[queue.queue_arn])
    if queue.encryption_master_key is not None:
        queue.encryption_master_key.grant_decrypt(function)
    return function.add_event_source_mapping(
        f"SqsEventSource:{Names.node_unique_id(queue.node)}",
        event_source_arn=queue.queue_arn,
        batch_size=batch_size,
        max_concurrency=max_concurrency,
        report_batch_item_failures=True,
    )


def policy_elsewhere(
    scope: Construct, id: str, role: iam.IRole, statements: Sequence[iam.PolicyStatement] = ()
) -> iam.Policy:
    """A policy in the scope's stack for a role of another one, which does not depend on this stack by it.

    A role keeps its policies by their names, and CloudFormation makes a name of a policy's path in its stack: two
    stacks of one class would replace each other's policy. So this name is also of the stack; of a nested one, of that
    around it, since only the deployment knows the nested one's name.
    """
    place = f"{root_of(scope).stack_name}/{scope.node.path}/{id}"
    name = f"{id}-{sha256(place.encode()).hexdigest()[:16]}"
    return iam.Policy(scope, id, policy_name=name, roles=[role], statements=list(statements))
