"""Sagas that wait for callbacks on local AWS, recovered by the reconciler alone.

Other interruptions are in ``test_proven_examples``; a reconciler dies at each of its calls in the simulator
(``tests/simulator/test_each_call.py``), and here while it compensates late effects.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from constructs_lib.cli.main import main
from constructs_lib.testing import Fault, LocalAws, Nth
from constructs_lib.testing.fault_plan import Moment
from saga_runtime.callbacks.decisions import APPLIED_LATE, CONTRADICTED
from saga_runtime.idempotency.identity import request_id_from, request_id_of, saga_id_of
from saga_runtime.idempotency.record import RequestRecord, Reservation, reserve_put
from saga_runtime.protocol import Env, Look, LookField, StartField, TokenAttribute
from saga_runtime.recovery.cancel import cancel_update
from saga_runtime.recovery.hold import KEPT_MS
from saga_runtime.recovery.takeover import Owner, Recoverer, recovery_name
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.decisions import Audit
from tests.sampling import a_third

from .reconcilers import LONGEST_SECONDS
from .test_callbacks import NONE_LEFT, PARCEL, PATIENCE_SECONDS, SPEED, WHY, Callbacks

CLIENTS = 6


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callbacks]:
    """The deployed system without running schedules: each test invokes its sweeps."""
    from .callbacks.stack import FUNCTION_SECONDS
    from .reconciling import synthesize

    with LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(Path(tmp_path_factory.mktemp("reconciling"))))["Callbacks"])
        # Emulated time is fast, and a process that starts on a busy machine is not.
        own = ("Api/Gatekeeper/picks/Function", "People/Dispatcher/Function")
        functions = [aws.resolve_function(f"Callbacks/{path}") for path in own]
        seconds = dict.fromkeys((*functions, outputs["FromWarehouse"], outputs["FromPeople"]), FUNCTION_SECONDS)
        sweepers = [aws.resolve_function(f"Callbacks/{via}/Tokens/Sweeper/Function") for via in ("Warehouse", "People")]
        seconds |= dict.fromkeys((*sweepers, outputs["ReconcilerName"]), LONGEST_SECONDS)
        for name, longest in seconds.items():
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=longest)
        for queue in ("JobsUrl", "PeopleJobsUrl", "EventsUrl"):
            aws.client("sqs").set_queue_attributes(
                QueueUrl=outputs[queue], Attributes={"VisibilityTimeout": str(FUNCTION_SECONDS)}
            )
        for rule in ("ScheduleRule", "MeasureRule"):
            aws.client("events").disable_rule(Name=outputs[rule])
        yield Callbacks(aws, outputs, aws.create_api_user("alice", api_id=outputs["ApiId"]))


def record_of(system: Callbacks, order: str) -> RequestRecord:
    found = recoverer(system).read(system.record(order)["id"])
    assert found is not None
    return found


def recoverer(system: Callbacks) -> Recoverer:
    return Recoverer(
        table=system.outputs["RequestTableName"],
        dynamodb=system.aws.client("dynamodb"),
        step_functions=system.aws.client("stepfunctions"),
    )


def stop(system: Callbacks, order: str) -> None:
    """Stop a saga's execution while it waits for a warehouse that has picked without a callback."""
    record = record_of(system, order)
    system.waited(lambda: system.books(order), lambda books: books.get("state") == "given")
    system.thinks(order, "picked")
    system.aws.client("stepfunctions").stop_execution(executionArn=record.execution_arn)


def look(system: Callbacks) -> dict[str, Any]:
    """One sweep that completes."""
    died, said = _look(system)
    assert not died, said
    return said


def measure(system: Callbacks) -> None:
    """One measurement that completes: it clears the operators' queue, too."""
    died, said = _look(system, {LookField.LOOK: Look.IN_FLIGHT})
    assert not died, said


def _look(system: Callbacks, event: Mapping[str, str] = {}) -> tuple[bool, dict[str, Any]]:
    """Result of a sweep, after True if it died. A sweep that a busy machine cut off is repeated, as a schedule would:
    emulated time is fast, and processes are not."""
    name, deadline = system.outputs["ReconcilerName"], time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = system.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
        said: dict[str, Any] = json.loads(answer["Payload"].read())
        if said.get("errorType") != "Sandbox.Timedout":
            return answer.get("FunctionError") is not None, said
        assert time.monotonic() < deadline, said


def test_a_stopped_saga_is_recovered_by_its_status_event(system: Callbacks) -> None:
    system.begin("stopped")
    system.waits("stopped")

    stop(system, "stopped")

    system.ends("stopped", "FAILED")
    record = record_of(system, "stopped")
    assert (record.owner, record.due_at) == (recovery_name(record.saga_id, 1), None)
    assert (system.row("stopped", "Reserve")["status"], system.row("stopped")["status"]) == (
        "COMPENSATED",
        "COMPENSATED",
    )


