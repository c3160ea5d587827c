"""Sagas that an integration's receivers serve: text in an environment variable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sqs as sqs

from saga_runtime.protocol import ServedField

MAX_SERVED_BYTES: Final = 3_072
"""A function's environment holds 4 KB, and not only this."""
_GENERATED: Final = 14
"""What CloudFormation adds to the names of stack and resource when it makes a name: two dashes, twelve characters."""
_LONGEST_TABLE: Final = 255
_LONGEST_QUEUE_URL: Final = 140
"""``https://sqs.<region>.amazonaws.com/<account>/`` and 80 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSaga:
    """A saga whose callbacks an integration receives.

    Attributes:
        log: its saga log.
        requests: where its requests' records are.
        days: how long its log's rows are kept.
        operators: where it asks for a person.
        steps: its callback steps by name; fields are those of ``ServedStepField``.
    """

    log: dynamodb.ITableV2
    requests: dynamodb.ITableV2
    days: int
    operators: sqs.IQueue
    steps: Mapping[str, Mapping[str, Any]]

    def fields(self) -> dict[str, Any]:
        """Fields in the environment; names are tokens until the deployment."""
        return {
            ServedField.LOG: self.log.table_name,
            ServedField.REQUESTS: self.requests.table_name,
            ServedField.DAYS: self.days,
            ServedField.OPERATORS: self.operators.queue_url,
            ServedField.STEPS: {
                name: {str(field): value for field, value in step.items()} for name, step in self.steps.items()
            },
        }


def served_text(served: Sequence[ServedSaga]) -> str:
    """The value of the environment variable."""
    return _text([saga.fields() for saga in served])


def served_bytes(stack: Stack, served: Sequence[ServedSaga]) -> int:
    """Largest length of the value, names that CloudFormation makes included."""
    fields = [saga.fields() for saga in served]
    for entry in fields:
        for name, longest in (
            (ServedField.LOG, _LONGEST_TABLE),
            (ServedField.REQUESTS, _LONGEST_TABLE),
            (ServedField.OPERATORS, _LONGEST_QUEUE_URL),
        ):
            entry[name] = "x" * _width(stack, entry[name], longest)
    return len(_text(fields))


def _text(fields: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _width(stack: Stack, name: str, longest: int) -> int:
    if not Token.is_unresolved(name):
        return len(name)
    resolved = stack.resolve(name)
    if longest == _LONGEST_QUEUE_URL or not isinstance(resolved, dict) or "Ref" not in resolved:
        return longest
    return min(longest, len(stack.stack_name) + len(str(resolved["Ref"])) + _GENERATED)
