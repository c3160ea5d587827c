"""Deployments that replace an operation's saga, its schema or its windows: each request still has its effect once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pytest

from constructs_lib.saga.asl.begin import NOTE_FIRST, SAME_DEFINITION, WHOSE_START
from constructs_lib.testing import Every, Fault, HttpResponse, LocalAws
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import Env, Look, LookField
from saga_runtime.shared.arns import execution_of

from .paying import Paying
from .reconcilers import reconciling
from .replacing.stack import DUE_AFTER_SECONDS, NAME, REPLAY_SECONDS, STRICT, synthesize
from .support import eventually

SPEED: Final = 8.0
LONG: Final = 3_600
"""Emulated: what is held back for so long is held back until the plan is cleared."""
BODY: Final = {"counter": "c"}


class Replacing(Paying):
    """The stack, in the generation that was deployed last."""

    stack = NAME

    def post(self, key: str, body: Mapping[str, Any] = BODY) -> HttpResponse:
        """Send a request, as ``Paying`` does."""
        return super().post(key, body)

    def settle(self, key: str, body: Mapping[str, Any] = BODY) -> HttpResponse:
        """Send a request until it is settled."""
        return super().settle(key, body)

    def executions(self, saga: str) -> list[str]:
        """Names of all executions of a saga's forward machine."""
        found = self.aws.client("stepfunctions").list_executions(stateMachineArn=self.outputs[f"{saga}MachineArn"])
        return [execution["name"] for execution in found["executions"]]

    def adopt(self, saga_id: str) -> tuple[int, str]:
        """Move a saga with the command: its status and its output."""
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
        log = ("--log-table", self.outputs["V1LogName"])
        words = ("adopt", saga_id, *log, "--stack", NAME, "--reason", "its machine was deleted")
        command = [sys.executable, "-m", "constructs_lib.cli", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr

    def until_due(self) -> None:
        """Wait until a request that was reserved before is due."""
        self.wait(DUE_AFTER_SECONDS + 1)

    def wait(self, seconds: float) -> None:
        """Let so much of the emulator's time pass."""
        until = self.aws.now().timestamp() + seconds
        while self.aws.now().timestamp() < until:
            time.sleep(0.1)

    def measure(self) -> None:
        """Call the reconciler as its schedule for measuring does."""
        event = {LookField.LOOK: Look.IN_FLIGHT}
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.outputs["ReconcilerName"], Payload=json.dumps(event)
        )
        assert "FunctionError" not in answer, answer["Payload"].read()

    def record(self) -> dict[str, Any]:
        """The only request record."""
        (item,) = self.aws.client("dynamodb").scan(TableName=self.outputs["RequestTableName"])["Items"]
        return item


@pytest.fixture(scope="module")
def replacing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replacing]:
    folder = tmp_path_factory.mktemp("replacing")
    assemblies = {
        "first": synthesize(folder / "first", generation=1),
        "strict": synthesize(folder / "strict", generation=1, schema=STRICT),
        "second": synthesize(folder / "second", generation=2),
        "brief": synthesize(folder / "brief", generation=1, brief=True),
        "deleted": synthesize(folder / "deleted", generation=1, deleted=True),
        "again": synthesize(folder / "again", generation=1, deleted=True, again=True),
    }
    with LocalAws(speed=SPEED, concurrency=3) as aws:
        yield Replacing(aws, assemblies)


@pytest.fixture
def first(replacing: Replacing) -> Replacing:
    """The first generation, emptied."""
    replacing.deploy("first")
    replacing.aws.reset()
    return replacing


class TestADuplicateAfterTheReplacement:
    def test_of_a_running_saga_starts_no_second_one(self, first: Replacing) -> None:
        machine = f"states:{NAME}/V1/StateMachine"
        hold = Fault(function=machine, call="lambda:Invoke", action="delay", seconds=LONG)
        first.aws.faults.plan(hold)
        saga_id = first.post("k").json()["saga_id"]

        first.deploy("second")
        first.until_due()
        answer = first.post("k")

        assert (answer.status, answer.json()["saga_id"]) == (409, saga_id)
        assert (first.executions("V1"), first.executions("V2")) == ([saga_id], [])
        first.aws.faults.clear()
        assert first.settle("k").json()["saga_id"] == saga_id
        assert first.effects() == {"c/Pay": 1}
        assert first.executions("V2") == []

    def test_of_a_saga_that_was_never_started_leaves_it_to_the_reconciler(self, first: Replacing) -> None:
        gatekeeper = f"{NAME}/Api/Gatekeeper/pay/Function"
        lost = Fault(function=gatekeeper, call="states:StartExecution", action="drop", on=Every(), attempts="all")
        first.aws.faults.plan(lost)
        saga_id = first.post("k").json()["saga_id"]
        first.aws.faults.clear()

        first.deploy("second")
        first.until_due()
        first.post("k")
        assert first.executions("V2") == []

        with reconciling(first.aws, first.outputs):
            assert first.settle("k").json()["saga_id"] == saga_id
        assert (first.executions("V1"), first.executions("V2")) == ([saga_id], [])
        assert first.effects() == {"c/Pay": 1}

    def test_of_a_settled_saga_gets_its_response(self, first: Replacing) -> None:
        before = first.settle("k")

        first.deploy("second")

        assert first.post("k").body == before.body
        assert first.effects() == {"c/Pay": 1}


