"""Step Functions, as far as task tokens go: who waits, who was woken with what, and who no longer waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError

from tests.unit.support.wire import body_of, error_response, response


@dataclass
class Tasks:
    """Tasks that wait for their token.

    A token's task ends once: by an outcome, or by a timeout. Later uses of the token get ``TaskTimedOut``; a token that
    never existed is ``InvalidToken``.

    Attributes:
        waiting: tokens whose task waits.
        ended: tokens whose task has ended, with its outcome; None: it timed out.
        heartbeats: tokens, once for each heartbeat.
        afterwards: an action between a token's use and the response; once.
    """

    waiting: set[str] = field(default_factory=set)
    ended: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    heartbeats: list[str] = field(default_factory=list)
    afterwards: Callable[[], object] | None = None

    def wait(self, token: str) -> str:
        """Let a task wait."""
        assert token not in self.ended, "a token is used once"
        self.waiting.add(token)
        return token

    def time_out(self, token: str) -> None:
        """Let a task time out, if it waits."""
        if token in self.waiting:
            self.waiting.remove(token)
            self.ended[token] = None

    @property
    def woken(self) -> dict[str, dict[str, Any]]:
        """The outcomes that tasks received."""
        return {token: told for token, told in self.ended.items() if told is not None}

    def send(self, operation: str, token: str, **told: Any) -> str | None:
        """Use a token; returns the error's code if no task waits for it."""
        code = self._use(operation, token, told)
        afterwards, self.afterwards = self.afterwards, None
        if afterwards is not None:
            afterwards()
        return code

    def _use(self, operation: str, token: str, told: dict[str, Any]) -> str | None:
        if token not in self.waiting:
            return "TaskTimedOut" if token in self.ended else "InvalidToken"
        if operation == "SendTaskHeartbeat":
            self.heartbeats.append(token)
        else:
            self.waiting.remove(token)
            self.ended[token] = told
        return None

    def answer(self, operation: str, request: AWSPreparedRequest) -> AWSResponse:
        """Answer a ``SendTask*`` request."""
        told = body_of(request)
        code = self.send(operation, told.pop("taskToken"), **told)
        return response(request, 200, {}) if code is None else error_response(request, code)


class TasksClient:
    """The three calls of ``boto3.client("stepfunctions")`` that tokens are for, without a wire."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks

    def send_task_success(self, *, taskToken: str, output: str) -> None:  # noqa: N803  # AWS's names
        """SendTaskSuccess."""
        self._send("SendTaskSuccess", taskToken, output=output)

    def send_task_failure(self, *, taskToken: str, error: str, cause: str) -> None:  # noqa: N803 - AWS's own names
        """SendTaskFailure."""
        self._send("SendTaskFailure", taskToken, error=error, cause=cause)

    def send_task_heartbeat(self, *, taskToken: str) -> None:  # noqa: N803 - AWS's own names
        """SendTaskHeartbeat."""
        self._send("SendTaskHeartbeat", taskToken)

    def _send(self, operation: str, token: str, **told: str) -> None:
        code = self.tasks.send(operation, token, **told)
        if code is not None:
            raise ClientError({"Error": {"Code": code, "Message": code}}, operation)
