"""A saga that waits, on local AWS: answers that come early, twice, late, wrong or never, and where each leads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import ApiUser, LocalAws
from constructs_lib.testing.invariants import assert_all_hold, audit_sagas, read_table
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, Env
from saga_runtime.shared.arns import machine_of

from .pauses import Pauses

SPEED: Final = 60.0
PATIENCE_SECONDS: Final = 300.0
WHY: Final = ("--reason", "the provider was asked")
PARCEL: Final = {"ok": True, "output": {"parcel": "p"}}
NONE_LEFT: Final = {"ok": False, "error": "OutOfStock", "detail": "none left"}


@dataclass(frozen=True)
class Callbacks:
    """The deployed system, and the warehouse's callbacks."""

    aws: LocalAws
    outputs: dict[str, str]
    user: ApiUser
    sagas: dict[str, str] = field(default_factory=dict)

    def begin(self, order: str, **body: Any) -> str:
        """Ask for a pick; its saga."""
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/picks"
        deadline = time.monotonic() + PATIENCE_SECONDS
        key = {IDEMPOTENCY_KEY_HEADER: order}
        while (answer := self.user.request("POST", url, headers=key, body={"order": order, **body})).status >= 500:
            # On a busy machine the first function does not start in time.
            assert time.monotonic() < deadline, answer.text
        assert answer.status in (202, 409), answer.text
        self.sagas[order] = json.loads(answer.text)["saga_id"]
        return self.sagas[order]

    def job(self, order: str, step: str = "Pick") -> str:
        """The job's id."""
        return f"{self.sagas[order]}#{step}"

    def reports(self, order: str, outcome: Any, *, event: str = "e", step: str = "Pick", job: str | None = None) -> str:
        """Report an outcome of a job as the warehouse or a reviewer; returns how it was received."""
        name = self.outputs["FromWarehouse" if step == "Pick" else "FromPeople"]
        sent = {"job_id": job or self.job(order, step), "event_id": f"{order}-{step}-{event}", "outcome": outcome}
        deadline = time.monotonic() + PATIENCE_SECONDS
        answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(sent))
        while answer.get("FunctionError"):
            # The receiver did not start in time: what was not received is sent again.
            assert time.monotonic() < deadline, answer["Payload"].read()
            answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(sent))
        return str(json.loads(answer["Payload"].read())["receipt"])

    def record(self, order: str) -> dict[str, Any]:
        """The record's attributes, without types."""
        return self._item("RequestTableName", {"id": request_id_from(self.sagas[order])})

    def row(self, order: str, step: str = "Pick") -> dict[str, Any]:
        """A row of the saga log."""
        return self._item("LogTableName", {"saga_id": self.sagas[order], "step": step})

    def token(self, order: str, step: str = "Pick") -> dict[str, Any]:
        """A row of the token table."""
        return self._item("WarehouseTokens" if step == "Pick" else "PeopleTokens", {"id": self.job(order, step)})

    def books(self, order: str) -> dict[str, Any]:
        """The warehouse's entry for a job."""
        return self._item("BooksTableName", {"id": self.job(order)})

    def thinks(self, order: str, state: str) -> None:
        """Change the warehouse's books without a callback."""
        self.aws.client("dynamodb").update_item(
            TableName=self.outputs["BooksTableName"],
            Key={"id": {"S": self.job(order)}},
            UpdateExpression="SET #state = :state",
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues={":state": {"S": state}},
        )

    def waited(self, what: Callable[[], dict[str, Any]], condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first read that meets a condition."""
        deadline, pauses = time.monotonic() + PATIENCE_SECONDS, Pauses(next=0.1, most=0.5)
        while not condition(found := what()):
            assert time.monotonic() < deadline, found
            pauses.pause()
        return found

    def waits(self, order: str, step: str = "Pick") -> None:
        """Wait until the saga waits."""
        self.waited(lambda: self.token(order, step), lambda row: row.get("status") == "WAITING")

    def settled(self, order: str) -> dict[str, Any]:
        """Wait until the saga has settled, or is parked."""
        return self.waited(lambda: self.record(order), lambda row: row["status"] != "IN_PROGRESS" or "parked_by" in row)

    def ends(self, order: str, status: str) -> dict[str, Any]:
        """Wait until the saga has settled; its answer."""
        found = self.settled(order)
        assert "parked_by" not in found, found.get("parked_reason")
        assert found["status"] == status, found["response"]
        answer: dict[str, Any] = json.loads(found["response"])
        return answer

    def command(self, *words: str) -> str:
        """Run the command in a process of its own; returns its output."""
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
            [sys.executable, "-m", "constructs_lib.cli", *words, "--stack", "Callbacks"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout + done.stderr

    def _item(self, table: str, key: dict[str, str]) -> dict[str, Any]:
        found = self.aws.client("dynamodb").get_item(
            TableName=self.outputs[table], Key={name: {"S": value} for name, value in key.items()}, ConsistentRead=True
        )
        return {name: next(iter(value.values())) for name, value in found.get("Item", {}).items()}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callbacks]:
    """The deployed system."""
    from .callbacks.stack import FUNCTION_SECONDS, synthesize

    with LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(Path(tmp_path_factory.mktemp("callbacks"))))["Callbacks"])
        # Emulated time is fast, and a process that starts on a busy machine is not.
        own = ("Api/Gatekeeper/picks/Function", "People/Dispatcher/Function")
        functions = [aws.resolve_function(f"Callbacks/{path}") for path in own]
        for name in (*functions, outputs["FromWarehouse"], outputs["FromPeople"]):
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
        for queue in ("JobsUrl", "PeopleJobsUrl"):
            aws.client("sqs").set_queue_attributes(
                QueueUrl=outputs[queue], Attributes={"VisibilityTimeout": str(FUNCTION_SECONDS)}
            )
        made = Callbacks(aws, outputs, aws.create_api_user("alice", api_id=outputs["ApiId"]))
        # What takes long goes first.
        made.begin("broken", breaks=True)
        yield made


def test_an_outcome_resumes_the_saga_with_its_output(system: Callbacks) -> None:
    system.begin("plain")
    system.waits("plain")

    assert system.reports("plain", PARCEL) == "DELIVERED"

    assert system.ends("plain", "COMPLETED")["result"]["Pick"] == {"parcel": "p"}
    assert system.books("plain")["handed_over"] == "1"
    assert (system.row("plain")["status"], system.token("plain")["status"]) == ("DONE", "DELIVERED")
    assert "token" not in system.token("plain")


def test_a_duplicate_outcome_under_one_id_or_two_is_applied_once(system: Callbacks) -> None:
    system.begin("twice")
    system.waits("twice")

    first, again, anew = (system.reports("twice", PARCEL, event=event) for event in ("e", "e", "f"))

    assert (first, again, anew) == ("DELIVERED", "DUPLICATE", "DUPLICATE")
    system.ends("twice", "COMPLETED")


def test_an_early_outcome_is_kept(system: Callbacks) -> None:
    system.begin("early", go=True)
    system.waits("early", "Go")

    assert system.reports("early", PARCEL) == "EARLY"
    system.reports("early", {"ok": True}, step="Go")

    assert system.ends("early", "COMPLETED")["result"]["Pick"] == {"parcel": "p"}
    assert system.books("early") == {}, "a completed job needs no query"


def test_a_callback_with_an_unknown_provider_id_is_kept_until_it_is_known(system: Callbacks) -> None:
    system.begin("own", go=True, own_id="W-own-1")
    system.waits("own", "Go")

    assert system.reports("own", PARCEL, job="W-own-1") == "UNKNOWN"
    system.reports("own", {"ok": True}, step="Go")

    assert system.ends("own", "COMPLETED")["result"]["Pick"] == {"parcel": "p"}
    assert system.books("own")["handed_over"] == "1"


@pytest.mark.parametrize("order", ["refused later", "refused at once"])
def test_a_refusal_compensates(system: Callbacks, order: str) -> None:
    key = order.replace(" ", "-")
    system.begin(key, declined=order == "refused at once")
    if order == "refused later":
        system.waits(key)
        system.reports(key, NONE_LEFT)

    answer = system.ends(key, "FAILED")
    expected = ("OutOfStock", "none left") if order == "refused later" else ("Declined", None)
    assert answer["error"] == expected[0]
    assert expected[1] in (answer["detail"], None)
    assert (system.row(key)["status"], system.row(key, "Reserve")["status"]) == ("REFUSED", "COMPENSATED")


def test_a_reviewer_who_rejects_ends_the_saga(system: Callbacks) -> None:
    system.begin("rejected", go=True)
    system.waits("rejected", "Go")
    system.reports("rejected", {"ok": False, "error": "Rejected", "detail": "by alice"}, step="Go")

    answer = system.ends("rejected", "FAILED")
    assert (answer["step"], answer["error"], answer["detail"]) == ("Go", "Rejected", "by alice")


def test_a_saga_whose_commit_fails_compensates_the_job(system: Callbacks) -> None:
    system.begin("undone", fails=True)
    system.waits("undone")
    system.reports("undone", PARCEL)

    system.ends("undone", "FAILED")
    assert system.books("undone")["cancelled"] == "1"
    assert system.row("undone")["status"] == "COMPENSATED"


def test_a_job_without_a_callback_is_verified_at_the_warehouse(system: Callbacks) -> None:
    """Lost callbacks, all at once: each job ends as the warehouse reports when queried."""
    for order in ("lost-done", "lost-refused", "lost-papers", "lost-go"):
        system.begin(order, go=order == "lost-go")
    for order, state in (("lost-done", "picked"), ("lost-refused", "refused"), ("lost-papers", "lost")):
        system.waits(order)
        system.thinks(order, state)

    # The next attempt queries the provider, and the saga continues.
    assert system.ends("lost-done", "COMPLETED")["result"]["Pick"] == {"parcel": system.job("lost-done")}
    assert system.books("lost-done")["handed_over"] == "1"
    # No approval arrives.
    answer = system.ends("lost-go", "FAILED")
    assert (answer["step"], answer["error"]) == ("Go", "WaitTimedOut")
    # Who does not know either leaves it to a person; an answer that comes after all is as good as one.
    assert "parked_by" in system.settled("lost-papers")
    system.thinks("lost-papers", "given")
    assert system.reports("lost-papers", PARCEL) == "UNDELIVERED"
    assert "parked_by" not in system.record("lost-papers")
    system.command("recover", system.sagas["lost-papers"], *WHY)
    system.ends("lost-papers", "FAILED")
    assert system.books("lost-papers")["cancelled"] == "1"
    # It was requested again, and did: an outcome of that job completes the saga, or its silence ends it.
    assert int(system.books("lost-refused")["handed_over"]) >= 2
    system.ends("lost-refused", "FAILED")
    assert "cancelled" not in system.books("lost-refused")


def test_a_success_after_a_failure_is_compensated_automatically_once(system: Callbacks) -> None:
    system.begin("changed-mind")
    system.waits("changed-mind")
    system.reports("changed-mind", NONE_LEFT)
    system.ends("changed-mind", "FAILED")

    assert system.reports("changed-mind", PARCEL, event="f") == "APPLIED_LATE"
    assert system.row("changed-mind")["status"] == "APPLIED_LATE"
    said = system.command("recover", system.sagas["changed-mind"], *WHY)
    assert "Pick applied late: compensating it" in said, said

    system.waited(lambda: system.row("changed-mind"), lambda row: row["status"] == "COMPENSATED")
    assert system.books("changed-mind")["cancelled"] == "1"
    assert "applied late" not in system.command("recover", system.sagas["changed-mind"], *WHY)
    assert system.record("changed-mind")["status"] == "FAILED"


def test_heartbeats_keep_a_saga_waiting(system: Callbacks) -> None:
    from .callbacks.stack import HEARTBEAT_SECONDS

    system.begin("alive")
    system.waits("alive")
    order = system.token("alive")["attempt_order"]
    # Longer than a heartbeat; the whole time is twice as long.
    heartbeat_lost = system.aws.now() + timedelta(seconds=HEARTBEAT_SECONDS)
    while system.aws.now() <= heartbeat_lost:
        time.sleep(1)
        assert system.reports("alive", {"heartbeat": True}) == "HEARTBEAT"

    assert system.token("alive")["attempt_order"] == order
    system.reports("alive", PARCEL)
    system.ends("alive", "COMPLETED")


def test_a_saga_stopped_while_it_waited_resumes_with_the_outcome(system: Callbacks) -> None:
    saga = system.begin("stopped", scan=True)
    system.waits("stopped")
    arn = system.record("stopped")["execution_arn"]
    assert machine_of(arn)
    system.aws.client("stepfunctions").stop_execution(executionArn=arn)

    assert system.reports("stopped", PARCEL) == "UNDELIVERED"
    assert "due_at" in system.record("stopped")
    system.command("recover", saga, *WHY)
    # The pivot had not run: the recovery compensates.
    system.ends("stopped", "FAILED")
    assert system.books("stopped")["cancelled"] == "1"


def test_a_cancelled_saga_compensates_the_job_that_it_waited_for(system: Callbacks) -> None:
    saga = system.begin("cancelled")
    system.waits("cancelled")

    said = system.command("cancel", saga, "--reason", "the customer called")
    assert f"saga {saga} is cancelled" in said, said
    assert "cancelled" not in system.command("recover", saga, *WHY)
    system.reports("cancelled", PARCEL)

    problem = system.ends("cancelled", "FAILED")
    assert (problem["error"], problem["status"], problem["step"]) == ("SagaCancelled", 422, "")
    assert "customer" not in json.dumps(problem)
    assert system.books("cancelled")["cancelled"] == "1"
    assert "was cancelled; it has settled as FAILED" in system.command("cancel", saga, "--reason", "once more")
    told = system.command("inspect", saga)
    assert "the customer called" in told


def test_a_saga_behind_its_pivot_is_not_cancelled(system: Callbacks) -> None:
    saga = system.begin("committed", scan=True)
    system.waits("committed")
    system.reports("committed", PARCEL)
    system.waits("committed", "Scan")

    assert "only goes forward" in system.command("cancel", saga, "--reason", "too late")

    system.reports("committed", {"ok": True}, step="Scan")
    system.ends("committed", "COMPLETED")


def test_after_the_pivot_a_recovery_uses_an_outcome_that_arrived_before(system: Callbacks) -> None:
    saga = system.begin("scanned", scan=True)
    system.waits("scanned")
    system.reports("scanned", PARCEL)
    system.waits("scanned", "Scan")
    system.aws.client("stepfunctions").stop_execution(executionArn=system.record("scanned")["execution_arn"])

    assert system.reports("scanned", {"ok": True, "output": {"at": "gate 3"}}, step="Scan") == "UNDELIVERED"
    system.command("recover", saga, *WHY)

    assert system.ends("scanned", "COMPLETED")["result"]["Scan"] == {"at": "gate 3"}
    assert system.books("scanned")["handed_over"] == "1"


def test_an_undispatchable_job_is_dead_lettered_with_its_reason(system: Callbacks) -> None:
    def dead() -> dict[str, Any]:
        sqs = system.aws.client("sqs")
        found = sqs.receive_message(
            QueueUrl=system.outputs["DeadLettersUrl"], VisibilityTimeout=0, MaxNumberOfMessages=10
        )
        bodies: list[dict[str, Any]] = [json.loads(message["Body"]) for message in found.get("Messages", [])]
        return next((body for body in bodies if body.get("saga_id") == system.sagas["broken"]), {})

    message = system.waited(dead, bool)
    assert (message["step"], message["saga_id"]) == ("Pick", system.sagas["broken"])
    token = system.token("broken")
    assert (token["dispatch_error"], int(token["failed_dispatches"]) >= 2) == ("RuntimeError", True)
    system.ends("broken", "FAILED")


def test_at_the_end_records_rows_and_books_agree(system: Callbacks) -> None:
    dynamodb = system.aws.client("dynamodb")
    records = read_table(dynamodb, system.outputs["RequestTableName"])
    rows = read_table(dynamodb, system.outputs["LogTableName"])

    assert_all_hold(audit_sagas(records, rows))
    for order in system.sagas:
        books, status = system.books(order), system.row(order).get("status")
        assert int(books.get("cancelled", 0)) == (status == "COMPENSATED"), (order, books, status)
    for table in ("WarehouseTokens", "PeopleTokens"):
        for row in read_table(dynamodb, system.outputs[table]):
            assert row["status"] != {"S": "DELIVERING"}, row["id"]
