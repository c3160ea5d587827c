"""``cdk-sagas callbacks`` shows who waits and what is dead, takes nothing away by looking, and never shows a token."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from constructs_lib.cli.callbacks.command import Listing, text_of
from constructs_lib.cli.callbacks.dead_letters import DeadKind, DeadMessage, dead_message
from constructs_lib.cli.callbacks.rows import JobView, Kind, job_view
from constructs_lib.cli.main import main
from constructs_lib.cli.shared.terminal import Screen
from constructs_lib.shared import operator_actions as granted
from saga_runtime.callbacks import Failed, Receipt, Succeeded, adopt_alias, record_dispatch_error, register
from saga_runtime.callbacks.decisions import conflict_id_of
from saga_runtime.callbacks.rows import Outcome, TokenRow, alias_of
from saga_runtime.callbacks.store import read_token
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.idempotency.identity import step_key_of
from saga_runtime.protocol import (
    NOTICE_PREFIX,
    UNANSWERED_FIELD,
    CallField,
    Env,
    RecordStatus,
    TokenAttribute,
    TokenStatus,
    UnansweredField,
)
from saga_runtime.recovery.operators_queue import ConflictEntry, acknowledged_in
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Decision
from tests.unit.support.job_saga import (
    DONE,
    HEARTBEAT_SECONDS,
    JOB_ID,
    REFUSED,
    STEP,
    JobSaga,
    operators_queue,
    served,
)
from tests.unit.support.manifests import manifest
from tests.unit.support.samples import NOW_MS, SAGA_ID, reservation_of
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

COMMAND = import_module("constructs_lib.cli.callbacks.command")
AUDIT = import_module("saga_runtime.recovery.audit")
DEAD = import_module("constructs_lib.cli.callbacks.dead_letters")
FORGET = import_module("constructs_lib.cli.callbacks.forget")
MANIFEST = import_module("constructs_lib.cli.shared.manifest")
OTHER_SAGA = f"{reservation_of().request_id}-zzzzzzzz"
WHY = "the provider works again"
CONFLICT = conflict_id_of(JOB_ID, Outcome.of(REFUSED))
ACTS = {"--redrive", "--delete-unanswered", "--redeliver", "--acknowledge", "--forget"}
THEIRS = "their-77"
PATH = "Shop/Warehouse"
DUE_MS = HEARTBEAT_SECONDS * 1_000


@dataclass
class Operator:
    """The command, and an integration's table and queues."""

    job_saga: JobSaga
    queue: str
    dead: str
    integration: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run the command: its exit status, its output and its errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            reason = ["--reason", WHY] if set(words) & ACTS and "--reason" not in words else []
            status = main(["callbacks", "--stack", "Shop", *words, *reason])
        shown = out.getvalue() + err.getvalue()
        assert "token-" not in shown.replace("token-table", ""), f"a token was shown: {shown}"
        return status, out.getvalue(), err.getvalue()

    def lists(self, *words: str) -> str:
        """Run it; it must work."""
        status, out, err = self.run(*words)
        assert (status, err) == (0, "")
        return out

    def finds(self, *words: str) -> dict[str, Any]:
        """Run it for its JSON document."""
        found: dict[str, Any] = json.loads(self.lists("--json", *words))
        return found

    def is_refused(self, *words: str) -> str:
        """Run it; returns its one-line refusal."""
        status, out, err = self.run(*words)
        assert (status, out, err.count("\n")) == (1, "", 1), err
        return err

    def leave_undelivered(self, event_id: str) -> None:
        """Record a job as done, with a receiver that dies before it delivers."""
        fault = Fault(operation="SendTaskSuccess", action=Action.KILL, moment=Moment.BEFORE, times=1)
        self.job_saga.world.wire.plan(fault)
        with pytest.raises(Killed):
            self.job_saga.reports(event_id)

    def kills(self, saga_id: str = SAGA_ID, step: str = STEP, **more: str) -> str:
        """A message of a job ends in the dead-letter queue; its body."""
        fields = {CallField.SAGA_ID: saga_id, CallField.STEP: step, CallField.TOKEN: f"token-of-{step}"}
        return self.puts(json.dumps({**fields, CallField.REQUEST_TABLE: "requests", **more}))

    def puts(self, body: str) -> str:
        """Something ends in the dead-letter queue."""
        attribute: Any = {"trace": {"DataType": "String", "StringValue": "t-1"}}
        aws.sqs().send_message(QueueUrl=self.dead, MessageBody=body, MessageAttributes=attribute)
        return body

    def report_unanswered(self, saga_id: str = SAGA_ID) -> str:
        """Put an entry of an unanswered job into the dead-letter queue."""
        f = UnansweredField
        fields: dict[str, Any] = {f.JOB_ID: step_key_of(saga_id, STEP), f.WAITING_SINCE: NOW_MS - 7_200_000}
        fields |= {
            f.LOG_STATUS: "TOMBSTONE",
            f.FAILED_DISPATCHES: 2,
            f.DISPATCH_ERROR: "ConnectionError",
            f.ACCEPTED_AT: 0,
            f.REQUEST_TABLE: "requests",
        }
        return self.puts(json.dumps({UNANSWERED_FIELD: fields}))

    def taken(self, url: str) -> list[dict[str, Any]]:
        """Take everything from a queue."""
        taken: list[Any] = []
        while (
            found := aws.sqs()
            .receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=600)
            .get("Messages")
        ):
            taken += found
        return taken

    def bodies(self, url: str) -> list[str]:
        """Take everything from a queue: the bodies."""
        return sorted(message["Body"] for message in self.taken(url))


