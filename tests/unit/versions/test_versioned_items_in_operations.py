"""Versioned items in a direct operation and in an atomic step: record and log row know whose write it was."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from saga_runtime import (
    Commit,
    DirectCall,
    StepCall,
    Transitions,
    VersionConflict,
    VersionedItem,
    atomic_step,
    direct_operation,
)
from saga_runtime.protocol import OUTPUT_FIELD, REPLAYED_HEADER
from saga_runtime.shared import aws
from tests.unit.support.samples import post, step_event
from tests.unit.support.wallet import deploy, told
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

JOB = VersionedItem(table="ledger", key={"pk": {"S": "job"}, "sk": {"S": "1"}})
JOBS = Transitions(
    initial="waiting",
    table={"waiting": ["running"], "running": ["done", "waiting"], "done": []},
    held=["running"],
    supervised=[("running", "waiting")],
)
WRITE = "TransactWriteItems"
FAULTS = [Fault(operation=WRITE, action=a, moment=m) for a, m in product((Action.KILL, Action.DROP), Moment)]


@pytest.fixture(autouse=True)
def created(world: World) -> None:
    """The job, as version 1."""
    entries: Any = [write.action for write in JOBS.create(JOB, {"priority": {"N": "1"}})]
    aws.dynamodb().transact_write_items(TransactItems=entries)
    world.wire.forget()


def read() -> Mapping[str, Any]:
    """The job."""
    key: Any = JOB.key
    return aws.dynamodb().get_item(TableName="ledger", Key=key, ConsistentRead=True)["Item"]


@direct_operation
def prioritize(call: DirectCall) -> Commit:
    """Set the priority of the version that the client has seen."""
    expected, priority = call.request["version"], call.request["priority"]
    writes = JOB.update(expected_version=expected, values={"priority": {"N": str(priority)}})
    return Commit(writes=writes, output={"version": expected + 1})


@atomic_step
def start(call: StepCall) -> Commit:
    """Hold the job for this saga."""
    found = read()
    if found["state"]["S"] != "waiting":
        raise VersionConflict("the job is running", current_state=found["state"]["S"])
    version = int(found["version"]["N"])
    writes = JOBS.move(JOB, "waiting", "running", expected_version=version, holder=call.saga_id, read_now=True)
    return Commit(writes=writes, output={"version": str(version + 1)})


def send(version: int, priority: int, key: str) -> dict[str, Any]:
    """Send a request; the answer."""
    answer: dict[str, Any] = prioritize(post({"version": version, "priority": priority}, key=key), Context())
    return answer


class TestADirectOperation:
    @pytest.fixture(autouse=True)
    def deployed(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        del world
        deploy(monkeypatch, FAILURE_STATUS=json.dumps({"VersionConflict": 409}))

    def test_of_the_expected_version_succeeds(self) -> None:
        assert told(send(1, 5, "a"))[1]["result"] == {"version": 2}
        assert (read()["priority"], read()["version"]) == ({"N": "5"}, {"N": "2"})

    def test_that_is_repeated_after_two_others_gets_its_first_response(self) -> None:
        first = send(1, 5, "a")
        send(2, 6, "b")
        send(3, 7, "c")

        again = send(1, 5, "a")

        assert (again["statusCode"], again["body"]) == (200, first["body"])
        assert again["headers"][REPLAYED_HEADER] == "true"
        assert read()["version"] == {"N": "4"}

    def test_of_another_version_is_refused_for_good(self) -> None:
        send(1, 5, "a")

        refused = told(send(1, 6, "b"))

        assert (refused[0], refused[1]["error"]) == (409, "VersionConflict")
        assert told(send(1, 6, "b"))[0] == 409
        assert read()["priority"] == {"N": "5"}

    @pytest.mark.parametrize("fault", FAULTS, ids=str)
    def test_that_dies_or_loses_its_answer_has_one_effect(self, world: World, fault: Fault) -> None:
        world.wire.plan(fault)
        with contextlib.suppress(Killed):
            send(1, 5, "a")
        world.wire.forget()

        assert told(send(1, 5, "a"))[1]["result"] == {"version": 2}
        assert (read()["priority"], read()["version"]) == ({"N": "5"}, {"N": "2"})


class TestAStep:
    def test_that_is_repeated_replays_its_output(self) -> None:
        event = step_event(step="Start")
        first = start(event, Context())[OUTPUT_FIELD]

        assert start(event, Context())[OUTPUT_FIELD] == first == {"version": "2"}
        assert (read()["state"], read()["version"]) == ({"S": "running"}, {"N": "2"})

    @pytest.mark.parametrize("fault", FAULTS, ids=str)
    def test_that_dies_or_loses_its_answer_holds_the_job_once(self, world: World, fault: Fault) -> None:
        event = step_event(step="Start")
        world.wire.plan(fault)
        with contextlib.suppress(Killed):
            start(event, Context())
        world.wire.forget()

        assert start(event, Context())[OUTPUT_FIELD] == {"version": "2"}
        assert read()["version"] == {"N": "2"}

    def test_that_travels_does_not_hold_a_job_that_is_waiting_again(self) -> None:
        """The supervisor gave it back: the row of the step, and the version, refuse what travels."""
        event = step_event(step="Start")
        start(event, Context())
        entries: Any = [w.action for w in JOBS.move(JOB, "running", "waiting", expected_version=2)]
        aws.dynamodb().transact_write_items(TransactItems=entries)

        assert start(event, Context())[OUTPUT_FIELD] == {"version": "2"}
        assert read()["state"] == {"S": "waiting"}
