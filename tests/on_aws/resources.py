"""Resources of a verification: written down before they are made, and deleted at the end."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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

_ARNS: Final = {
    "machine": "arn:{partition}:states:{region}:{account}:stateMachine:{name}",
    "queue": "arn:{partition}:sqs:{region}:{account}:{name}",
    "rule": "arn:{partition}:events:{region}:{account}:rule/{name}",
    "role": "arn:{partition}:iam::{account}:role/{name}",
    "stack": "arn:{partition}:cloudformation:{region}:{account}:stack/{name}",
    "table": "arn:{partition}:dynamodb:{region}:{account}:table/{name}",
}
"""ARNs are known before the resources exist."""
_DELETION: Final = 60
"""Seconds until a state machine or a stack that was deleted is described as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Account and region of credentials.

    Attributes:
        account: the account's id.
        region: the region.
        partition: ``aws``, ``aws-cn`` …
    """

    account: str
    region: str
    partition: str = "aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A resource, and where it is.

    Attributes:
        kind: ``machine``, ``queue``, ``role``, ``rule``, ``stack`` or ``table``.
        arn: its ARN.
        account: the account's id.
        region: the region; of a role, which has none, that of the run.
    """

    kind: str
    arn: str
    account: str
    region: str

    @property
    def name(self) -> str:
        """The end of the ARN."""
        return self.arn.rpartition(":")[2].rpartition("/")[2]

    def is_in(self, place: Place) -> bool:
        """Test whether credentials of a place reach it."""
        return (self.account, self.region) == (place.account, place.region)


