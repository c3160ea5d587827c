"""A parked saga, and an operator with the command: ``cdk-sagas inspect``, ``resolve``, ``recover``."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core.botocore_stubber import BotocoreStubber

from constructs_lib.cli.main import main
from constructs_lib.cli.shared import saga as saga_command
from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.protocol import LEAST_LOG_DAYS, Direction, Env, Side
from saga_runtime.recovery.decisions import rows_kept_update
from saga_runtime.recovery.resolution import DeclaredStep
from saga_runtime.recovery.resolver import Resolver
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Audit, Decision
from tests.unit.support import settling
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.gateway import GRACE_MS, Shop
from tests.unit.support.manifests import described, manifest, saga_entry
from tests.unit.support.samples import DAY_MS, NOW_MS, REQUEST_ID, SAGA_ID, reservation_of
from tests.unit.support.wire import body_of, error_response, response
from tests.unit.support.world import World

LOG_DAYS = 400
ANSWERED = (
    "DescribeExecution",
    "DescribeStacks",
    "DescribeStateMachine",
    "DescribeStateMachineForExecution",
    "GetExecutionHistory",
    "StopExecution",
)
RETRY = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 60, "MaxAttempts": 9}]
DECIDE = ("resolve", "adopt", "cancel", "recover")
WHY = "the provider's books"
AUDIT = Audit(who="arn:aws:iam::123456789012:user/operator", why=WHY)


def steps_of(shop: Shop) -> list[dict[str, Any]]:
    """Steps in the manifest: one at a provider, an atomic pivot, two more at providers, one of them in a map."""
    provider = {"external": True, "grace": int(shop.provider["grace"])}
    return [
        {"name": "Charge", "side": Side.BEFORE, **provider},
        {"name": "Commit", "side": Side.PIVOT},
        {"name": "Announce", "side": Side.AFTER, **provider},
        {"name": "Ship", "side": Side.AFTER, **provider, "map": True},
    ]


@dataclass
class OperatedSaga:
    """A saga with a step at a provider, and an operator.

    Attributes:
        world: the runtime's surroundings.
        shop: the step's functions and the provider.
        manifests: those of stacks, by their names.
        unseen: state machines that may not be described.
        definitions: texts of state machines; others name the log.
        deleted: state machines that were deleted.
        deleting: those that are being deleted.
        hidden: those whose executions may not be described.
        history: events of an execution, the latest first.
    """

    world: World
    shop: Shop
    manifests: dict[str, Any] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    definitions: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    history: list[dict[str, Any]] = field(default_factory=list)

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command about the saga: its exit status and its output."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            reason = ["--reason", WHY] if words[0] in DECIDE and "--reason" not in words else []
            status = main([words[0], SAGA_ID, *words[1:], *reason, "--stack", "Shop"])
        return status, told.getvalue()

    def resolves(self, *words: str) -> str:
        """Run ``resolve``, which must work."""
        status, told = self.run("resolve", *words)
        assert status == 0, told
        return told

    def is_refused(self, *words: str) -> str:
        """Run ``resolve``; returns its one-line refusal."""
        before = self.state
        status, told = self.run("resolve", *words)
        assert (status, told.count("\n"), self.state) == (1, 1, before), told
        return told

    def park(self, direction: Direction | None = Direction.COMPENSATE, owner: str = SAGA_ID) -> None:
        """Let the owner write its direction, park the saga, and end."""
        update: Any
        if direction is not None:
            update = settling.direct(request_id=REQUEST_ID, execution=owner, direction=direction, now_ms=self.now)
            aws.dynamodb().update_item(**update)
        update = settling.park(request_id=REQUEST_ID, execution=owner, now_ms=self.now)
        aws.dynamodb().update_item(**update)
        self.world.executions.end(owner, ExecutionStatus.FAILED)

    def cut_off(self, **more: Any) -> None:
        """Let one attempt of the step end without an answer of the provider, which has acted."""
        self.shop.gateway.broken["charge"] = ConnectionError("cut off")
        with pytest.raises(ConnectionError):
            self.shop.run(**more)

    def never_sent(self, **more: Any) -> None:
        """Let one attempt of the step end before the provider heard of it."""

        def dies() -> None:
            raise ConnectionError("cut off")

        self.shop.gateway.meanwhile["charge"] = dies
        with pytest.raises(ConnectionError):
            self.shop.run(**more)

    def undo_cut_off(self) -> None:
        """Let one attempt of the undo end without an answer of the provider, which has acted."""
        self.shop.gateway.broken["refund"] = ConnectionError("cut off")
        with pytest.raises(ConnectionError):
            self.shop.undo()

    @property
    def saga(self) -> dict[str, Any]:
        """Its entry in the manifest."""
        found: dict[str, Any] = self.manifests["Shop"]["sagas"][0]
        return found

    @property
    def now(self) -> int:
        """The time."""
        return self.world.clock.ms

    @property
    def record(self) -> RequestRecord:
        """The saga's record."""
        found = self.recoverer.read(REQUEST_ID)
        assert found is not None
        return found

    @property
    def decisions(self) -> list[str]:
        """Decisions about the saga, the earliest first."""
        (item,) = self.world.items("requests")
        return [one.what for one in Decision.all_of(item)]

    def rows_are_kept_until(self, moment_ms: int) -> None:
        """Record until when the rows of its log are kept, as a reconciler that has read them does."""
        update: Any = rows_kept_update(self.record, moment_ms - LEAST_LOG_DAYS * DAY_MS)
        aws.dynamodb().update_item(TableName="requests", **update)

    @property
    def recoverer(self) -> Recoverer:
        """The component that applies decisions."""
        return Recoverer(table="requests", dynamodb=aws.dynamodb(), step_functions=aws.step_functions())

    @property
    def resolver(self) -> Resolver:
        """The component that applies operators' findings."""
        return Resolver(recoverer=self.recoverer, log_table="log", audit=AUDIT, log_days=LOG_DAYS)

    @property
    def charge(self) -> DeclaredStep:
        """The step in the definition."""
        return DeclaredStep(side=Side.BEFORE, external=True, grace_ms=GRACE_MS, log_days=LOG_DAYS)

    @property
    def state(self) -> tuple[Any, ...]:
        """Everything that is stored, and every execution."""
        return (self.world.items("requests"), self.world.items("log"), sorted(self.world.executions.by_name))

    @property
    def owner(self) -> tuple[str, bool]:
        """The saga's owner, and whether the saga is parked."""
        return self.record.owner, self.record.parked_by is not None

    def answer(self, operation: str, request: AWSPreparedRequest) -> AWSResponse:
        """Answer for Step Functions, and for CloudFormation."""
        if operation == "DescribeStacks":
            return described(request, self.manifests)
        body = body_of(request)
        if operation == "DescribeStateMachine":
            if body["stateMachineArn"] in self.deleted:
                return error_response(request, "StateMachineDoesNotExist")
            if body["stateMachineArn"] in self.unseen:
                return error_response(request, "AccessDeniedException")
            status = "DELETING" if body["stateMachineArn"] in self.deleting else "ACTIVE"
            return response(
                request,
                200,
                {"definition": self.definitions.get(body["stateMachineArn"], '{"TableName": "log"}'), "status": status},
            )
        if operation == "GetExecutionHistory":
            return response(request, 200, {"events": self.history})
        if operation == "DescribeStateMachineForExecution":
            return response(request, 200, {"definition": json.dumps({"States": {"Charge": {"Retry": RETRY}}})})
        machine, _, name = body["executionArn"].rpartition(":")
        if machine.replace(":execution:", ":stateMachine:") in self.hidden:
            return error_response(request, "AccessDeniedException")
        forward = machine.endswith(":Transfers")
        there = self.world.executions.by_name.get(name)
        if there is None or forward != (re.search(r"-[rl]\d+$", name) is None):
            return error_response(request, "ExecutionDoesNotExist")
        if operation == "StopExecution":
            if there.status is ExecutionStatus.RUNNING:
                self.world.executions.end(name, ExecutionStatus.ABORTED)
            return response(request, 200, {"stopDate": self.now / 1_000})
        ended = there.status is not ExecutionStatus.RUNNING
        stopped = {"stopDate": (there.stopped_ms or NOW_MS + 2_000) / 1_000} if ended else {}
        output = {"output": there.output} if there.status is ExecutionStatus.SUCCEEDED else {}
        failed = {"error": "SagaParked", "cause": "the saga waits for a person"}
        return response(
            request,
            200,
            {
                "executionArn": body["executionArn"],
                "status": there.status,
                "startDate": NOW_MS / 1_000,
                **stopped,
                **output,
                **(failed if there.status is ExecutionStatus.FAILED else {}),
            },
        )


