"""``cdk-sagas doctor`` on a deployed stack without a running reconciler: problems are found and repaired."""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.cli.main import main
from constructs_lib.cli.shared.terminal import Screen
from saga_runtime.idempotency.identity import request_id_from, request_id_of, saga_id_of
from saga_runtime.idempotency.record import RequestRecord, Reservation, reserve_put
from saga_runtime.protocol import Env, StartField
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.shared.arns import execution_of, machine_of

from .pauses import Pauses
from .reconcilers import RULES, reconciling
from .transfer_system import PATIENCE_SECONDS, TransferSystem, transfer

GUIDE: Final = Path("docs/how-to/find-stuck-sagas.md")
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Ward:
    """The stack, and the commands of its operator."""

    system: TransferSystem
    clock: str

    @property
    def table(self) -> str:
        """The requests' table."""
        return str(self.system.outputs["RequestTableName"])

    def run(self, *words: str) -> tuple[int, str]:
        """Run the command: its status and its output."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            status = main(["doctor", "--stack", self.system.stack, *words])
        return status, told.getvalue()

    def finds(self, *words: str) -> dict[str, str]:
        """Findings and their severity; findings of one kind have one severity."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            main(["doctor", "--stack", self.system.stack, "--json", *words])
        return {one["kind"]: one["severity"] for one in json.loads(out.getvalue())["findings"]}

    def resumes(self, saga_id: str) -> str:
        """Resume a parked saga, as an operator does; returns the output."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            assert main(["resolve", saga_id, "--resume", "--reason", "fixed", "--stack", self.system.stack]) == 0
        return told.getvalue()

    @property
    def operators(self) -> str:
        """URL of the operators' queue."""
        urls = self.system.aws.client("sqs").list_queues()["QueueUrls"]
        return next(url for url in urls if f"{self.system.stack}-" in url and "Operators" in url)

    def record(self, saga_id: str) -> RequestRecord:
        """A saga's record."""
        key = {"id": {"S": request_id_from(saga_id)}}
        found = self.system.aws.client("dynamodb").get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return RequestRecord.from_item(found["Item"])

    def change(self, saga_id: str, update: str, **values: dict[str, str]) -> None:
        """Change a record by hand."""
        names = sorted(set(re.findall(r"#(\w+)", update)))
        given: Any = {"ExpressionAttributeValues": {f":{name}": value for name, value in values.items()}}
        self.system.aws.client("dynamodb").update_item(
            TableName=self.table,
            Key={"id": {"S": request_id_from(saga_id)}},
            UpdateExpression=update,
            ExpressionAttributeNames={f"#{name}": name for name in names},
            **(given if values else {}),
        )

    def completed(self, key: str) -> str:
        """A transfer that was made; its saga."""
        answer = self.system.settle(key, transfer("alice", "bob", 10))
        assert answer.status == 200, answer.text
        return str(json.loads(answer.text)["saga_id"])

    def unsettled(self, key: str) -> str:
        """A transfer that was made, and whose record was set back to in progress."""
        saga_id = self.completed(key)
        update = "SET #status = :open, #due_at = :due, #due_shard = :shard REMOVE #expiration, #http_status, #response"
        due = {"N": str(self.record(saga_id).created_at)}
        self.change(saga_id, update, open={"S": "IN_PROGRESS"}, due=due, shard={"S": "00"})
        return saga_id

    def reserved(self, like: str, key: str) -> str:
        """A transfer that was reserved an hour ago, and never started."""
        sample = self.record(like)
        request_id, reserved_at = request_id_of(sample.scope, key), sample.created_at - HOUR_MS
        saga_id = saga_id_of(request_id, reserved_at, "requests")
        reservation = Reservation(
            request_id=request_id,
            saga_id=saga_id,
            scope=sample.scope,
            operation="transfers",
            fingerprint=sample.fingerprint,
            request=json.dumps(transfer("alice", "bob", 10)),
            definition=json.loads(sample.input)[StartField.DEFINITION],
            execution_arn=execution_of(machine_of(sample.execution_arn), saga_id),
            recovery_machine_arn=sample.recovery_machine_arn,
            now_ms=reserved_at,
            due_after_ms=60_000,
            due_shards=16,
        )
        put: Any = reserve_put(reservation)
        self.system.aws.client("dynamodb").put_item(TableName=self.table, **put)
        return saga_id

    def waited(self, condition: Callable[[], bool], *, costly: bool = False) -> None:
        """Wait until something is so; what is costly is checked each second."""
        pauses = Pauses(next=1.0, most=1.0) if costly else Pauses()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.run("--full-scan")[1]
            pauses.pause()


@pytest.fixture
def ward(transfer_systems: dict[str, TransferSystem], monkeypatch: pytest.MonkeyPatch) -> Ward:
    """The funds transfer, emptied, its reconciler's rules disabled; two accounts."""
    system = transfer_systems["FundsTransfer"]
    system.aws.reset()
    ward = Ward(system, system.aws.clock)
    for name, value in (
        ("AWS_ENDPOINT_URL", system.aws.endpoint_url),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", system.aws.region),
        (Env.CLOCK, ward.clock),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Screen, "of", lambda _: Screen(width=100))
    system.open("alice", "bob")
    return ward