def test_a_cancelled_saga_whose_command_died_is_stopped_and_compensated(system: Callbacks) -> None:
    system.begin("cancelled")
    system.waits("cancelled")
    system.waited(lambda: system.books("cancelled"), lambda books: books.get("state") == "given")
    system.thinks("cancelled", "picked")
    audit = Audit(who="arn:aws:iam::000000000000:user/operator", why="the customer called")
    update = cancel_update(record_of(system, "cancelled"), audit, int(system.aws.now().timestamp() * 1_000))
    assert recoverer(system).updated(update)

    look(system)

    assert system.ends("cancelled", "FAILED")["error"] == "SagaCancelled"
    record = record_of(system, "cancelled")
    assert (record.owner, record.due_at) == (recovery_name(record.saga_id, 1), None)
    assert system.row("cancelled")["status"] == "COMPENSATED"


def test_a_cancelled_saga_is_not_started_and_a_start_that_comes_late_is_fenced(system: Callbacks) -> None:
    system.begin("started")
    like, order = record_of(system, "started"), "not-started"
    began = json.loads(like.input)
    request_id, now_ms = request_id_of(like.scope, order), int(system.aws.now().timestamp() * 1_000)
    saga_id = saga_id_of(request_id, now_ms, "requests")
    reservation = Reservation(
        request_id=request_id,
        saga_id=saga_id,
        scope=like.scope,
        operation="picks",
        fingerprint=like.fingerprint,
        request=json.dumps({"order": order}),
        definition=began[StartField.DEFINITION],
        execution_arn=execution_of(machine_of(like.execution_arn), saga_id),
        recovery_machine_arn=like.recovery_machine_arn,
        now_ms=now_ms,
        due_after_ms=60_000,
        due_shards=16,
    )
    put: Any = {"TableName": system.outputs["RequestTableName"], **reserve_put(reservation)}
    system.aws.client("dynamodb").put_item(**put)
    system.sagas[order] = saga_id
    audit = Audit(who="arn:aws:iam::000000000000:user/operator", why="the customer called")
    assert recoverer(system).updated(cancel_update(record_of(system, order), audit, now_ms))

    look(system)

    assert system.ends(order, "FAILED")["error"] == "SagaCancelled"
    assert record_of(system, order).owner == recovery_name(saga_id, 1)
    assert recoverer(system).described(reservation.execution_arn) == Owner()
    recoverer(system).start(machine_of(reservation.execution_arn), saga_id, reservation.start_input)

    def first() -> dict[str, Any]:
        states = system.aws.client("stepfunctions")
        return dict(states.describe_execution(executionArn=reservation.execution_arn))

    ended = system.waited(first, lambda execution: execution["status"] != "RUNNING")
    assert (ended["status"], ended["error"]) == ("FAILED", "SagaFenced")
    assert (system.row(order, "Reserve")["status"], system.books(order)) == ("TOMBSTONE", {})
    assert system.ends(order, "FAILED")["error"] == "SagaCancelled"


def test_a_held_reconciler_leaves_a_stopped_saga_alone_until_it_is_released(
    system: Callbacks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL", system.aws.endpoint_url),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", system.aws.region),
        (Env.CLOCK, system.aws.clock),
    ):
        monkeypatch.setenv(name, value)
    system.begin("held")
    system.waits("held")
    assert main(["hold", "on", "--stack", "Callbacks", "--reason", "a restore"]) == 0
    look(system)  # the pause is cached for ten seconds
    time.sleep(2 * KEPT_MS / 1_000 / SPEED)
    stop(system, "held")
    before = record_of(system, "held")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (done := look(system))["needed"] == 0:
        assert time.monotonic() < deadline
        time.sleep(1)

    assert (done["taken_over"], record_of(system, "held")) == (0, before)
    assert main(["hold", "status", "--stack", "Callbacks"]) == 0
    assert ": a restore" in capsys.readouterr().out

    assert main(["hold", "off", "--stack", "Callbacks", "--reason", "it is restored"]) == 0
    while not record_of(system, "held").recoveries:
        assert time.monotonic() < deadline
        time.sleep(1)
        look(system)
    system.ends("held", "FAILED")


def test_a_running_saga_is_left_alone_and_checked_later(system: Callbacks) -> None:
    system.begin("running")
    system.waits("running")
    before = record_of(system, "running")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (now := record_of(system, "running")).due_at == before.due_at:
        assert time.monotonic() < deadline
        look(system)
        time.sleep(1)

    assert now == replace(before, due_at=now.due_at)
    system.reports("running", PARCEL)
    system.ends("running", "COMPLETED")


# --- Late effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The reconciler's death at a call that it makes for a saga: the how many-th of its kind, and when."""

    call: str
    occurrence: int
    moment: Moment

    def fault(self, function: str, saga_id: str) -> Fault:
        """The same as a plan."""
        return Fault(
            function=function,
            call=self.call,
            moment=self.moment,
            action="kill",
            on=Nth(self.occurrence),
            containing=request_id_from(saga_id),
        )


