"""Step hosts of a stack of drawn sagas, and tasks that wait for a token: the constructs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import Provider, Retry, Step, StepFunction, StepHost

GRACE: Final = Duration.minutes(2)
"""Time that the host's call of a function, the function, and its request may take together."""
RETRY: Final = Retry(in_doubt_attempts=2, in_doubt_interval=120, in_doubt_cap=240)
_SECONDS: Final = 5
_ANSWERING: Final = 20
_HEARTBEAT: Final = 45
_TIMEOUT: Final = 60


class Hosts:
    """Step hosts by kind, and what answers tasks that wait.

    Args:
        scope: the stack.
        code: the functions' folder.
    """

    def __init__(self, scope: Construct, code: Path) -> None:
        self._scope = scope
        self._code = code
        self._hosts: dict[str, StepHost] = {}
        self._queue: sqs.Queue | None = None

    def of(self, kind: str, provider: Provider) -> StepHost:
        """The host of steps of a kind."""
        if kind not in self._hosts:
            apply, undo = (self._function(kind, name) for name in ("apply", "undo"))
            verify: dict[str, Any] = {}
            if provider.verify:
                asks = self._function(kind, "verify")
                verify = {"verify": asks.function, "verify_undo": asks.function}
            self._hosts[kind] = StepHost(
                self._scope,
                f"{kind.title()}Host",
                apply=apply.function,
                undo=undo.function,
                provider=provider,
                **verify,
            )
        return self._hosts[kind]

    def _function(self, kind: str, name: str) -> StepFunction:
        return StepFunction(
            self._scope,
            f"Hosted{kind.title()}{name.title()}",
            code=self._code,
            handler=f"work.hosted.{name}",
            timeout=Duration.seconds(_SECONDS),
            environment={"PROVIDER_MODE": kind},
        )

    def waiting(self, name: str, *, refusable: bool, when: str | None) -> Step:
        """A state of the user's own that waits for its token to be sent back."""
        queue = self._asked()
        body = {"token": "{% $states.context.Task.Token %}", "key": "{% $step_key %}", "refusable": refusable}
        state = {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Arguments": {"QueueUrl": queue.queue_url, "MessageBody": body},
            "HeartbeatSeconds": _HEARTBEAT,
            "TimeoutSeconds": _TIMEOUT,
        }
        return Step.custom(
            name,
            state=state,
            policies=[iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn])],
            output='{"answered": $exists($states.result.answered)}',
            when=when,
            refusals=["SoldOut"] if refusable else [],
        )

    def _asked(self) -> sqs.Queue:
        """The queue of tasks that wait, and what answers them."""
        if self._queue is None:
            self._queue = sqs.Queue(self._scope, "Asked", visibility_timeout=Duration.seconds(6 * _ANSWERING))
            answers = StepFunction(
                self._scope,
                "Answers",
                code=self._code,
                handler="work.answers.handler",
                timeout=Duration.seconds(_ANSWERING),
            )
            actions = ["states:SendTaskFailure", "states:SendTaskSuccess"]
            answers.function.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=["*"]))
            answers.function.add_event_source(sources.SqsEventSource(self._queue, batch_size=1))
        return self._queue
