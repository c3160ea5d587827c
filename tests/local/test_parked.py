"""Sagas that no machine can decide: parked with an entry for operators, and driven to the right end by a person."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.shared.manifest_format import OUTPUT
from constructs_lib.testing import ApiUser, LocalAws
from constructs_lib.testing.invariants import assert_all_hold, audit_sagas, read_table
from examples.payment_gateway import Action, Moment, Operation, PaymentGateway, Trouble
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, Env
from saga_runtime.shared.arns import machine_of

from .pauses import Pauses

pytestmark = pytest.mark.proof

SPEED: Final = 12.0
PATIENCE_SECONDS: Final = 300.0
CHARGED, DELIVERED = 1000, 300

WHY = ("--reason", "the books were read")


@dataclass(frozen=True)
class Parked:
    """The saga, its provider, and a person with the command."""

    aws: LocalAws
    outputs: dict[str, str]
    gateway: PaymentGateway
    user: ApiUser
    sagas: dict[str, str] = field(default_factory=dict)

    def begin(self, order: str, **body: Any) -> str:
        """Ask for an order; its saga."""
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/orders"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.user.request(
                "POST", url, headers={IDEMPOTENCY_KEY_HEADER: order}, body={"order": order, **body}
            )
            if answer.status in (202, 409):
                self.sagas[order] = json.loads(answer.text)["saga_id"]
                return self.sagas[order]
            # On a busy machine the first function does not start in time.
            assert answer.status >= 500, answer.text
            assert time.monotonic() < deadline, answer.text

    def record(self, order: str) -> dict[str, Any]:
        """The record's attributes, without types."""
        item = self.aws.client("dynamodb").get_item(
            TableName=self.outputs["RequestTableName"],
            Key={"id": {"S": request_id_from(self.sagas[order])}},
            ConsistentRead=True,
        )["Item"]
        return {name: next(iter(value.values())) for name, value in item.items()}

    def run(self, *words: str) -> tuple[int, str]:
        """Run the command in a process of its own: its status and its output."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "AWS_ENDPOINT_URL": self.aws.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": self.aws.region,
            "AWS_CONFIG_FILE": os.devnull,
            Env.CLOCK: self.aws.clock,
        }
        done = subprocess.run(
            [sys.executable, "-m", "constructs_lib.cli", *words, "--stack", "Parked"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def resolves(self, order: str, *words: str) -> None:
        """Run ``resolve``; a refusal because it is early is repeated as its message asks."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            status, told = self.run("resolve", self.sagas[order], *words, *WHY)
            if status == 0:
                return
            assert "wait" in told, told
            assert time.monotonic() < deadline, told
            time.sleep(1)

    def settled(self, order: str) -> str:
        """Wait until the saga has settled; as what."""
        found = self.waited(order, lambda record: record["status"] != "IN_PROGRESS" or "parked_by" in record)
        assert "parked_by" not in found, found.get("parked_reason")
        return str(found["status"])

    def waited(self, order: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The record, once it is as it should be."""
        deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses(next=0.1, most=0.5)
        while not condition(found := self.record(order)):
            assert time.monotonic() < deadline, f"{order}: {found}"
            pauses.pause()
        return found

    def books(self, order: str) -> tuple[int, int]:
        """Numbers of charges and refunds in the provider's books for an order."""
        books = self.gateway.books()
        charges = [one for one in books.charges if one.reference.startswith(f"{order}-") and one.succeeded]
        return len(charges), sum(one.reference.startswith(f"{order}-") for one in books.refunds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cut-off call, before or after it was applied, the operator's finding, and the result.

    Attributes:
        order: the order's name.
        trouble: where a request is lost, and when.
        says: the operator's finding about a step.
        status: how the saga settles.
        books: charges and refunds at the end.
    """

    order: str
    on: Operation
    moment: Moment
    says: tuple[str, ...]
    status: str
    books: tuple[int, int]
    containing: str
    refuse: bool = False


A, B = Moment.AFTER, Moment.BEFORE
CASES: Final = (
    Case(
        order="charged",
        on=Operation.CHARGE,
        moment=A,
        containing="Charge",
        says=("Charge", "--applied", "--output", "{charge}"),
        status="FAILED",
        books=(1, 1),
    ),
    Case(
        order="uncharged",
        on=Operation.CHARGE,
        moment=B,
        containing="Charge",
        says=("Charge", "--not-applied"),
        status="FAILED",
        books=(0, 0),
    ),
    Case(
        order="delivered",
        on=Operation.CHARGE,
        moment=A,
        containing="Deliver",
        says=("Deliver", "--applied"),
        status="COMPLETED",
        books=(2, 0),
    ),
    Case(
        order="undelivered",
        on=Operation.CHARGE,
        moment=B,
        containing="Deliver",
        says=("Deliver", "--not-applied"),
        status="COMPLETED",
        books=(2, 0),
    ),
    Case(
        order="refunded",
        on=Operation.REFUND,
        moment=A,
        containing="Charge-undo",
        says=("Charge", "--compensation", "--applied"),
        status="FAILED",
        books=(1, 1),
        refuse=True,
    ),
    Case(
        order="unrefunded",
        on=Operation.REFUND,
        moment=B,
        containing="Charge-undo",
        says=("Charge", "--compensation", "--not-applied"),
        status="FAILED",
        books=(1, 1),
        refuse=True,
    ),
)


@pytest.fixture(scope="module")
def parked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parked]:
    """Every case, parked."""
    from .parked.stack import FUNCTION_SECONDS, synthesize

    with PaymentGateway(speed=SPEED) as gateway, LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(gateway.url, Path(tmp_path_factory.mktemp("parked"))))["Parked"])
        # Emulated time is fast, and a process that starts on a busy machine is not.
        aws.client("lambda").update_function_configuration(
            FunctionName=aws.resolve_function("Parked/Api/Gatekeeper/orders/Function"), Timeout=FUNCTION_SECONDS
        )
        user = aws.create_api_user("alice", api_id=outputs["ApiId"])
        made = Parked(aws, outputs, gateway, user)
        for case in CASES:
            gateway.plan(
                Trouble(
                    on=case.on, action=Action.DROP, moment=case.moment, containing=f'"{case.order}-{case.containing}'
                )
            )
            made.begin(case.order, refuse=case.refuse)
        for case in CASES:
            made.waited(case.order, lambda record: "parked_by" in record)
        yield made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.order)
def test_an_operator_drives_a_parked_saga_to_its_right_end(case: Case, parked: Parked) -> None:
    step = case.says[0]
    status, told = parked.run("inspect", parked.sagas[case.order])
    assert (status, "IN_PROGRESS, parked: it waits for an operator" in told) == (0, True), told
    assert f"Did {'the undo of ' if '--compensation' in case.says else ''}{step} happen?" in told

    found = [one.id for one in parked.gateway.books().charges if one.reference == f"{case.order}-Charge"]
    words = [word.replace("{charge}", json.dumps({"charge": "".join(found)})) for word in case.says]
    parked.resolves(case.order, *words)

    assert parked.settled(case.order) == case.status
    assert parked.books(case.order) == case.books


def test_every_parked_saga_has_an_entry_that_names_its_step(parked: Parked) -> None:
    sqs = parked.aws.client("sqs")
    entries: dict[str, dict[str, Any]] = {}
    while messages := sqs.receive_message(
        QueueUrl=parked.outputs["OperatorsQueueUrl"], MaxNumberOfMessages=10, VisibilityTimeout=3_600
    ).get("Messages", []):
        for message in messages:
            entry = json.loads(message["Body"])
            entries[entry["saga_id"]] = entry

    assert sorted(entries) == sorted(parked.sagas.values())
    for case in CASES:
        entry = entries[parked.sagas[case.order]]
        assert entry["request_id"] == request_id_from(entry["saga_id"])
        assert entry["execution"].startswith(entry["saga_id"])
        assert entry["parked_reason"]["step"].removeprefix("Compensate ") == case.says[0]
        assert entry["parked_reason"]["error"] == "ManualResolutionRequired"


def test_at_the_end_records_rows_and_books_agree(parked: Parked) -> None:
    dynamodb = parked.aws.client("dynamodb")
    records = read_table(dynamodb, parked.outputs["RequestTableName"])
    rows = read_table(dynamodb, parked.outputs["LogTableName"])

    assert_all_hold(audit_sagas(records, rows))
    stands = sum(CHARGED + DELIVERED for case in CASES if case.status == "COMPLETED")
    assert parked.gateway.books().taken == stands


def copied(parked: Parked, order: str) -> str:
    """Put copies in the place of a saga's state machines, as another deployment would; the recovery's ARN."""
    machines, record = parked.aws.client("stepfunctions"), parked.record(order)
    forward = machine_of(record["execution_arn"])
    moved: dict[str, str] = {}
    for arn in (forward, record["recovery_machine_arn"]):
        described = machines.describe_state_machine(stateMachineArn=arn)
        moved[arn] = machines.create_state_machine(
            name=f"{described['name']}-again",
            definition=described["definition"].replace(forward, moved.get(forward, forward)),
            roleArn=described["roleArn"],
        )["stateMachineArn"]
        machines.delete_state_machine(stateMachineArn=arn)
    cloudformation = parked.aws.client("cloudformation")
    text: str = parked.outputs[OUTPUT]
    template = json.loads(json.dumps(cloudformation.get_template(StackName="Parked")["TemplateBody"]))
    for arn, new in moved.items():
        text = text.replace(f'"{arn}"', f'"{new}"')
    template["Outputs"][OUTPUT]["Value"] = text
    store = parked.aws.client("s3")
    store.create_bucket(Bucket="again")
    store.put_object(Bucket="again", Key="template.json", Body=json.dumps(template).encode())
    url = f"{parked.aws.endpoint_url}/again/template.json"
    cloudformation.update_stack(StackName="Parked", TemplateURL=url, Capabilities=["CAPABILITY_IAM"])
    cloudformation.get_waiter("stack_update_complete").wait(StackName="Parked")
    return str(moved[record["recovery_machine_arn"]])


def test_a_parked_saga_with_deleted_state_machines_is_moved_and_ends(parked: Parked) -> None:
    order, log = "moved", ("--log-table", parked.outputs["LogTableName"], *WHY)
    parked.gateway.plan(Trouble(on=Operation.CHARGE, action=Action.DROP, moment=A, containing=f'"{order}-Charge'))
    saga = parked.begin(order)
    before = parked.waited(order, lambda record: "parked_by" in record)
    recovery = copied(parked, order)
    (charge,) = [one.id for one in parked.gateway.books().charges if one.reference == f"{order}-Charge"]

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        status, told = parked.run(
            "resolve", saga, "Charge", "--applied", "--output", f'{{"charge":"{charge}"}}', *log, *WHY
        )
        assert status == 1
        if "wait" not in told or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert "must exist to start the saga, got none; move the saga to another one with cdk-sagas adopt" in told
    assert {name: parked.record(order)[name] for name in ("owner", "parked_by", "parked_reason")} == {
        name: before[name] for name in ("owner", "parked_by", "parked_reason")
    }

    assert parked.run("adopt", saga, *WHY) == (
        0,
        f"saga {saga} is on {recovery}: started {saga}-r1\n",
    )

    assert parked.settled(order) == "FAILED"
    assert parked.books(order) == (1, 1)
