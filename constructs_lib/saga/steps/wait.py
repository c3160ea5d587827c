"""Waits of a step for an outcome: integration, durations, and missed heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from aws_cdk import Duration

from constructs_lib.saga.description.description import Wait
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.arguments import require_seconds

if TYPE_CHECKING:
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_sqs as sqs

    from constructs_lib.saga.description.description import FunctionDescription

_YEAR: Final = 366 * 86_400
HEARTBEATS: Final = 2
"""Without ``heartbeat=``, the heartbeat in multiples of the expected duration."""


class CallbackVia(Protocol):
    """Integration of a callback step: a ``CallbackIntegration``, as the saga sees it."""

    @property
    def place(self) -> str:
        """Its path below its stack: the same in each stage of an app."""

    @property
    def queue(self) -> sqs.IQueue:
        """Queue of jobs."""

    @property
    def dispatcher(self) -> AnyFunction:
        """The function that hands them to the provider."""

    @property
    def dispatcher_timeout(self) -> int:
        """Its timeout, in seconds."""

    @property
    def dispatcher_facts(self) -> FunctionDescription | None:
        """Its properties as far as they are known without the CDK's process."""

    @property
    def visibility_seconds(self) -> int:
        """Seconds after which a job that could not be dispatched is delivered again."""

    @property
    def message_seconds(self) -> int:
        """For how long one of its messages can be delivered, tried again by hand included."""

    def serve(
        self,
        *,
        saga: str,
        log: dynamodb.ITableV2,
        requests: dynamodb.ITableV2,
        log_days: int,
        operators: sqs.IQueue,
        machines: Sequence[str],
        steps: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Receive the callbacks of a saga's steps.

        Args:
            saga: path of the saga's construct.
            log: its log.
            requests: its requests' records.
            log_days: how long its rows are kept.
            operators: queue for outcomes that need an operator.
            machines: ARNs of the state machines that wait.
            steps: what the receiver needs of each step (``ServedStepField``), by its name.
        """


def wait_of(
    step: str,
    via: CallbackVia,
    *,
    expected_duration: Duration | None,
    heartbeat: Duration | None,
    timeout: Duration,
    job: bool,
) -> Wait:
    """Build a step's wait from its declaration.

    Raises:
        ValueError: naming the step, the value and the remedy.
    """
    whole = require_seconds(f"timeout of step {step}", timeout, at_least=2, at_most=_YEAR)
    if (expected_duration is None) == (heartbeat is None):
        got = "neither" if heartbeat is None else "both"
        raise ValueError(
            f"step {step} needs expected_duration or heartbeat, got {got}: an answer that is lost would be waited for "
            "until the timeout; declare how long the provider usually takes"
        )
    if heartbeat is not None:
        beat = require_seconds(f"heartbeat of step {step}", heartbeat, at_least=1, at_most=_YEAR)
        remedy = "lower the heartbeat, or raise the timeout"
    else:
        expected = require_seconds(
            f"expected_duration of step {step}", expected_duration or timeout, at_least=1, at_most=_YEAR
        )
        beat = HEARTBEATS * expected
        remedy = f"the heartbeat is {HEARTBEATS} times expected_duration: raise the timeout, or declare heartbeat"
    if beat >= whole:
        raise ValueError(
            f"the heartbeat of step {step} must be shorter than its timeout, got {beat} s for {whole} s; {remedy}"
        )
    if not job:
        return Wait(heartbeat=beat, timeout=whole)
    return Wait(heartbeat=beat, timeout=whole, redelivery=via.visibility_seconds, messages=via.message_seconds)
