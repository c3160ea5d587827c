"""Resources of a verification: written down before they are made, and deleted at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

_GONE: Final = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "NoSuchEntity",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
        "StateMachineDoesNotExist",
    }
)
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass(frozen=True, slots=True)
class Made:
    """A resource: its kind, and the name by which it is deleted."""

    kind: str
    name: str


class Account:
    """An account, and what a verification makes in it.

    Guaranteed: a resource is in the journal before it exists, and leaves it after it is deleted: after a crash,
    ``left`` lists all that may exist, and ``destroy`` deletes it.

    Args:
        client: makes a client of a service, by boto3's name.
        journal: the file; it stays until everything is deleted.
        prefix: of all names.
        sleep: waits.
    """

    def __init__(
        self,
        client: Callable[[str], Any],
        journal: Path,
        *,
        prefix: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client = client
        self._journal = journal
        self._prefix = prefix
        self.sleep = sleep
        self.role_arn = ""
        self.queue_url = ""
        self.table = ""

    # --- Making

    def prepare(self) -> None:
        """Make a queue, a table, and the role of the state machines, which may use both."""
        sqs, dynamodb, iam = self.client("sqs"), self.client("dynamodb"), self.client("iam")
        name = self._named("queue")
        self._note(Made("queue", name))
        self.queue_url = sqs.create_queue(QueueName=name)["QueueUrl"]
        queue_arn = sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["QueueArn"])["Attributes"]
        self.table = self._named("table")
        self._note(Made("table", self.table))
        table = dynamodb.create_table(
            TableName=self.table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )["TableDescription"]
        dynamodb.get_waiter("table_exists").wait(TableName=self.table)
        role = self._named("role")
        self._note(Made("role", role))
        self.role_arn = iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(_TRUST))["Role"]["Arn"]
        statements = [
            {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": queue_arn["QueueArn"]},
            {"Effect": "Allow", "Action": ["dynamodb:PutItem"], "Resource": table["TableArn"]},
        ]
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_role_policy(RoleName=role, PolicyName="verify", PolicyDocument=document)
        self.sleep(15)  # until the role is known everywhere: IAM is eventually consistent

    def machine(self, name: str, states: Mapping[str, Any]) -> str:
        """Make a state machine that begins with the first of its states; return its ARN."""
        definition = {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states}
        whole = self._named(name)
        self._note(Made("machine", whole))
        made = self.client("stepfunctions").create_state_machine(
            name=whole, definition=json.dumps(definition), roleArn=self.role_arn
        )
        return str(made["stateMachineArn"])

    def _named(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    # --- Deleting

    def left(self) -> list[Made]:
        """List what was made and is not deleted."""
        if not self._journal.is_file():
            return []
        return [Made(**json.loads(line)) for line in self._journal.read_text("utf-8").splitlines()]

    def destroy(self) -> list[Made]:
        """Delete all that was made, last first; return what could not be deleted."""
        left = self.left()
        for made in reversed(left.copy()):
            try:
                self._delete(made)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _GONE:
                    continue
            except BotoCoreError:  # AWS was not reached
                continue
            left.remove(made)
            self._write(left)
        return left

    def _delete(self, made: Made) -> None:
        match made.kind:
            case "machine":
                self._delete_machine(made.name)
            case "queue":
                sqs = self.client("sqs")
                sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=made.name)["QueueUrl"])
            case "table":
                self.client("dynamodb").delete_table(TableName=made.name)
            case "role":
                iam = self.client("iam")
                for policy in iam.list_role_policies(RoleName=made.name)["PolicyNames"]:
                    iam.delete_role_policy(RoleName=made.name, PolicyName=policy)
                iam.delete_role(RoleName=made.name)

    def _delete_machine(self, name: str) -> None:
        states = self.client("stepfunctions")
        for page in states.get_paginator("list_state_machines").paginate():
            for machine in page["stateMachines"]:
                if machine["name"] == name:
                    states.delete_state_machine(stateMachineArn=machine["stateMachineArn"])

    def _note(self, made: Made) -> None:
        self._write([*self.left(), made])

    def _write(self, left: list[Made]) -> None:
        if not left:
            self._journal.unlink(missing_ok=True)
            return
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._journal.with_suffix(".new")
        fresh.write_text("".join(json.dumps(asdict(made)) + "\n" for made in left), encoding="utf-8")
        fresh.replace(self._journal)