@pytest.fixture
def operator(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[Operator]:
    """The command, with an empty table."""
    job_saga = JobSaga.open(world, monkeypatch)
    dead = str(aws.sqs().create_queue(QueueName="dead")["QueueUrl"])
    arn = aws.sqs().get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
    queue = str(aws.sqs().create_queue(QueueName="jobs", Attributes={"RedrivePolicy": policy})["QueueUrl"])
    operator = Operator(job_saga, queue, dead)
    operator.integration.update(path="Shop/Warehouse", table="tokens", queue=queue, dead=dead)
    monkeypatch.setattr(MANIFEST, "_output", lambda *_: json.dumps(manifest(integrations=[operator.integration])))

    def session_of(options: Any) -> boto3.Session:
        return boto3_session

    monkeypatch.setattr(COMMAND, "session_of", session_of)
    monkeypatch.setattr(boto3, "setup_default_session", lambda **_: None)
    monkeypatch.setattr(DEAD, "POLL_SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "120")
    yield operator
    aws.dynamodb.cache_clear()
    aws.step_functions.cache_clear()


def test_waiting_jobs_are_listed_with_age_expectation_and_failures(operator: Operator) -> None:
    operator.job_saga.register()
    record_dispatch_error(JOB_ID, "ConnectionError")
    operator.job_saga.world.clock.ms += 120_000

    told = operator.lists()

    assert "waiting (1)" in told
    assert re.search(rf"{re.escape(JOB_ID)} +2023-11-14 22:13:20 UTC +2 m +in time for 8 m", told)
    assert "one delivery failed, the last one by ConnectionError" in told


def test_overdue_jobs_are_marked(operator: Operator) -> None:
    operator.job_saga.register()
    operator.job_saga.world.clock.ms += DUE_MS + 60_000

    assert "waiting (1, 1 overdue)" in operator.lists()
    (row,) = operator.finds()["rows"]
    assert (row["kind"], row["overdue"], row["age_ms"]) == ("waiting", True, DUE_MS + 60_000)


def test_an_undelivered_outcome_is_listed_and_delivered_at_once(operator: Operator) -> None:
    operator.job_saga.register()
    operator.job_saga.world.wire.plan(
        Fault(operation="SendTaskSuccess", action=Action.KILL, moment=Moment.BEFORE, times=1)
    )
    with pytest.raises(Killed):
        operator.job_saga.reports("e1")

    assert "settling" in operator.lists()
    assert operator.lists("--redeliver", JOB_ID) == f"job {JOB_ID}: delivered\n"
    assert [what for what, _, _ in kept(operator)] == [f"job {JOB_ID}: outcome delivered"]

    assert operator.job_saga.outcome()
    assert operator.job_saga.token["status"] == "DELIVERED"
    assert "nothing waits" in operator.lists()
    assert "is DELIVERED: only DELIVERING outcomes are undelivered" in operator.is_refused("--redeliver", JOB_ID)


def kept(operator: Operator) -> list[tuple[str, str, str]]:
    found = [Decision.all_of(item) for item in operator.job_saga.world.items("requests")]
    return [(one.what, one.who, one.why) for one in itertools.chain.from_iterable(found)]


def test_what_an_operator_does_to_jobs_is_kept_with_their_saga(operator: Operator) -> None:
    operator.kills()
    operator.report_unanswered()

    operator.lists("--redrive")
    operator.lists("--delete-unanswered")

    who = "arn:aws:sts::123456789012:user/moto"
    assert kept(operator) == [
        (f"job {JOB_ID}: put back", who, WHY),
        (f"job {JOB_ID}: deleted as unanswered", who, WHY),
    ]


@pytest.mark.parametrize("words", [("--redrive",), ("--delete-unanswered",)])
def test_what_no_record_keeps_is_not_done(operator: Operator, words: tuple[str, ...]) -> None:
    letters = sorted([operator.kills(), operator.report_unanswered()])
    operator.job_saga.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL))

    with pytest.raises(Killed):
        operator.run(*words)

    assert (operator.bodies(operator.dead), kept(operator)) == (letters, [])


def test_a_full_record_keeps_its_jobs_where_they_are(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AUDIT, "MOST_BYTES", 1)
    operator.kills()

    status, out, err = operator.run("--redrive")

    assert (status, out) == (1, "0 put back, 0 deleted, 1 left\n")
    assert f"job {JOB_ID} is left: the decisions about saga {SAGA_ID} must have at most 1 bytes" in err


@pytest.mark.parametrize(
    "words",
    [
        ("--redrive",),
        ("--reason", "why"),
        ("--delete-unanswered",),
        ("--redeliver", "j"),
        ("--acknowledge", JOB_ID, "0" * 16),
        ("--forget", "their-77"),
    ],
)
def test_reason_goes_with_a_change(operator: Operator, words: tuple[str, ...]) -> None:
    assert main(["callbacks", "--stack", "Shop", *words]) == 1


def test_a_redelivery_reports_that_no_task_waits(operator: Operator) -> None:
    operator.job_saga.register()
    operator.job_saga.world.wire.plan(
        Fault(operation="SendTaskSuccess", action=Action.KILL, moment=Moment.BEFORE, times=1)
    )
    with pytest.raises(Killed):
        operator.job_saga.reports("e1")
    operator.job_saga.time_out()

    assert "no task waited any more" in operator.lists("--redeliver", JOB_ID)