def test_every_problem_is_found_and_repaired_once(ward: Ward) -> None:
    aws, outputs = ward.system.aws, ward.system.outputs
    done, lost = ward.completed("done"), ward.completed("lost")
    unsettled = ward.unsettled("unsettled")
    ward.waited(lambda: "execution unsettled" in ward.finds(), costly=True)
    reserved, unseen = ward.reserved(done, "reserved"), ward.reserved(done, "unseen")
    ward.change(unseen, "REMOVE #due_at, #due_shard")
    aws.client("dynamodb").delete_item(TableName=ward.table, Key={"id": {"S": request_id_from(lost)}})
    aws.client("sqs").send_message(QueueUrl=_dead_letters(ward), MessageBody="{}")
    gatekeeper = aws.resolve_function(ward.system.gatekeeper)
    aws.client("lambda").put_function_concurrency(FunctionName=gatekeeper, ReservedConcurrentExecutions=0)
    try:
        before = _stored(ward)

        status, told = ward.run("--full-scan")

        print(told)
        assert (status, _stored(ward)) == (1, before)
        assert ward.finds("--full-scan") == {
            "not monitored": "operator",  # a record that was reserved an hour ago is long due
            "rule disabled": "operator",
            "concurrency at zero": "operator",
            "dead letters": "operator",
            "execution unsettled": "operator",
            "start refused": "repair",  # so it seems: it has been due for an hour
            "missing from index": "repair",
            "record lost": "operator",
        }
        apart = ("aws ", "cdk-sagas ", "reads table")  # commands are not wrapped: they are to be copied
        assert max(len(line) for line in told.splitlines() if not any(word in line for word in apart)) <= 100

        status, told = ward.run("--full-scan", "--repair", "--reason", "the nightly repair")

        print(told)
        assert status == 1
        assert "repaired: parked, and the operators were notified" in " ".join(told.split())
        assert f"repaired: started {reserved}" in " ".join(told.split())
        assert ward.record(unsettled).parked_by == unsettled
        # Its log is as it was: a recovery finds that all of it was done.
        assert ward.resumes(unsettled) == f"saga {unsettled} resumes: started by {recovery_name(unsettled, 1)}\n"
        ward.waited(lambda: ward.record(unsettled).settled and ward.record(reserved).settled)
        assert ward.record(unsettled).http_status == 200
        aws.client("sqs").purge_queue(QueueUrl=ward.operators)
        assert ward.finds("--repair", "--reason", "the nightly repair") == {
            "rule disabled": "operator",
            "concurrency at zero": "operator",
            "dead letters": "operator",
            "not started": "repair",  # what was made due is found by now
        }
        ward.waited(lambda: ward.record(unseen).settled)
    finally:
        aws.client("lambda").delete_function_concurrency(FunctionName=gatekeeper)
    aws.client("sqs").purge_queue(QueueUrl=_dead_letters(ward))
    events = aws.client("events")
    for rule in RULES:
        assert events.describe_rule(Name=outputs[rule])["State"] == "DISABLED"
    with reconciling(aws, outputs):
        status, told = ward.run()
    assert (status, told.splitlines()[-1]) == (0, "nothing found")
    assert ward.system.balances() == {"alice": 950, "bob": 1050}


def test_a_record_and_a_log_that_were_restored_without_the_ledger_are_found_and_never_compensated(ward: Ward) -> None:
    saga_id = ward.unsettled("restored")
    dynamodb = ward.system.aws.client("dynamodb")
    rows = [row for row in ward.system.rows() if row["saga_id"]["S"] == saga_id]
    for row in rows:
        dynamodb.delete_item(
            TableName=ward.system.outputs["LogTableName"], Key={"saga_id": row["saga_id"], "step": row["step"]}
        )
    ward.waited(lambda: "execution unsettled" in ward.finds(), costly=True)

    found = ward.finds("--full-scan")

    assert (found["execution unsettled"], found["record contradicted"]) == ("operator", "operator")
    said = " ".join(ward.run("--full-scan")[1].split())
    assert re.search(r"Transfer: ledger \S+ has its entry, and it has no row", said)
    ward.run("--repair", "--reason", "the nightly repair")
    assert (ward.record(saga_id).parked_by, ward.record(saga_id).recoveries) == (saga_id, 0)
    assert ward.system.balances() == {"alice": 990, "bob": 1010}


def test_the_rights_in_the_guide_are_enough_to_look_and_not_to_write(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ward.completed("done")
    reserved = ward.reserved(done, "reserved")
    iam = ward.system.aws.client("iam")
    looks, repairs = re.findall(r"```json\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    iam.create_user(UserName="doctor")
    iam.put_user_policy(UserName="doctor", PolicyName="looks", PolicyDocument=looks)
    keys = iam.create_access_key(UserName="doctor")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])

    found = ward.finds("--full-scan")
    refused = ward.run("--repair", "--reason", "the nightly repair")[1]
    iam.put_user_policy(UserName="doctor", PolicyName="repairs", PolicyDocument=repairs)
    repaired = ward.run("--repair", "--reason", "the nightly repair")[1]

    # The emulator does not know the actions of two of Lambda's operations, and refuses them to everybody.
    unknown = set(re.findall(r"not allowed: (\w+)", refused))
    assert unknown <= {"GetFunctionConcurrency", "GetEventSourceMapping"}
    found.pop("not checked")
    assert found == {"not monitored": "operator", "rule disabled": "operator", "start refused": "repair"}
    assert "NOT repaired, AccessDenied" in " ".join(refused.split())
    assert f"repaired: started {reserved}" in " ".join(repaired.split())


def _dead_letters(ward: Ward) -> str:
    """The reconciler's: where its status events end."""
    sqs = ward.system.aws.client("sqs")
    asked: Any = {"QueueUrl": ward.system.outputs["ReconcilerQueueUrl"], "AttributeNames": ["RedrivePolicy"]}
    arn = json.loads(sqs.get_queue_attributes(**asked)["Attributes"]["RedrivePolicy"])["deadLetterTargetArn"]
    return str(sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"])


def _stored(ward: Ward) -> tuple[list[str], ...]:
    return tuple(sorted(map(str, items)) for items in (ward.system.records(), ward.system.rows()))
