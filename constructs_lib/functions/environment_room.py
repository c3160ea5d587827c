"""Room in a function's environment: Lambda limits all variables together, and several constructs add theirs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Stack, Validations
from aws_cdk import aws_lambda as lambda_

from constructs_lib.shared.stacks import name_of_stack, stack_of

MAX_BYTES: Final = 4_096
"""https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""
_GENERATED: Final = 14
"""What CloudFormation adds to the names of stack and resource when it makes a name: two dashes, twelve characters."""
_SHORTEST_LIMIT: Final = 64
"""Of a function's name, and of a role's; names of others may be longer."""
_HASHED: Final = re.compile(r"[0-9A-F]{8}$")
"""End of a construct's logical id; a parameter, of whose value nothing is known, is named otherwise."""
_PSEUDO: Final = {"AWS::AccountId": 12, "AWS::Partition": 3, "AWS::Region": 9, "AWS::URLSuffix": 13}


def require_environment_room(function: lambda_.Function, properties: Mapping[str, Any]) -> None:
    """Refuse an environment that Lambda would refuse.

    Args:
        function: it.
        properties: resolved, at synth: only then all variables are known.
    """
    variables = (properties["environment"] or {}).get("variables") or {}
    stack = stack_of(function)
    filled = {name: _filled(stack, value) for name, value in variables.items()}
    length = _bytes_of(filled)
    if length > MAX_BYTES:
        longest = max(filled, key=lambda name: len(filled[name]))
        Validations.of(function).add_error(
            "cdk-sagas-environment",
            f"environment of {function.node.path} must be at most {MAX_BYTES:,} bytes as JSON, got {length:,} or more, "
            f"the most of {longest}; shorten it, or divide the function's work",
        )


def _bytes_of(variables: dict[str, str]) -> int:
    """Length as Lambda measures it: of one JSON object, in which each quotation mark of a value counts twice."""
    return len(json.dumps(variables, separators=(",", ":"), ensure_ascii=False).encode())


def _filled(stack: Stack, value: Any) -> str:
    """A resolved value, with texts as long as its references are at least."""
    match value:
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(_filled(stack, part) for part in parts)
        case {"Ref": str(name)} if name.startswith("AWS::"):
            return "x" * _PSEUDO.get(name, 1)
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), _]} if _HASHED.search(name):
            return "x" * min(len(name_of_stack(stack)) + len(name) + _GENERATED, _SHORTEST_LIMIT)
        case str():
            return value
    return ""