def test_only_an_existing_job_is_redelivered(operator: Operator) -> None:
    assert "has no job nobody" in operator.is_refused("--redeliver", "nobody")


def test_a_late_effect_is_listed_with_the_command_that_compensates_it(operator: Operator) -> None:
    operator.job_saga.register()
    operator.job_saga.time_out()
    operator.job_saga.compensate()
    operator.job_saga.reports("e1")

    told = operator.lists()

    assert "late: a late effect that is not compensated" in told
    assert f"      cdk-sagas recover {SAGA_ID} --reason WHY --stack Shop\n" in told
    (row,) = operator.finds("--region", "eu-west-1")["rows"]
    assert row["command"] == f"cdk-sagas recover {SAGA_ID} --reason WHY --stack Shop --region eu-west-1"


def test_an_outcome_of_an_unknown_job_is_listed(operator: Operator) -> None:
    operator.job_saga.reports("e1", DONE, "their-77")

    told = operator.lists()
    assert "unknown: outcome stored until a job with this id registers" in told
    assert re.search(r"their-77 .*\n    done \(event e1\)", told)
    operator.job_saga.world.clock.ms += 86_400_000
    assert sweep(remaining_ms=lambda: 60_000).failed == 0
    assert "their-77" in operator.lists(), "no sweep forgets it"


def test_an_unknown_outcome_is_not_listed_once_its_job_is_known(operator: Operator) -> None:
    operator.job_saga.reports("e1", DONE, "their-77")
    operator.job_saga.register()
    adopt_alias("their-77", JOB_ID)

    assert "their-77" not in operator.lists()
    assert TokenAttribute.DUE_AT not in operator.job_saga.token_row("alias##their-77")


@pytest.mark.parametrize("swept", [0, 1, 2])
@pytest.mark.parametrize("words", [(), ("--all",)])
def test_a_contradiction_is_listed(operator: Operator, words: tuple[str, ...], swept: int) -> None:
    contradict(operator)
    for _ in range(swept):
        sweep(remaining_ms=lambda: 60_000)

    told = operator.lists(*words)
    assert "conflict: the provider reported two outcomes" in told
    assert "and then: failed: OutOfStock, none left" in told
    assert f"--acknowledge '{JOB_ID}' {CONFLICT} --reason WHY --stack Shop" in " ".join(told.split())
    assert [row["conflict_id"] for row in operator.finds(*words)["rows"]] == [CONFLICT]


def contradict(operator: Operator) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, json.dumps([served(operators=operators_queue())]))
        operator.job_saga.register()
        operator.job_saga.reports("e1")
        operator.job_saga.reports("e2", REFUSED)


@pytest.mark.parametrize("swept", [False, True])
def test_an_acknowledged_contradiction_is_listed_with_all_and_as_such(operator: Operator, *, swept: bool) -> None:
    contradict(operator)
    sweep(remaining_ms=lambda: 60_000)
    operator.lists("--acknowledge", JOB_ID, CONFLICT)
    if swept:
        sweep(remaining_ms=lambda: 60_000)

    assert operator.finds()["rows"] == []
    told = operator.lists("--all")
    assert "acknowledged: a conflict that an operator has handled" in told
    assert "--acknowledge" not in told
    assert [row["kind"] for row in operator.finds("--all")["rows"]] == ["acknowledged"]


def test_only_an_outcome_that_was_reported_is_acknowledged(operator: Operator) -> None:
    contradict(operator)
    said = operator.is_refused("--acknowledge", JOB_ID, "0123456789abcdef")

    assert f"OUTCOME must be one that contradicts job {JOB_ID}, got 0123456789abcdef" in said
    assert f"the stored one, {CONFLICT}" in said
    assert kept(operator) == []


def test_a_contradiction_is_acknowledged_once_with_its_author(operator: Operator) -> None:
    contradict(operator)
    said = f"job {JOB_ID}: conflicting outcome {CONFLICT} acknowledged"

    for _ in range(2):
        assert operator.lists("--acknowledge", JOB_ID, CONFLICT) == f"{said}\n"

    assert kept(operator) == [(said, "arn:aws:sts::123456789012:user/moto", WHY)]


@pytest.mark.parametrize("moment", list(Moment))
def test_an_acknowledgement_that_dies_is_repeated(operator: Operator, moment: Moment) -> None:
    contradict(operator)
    operator.job_saga.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, moment=moment, times=1))
    with pytest.raises(Killed):
        operator.run("--acknowledge", JOB_ID, CONFLICT)
    assert len(kept(operator)) == (0 if moment is Moment.BEFORE else 1)

    operator.lists("--acknowledge", JOB_ID, CONFLICT)

    assert len(kept(operator)) == 1


def test_an_outcome_that_was_replaced_is_acknowledged_by_its_id(operator: Operator) -> None:
    contradict(operator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, json.dumps([served(operators=operators_queue())]))
        operator.job_saga.reports("e3", Failed("Lost", ""))
    later = conflict_id_of(JOB_ID, Outcome.failure("Lost", ""))

    assert f"; the stored one is {later}" in operator.lists("--acknowledge", JOB_ID, CONFLICT)

    tables = ["requests"]
    assert acknowledged_in(tables, ConflictEntry(job_id=JOB_ID, conflict_id=CONFLICT))
    assert not acknowledged_in(tables, ConflictEntry(job_id=JOB_ID, conflict_id=later))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((JOB_ID, "0123"), "OUTCOME must be 16 hexadecimal digits, got '0123'"),
        ((JOB_ID, "x" * 16), "OUTCOME must be 16 hexadecimal digits"),
        (("their-77", "0" * 16), "JOB must be the id of a saga's job, got 'their-77'"),
        (("", "0" * 16), "JOB must be the id of a saga's job, got ''"),
        ((JOB_ID, "0" * 16, "--redrive"), "leave the other changes out"),
        ((JOB_ID, "0" * 16), f"job {JOB_ID} must have a conflicting outcome, got none"),
        ((step_key_of(SAGA_ID, "Other"), "0" * 16), "has no job"),
    ],
)
def test_only_a_contradicted_job_is_acknowledged(operator: Operator, words: tuple[str, ...], message: str) -> None:
    operator.job_saga.register()

    assert message in operator.is_refused("--acknowledge", *words)
    assert kept(operator) == []