@contextmanager
def alone(journal: Path) -> Iterator[bool]:
    """Hold a journal for a whole run; the value is whether no other process does.

    The operating system gives it back when the process ends, however it ends.

    Args:
        journal: the file.
    """
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.with_suffix(".lock").open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Account:
    """An account, and what a verification makes in it.

    Guaranteed: a resource is in the journal before it exists, and leaves it after it is deleted: after a crash,
    ``left`` lists all that may exist, and ``destroy`` deletes what is in this account and region. Lines of other places
    stay: what these credentials do not find may exist there. Not guaranteed without ``alone``: several runs at once.

    Args:
        client: makes a client of a service, by boto3's name.
        place: account and region of the clients.
        journal: the file; it stays until everything is deleted.
        session: of boto3, with the credentials of the clients.
        prefix: of all names.
        sleep: waits.
    """

    def __init__(
        self,
        client: Callable[[str], Any],
        place: Place,
        journal: Path,
        *,
        session: Any,
        prefix: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client = client
        self.session = session
        self._place = place
        self._journal = journal
        self._prefix = prefix
        self.sleep = sleep
        self.role_arn = ""
        self.queue_url = ""
        self.table = ""

    # --- Making

    def prepare(self) -> None:
        """Make a queue, a table, and the role of the state machines, which may use both."""
        sqs, dynamodb = self.client("sqs"), self.client("dynamodb")
        name = self._named("queue")
        self._note("queue", name)
        self.queue_url = sqs.create_queue(QueueName=name)["QueueUrl"]
        queue_arn = sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["QueueArn"])["Attributes"]
        self.table = self._named("table")
        self._note("table", self.table)
        table = dynamodb.create_table(
            TableName=self.table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )["TableDescription"]
        dynamodb.get_waiter("table_exists").wait(TableName=self.table)
        self.role_arn = self.role(
            "role",
            {"Service": "states.amazonaws.com"},
            {"sqs:SendMessage": queue_arn["QueueArn"], "dynamodb:PutItem": table["TableArn"]},
        )

    def role(self, name: str, trusted: Mapping[str, str], allowed: Mapping[str, str]) -> str:
        """Make a role, wait until AWS knows it everywhere, and return its ARN.

        Args:
            name: of the role.
            trusted: who may assume it.
            allowed: resources, by action.
        """
        iam, whole = self.client("iam"), self._named(name)
        self._note("role", whole)
        trust = [{"Effect": "Allow", "Principal": trusted, "Action": "sts:AssumeRole"}]
        statements = [{"Effect": "Allow", "Action": action, "Resource": on} for action, on in allowed.items()]
        made = iam.create_role(RoleName=whole, AssumeRolePolicyDocument=_document(trust))["Role"]["Arn"]
        iam.put_role_policy(RoleName=whole, PolicyName="verify", PolicyDocument=_document(statements))
        self.sleep(15)  # IAM is eventually consistent
        return str(made)

    def stack(self, name: str, template: Mapping[str, Any]) -> str:
        """Deploy a template; return the stack's name."""
        whole, client = self._named(name), self.client("cloudformation")
        self._note("stack", whole)
        client.create_stack(StackName=whole, TemplateBody=json.dumps(template))
        client.get_waiter("stack_create_complete").wait(StackName=whole, WaiterConfig={"Delay": 2})
        return whole

    def machine(self, name: str, states: Mapping[str, Any]) -> str:
        """Make a state machine that begins with the first of its states; return its ARN."""
        whole = self._named(name)
        self._note("machine", whole)
        made = self.client("stepfunctions").create_state_machine(
            name=whole, definition=_definition(states), roleArn=self.role_arn
        )
        return str(made["stateMachineArn"])

    def update_machine(self, arn: str, states: Mapping[str, Any]) -> None:
        """Replace a state machine's definition, and wait until new executions run it."""
        self.client("stepfunctions").update_state_machine(stateMachineArn=arn, definition=_definition(states))
        self.sleep(10)  # executions started within seconds may run the earlier one

    def event_rule(self, name: str, pattern: Mapping[str, Any]) -> None:
        """Have EventBridge send events to the queue.

        Args:
            name: of the rule.
            pattern: of the events.
        """
        whole, events, sqs = self._named(name), self.client("events"), self.client("sqs")
        self._note("rule", whole)
        rule = events.put_rule(Name=whole, EventPattern=json.dumps(pattern))["RuleArn"]
        queue = sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        allow = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        sqs.set_queue_attributes(QueueUrl=self.queue_url, Attributes={"Policy": _document([allow])})
        events.put_targets(Rule=whole, Targets=[{"Id": "queue", "Arn": queue}])
        self.sleep(60)  # a rule and a queue's policy take up to a minute

    def _named(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    # --- Deleting

    def left(self) -> list[Made]:
        """List what was made and is not deleted, in every account and region."""
        if not self._journal.is_file():
            return []
        return [Made(**json.loads(line)) for line in self._journal.read_text("utf-8").splitlines()]

    def destroy(self) -> list[Made]:
        """Delete all that was made in this account and region, last first; return what is left everywhere."""
        left = self.left()
        for made in reversed(left.copy()):
            if not made.is_in(self._place):
                continue
            try:
                self._delete(made)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _GONE:
                    continue
            except (BotoCoreError, TimeoutError):  # AWS was not reached, or has not deleted it
                continue
            left.remove(made)
            self._write(left)
        return left

    def _delete(self, made: Made) -> None:
        match made.kind:
            case "machine":
                self._delete_machine(made.arn)
            case "queue":
                sqs = self.client("sqs")
                url = sqs.get_queue_url(QueueName=made.name, QueueOwnerAWSAccountId=made.account)["QueueUrl"]
                sqs.delete_queue(QueueUrl=url)
            case "table":
                self.client("dynamodb").delete_table(TableName=made.arn)
            case "stack":
                client = self.client("cloudformation")
                client.delete_stack(StackName=made.name)
                client.get_waiter("stack_delete_complete").wait(StackName=made.name, WaiterConfig={"Delay": 2})
            case "rule":
                events = self.client("events")
                events.remove_targets(Rule=made.name, Ids=["queue"])
                events.delete_rule(Name=made.name)
            case "role":
                iam = self.client("iam")
                for policy in iam.list_role_policies(RoleName=made.name)["PolicyNames"]:
                    iam.delete_role_policy(RoleName=made.name, PolicyName=policy)
                iam.delete_role(RoleName=made.name)
            case kind:
                raise ValueError(f"kind in the journal must be one of {', '.join(_ARNS)}, got {kind!r}; delete it")

    def _delete_machine(self, arn: str) -> None:
        """Stop what runs, delete the state machine, and wait until it is described as deleted or not at all."""
        states = self.client("stepfunctions")
        for running in states.list_executions(stateMachineArn=arn, statusFilter="RUNNING")["executions"]:
            states.stop_execution(executionArn=running["executionArn"])
        states.delete_state_machine(stateMachineArn=arn)
        for _ in range(_DELETION):
            if states.describe_state_machine(stateMachineArn=arn)["status"] == "DELETING":
                return
            self.sleep(1)
        raise TimeoutError(arn)

    def _note(self, kind: str, name: str) -> None:
        place = asdict(self._place)
        arn = _ARNS[kind].format(**place, name=name)
        made = Made(kind=kind, arn=arn, account=self._place.account, region=self._place.region)
        self._write([*self.left(), made])

    def _write(self, left: list[Made]) -> None:
        if not left:
            self._journal.unlink(missing_ok=True)
            return
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._journal.with_suffix(".new")
        fresh.write_text("".join(json.dumps(asdict(made)) + "\n" for made in left), encoding="utf-8")
        fresh.replace(self._journal)


def _definition(states: Mapping[str, Any]) -> str:
    return json.dumps({"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states})


def _document(statements: list[dict[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