def late(system: Callbacks, order: str) -> str:
    """A saga that failed, and whose job is then done after all."""
    saga_id = system.begin(order)
    system.waits(order)
    system.reports(order, NONE_LEFT)
    system.ends(order, "FAILED")
    assert system.reports(order, PARCEL, event="f") == "APPLIED_LATE"
    return saga_id


def entries_of(system: Callbacks, saga_id: str) -> list[dict[str, Any]]:
    """A saga's entries in the operators' queue, when no other process has received them."""
    queue, hidden = system.outputs["OperatorsQueueUrl"], "ApproximateNumberOfMessagesNotVisible"
    sqs: Any = system.aws.client("sqs")
    system.waited(
        lambda: sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[hidden])["Attributes"],
        lambda counted: counted[hidden] == "0",
    )
    found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages", [])
    entries = [json.loads(message["Body"]) for message in found]
    return [entry for entry in entries if entry["saga_id"] == saga_id]


def told_of(system: Callbacks, saga_id: str) -> list[str]:
    """Errors of these entries."""
    return [entry["parked_reason"]["error"] for entry in entries_of(system, saga_id)]


def test_an_entry_about_a_late_effect_is_deleted_when_it_is_compensated(system: Callbacks) -> None:
    saga_id = late(system, "entered")
    system.waited(lambda: {"told": told_of(system, saga_id)}, lambda found: found["told"] == [APPLIED_LATE])

    look(system)
    system.waited(lambda: system.row("entered"), lambda row: row["status"] == "COMPENSATED")
    assert told_of(system, saga_id) == [APPLIED_LATE]
    measure(system)

    assert told_of(system, saga_id) == []


def test_an_entry_about_a_conflicting_outcome_is_deleted_when_it_is_acknowledged(system: Callbacks) -> None:
    saga_id = system.begin("contradicted")
    system.waits("contradicted")
    system.reports("contradicted", PARCEL)
    system.ends("contradicted", "COMPLETED")
    assert system.reports("contradicted", NONE_LEFT, event="f") == "CONFLICT"
    system.waited(lambda: {"told": told_of(system, saga_id)}, lambda found: bool(found["told"]))
    measure(system)
    (entry,) = entries_of(system, saga_id)
    assert entry["parked_reason"]["error"] == CONTRADICTED

    words = ("--acknowledge", entry["conflict"]["job"], entry["conflict"]["outcome"])
    said = system.command("callbacks", "--integration", "Warehouse", *words, *WHY)
    assert f"conflicting outcome {entry['conflict']['outcome']} acknowledged" in said
    measure(system)

    assert entries_of(system, saga_id) == []
    assert "acknowledged" in system.command("inspect", saga_id)


def calls_of_a_look(system: Callbacks) -> Counter[str]:
    """Calls of a sweep, without the SDK's retries on a busy machine."""
    with system.aws.calls.record() as calls:
        look(system)
    own = [call for call in calls if call.caller == system.outputs["ReconcilerName"] and call.attempt == 1]
    return Counter(call.call for call in own if call.request_id == own[-1].request_id)


@pytest.mark.proof
def test_it_may_die_at_each_call_while_it_compensates_a_late_effect(system: Callbacks) -> None:
    """A third of the calls is drawn; ``tests/simulator/test_each_call.py`` breaks them in more ways."""
    function = system.outputs["ReconcilerName"]
    # Sagas of the tests before may be about to end.
    nothing_due = Counter(
        system.waited(lambda: calls_of_a_look(system), lambda made: "states:DescribeExecution" not in made)
    )
    late(system, "sample")
    calls = calls_of_a_look(system) - nothing_due  # queries of what is due name no saga
    assert {"dynamodb:GetItem", "dynamodb:Query", "states:DescribeExecution", "states:StartExecution"} <= calls.keys()
    every = {
        f"late-{call.partition(':')[2]}-{occurrence}-{moment}": Death(call=call, occurrence=occurrence, moment=moment)
        for call, times in calls.items()
        for occurrence in range(1, times + 1)
        for moment in Moment
    }
    number, parts = a_third()
    deaths = dict(list(every.items())[number::parts])
    with ThreadPoolExecutor(CLIENTS) as pool:
        sagas = dict(zip(deaths, pool.map(partial(late, system), deaths), strict=True))
    planned = system.aws.faults.plan(*(death.fault(function, sagas[order]) for order, death in deaths.items()))

    dead = 0
    while system.aws.faults.report().not_fired:
        died, _ = _look(system)
        assert died, system.aws.faults.report()
        dead += 1
    assert dead <= len(planned)
    look(system)

    for order in ("sample", *deaths):
        system.waited(partial(system.row, order), lambda row: row["status"] == "COMPENSATED")
        assert system.books(order)["cancelled"] == "1", order
        assert record_of(system, order).due_at is None, order
    # Rows of jobs are due until the token table's own sweeper has seen that they are undone.
    for order in ("sample", *deaths):
        system.waited(partial(system.token, order), lambda row: TokenAttribute.DUE_AT not in row)