@contextlib.contextmanager
def operated_saga_in(
    world: World, monkeypatch: pytest.MonkeyPatch, session: boto3.Session, **provider: Any
) -> Iterator[OperatedSaga]:
    """A running saga with one step at a provider, and its operator."""
    shop = Shop(world, **provider)
    operated = OperatedSaga(world, shop, {"Shop": manifest(sagas=[saga_entry(steps=steps_of(shop))])})
    through = BotocoreStubber.__call__

    def send(stubber: Any, event_name: str, request: AWSPreparedRequest, **rest: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        if operation in ANSWERED:
            return world.wire.send(event_name, request, lambda: operated.answer(operation, request))
        return through(stubber, event_name, request, **rest)

    monkeypatch.setattr(BotocoreStubber, "__call__", send)
    # The command asks AWS for the time; with the variable, it asks the clock of the tests.
    monkeypatch.setenv(Env.CLOCK, "1.0:1")
    connected = SimpleNamespace(client=functools.cache(session.client))
    monkeypatch.setattr(saga_command, "session_of", lambda _: connected)
    reserve: Any = reserve_put(reservation_of())
    aws.dynamodb().put_item(TableName="requests", **reserve)
    world.executions.start(SAGA_ID, operated.record.input)
    world.wire.forget()
    yield operated
