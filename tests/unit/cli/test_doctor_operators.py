"""Operators' use of ``cdk-sagas doctor``: by hand, in a script, at night."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from constructs_lib.cli.doctor.findings import NOBODY_CAME_MS
from constructs_lib.cli.doctor.records import Records
from constructs_lib.cli.doctor.repair import Repairer
from constructs_lib.cli.main import main
from constructs_lib.cli.shared.process import environment
from constructs_lib.cli.shared.reads import Aws, all_of
from saga_runtime.callbacks.decisions import CONTRADICTED
from saga_runtime.callbacks.notices import Notice
from saga_runtime.callbacks.rows import JobId, Outcome
from saga_runtime.protocol import DELIVERING_SECONDS, StepStatus
from saga_runtime.recovery.late_effects import late_name
from saga_runtime.recovery.takeover import recovery_name
from saga_runtime.shared import aws
from tests.unit.support.checked_stack import (
    COMMAND,
    READS,
    CheckedStack,
    checked_stack_in,
)
from tests.unit.support.doctor_scenes import (
    SCENES,
    answered_and_gone,
    due_now,
    interrupted,
    late,
    orphaned_wait,
    parked,
    send,
    undelivered,
    words_of,
)
from tests.unit.support.job_saga import JOB_ID, STEP
from tests.unit.support.manifests import TIMEOUT_SECONDS, manifest
from tests.unit.support.samples import DAY_MS, NOW_MS, SAGA_ID
from tests.unit.support.wire import Killed, Moment
from tests.unit.support.world import World

RECORDS = import_module("constructs_lib.cli.doctor.records")
ROOT = Path(__file__).parents[3]
NOBODY_MS = 15 * 60_000


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack with a saga that runs; nothing is wrong."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:
        yield stack


# A repair that dies.


@pytest.mark.proof
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("scene", [name for name, scene in SCENES.items() if scene.repaired])
def test_a_repair_that_dies_at_any_call_is_finished_by_the_next_one(
    stack: CheckedStack, scene: str, moment: Moment
) -> None:
    this, words = SCENES[scene], words_of(SCENES[scene])
    this.happens(stack)
    stack.world.wire.forget()
    place = 0
    while not dies_at_write(stack, place + 1, moment, *words):
        place += 1
        assert place < 10, "it never ends"

    assert place > 0
    stack.run("--repair", *words)
    assert tuple(stack.kinds(*words)) == this.left
    assert set(stack.world.executions.by_name) <= {SAGA_ID, recovery_name(SAGA_ID, 1), late_name(SAGA_ID, 1)}


@pytest.mark.parametrize("scene", ["never due", "in no shard", "saga log expiring"])
def test_several_troubles_of_one_saga_are_repaired_at_once(stack: CheckedStack, scene: str) -> None:
    """None of them is in another one's way: the second run finds nothing to do."""
    SCENES[scene].happens(stack)
    interrupted(stack)

    repaired = [one["repaired"] for one in stack.finds("--full-scan", "--repair") if one["repaired"]]

    assert sorted(repaired) == sorted(
        [SCENES[scene].repaired, f"handed to {recovery_name(SAGA_ID, 1)}, which is started"]
    )
    assert [kind for kind in stack.kinds("--full-scan") if kind != ("over its timeout", "ok")] == []


def dies_at_write(stack: CheckedStack, place: int, moment: Moment, *words: str) -> bool:
    """Repair, and die at the n-th call that writes, before it takes effect or after; whether it lived."""
    send_on, made = stack.world.wire.send, [0]

    def counted(event_name: str, request: Any, deliver: Any) -> Any:
        operation = event_name.rpartition(".")[2]
        if operation in READS:
            return send_on(event_name, request, deliver)
        made[0] += 1
        if made[0] == place:
            if moment is Moment.AFTER:
                send_on(event_name, request, deliver)
            raise Killed(operation)
        return send_on(event_name, request, deliver)

    setattr(stack.world.wire, "send", counted)  # noqa: B010  # mypy knows it as a method
    try:
        stack.run("--repair", *words)
    except Killed:
        return False
    finally:
        setattr(stack.world.wire, "send", send_on)  # noqa: B010 - mypy refuses to assign to a method
    return made[0] < place