def test_what_no_record_can_keep_is_not_acknowledged(operator: Operator) -> None:
    contradict(operator)
    aws.dynamodb().delete_item(TableName="requests", Key={"id": {"S": operator.job_saga.record()["id"]}})

    said = operator.is_refused("--acknowledge", JOB_ID, CONFLICT)

    assert f"the record of job {JOB_ID} must exist, got none" in said


@pytest.fixture
def stranger(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """The command, when a provider has reported a job that no saga has registered."""
    monkeypatch.setenv(Env.INTEGRATION, PATH)
    assert operator.job_saga.reports("e1", DONE, THEIRS) is Receipt.UNKNOWN
    return operator


def row_of(operator: Operator) -> TokenRow:
    row = read_token(alias_of(PATH, THEIRS))
    assert row is not None
    return row


def decisions_of(row: TokenRow) -> list[Decision]:
    return Decision.all_of({TokenAttribute.DECISIONS: row.decisions or {}})


def whys(operator: Operator) -> list[tuple[str, str]]:
    return [(one.what, one.why) for one in decisions_of(row_of(operator))]


def reported(operator: Operator) -> str:
    (row,) = operator.finds()["rows"]
    return str(row["reported_id"])


def test_a_forgotten_outcome_is_not_listed_but_with_all_and_its_author(stranger: Operator) -> None:
    outcome = reported(stranger)
    assert f"cdk-sagas callbacks --forget {THEIRS} {outcome} --reason WHY --stack Shop" in stranger.lists()

    for _ in range(2):
        said = stranger.lists("--forget", THEIRS, outcome)
        assert said.startswith(f"job {THEIRS}: outcome {outcome} forgotten")

    assert "nothing waits" in stranger.lists()
    told = stranger.lists("--all")
    assert "forgotten: an unknown job's outcome that an operator has closed (1)" in told
    assert f"forgotten by arn:aws:sts::123456789012:user/moto: {WHY}" in told
    assert whys(stranger) == [(f"unknown job {THEIRS}: outcome {outcome} forgotten", WHY)]
    assert TokenAttribute.DUE_AT not in stranger.job_saga.token_row(alias_of(PATH, THEIRS))


@pytest.mark.parametrize("integration", ["", "Shop/Renamed"])
def test_the_row_of_a_renamed_integration_is_forgotten(operator: Operator, integration: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.INTEGRATION, integration)
        operator.job_saga.reports("e1", DONE, THEIRS)

    assert "forgotten" in operator.lists("--forget", THEIRS)
    assert operator.finds()["rows"] == []


def test_of_two_integrations_one_is_chosen(stranger: Operator) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.INTEGRATION, "Shop/Carrier")
        stranger.job_saga.reports("e1", DONE, THEIRS)

    assert "must be of one integration, got Shop/Warehouse, Shop/Carrier" in stranger.is_refused("--forget", THEIRS)
    stranger.lists("--forget", THEIRS, "--integration", "Warehouse")

    assert row_of(stranger).forgotten_at
    assert len(stranger.finds()["rows"]) == 1


@pytest.mark.parametrize(("event", "outcome"), [("e1", DONE), ("e2", DONE), ("e3", Succeeded({"parcel": "p-2"}))])
def test_the_same_report_is_answered_as_before(stranger: Operator, event: str, outcome: Succeeded) -> None:
    stranger.lists("--forget", THEIRS)

    found = stranger.job_saga.reports(event, outcome, THEIRS)

    assert found is (Receipt.DUPLICATE if event == "e1" else Receipt.UNKNOWN)
    assert stranger.finds()["rows"] == []


def test_a_contradiction_of_what_is_forgotten_is_listed(stranger: Operator) -> None:
    first = reported(stranger)
    stranger.lists("--forget", THEIRS, first)
    assert stranger.job_saga.reports("e2", REFUSED, THEIRS) is Receipt.UNKNOWN

    (row,) = stranger.finds()["rows"]
    assert (row["kind"], row["outcome"], row["conflict"]) == ("conflict", "done", "failed: OutOfStock, none left")
    assert "has reported another one since" in stranger.is_refused("--forget", THEIRS, first)
    for _ in range(2):
        stranger.lists("--forget", THEIRS, row["reported_id"])
    assert stranger.job_saga.reports("e3", REFUSED, THEIRS) is Receipt.UNKNOWN, "it is known"
    assert stranger.finds()["rows"] == []
    assert [what.split()[4] for what, _ in whys(stranger)] == [first, row["reported_id"]]

    assert stranger.job_saga.reports("e4", Failed("Lost"), THEIRS) is Receipt.UNKNOWN
    assert len(stranger.finds()["rows"]) == 1


