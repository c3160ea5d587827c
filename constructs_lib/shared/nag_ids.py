"""Ids of cdk-nag's findings about a policy: an acknowledgement needs exactly that id."""

from __future__ import annotations

from aws_cdk import Stack, Token


def executions_id(stack: Stack, machine: str) -> str:
    """Id of the finding that a policy of a stack names all executions of one state machine.

    Args:
        stack: where the policy is. Of a stack with an environment of its own, region and account are named, and the
            partition, if the app has the CDK's flag for it.
        machine: the machine's name, as the finding has it.
    """
    return _named(stack, "states", f"execution:{machine}:*")


def stack_id(stack: Stack) -> str:
    """Id of the finding that a policy names a stack without its unique id.

    Args:
        stack: the stack, which is not a nested one.
    """
    return _named(stack, "cloudformation", f"stack/{stack.stack_name}/*")


def _named(stack: Stack, service: str, resource: str) -> str:
    partition, region, account = (
        pseudo if Token.is_unresolved(value) else value
        for value, pseudo in (
            (stack.partition, "<AWS::Partition>"),
            (stack.region, "<AWS::Region>"),
            (stack.account, "<AWS::AccountId>"),
        )
    )
    return f"AwsSolutions-IAM5[Resource::arn:{partition}:{service}:{region}:{account}:{resource}]"