def test_an_interrupted_repair_reports_its_progress(stack: CheckedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(stack)
    undelivered(stack)

    def interrupts(_: Repairer, __: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Repairer, "_repairs", interrupts)
    status, out, err = stack.run("--repair")

    assert (status, out) == (130, "")
    assert err == "interrupted: 1 of 2 repairs were made; repeat this for the others\n"


def test_an_interruption_does_not_wait_for_what_has_not_begun() -> None:
    begun: list[int] = []

    def look(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise KeyboardInterrupt
        threading.Event().wait(0.01)

    with pytest.raises(KeyboardInterrupt):
        all_of(look, range(10_000))

    assert len(begun) < 10_000


# Where it is read.


@pytest.mark.parametrize("items", [1, 3_000])
def test_a_closed_pipe_causes_no_error(items: int) -> None:
    """The output fits into the pipe's buffer, or does not."""
    program = f"import sys; from constructs_lib.cli.shared.process import say; say('x' * 100 * {items}); sys.exit(1)"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        ended = subprocess.run(  # this interpreter, and a program of ours
            [sys.executable, "-c", program], stdout=nobody, stderr=subprocess.PIPE, cwd=ROOT, check=False, text=True
        )

    assert (ended.returncode, ended.stderr) == (1, "")


class Terminal(io.StringIO):
    """Something that shows colours."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_are_shown_where_they_are_wanted(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    parked(stack)
    screen = Terminal()
    with contextlib.redirect_stdout(screen):
        main(["doctor", "--stack", "Shop"])

    assert ("\x1b[" in screen.getvalue()) == coloured
    assert "\x1b[" not in stack.run()[1]


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (lambda stack: stack.rules["Schedule"].update(State="DISABLED"), "aws events enable-rule --name Schedule"),
        (lambda stack: stack.at_zero.add("Gatekeeper"), "delete-function-concurrency --function-name Gatekeeper"),
        (lambda stack: send(stack, "events-dead"), "aws sqs purge-queue --queue-url"),
        (lambda stack: send(stack, "jobs-dead"), "cdk-sagas callbacks --stack Shop"),
        (parked, "cdk-sagas inspect"),
    ],
)
def test_a_suggested_command_names_the_account_and_region_of_the_check(
    stack: CheckedStack, part: Callable[[CheckedStack], object], says: str
) -> None:
    part(stack)

    (command,) = [one["command"] for one in stack.finds("--profile", "prod", "--region", "eu-west-1")]

    assert says in command
    assert shlex.split(command)[-4:] == ["--profile", "prod", "--region", "eu-west-1"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            NoCredentialsError(),
            "not everything was checked: Unable to locate credentials; name a profile with --profile",
        ),
        (EndpointConnectionError(endpoint_url="https://x"), "not everything was checked: Could not connect"),
        (
            ClientError({"Error": {"Code": "ExpiredToken", "Message": "it is over"}}, "DescribeStacks"),
            "not everything was checked: ExpiredToken: it is over",
        ),
    ],
)
def test_missing_permissions_are_reported_in_one_line(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def client(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(COMMAND, "session_of", lambda _: SimpleNamespace(client=client))

    status, out, err = stack.run("--json")

    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"cdk-sagas: {says}")


@pytest.mark.parametrize("screen", [Terminal, io.StringIO])
def test_a_long_check_reports_its_progress(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch, screen: type[io.StringIO]
) -> None:
    monkeypatch.setattr(RECORDS, "_AT_ONCE", 2)
    put_many(stack, 4)
    errors = screen()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        main(["doctor", "--stack", "Shop"])

    said = "table requests: 2 of 5 records\ntable requests: 4 of 5 records\n"
    assert errors.getvalue() == (said if screen is Terminal else "")


# Who should look, and does not.


@pytest.mark.parametrize("scene", ["undelivered", "late", "orphaned wait"])
def test_an_overdue_row_is_reported_as_not_monitored_despite_its_schedule(stack: CheckedStack, scene: str) -> None:
    """Its schedule is enabled, and its function fails, or is never invoked."""
    SCENES[scene].happens(stack)
    ((kind, _),) = SCENES[scene].found
    stack.pass_time(86_400_000)
    due_now(stack)

    found = dict(stack.kinds())

    assert found.pop("not monitored") == "operator"
    assert found.pop(kind) == "repair"
    repaired = {one["kind"]: one["repaired"] for one in stack.finds("--repair")}
    assert repaired[kind] == (SCENES[scene].repaired or "not due any more")


@pytest.mark.parametrize("minutes", [14, 16])
def test_an_undelivered_outcome_is_left_to_the_sweeper_for_15_minutes(stack: CheckedStack, minutes: int) -> None:
    undelivered(stack)
    stack.pass_time(minutes * 60_000 - 60_000 + DELIVERING_SECONDS * 1_000)
    due_now(stack)

    assert stack.kinds() == (
        [("outcome not delivered", "soon")]
        if minutes < 15
        else [("not monitored", "operator"), ("outcome not delivered", "repair")]
    )


def test_a_wait_that_is_not_due_is_not_a_finding(stack: CheckedStack) -> None:
    """Its outcome may arrive until then, with or without a sweeper."""
    orphaned_wait(stack)
    stack.rules["Sweeps"]["State"] = "DISABLED"
    untouched = stack.stored

    found = {one["kind"]: one for one in stack.finds("--repair")}

    assert (found["orphaned wait"]["severity"], found["orphaned wait"]["repaired"]) == ("operator", "")
    assert stack.stored == untouched


def test_a_compensation_that_was_tried_once_is_left_to_the_reconciler(stack: CheckedStack) -> None:
    late(stack)
    stack.world.executions.start(late_name(SAGA_ID, 1), "{}")
    stack.dies(late_name(SAGA_ID, 1))
    stack.pass_time(NOBODY_MS)

    assert stack.kinds() == [("late effect", "soon")]


@pytest.mark.parametrize("operation", ["GetFunctionConcurrency", "DescribeRule"])
def test_an_unreadable_reconciler_is_not_reported_as_missing(stack: CheckedStack, operation: str) -> None:
    """It may well work."""
    interrupted(stack)
    stack.denied.add(operation)

    assert stack.kinds() == [("not checked", "operator"), ("interrupted", "soon")]


def test_a_reconciler_in_a_stack_of_its_own_is_found_when_that_is_named(stack: CheckedStack) -> None:
    interrupted(stack)
    here = stack.manifests["Shop"]
    rules = here.pop("rules")
    stack.manifests["Care"] = manifest(reconcilers=here.pop("reconcilers"), rules=rules[:3])
    here["rules"] = rules[3:]

    assert stack.kinds() == [("not monitored", "operator"), ("interrupted", "repair")]
    assert "name that, too, with --stack" in " ".join(stack.run()[1].split())
    both = ("--stack", "Shop", "--stack", "Care")
    assert stack.kinds(system=both) == [("interrupted", "soon")]
    assert stack.run(system=both)[1].startswith("stacks Shop, Care, ")
    assert json.loads(stack.run("--json", system=(*both, *both))[1])["records"] == 1


# The operators' queue.


def test_entries_of_sagas_that_are_not_parked_any_more_need_no_operator(stack: CheckedStack) -> None:
    SCENES["name expired"].happens(stack)
    stack.run("--repair")
    assert stack.kinds() == [("parked", "operator"), ("for operators", "repair")]
    assert stack.finds("--repair")[1]["repaired"] == "0 deleted, 1 left"
    assert stack.sent == 1

    stack.settle()

    (finding,) = stack.finds()
    assert (finding["kind"], finding["severity"]) == ("for operators", "repair")
    assert finding["what"] == "one message, and 0 of its sagas are parked"
    assert stack.finds("--repair")[0]["repaired"] == "1 deleted, 0 left"
    assert stack.finds() == []


def test_a_parked_saga_makes_no_entry_about_something_else_ok(stack: CheckedStack) -> None:
    """As of a contradicted outcome: its entry and the parked saga are one each."""
    SCENES["name expired"].happens(stack)
    stack.run("--repair")
    aws.sqs().purge_queue(QueueUrl=stack.queues["operators"])
    send(stack, "operators")

    found = {one["kind"]: one for one in stack.finds()}["for operators"]
    assert (found["severity"], found["what"]) == ("repair", "one message, and 1 of its sagas are parked")
    assert "receive-message" in found["command"]

    left = {one["kind"]: one for one in stack.finds("--repair")}["for operators"]
    assert (left["severity"], left["open"], left["repaired"]) == ("operator", True, "0 deleted, 1 left")
    assert left["then"].startswith("read the others: those of parked sagas stay")


# What is never shown.


@pytest.mark.parametrize("words", [(), ("--json",), ("--full-scan",), ("--full-scan", "--json", "--repair")])
def test_neither_requests_nor_responses_nor_tokens_are_shown(stack: CheckedStack, words: tuple[str, ...]) -> None:
    undelivered(stack)
    parked(stack)
    stack.update(input={"S": '{"iban":"DE-SECRET"}'}, body={"S": "BODY-SECRET"}, scope={"S": "SCOPE-SECRET"})
    (token,) = [item["token"]["S"] for item in stack.world.items("tokens") if "token" in item]

    _, out, err = stack.run(*words)

    assert "SECRET" not in out + err
    assert token not in out + err


def put_many(stack: CheckedStack, count: int) -> None:
    """Add parked sagas to the running one."""
    (sample,) = stack.world.items("requests")
    for number in range(count):
        saga_id = f"{SAGA_ID[:20]}{number:06d}{SAGA_ID[26:]}"
        item: Any = {**sample, "id": {"S": f"key-{number}"}, "saga_id": {"S": saga_id}, "input": {"S": "x" * 6_000}}
        item |= {"parked_by": {"S": saga_id}, "owner": {"S": saga_id}}
        aws.dynamodb().put_item(TableName="requests", Item=item)


def test_many_records_are_read_by_page_and_each_once_more(stack: CheckedStack) -> None:
    """More than a batch takes, and more than a page: one that is larger than a megabyte."""
    put_many(stack, 230)
    stack.world.wire.forget()

    found = stack.finds()

    assert [one["kind"] for one in found] == ["parked"] * 230
    assert stack.world.wire.sent.count("BatchGetItem") >= 3


# Not a finding.


def is_compensated(stack: CheckedStack) -> None:
    late(stack)
    stack.put_row(STEP, StepStatus.COMPENSATED)


def was_answered_early_and_counted(stack: CheckedStack) -> None:
    answered_and_gone(stack)
    stack.put_row(STEP, StepStatus.COMPENSATED)


def was_answered_just_now_for_nobody(stack: CheckedStack) -> None:
    stack.job_saga.reports("event-1", job_id="provider-7")
    stack.pass_time(NOBODY_MS - 1)
    due_now(stack)


def is_being_delivered(stack: CheckedStack) -> None:
    undelivered(stack)
    stack.pass_time(-60_000 + DELIVERING_SECONDS * 1_000 - 1)


def is_old_and_its_rows_are_kept(stack: CheckedStack) -> None:
    stack.pass_time(380 * DAY_MS)
    stack.put_row("Old", StepStatus.DONE)
    due_now(stack)


def is_due_and_is_about_to_be_started(stack: CheckedStack) -> None:
    stack.world.executions.forget(SAGA_ID)


def waits_for_a_saga_that_runs(stack: CheckedStack) -> None:
    stack.job_saga.register()
    stack.pass_time(TIMEOUT_SECONDS * 1_000)
    due_now(stack)


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        (is_compensated, []),
        (was_answered_early_and_counted, []),
        (was_answered_just_now_for_nobody, []),
        (is_being_delivered, []),
        (is_old_and_its_rows_are_kept, [("over its timeout", "ok")]),
        (is_due_and_is_about_to_be_started, []),
        (waits_for_a_saga_that_runs, []),
    ],
)
def test_a_normal_state_is_not_a_finding(
    stack: CheckedStack, happens: Callable[[CheckedStack], None], found: list[tuple[str, str]]
) -> None:
    happens(stack)

    assert [kind for kind in stack.kinds("--full-scan") if kind[0] != "record lost"] == found


# Each condition is needed.


def test_schedule_is_gone(stack: CheckedStack) -> None:
    interrupted(stack)
    stack.rules["Schedule"]["EventBusName"] = "bus-3"

    assert ("interrupted", "repair") in stack.kinds()


def test_rules_may_not_be_read(stack: CheckedStack) -> None:
    interrupted(stack)
    stack.denied.add("DescribeRule")

    assert stack.kinds() == [("not checked", "operator"), ("interrupted", "soon")]


def test_found_before_the_end() -> None:
    looker = Aws(session=boto3.Session(region_name="eu-central-1"))

    def numbers() -> Iterator[int]:
        yield 1
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "Query")

    assert looker.gathered("table x", numbers()) == [1]
    assert [one.what for one in looker.denied] == ["not allowed: Query"]


def test_time_of_a_refusal() -> None:
    def describe_table(**_: Any) -> Any:
        headers = {"HTTPHeaders": {"date": "Tue, 14 Nov 2023 22:13:20 GMT"}}
        said: Any = {"Error": {"Code": "AccessDeniedException"}, "ResponseMetadata": headers}
        raise ClientError(said, "DescribeTable")

    session: Any = SimpleNamespace(client=lambda *_, **__: SimpleNamespace(describe_table=describe_table))
    with environment({"CDK_SAGAS_CLOCK": ""}):
        assert Aws(session=session).now_ms("x") == 1_700_000_000_000


MACHINE = "arn:aws:states:eu-central-1:111122223333:execution:Others"


def test_a_saga_of_a_request_table_of_another_stack_is_looked_for_in_every_shard() -> None:
    records = Records(aws=Aws(session=boto3.Session(region_name="eu-central-1")), sagas=(), now_ms=0)

    assert records.saga_at("others", f"{MACHINE}:{SAGA_ID}").served.shards == 100


def retried(stack: CheckedStack) -> None:
    """Let the saga's owner have failed at a step for 16 minutes."""
    stack.pass_time(16 * 60_000)
    due_now(stack)
    failure = {"error": "Sandbox.Timedout", "cause": "no answer"}
    first = {"id": 2, "previousEventId": 1, "type": "TaskFailed", "taskFailedEventDetails": failure}
    last = {"id": 3, "previousEventId": 2, "type": "TaskFailed", "taskFailedEventDetails": failure}
    entered = {"id": 1, "type": "TaskStateEntered", "stateEnteredEventDetails": {"name": "Charge"}}
    stack.operated.history = [one | {"timestamp": NOW_MS / 1_000} for one in (last, first, entered)]


def test_a_saga_that_has_retried_for_long_is_found(stack: CheckedStack) -> None:
    retried(stack)

    (finding,) = stack.finds()

    assert (finding["kind"], finding["severity"]) == ("retrying", "ok")
    assert finding["what"] == "Charge: 2 attempts failed, at last with Sandbox.Timedout"
    assert finding["command"] == f"cdk-sagas inspect {SAGA_ID} --stack Shop"


def test_histories_of_more_sagas_than_a_run_reads_are_counted(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constructs_lib.cli.doctor.records._MOST_HISTORIES", 0)
    retried(stack)

    (finding,) = stack.finds()

    assert (finding["kind"], finding["id"]) == ("retrying", "1 running sagas")


@pytest.mark.parametrize("operation", ["GetExecutionHistory", "DescribeStateMachineForExecution"])
def test_a_history_that_may_not_be_read_is_not_checked(stack: CheckedStack, operation: str) -> None:
    retried(stack)
    stack.denied.add(operation)

    assert stack.kinds() == [("not checked", "operator")]


def test_entry_that_no_sweep_sends_is_found(stack: CheckedStack) -> None:
    job = JobId.parse(JOB_ID)
    assert job is not None
    outcome = Outcome.failure("OutOfStock", "none left")
    notice = Notice(
        job_id=JOB_ID, job=job, error=CONTRADICTED, detail="-", outcome=outcome, requests="requests", execution=""
    )
    url = "https://sqs.eu-central-1.amazonaws.com/123456789012/operators"
    aws.dynamodb().update_item(**notice.store("tokens", url, stack.world.clock.ms, 400)["Update"])

    stack.pass_time(NOBODY_CAME_MS - 1)
    due_now(stack)
    assert "not in operators' queue" not in str(stack.finds())
    stack.pass_time(1)
    found = [(one["id"], one["what"]) for one in stack.finds() if one["kind"] == "not monitored"]
    assert (JOB_ID, "-, and the entry about that is not in operators' queue operators yet") in found