@pytest.mark.parametrize("conflict", [None, REFUSED])
def test_a_job_that_registers_later_receives_what_was_forgotten(stranger: Operator, conflict: Failed | None) -> None:
    if conflict is not None:
        stranger.job_saga.reports("e2", conflict, THEIRS)
    stranger.lists("--forget", THEIRS)
    stranger.job_saga.world.clock.ms += 86_400_000
    stranger.job_saga.register()
    adopt_alias(THEIRS, JOB_ID)

    told = stranger.job_saga.outcome()
    assert told is not None
    assert "p-1" in told["output"]
    assert row_of(stranger).forgotten_at == 0
    assert f"job {THEIRS} must be unknown, got that of job {JOB_ID}" in stranger.is_refused("--forget", THEIRS)


def registered_by_a_dying_one(operator: Operator) -> None:
    """A registration dies after it has adopted what was reported."""
    operator.job_saga.world.wire.plan(Fault(operation="SendTaskSuccess", action=Action.KILL, times=1))
    with pytest.raises(Killed):
        adopt_alias(THEIRS, JOB_ID)


def test_what_a_dying_registration_adopts_of_two_outcomes_is_acknowledged(stranger: Operator) -> None:
    stranger.job_saga.reports("e2", REFUSED, THEIRS)
    stranger.lists("--forget", THEIRS)
    stranger.job_saga.register()
    registered_by_a_dying_one(stranger)

    (row,) = stranger.finds()["rows"]
    assert (row["kind"], row["job_id"], row["outcome"]) == ("conflict", JOB_ID, "done")
    assert (row_of(stranger).status, row_of(stranger).conflict) == (TokenStatus.ALIAS, None)
    assert f"got that of job {JOB_ID}" in stranger.is_refused("--forget", THEIRS)
    stranger.lists("--acknowledge", JOB_ID, row["conflict_id"])
    assert "conflict" not in {row["kind"] for row in stranger.finds()["rows"]}


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda operator: operator.job_saga.reports("e2", REFUSED, THEIRS),
        lambda _: adopt_alias(THEIRS, JOB_ID),
        registered_by_a_dying_one,
    ],
    ids=["contradicted", "registered", "registered by a dying one"],
)
@pytest.mark.parametrize("again", [False, True])
def test_what_happens_between_read_and_write_is_not_forgotten(
    stranger: Operator, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Operator], object], *, again: bool
) -> None:
    stranger.job_saga.register()
    if again:
        stranger.lists("--forget", THEIRS)
        stranger.job_saga.reports("e0", Failed("Lost"), THEIRS)
    before = whys(stranger)
    made = FORGET.forgotten_update

    def later(*given: Any) -> Any:
        monkeypatch.setattr(FORGET, "forgotten_update", made)
        meanwhile(stranger)
        return made(*given)

    monkeypatch.setattr(FORGET, "forgotten_update", later)
    stranger.is_refused("--forget", THEIRS)

    assert (row_of(stranger).forgotten_at, whys(stranger)) == (0, before)


@pytest.mark.parametrize("again", [False, True])
def test_two_who_forget_at_once_decide_once(
    stranger: Operator, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    if again:
        stranger.lists("--forget", THEIRS)
        stranger.job_saga.reports("e0", Failed("Lost"), THEIRS)
    made = FORGET.forgotten_update

    def later(*given: Any) -> Any:
        monkeypatch.setattr(FORGET, "forgotten_update", made)
        stranger.lists("--forget", THEIRS, "--reason", "mine")
        return made(*given)

    monkeypatch.setattr(FORGET, "forgotten_update", later)
    assert "forgotten 2023-11-14" in stranger.lists("--forget", THEIRS)

    assert [why for _, why in whys(stranger)] == [*[WHY] * again, "mine"]


@pytest.mark.parametrize(("action", "moment"), list(itertools.product((Action.KILL, Action.DROP), Moment)))
def test_one_who_dies_or_gets_no_answer_decides_once(stranger: Operator, action: Action, moment: Moment) -> None:
    stranger.job_saga.world.wire.plan(Fault(operation="UpdateItem", action=action, moment=moment, times=1))
    with contextlib.suppress(Killed):
        stranger.run("--forget", THEIRS)
    stranger.job_saga.world.clock.ms += 86_400_000

    stranger.lists("--forget", THEIRS)

    assert len(whys(stranger)) == 1
    assert stranger.finds()["rows"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("their-78",), "table tokens has no outcome of an unknown job their-78"),
        ((JOB_ID,), f"job {JOB_ID} must be unknown, got one that is WAITING: a saga has registered it"),
        (("",), "ID must be the id of an unknown job, got ''"),
        ((THEIRS, "0123"), "OUTCOME must be 16 hexadecimal digits, got '0123'"),
        ((THEIRS, "0" * 16), "has reported another one since"),
        ((THEIRS, "0" * 16, "x"), "--forget must have ID and OUTCOME, got 3 words"),
        ((THEIRS, "--redrive"), "leave the other changes out"),
    ],
)
def test_only_what_was_seen_of_an_unknown_job_is_forgotten(
    stranger: Operator, words: tuple[str, ...], message: str
) -> None:
    stranger.job_saga.register()

    assert message in stranger.is_refused("--forget", *words)
    assert row_of(stranger).forgotten_at == 0


