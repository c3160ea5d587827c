"""The dimension ``service`` of metrics: which deployment of which construct they are of."""

from __future__ import annotations

from aws_cdk import Stack
from constructs import IConstruct


def service_of(construct: IConstruct) -> str:
    """The stack's name, and the construct's path in its stack.

    The name, not the stack's construct id: an app that is deployed twice to an account and region, under other stack
    names, has the same ids twice, and would have one set of metrics: the silence of one would be hidden by the other.
    """
    stack = Stack.of(construct)
    path = construct.node.path.removeprefix(stack.node.path).strip("/")
    return "-".join([stack.stack_name, *filter(None, path.split("/"))])
