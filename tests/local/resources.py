"""Resources made by hand in local AWS, for tests that need no stack."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import LocalAws
from constructs_lib.testing.logs import FunctionLog, read_function_logs

from .support import ALLOW_ALL, create_role, eventually

WAIT_FOR_QUEUE: Final = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
#: A function that waits at a `Gate`.
_HELD: Final = """
import os, pathlib, time
def handler(event, context):
    gate = pathlib.Path(event["gate"])
    (gate / f"entered-{context.aws_request_id}").touch()
    while not (gate / "open").exists():
        time.sleep(0.01)
    return {"pid": os.getpid()}
"""


def create_queue(aws: LocalAws, name: str = "calls", **attributes: str) -> str:
    """Create a queue and return its URL."""
    return aws.client("sqs").create_queue(QueueName=name, Attributes=dict(attributes))["QueueUrl"]  # type: ignore[arg-type]


def arn_of_queue(aws: LocalAws, url: str) -> str:
    """Return a queue's ARN."""
    answer = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return answer["Attributes"]["QueueArn"]


def messages_left(aws: LocalAws, url: str) -> int:
    """Return how many messages a queue holds, visible or not."""
    attributes = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return sum(int(value) for name, value in attributes.items() if name.startswith("ApproximateNumberOfMessages"))


def next_message(aws: LocalAws, url: str) -> Any:
    """Return the body of the next message of a queue, read as JSON, and delete it."""

    def receive() -> Any:
        messages = aws.client("sqs").receive_message(QueueUrl=url).get("Messages")
        if not messages:
            return None
        aws.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
        return json.loads(messages[0]["Body"])

    return eventually(receive)


def waiting_task(queue_url: str, **fields: Any) -> dict[str, Any]:
    """A task that waits for its callback and contains its context in its message."""
    body = {
        "token": "{% $states.context.Task.Token %}",
        "entered": "{% $states.context.State.EnteredTime %}",
        "retried": "{% $states.context.State.RetryCount %}",
        "started": "{% $states.context.Execution.StartTime %}",
        "redriven": "{% $states.context.Execution.RedriveCount %}",
    }
    arguments = {"QueueUrl": queue_url, "MessageBody": body}
    return {"Type": "Task", "Resource": WAIT_FOR_QUEUE, "Arguments": arguments, "TimeoutSeconds": 3600, **fields}


def start(aws: LocalAws, machine: str) -> str:
    """Start an execution and return its ARN."""
    return aws.client("stepfunctions").start_execution(stateMachineArn=machine)["executionArn"]


def create_function(
    aws: LocalAws, name: str, code: str, *, timeout: int = 30, statement: Mapping[str, Any] = ALLOW_ALL
) -> str:
    """Create a function from a module with a ``handler``, and return its ARN."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as contents:
        contents.writestr("index.py", code)
    return aws.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=create_role(aws, statement, name=f"role-of-{name}"),
        Handler="index.handler",
        Timeout=timeout,
        Code={"ZipFile": archive.getvalue()},
    )["FunctionArn"]


def calls_of(aws: LocalAws, function: str) -> list[FunctionLog]:
    """Return one entry for each time that a function was called."""
    try:
        return read_function_logs(aws.client("logs"), f"/aws/lambda/{function}")
    except aws.client("logs").exceptions.ResourceNotFoundException:
        return []


def create_held_function(aws: LocalAws, name: str) -> str:
    """Create a function whose calls last until the `Gate` that they are given is opened, and return its ARN."""
    return create_function(aws, name, _HELD, timeout=900)


@dataclass(frozen=True)
class Gate:
    """Holds the calls of a function until the test releases them, so that a call stays in progress.

    Attributes:
        folder: a new folder on this machine, which a function on AWS would not find.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Make the folder."""
        self.folder.mkdir()

    @property
    def event(self) -> dict[str, str]:
        """Event for a held function."""
        return {"gate": str(self.folder)}

    def await_calls(self, number: int = 1) -> None:
        """Wait until this number of calls has arrived."""
        eventually(lambda: True if len(list(self.folder.glob("entered-*"))) >= number else None)

    def open(self) -> None:
        """Let every call go, also those that come later."""
        (self.folder / "open").touch()