def test_all_lists_settled_and_unanswered_jobs(operator: Operator) -> None:
    url = operator.dead
    attempt = operator.job_saga.enter()
    operator.job_saga.write(operator.job_saga.holder("a").intent(NOW_MS))
    register(replace(operator.job_saga.waiting(attempt), dead_letters=url))
    operator.job_saga.change_record(status=RecordStatus.FAILED)
    operator.job_saga.world.clock.ms += DUE_MS
    sweep(remaining_ms=lambda: 60_000)

    assert "never answered" not in operator.lists()
    told = operator.lists("--all", "--dead-letters")
    assert "unanswered: the wait ended without an outcome (1)" in told
    assert "never answered: the saga gave the job up" in told
    assert "its row INTENT, its saga FAILED, never known to be taken on" in told


def test_early_and_delivered_outcomes_are_listed_with_all(operator: Operator) -> None:
    operator.job_saga.reports("e1")
    assert [row["kind"] for row in operator.finds("--all")["rows"]] == ["early"]
    register(operator.job_saga.waiting(operator.job_saga.enter()))
    (row,) = operator.finds("--all")["rows"]
    assert (row["kind"], row["told"], row["outcome"]) == ("settled", True, "done")


def test_dead_messages_are_listed_once_with_their_reason_and_stay(operator: Operator) -> None:
    operator.job_saga.register()
    record_dispatch_error(JOB_ID, "ConnectionError")
    bodies = sorted([operator.kills(), operator.report_unanswered(), operator.puts("token-garbage")])

    for _ in range(2):
        told = operator.lists("--dead-letters")
        assert "dead: dispatch failed; --redrive retries it (1)" in told
        assert "never answered: the saga gave the job up; ask the provider, then --delete-unanswered (1)" in told
        assert "unreadable: no message of a saga (1)" in told
        assert "    2 deliveries failed, the last one by ConnectionError" in told
        assert told.count("    ConnectionError") == 1
    assert operator.bodies(operator.dead) == bodies


def test_the_document_has_all_of_it_and_no_body(operator: Operator) -> None:
    operator.kills(item_key="sku-1", item="{}")
    operator.report_unanswered()

    found = operator.finds("--dead-letters")

    by_kind = {message["kind"]: message for message in found["dead"]}
    assert by_kind["job"]["job_id"] == step_key_of(SAGA_ID, STEP, item_key="sku-1")
    assert (by_kind["job"]["step"], by_kind["job"]["receives"]) == ("Pick[sku-1]", 1)
    assert by_kind["unanswered"]["about"]["log_status"] == "TOMBSTONE"
    assert (found["read_by_others"], found["complete"]) == (0, True)
    assert "Body" not in json.dumps(found)


def test_more_messages_than_one_batch_are_all_listed(operator: Operator) -> None:
    for number in range(23):
        operator.kills(step=f"Step{number}")

    assert len(operator.finds("--dead-letters")["dead"]) == 23
    assert len(operator.taken(operator.dead)) == 23


def test_entries_that_another_reader_has_received_are_reported(operator: Operator) -> None:
    operator.kills()
    operator.taken(operator.dead)

    told = operator.lists("--dead-letters")
    assert "1 dead messages were being read by another process" in told


def test_dead_jobs_are_put_back_and_entries_are_left(operator: Operator) -> None:
    body, entry = operator.kills(), operator.report_unanswered()

    told = operator.lists("--redrive")

    assert told == "1 put back, 0 deleted, 1 left\n"
    (moved,) = operator.taken(operator.queue)
    assert (moved["Body"], moved["MessageAttributes"]["trace"]["StringValue"]) == (body, "t-1")
    assert operator.bodies(operator.dead) == [entry]


def test_the_jobs_of_one_saga_are_redriven_on_request(operator: Operator) -> None:
    body, other = operator.kills(), operator.kills(saga_id=OTHER_SAGA)

    words = ("--redrive", "--saga", SAGA_ID)
    assert operator.lists(*words) == "1 put back, 0 deleted, 1 left\n"
    assert (operator.bodies(operator.queue), operator.bodies(operator.dead)) == ([body], [other])


def test_entries_are_deleted_only_on_request(operator: Operator) -> None:
    body, _, garbage = operator.kills(), operator.report_unanswered(), operator.puts("garbage")

    assert operator.lists("--delete-unanswered") == "0 put back, 1 deleted, 2 left\n"
    assert operator.bodies(operator.dead) == sorted([body, garbage])


@pytest.mark.parametrize("operation", ["SendMessage", "DeleteMessage"])
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_redrive_that_dies_loses_no_job(operator: Operator, operation: str, moment: Moment) -> None:
    body = operator.kills()
    words = ("--redrive",)
    operator.job_saga.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=moment, times=1))
    with pytest.raises(Killed):
        operator.run(*words)
    operator.lists(*words)

    assert set(operator.bodies(operator.queue)) == {body}
    assert operator.bodies(operator.dead) == []


def test_jobs_are_put_into_the_queue_that_they_came_from_and_no_other(operator: Operator) -> None:
    operator.kills()
    other = str(aws.sqs().create_queue(QueueName="other")["QueueUrl"])

    operator.integration["queue"] = other
    told = operator.is_refused("--redrive")
    assert "name the queue of the same integration" in told
    assert operator.taken(other) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--integration", "house"), "must have one CallbackIntegration house, got none; choose one"),
        (("--saga", "x"), "not a saga id: 'x'"),
        (("--redeliver", "j", "--delete-unanswered"), "leave --redrive and --delete-unanswered out"),
    ],
)
def test_conflicting_options_are_refused(operator: Operator, words: tuple[str, ...], message: str) -> None:
    assert message in operator.is_refused(*words)


