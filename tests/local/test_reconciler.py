"""Sagas that are interrupted on local AWS, and that nobody looks after but the reconciler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from constructs_lib.testing import LocalAws
from saga_runtime.identity import request_id_of, saga_id_of
from saga_runtime.protocol import OnExpired, RecordStatus, StartField
from saga_runtime.record import RequestRecord, Reservation, reserve_put
from saga_runtime.recovery import Recoverer, execution_of, machine_of, recovery_name

from .test_callbacks import PARCEL, PATIENCE_SECONDS, SPEED, Callbacks


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callbacks]:
    """The deployed system; its schedule stands still, so that each test says who looks."""
    from .callbacks.stack import FUNCTION_SECONDS
    from .reconciling import synthesize

    with LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(Path(tmp_path_factory.mktemp("reconciling"))))["Callbacks"])
        # Emulated time is fast, and a process that starts on a busy machine is not.
        own = ("Api/Gatekeeper/picks/Function", "People/Dispatcher/Function")
        functions = [aws.resolve_function(f"Callbacks/{path}") for path in own]
        for name in (*functions, outputs["FromWarehouse"], outputs["FromPeople"], outputs["ReconcilerName"]):
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
        for queue in ("JobsUrl", "PeopleJobsUrl", "EventsUrl"):
            aws.client("sqs").set_queue_attributes(
                QueueUrl=outputs[queue], Attributes={"VisibilityTimeout": str(FUNCTION_SECONDS)}
            )
        aws.client("events").disable_rule(Name=outputs["ScheduleRule"])
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
    """Stop its execution, which waits for a warehouse that has picked and not said so."""
    record = record_of(system, order)
    system.waited(lambda: system.books(order), lambda books: books.get("state") == "given")
    system.thinks(order, "picked")
    system.aws.client("stepfunctions").stop_execution(executionArn=record.execution_arn)


def look(system: Callbacks) -> dict[str, Any]:
    """One look at what is due."""
    answer = system.aws.client("lambda").invoke(FunctionName=system.outputs["ReconcilerName"], Payload=b"{}")
    said: dict[str, Any] = json.loads(answer["Payload"].read())
    assert answer.get("FunctionError") is None, said
    return said


def looks_until_settled(system: Callbacks, order: str) -> list[dict[str, Any]]:
    """Look whenever something may be due."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    looks: list[dict[str, Any]] = []
    while system.record(order)["status"] == RecordStatus.IN_PROGRESS:
        assert time.monotonic() < deadline, (looks, system.record(order))
        looks.append(look(system))
        time.sleep(1)
    return looks


def test_a_stopped_saga_is_taken_up_by_its_status_event_and_undone(system: Callbacks) -> None:
    system.begin("stopped")
    system.waits("stopped")

    stop(system, "stopped")

    system.ends("stopped", "FAILED")
    record = record_of(system, "stopped")
    assert (record.owner, record.due_at) == (recovery_name(record.saga_id, 1), None)
    assert (system.row("stopped", "Reserve")["status"], system.row("stopped")["status"]) == ("UNDONE", "UNDONE")


def test_a_stopped_saga_whose_event_is_lost_is_found_when_it_is_due(system: Callbacks) -> None:
    events = system.aws.client("events")
    system.begin("silent")
    system.waits("silent")
    events.disable_rule(Name=system.outputs["EndedRule"])
    try:
        stop(system, "silent")
        looks = looks_until_settled(system, "silent")
    finally:
        events.enable_rule(Name=system.outputs["EndedRule"])

    system.ends("silent", "FAILED")
    assert sum(each["taken_over"] for each in looks) == 1
    assert not [each for each in looks if each["failed"] or not each["complete"]]


def test_a_request_that_was_reserved_and_never_started_is_started(system: Callbacks) -> None:
    system.begin("sample")
    sample = record_of(system, "sample")
    request_id = request_id_of(sample.scope, "orphan")
    long_ago = sample.created_at - 3_600_000
    saga_id = saga_id_of(request_id, long_ago)
    start = json.loads(sample.input)
    reservation = Reservation(
        request_id=request_id,
        saga_id=saga_id,
        scope=sample.scope,
        operation="picks",
        fingerprint=sample.fingerprint,
        request=json.dumps({"order": "orphan"}),
        definition=start[StartField.DEFINITION],
        execution_arn=execution_of(machine_of(sample.execution_arn), saga_id),
        recovery_machine_arn=sample.recovery_machine_arn,
        now_ms=long_ago,
        due_after_ms=60_000,
        due_shards=16,
    )
    put: Any = reserve_put(reservation, OnExpired.ABSENT)
    system.aws.client("dynamodb").put_item(TableName=system.outputs["RequestTableName"], **put)
    system.sagas["orphan"] = saga_id

    assert look(system)["started"] == 1

    system.waits("orphan")
    assert system.says("orphan", PARCEL) == "SETTLED"
    system.ends("orphan", "COMPLETED")
    assert record_of(system, "orphan") == replace(record_of(system, "orphan"), owner=saga_id, recoveries=0)


def test_a_running_saga_is_left_alone_and_looked_at_later(system: Callbacks) -> None:
    system.begin("running")
    system.waits("running")
    before = record_of(system, "running")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (now := record_of(system, "running")).due_at == before.due_at:
        assert time.monotonic() < deadline
        look(system)
        time.sleep(1)

    assert now == replace(before, due_at=now.due_at)
    system.says("running", PARCEL)
    system.ends("running", "COMPLETED")