def test_saga_of_a_deleted_machine_is_moved_and_pays_once(replacing: Replacing) -> None:
    """``tests/simulator/test_releases.py`` does the same in the simulator."""
    replacing.deploy("deleted")
    replacing.aws.reset()
    former, states = replacing.outputs["V1MachineArn"], replacing.aws.client("stepfunctions")
    hold = Fault(function=f"states:{NAME}/V1/StateMachine", call="lambda:Invoke", action="delay", seconds=LONG)
    replacing.aws.faults.plan(hold)
    saga_id = replacing.post("k").json()["saga_id"]

    replacing.deploy("again")

    assert states.describe_state_machine(stateMachineArn=former)["status"] == "DELETING"
    status, told = replacing.adopt(saga_id)
    assert status == 1
    assert "must have ended without settling it, got RUNNING" in told
    replacing.aws.faults.clear()
    with suppress(states.exceptions.StateMachineDoesNotExist):
        eventually(lambda: states.describe_state_machine(stateMachineArn=former)["status"] != "DELETING" or None)
    replacing.until_due()
    assert (replacing.post("k").status, replacing.executions("V1")) == (409, [])
    assert replacing.adopt(saga_id)[0] == 0
    answer = replacing.settle("k")
    assert (answer.status, answer.json()["saga_id"]) == (200, saga_id)
    assert replacing.executions("V1") == [f"{saga_id}-r1"]
    assert replacing.effects() == {"c/Pay": 1}


def test_new_request_after_the_replacement_runs_on_the_new_saga(first: Replacing) -> None:
    first.deploy("second")

    saga_id = first.settle("k").json()["saga_id"]

    assert (first.executions("V1"), first.executions("V2")) == ([], [saga_id])
    assert first.effects() == {"c/Pay": 1}


class TestARetryAfterTheSchemaBecameStricter:
    def test_of_a_running_saga_is_a_duplicate(self, first: Replacing) -> None:
        hold = Fault(function=f"states:{NAME}/V1/StateMachine", call="lambda:Invoke", action="delay", seconds=LONG)
        first.aws.faults.plan(hold)
        saga_id = first.post("k").json()["saga_id"]

        first.deploy("strict")
        answer = first.post("k")

        assert (answer.status, answer.json()["saga_id"]) == (409, saga_id)
        first.aws.faults.clear()
        assert first.settle("k").json()["saga_id"] == saga_id
        assert first.effects() == {"c/Pay": 1}

    def test_of_a_settled_saga_gets_its_response(self, first: Replacing) -> None:
        before = first.settle("k")

        first.deploy("strict")
        again, new = first.post("k"), first.post("another")

        assert (again.status, again.body) == (200, before.body)
        assert (new.status, new.json()["type"]) == (400, "urn:cdk-sagas:problem:invalid-body")
        assert first.effects() == {"c/Pay": 1}


def test_key_whose_response_has_expired_is_refused_and_nothing_moves(first: Replacing) -> None:
    first.deploy("brief")
    saga_id = first.post("k").json()["saga_id"]
    first.settle("k")
    first.wait(REPLAY_SECONDS + 1)

    before = first.post("k")
    first.measure()
    after = first.post("k")

    assert (before.status, after.status) == (410, 410)
    assert before.body == after.body
    document = after.json()
    assert document["type"] == "urn:cdk-sagas:problem:idempotency-key-expired"
    assert (document["saga_id"], document["saga_status"], document["http_status"]) == (saga_id, "COMPLETED", 200)
    assert RequestRecord.from_item(first.record()).tombstone
    assert first.post("k", {"counter": "other"}).status == 422
    assert first.executions("V1") == [saga_id]
    assert first.effects() == {"c/Pay": 1}


class TestAnotherDefinition:
    def test_a_saga_that_starts_under_another_definition_records_it(self, first: Replacing) -> None:
        functions = first.aws.client("lambda")
        name = first.aws.resolve_function(f"{NAME}/Api/Gatekeeper/pay/Function")
        variables = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        deployed = variables[Env.DEFINITION]
        earlier = {**variables, Env.DEFINITION: "0" * len(deployed)}
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": earlier})

        saga_id = first.settle("k").json()["saga_id"]

        record = first.record()
        assert (record["definition"]["S"], record["status"]["S"]) == (deployed, "COMPLETED")
        assert json.loads(record["input"]["S"])["definition"] == "0" * len(deployed)
        machine = first.aws.client("stepfunctions")
        events = machine.get_execution_history(
            executionArn=execution_of(first.outputs["V1MachineArn"], saga_id), maxResults=1_000
        )["events"]
        entered = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
        assert entered == ["Pay", SAME_DEFINITION, WHOSE_START, NOTE_FIRST, "Pay", "Settle completed"]
        assert first.effects() == {"c/Pay": 1}