def test_integrations_that_share_a_table_are_listed_together(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    contradict(operator)
    other = {**operator.integration, "path": "Shop/Carrier", "queue": "https://other"}

    def deploy(other: dict[str, str]) -> None:
        found = json.dumps(manifest(integrations=[other, operator.integration]))
        monkeypatch.setattr(MANIFEST, "_output", lambda *_: found)

    deploy(other)
    assert [row["conflict_id"] for row in operator.finds()["rows"]] == [CONFLICT]
    operator.lists("--acknowledge", JOB_ID, CONFLICT)
    said = "must have one CallbackIntegration, got Shop/Carrier, Shop/Warehouse; choose one with --integration"
    for words in (("--dead-letters",), ("--redrive",), ("--delete-unanswered",)):
        assert said in operator.is_refused(*words)
    deploy({**other, "table": "others"})
    assert said in operator.is_refused()


def test_a_wrong_table_is_refused_with_the_remedy(operator: Operator) -> None:
    for table in ("nowhere", "log"):
        operator.integration["table"] = table
        assert f"table {table} must be a token table, got none; deploy its stack" in operator.is_refused()
    operator.job_saga.change_record(due_shard="00")
    operator.integration["table"] = "requests"
    for words in ((), ("--all",)):
        assert "table requests has an item that is not a row of a token table" in operator.is_refused(*words)


@pytest.mark.parametrize("row_id", ["other", f"{NOTICE_PREFIX}other"])
def test_a_row_that_cannot_be_read_hides_no_other(operator: Operator, row_id: str) -> None:
    operator.job_saga.register()
    row = {"id": {"S": row_id}, "status": {"S": "OF_A_NEWER_RELEASE"}, "due_shard": {"S": "00"}, "due_at": {"N": "1"}}
    aws.dynamodb().put_item(TableName="tokens", Item=row)

    status, out, err = operator.run("--json")

    assert (status, [row["job_id"] for row in json.loads(out)["rows"]]) == (1, [JOB_ID])
    assert err.startswith(f"row {row_id} is missing: it cannot be read: ")


def test_a_queue_that_is_not_there_is_refused_with_the_remedy(operator: Operator) -> None:
    operator.integration["dead"] = f"{operator.dead}-gone"
    assert "-gone must exist, got none; deploy its stack" in operator.is_refused("--dead-letters")


def test_a_lack_of_rights_names_the_call_and_the_grant(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> list[JobView]:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Query")

    monkeypatch.setattr("constructs_lib.cli.callbacks.rows.TokenRows.open", refuse)

    assert "not allowed: Query; CallbackIntegration.grant_operate" in operator.is_refused()


_RESOURCES = {
    "GetQueueAttributes": ("dead", "queue"),
    "ReceiveMessage": ("dead",),
    "DeleteMessage": ("dead",),
    "ChangeMessageVisibility": ("dead",),
    "SendMessage": ("queue",),
}


def test_operators_have_the_permissions_of_the_command_and_no_others(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way through the command, on the wire; ``grant_operate`` is held against the same names."""
    calls: set[tuple[str, str]] = set()
    send = operator.job_saga.world.wire.send

    def noted(event_name: str, request: Any, deliver: Any) -> Any:
        operation = event_name.rpartition(".")[2]
        if operation != "GetCallerIdentity":  # needs no permission
            calls.update(_actions(operation, json.loads(request.body or b"{}"), operator))
        return send(event_name, request, deliver)

    for told, outcome in (("SendTaskSuccess", DONE), ("SendTaskFailure", REFUSED)):
        operator.job_saga.register()
        operator.job_saga.world.wire.plan(Fault(operation=told, action=Action.KILL, moment=Moment.BEFORE, times=1))
        with pytest.raises(Killed):
            operator.job_saga.reports(told, outcome)
        operator.kills()
        operator.report_unanswered()
        operator.job_saga.reports(f"{told}-of-another", outcome, THEIRS)
        with monkeypatch.context() as patch:
            patch.setattr(operator.job_saga.world.wire, "send", noted)
            operator.lists("--all", "--dead-letters")
            operator.lists("--dead-letters")
            operator.lists("--redeliver", JOB_ID)
            operator.lists("--redrive", "--delete-unanswered")
            operator.lists("--forget", THEIRS)
        for table, key in (("tokens", {"id": JOB_ID}), ("log", {"saga_id": SAGA_ID, "step": STEP})):
            aws.dynamodb().delete_item(TableName=table, Key={name: {"S": value} for name, value in key.items()})
    # A job without a waiting task makes its saga due.
    operator.job_saga.register()
    operator.job_saga.world.wire.plan(
        Fault(operation="SendTaskSuccess", action=Action.KILL, moment=Moment.BEFORE, times=1)
    )
    with pytest.raises(Killed):
        operator.job_saga.reports("e9")
    operator.job_saga.time_out()
    with monkeypatch.context() as patch:
        patch.setattr(operator.job_saga.world.wire, "send", noted)
        operator.lists("--redeliver", JOB_ID)

    assert calls == {
        *(("tokens", action) for action in granted.TOKEN_TABLE_ACTIONS),
        *(("index", action) for action in granted.TOKEN_INDEX_ACTIONS),
        *(("dead", action) for action in granted.DEAD_LETTER_ACTIONS),
        *(("queue", action) for action in granted.QUEUE_ACTIONS),
        *(("requests", action) for action in granted.REQUEST_TABLE_ACTIONS),
        *(("machine", action) for action in granted.MACHINE_ACTIONS),
    }


def _actions(operation: str, body: dict[str, Any], operator: Operator) -> Iterator[tuple[str, str]]:
    """The actions that a call needs, and on what."""
    if operation.startswith("SendTask"):
        yield "machine", f"states:{operation}"
    elif "QueueUrl" in body:
        which = "dead" if body["QueueUrl"] == operator.dead else "queue"
        yield which, f"sqs:{operation.removesuffix('Batch')}"
    elif operation == "TransactWriteItems":
        for entry in body["TransactItems"]:
            ((kind, given),) = entry.items()
            yield given["TableName"], f"dynamodb:{kind}Item"
    elif operation == "BatchGetItem":
        for table in body["RequestItems"]:
            yield table, "dynamodb:BatchGetItem"
    else:
        yield "index" if "IndexName" in body else body["TableName"], f"dynamodb:{operation}"


VIEW = JobView(
    kind=Kind.WAITING,
    job_id=JOB_ID,
    saga_id=SAGA_ID,
    step=STEP,
    status="WAITING",
    since=NOW_MS - 60_000,
    expected_at=NOW_MS - 1_000,
    heartbeat_at=NOW_MS - 30_000,
    dispatches=3,
    dispatch_error="ConnectionError: h\u00e4ngt \u001b[31m",
    outcome="",
    conflict="",
    conflict_id="",
    told=None,
    execution=SAGA_ID,
    event_id="",
    log_table="log",
    request_table="requests",
    reported_unanswered_at=None,
)
DELIVERING = replace(VIEW, kind=Kind.DELIVERING, outcome="done", event_id="evt_1", dispatches=0)
DEAD_JOB = DeadMessage(
    kind=DeadKind.JOB,
    message_id="m-1",
    job_id=JOB_ID,
    saga_id=SAGA_ID,
    step=STEP,
    sent_at=NOW_MS - 3_600_000,
    receives=6,
    about={},
)
LISTING = Listing(
    table="tokens",
    now_ms=NOW_MS,
    rows=[replace(VIEW, kind=Kind.LATE), VIEW, DELIVERING],
    dead=[DEAD_JOB],
    reasons={JOB_ID: "ConnectionError"},
    busy=0,
    complete=False,
    commands={JOB_ID: f"cdk-sagas recover {SAGA_ID} --reason WHY --stack Shop"},
)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_except_commands_and_jobs_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    lines = text_of(LISTING, Screen(width=width, unicode=unicode)).splitlines()

    assert [line for line in lines if len(line) > width and SAGA_ID not in line] == []
    assert all(line.isprintable() for line in lines)
    assert unicode or all(line.isascii() for line in lines)
    assert "there are more dead messages" in " ".join(lines)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_job_is_never_cut(width: int) -> None:
    assert text_of(LISTING, Screen(width=width)).count(f"  {JOB_ID}") == 4


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "token-1",
        json.dumps({"saga_id": "x", "step": "Pick", "token": "t"}),
        json.dumps({"saga_id": SAGA_ID, "step": "", "token": "t"}),
        json.dumps({UNANSWERED_FIELD: "token-1"}),
        json.dumps({"saga_id": SAGA_ID, "step": STEP}),
    ],
)
def test_a_foreign_message_is_unreadable_and_not_shown(body: str) -> None:
    shown = dead_message({"MessageId": "m-1", "Body": body})

    assert (shown.kind, shown.job_id, dict(shown.about)) == (DeadKind.UNREADABLE, "", {})


@pytest.mark.parametrize("status", ["EVENT", "DECIDED", "ALIAS"])
def test_rows_without_a_job_are_not_shown(status: str) -> None:
    assert job_view({"id": {"S": "x"}, "status": {"S": status}, "updated_at": {"N": "1"}}) is None


def test_a_token_is_not_even_read_to_list_jobs(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    send = operator.job_saga.world.wire.send
    operator.job_saga.register()

    def noted(event_name: str, request: Any, deliver: Any) -> Any:
        body = json.loads(request.body or b"{}")
        asked.append(body.get("RequestItems", {}).get("tokens", body))
        return send(event_name, request, deliver)

    monkeypatch.setattr(operator.job_saga.world.wire, "send", noted)
    operator.lists()
    operator.lists("--all")

    queries = [call for call in asked if "IndexName" in call]
    assert [call["ProjectionExpression"] for call in queries] == ["#id"] * 8
    for call in asked:
        names = {call["ExpressionAttributeNames"][name] for name in call["ProjectionExpression"].split(", ")}
        assert call in queries or TokenAttribute.STATUS in names
        assert {TokenAttribute.TOKEN, TokenAttribute.DECISION}.isdisjoint(names)


def test_redriven(operator: Operator) -> None:
    body = operator.kills()
    words = ("--redrive",)
    for operation in ("SendMessage", "DeleteMessage"):
        operator.job_saga.world.wire.plan(Fault(operation=operation, action=Action.KILL, moment=Moment.BEFORE, times=1))
        with contextlib.suppress(Killed):
            operator.run(*words)
    operator.run(*words)
    assert set(operator.bodies(operator.queue)) == {body}


def test_an_entry_that_was_read_stays_in_the_queue(operator: Operator) -> None:
    body = operator.kills()
    operator.run("--dead-letters")
    assert operator.bodies(operator.dead) == [body]


def test_sent_where_it_belongs(operator: Operator) -> None:
    operator.kills()
    other = str(aws.sqs().create_queue(QueueName="other")["QueueUrl"])
    operator.integration["queue"] = other
    operator.run("--redrive")
    assert operator.taken(other) == []


def test_entries_stay(operator: Operator) -> None:
    entry = operator.report_unanswered()
    operator.run("--redrive")
    assert operator.bodies(operator.dead) == [entry]
