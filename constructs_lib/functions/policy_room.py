"""Room in a role: IAM limits its inline policies, and sagas of other stacks add theirs to that of a shared function."""

from __future__ import annotations

import json
from typing import Any, Final
from weakref import WeakKeyDictionary

from aws_cdk import Stack, Token
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from constructs_lib.shared.stacks import asked_once, name_of_stack, path_of, stack_of

MAX_CHARACTERS: Final = 10_240
"""Of all inline policies of a role, without white space:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html#reference_iam-quotas-entity-length
"""
_MOST_OF_OWN: Final = 10_000
"""The CDK splits a role's own policy that is longer."""
_GENERATED: Final = 13
"""What CloudFormation adds to a name that it makes: a dash and twelve characters."""
_LONGEST_NAME: Final = 80
"""Of a queue or a state machine; a table's may be longer."""
_ARN: Final = len("arn:aws:sqs::111111111111:")
_SHORTEST_REGION: Final = len("us-east-1")

_taken: Final[WeakKeyDictionary[IConstruct, dict[str, int]]] = WeakKeyDictionary()
"""Characters of policies by their paths, by what the role belongs to."""


def take_room(owner: IConstruct, role: iam.IRole, policy: iam.Policy, remedy: str) -> None:
    """Count a policy of a role, or count it again.

    Args:
        owner: what the role belongs to: a function or a token table.
        role: it; of an imported one, only policies of this app are counted.
        policy: complete.
        remedy: what its user can do if there is no room.

    Raises:
        ValueError: if IAM would refuse the role's policies.
    """
    taken = _taken.setdefault(owner, {})
    taken[path_of(policy)] = characters_of(policy)
    own = role.node.try_find_child("DefaultPolicy")
    total = sum(taken.values()) + (min(characters_of(own), _MOST_OF_OWN) if isinstance(own, iam.Policy) else 0)
    if total > MAX_CHARACTERS:
        raise ValueError(
            f"inline policies of {role.node.path} must be at most {MAX_CHARACTERS:,} characters, got {total:,} or more "
            f"with {policy.node.path}; {remedy}"
        )


def characters_of(policy: iam.Policy | iam.ManagedPolicy) -> int:
    """Length of a policy as IAM counts it, at least, with names that CloudFormation makes."""
    return len(json.dumps(_Lengths(stack_of(policy)).filled(policy.document), separators=(",", ":")))


@asked_once
def _region_of(stack: Stack) -> int:
    """Characters of a stack's region, at least."""
    region = stack.region
    return _SHORTEST_REGION if Token.is_unresolved(region) else len(region)


class _Lengths:
    """Texts of the length that references of a stack have once it is deployed, at least."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._name = name_of_stack(stack)
        self._region = _region_of(stack)

    def filled(self, value: Any) -> Any:
        """The resolved value with a text in place of each reference."""
        return self._filled(self._stack.resolve(value))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Fn::Join": [str(between), list(parts)]}:
                return between.join(str(self._filled(part)) for part in parts)
            case {"Ref": "AWS::Region"}:
                return "x" * self._region
            case {"Ref": "AWS::AccountId"}:
                return "1" * 12
            case {"Ref": "AWS::Partition"}:
                return "aws"
            case {"Ref": str(name)}:
                return self._arn(len(name))  # a state machine: its name is without that of the stack
            case {"Fn::GetAtt": [str(name), "Arn"]}:
                return self._arn(len(self._name) + 1 + len(name))
        return {name: self._filled(each) for name, each in value.items()}

    def _arn(self, name: int) -> str:
        return "x" * (_ARN + self._region + min(name + _GENERATED, _LONGEST_NAME))
