"""Notifications, and what a step does about a named error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aws_cdk import Token
from aws_cdk import aws_sqs as sqs

from constructs_lib.saga.description.description import FunctionDescription
from constructs_lib.shared.types import check_fields
from saga_runtime.steps.step import encode_output

NOTIFIER: Final = FunctionDescription(timeout=20, memory_mib=512, architecture="arm64")
"""The function that sends notifications, of which a saga has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """A message to a FIFO queue.

    Guaranteed: sent before the saga settles, at least once; repeated sends within SQS's deduplication interval of
    five minutes are one message. Not guaranteed: once, when a saga is recovered later than that.

    Attributes:
        queue: a FIFO queue. Its message group is the request, so messages of one saga keep their order.
        message: JSONata expression (with or without ``{% %}``) over ``$failure`` (``step``, ``error``, ``detail``,
            ``status``); by default, and where it is missing or empty text, a document of these.
    """

    queue: sqs.IQueue
    message: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_fifo(self.queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueWith:
    """A refusal that does not end the saga: the step is done with this output, and the saga continues.

    The step is fenced first, so that a delayed attempt of it can never be applied.

    Attributes:
        output: what the steps that follow see as the step's output. A token is refused: a saga in flight could see
            another value after a deployment.
    """

    output: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if _has_token(self.output):
            raise ValueError(
                "output of ContinueWith must be known at synth, got a token, which may have another value after each "
                "deployment; write the value, or let a Step.read_only answer it"
            )
        encode_output(self.output)


Route = Notify | ContinueWith
"""What a step does about an error of a certain name."""


def _has_token(value: object) -> bool:
    match value:
        case Mapping():
            return any(_has_token(part) for pair in value.items() for part in pair)
        case list() | tuple():
            return bool(Token.is_unresolved(value)) or any(_has_token(part) for part in value)
        case str():
            return bool(Token.is_unresolved(value))
        case float():
            return math.isfinite(value) and bool(Token.is_unresolved(value))
    return False


def check_fifo(queue: sqs.IQueue) -> None:
    """Refuse a queue that does not deduplicate.

    Raises:
        ValueError: if it is not a FIFO queue.
    """
    if not queue.fifo:
        raise ValueError(
            f"a saga's messages need a FIFO queue, got {queue.node.path}; create it with fifo=True, "
            "which deduplicates what is sent again"
        )
