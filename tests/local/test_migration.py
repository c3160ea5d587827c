"""A deployed migration: its worker with the schedules' events, the command, and functions that write meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.cli.main import main
from constructs_lib.testing import Fault, LocalAws
from constructs_lib.testing.fault_plan import Action, Moment
from constructs_lib.testing.invariants import read_table
from saga_runtime.protocol import Env

from .support import eventually

STACK: Final = "Migrating"
SPEED: Final = 40.0
"""The shortest ``ended_after``, 15 minutes, takes 22 seconds."""
TIMEOUT: Final = 900
CUSTOMERS: Final = tuple(f"c-{number:02d}" for number in range(6))
WORKER, WRITER = f"{STACK}/Split/Worker/Function", f"{STACK}/Writer/Function"
OPENING: Final = 100


@dataclass(slots=True)
class Migrating:
    """The deployed stack, and its operator."""

    aws: LocalAws
    outputs: Mapping[str, str]
    added: int = 0

    def command(self, action: str) -> tuple[int, str]:
        """Run ``cdk-sagas migrate``: exit status and output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main(["migrate", action, "--stack", STACK])
        return status, said.getvalue()

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        """Invoke a function; None: it failed."""
        name = self.aws.resolve_function(function)
        answer = self.aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
        document = json.loads(answer["Payload"].read())
        return None if answer.get("FunctionError") else document

    def work(self, job: str) -> None:
        """Let the worker run its passes, as the schedules do, until nothing is left."""
        for segment in ("0", "1"):
            eventually(partial(self._passed, job, segment))

    def _passed(self, job: str, segment: str) -> bool | None:
        done = self.invoke(WORKER, {"job": job, "segment": segment})
        return True if done is not None and done["left"] == 0 else None

    def add(self, customer: str) -> None:
        """Add a point, once, however often the function dies."""
        self.added += 1
        event = {"do": "add", "customer": customer, "op": f"op-{self.added}", "points": 1}
        eventually(lambda: self.invoke(WRITER, event))

    def go(self, action: str, to: int) -> None:
        """Change the phase until it is so; work and writes happen in each phase."""
        while self.phase != to:
            self.add(CUSTOMERS[self.added % len(CUSTOMERS)])
            self.work("backfill")
            eventually(lambda: self.command("verify")[0] == 0 or None)
            eventually(lambda: self.command(action)[0] == 0 or None)
            self.check()
        self.work("backfill")

    @property
    def phase(self) -> int:
        return int(self.command("status")[1].split("phase ")[1].split(" ")[0])

    @property
    def items(self) -> dict[tuple[str, str], Any]:
        found = read_table(self.aws.client("dynamodb"), self.outputs["TableName"])
        return {(item["pk"]["S"], item["sk"]["S"]): item for item in found}

    def check(self) -> None:
        """Each customer has its opening and what was added, in every item that is true; both items are equal."""
        items = self.items
        total = 0
        for customer in CUSTOMERS:
            old, new = items.get((customer, "customer")), items.get((customer, "BALANCE#POINT"))
            mark = old.get("at_POINT", {}).get("S", "OLD") if old else "NEW"
            assert (new is None) == (mark == "OLD")
            if mark == "DUAL":
                assert old is not None
                assert new is not None
                assert old["point"] == new["balance"]
            truth = new["balance"] if new is not None else old["point"] if old is not None else {"N": "0"}
            total += int(truth["N"])
        assert total == OPENING * len(CUSTOMERS) + self.added


@pytest.fixture(scope="module")
def deployed() -> Iterator[Migrating]:
    from aws_cdk import App  # here: the CDK takes seconds

    from .migrating.stack import MigratingStack

    with tempfile.TemporaryDirectory() as folder, LocalAws(speed=SPEED, sandboxes=3) as aws:
        app = App(outdir=str(Path(folder) / "cdk.out"))
        MigratingStack(app, STACK)
        app.synth()
        outputs = aws.deploy(Path(folder) / "cdk.out")[STACK]
        for function in (WORKER, WRITER):
            name = aws.resolve_function(function)
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=TIMEOUT)
        yield Migrating(aws, outputs)


@pytest.fixture
def migrating(deployed: Migrating, monkeypatch: pytest.MonkeyPatch) -> Migrating:
    for name, value in (
        ("AWS_ENDPOINT_URL", deployed.aws.endpoint_url),
        ("AWS_ACCESS_KEY_ID", deployed.aws.account),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_DEFAULT_REGION", deployed.aws.region),
        (Env.CLOCK, deployed.aws.clock),
    ):
        monkeypatch.setenv(name, value)
    deployed.aws.reset()
    deployed.added = 0
    for customer in CUSTOMERS:
        values = {"pk": {"S": customer}, "sk": {"S": "customer"}, "name": {"S": customer}, "point": {"N": str(OPENING)}}
        row = {"pk": {"S": customer}, "sk": {"S": "tx#legacy"}, "points": {"N": str(OPENING)}}
        for item in (values, row):
            deployed.aws.client("dynamodb").put_item(TableName=deployed.outputs["TableName"], Item=item)
    return deployed


def test_items_move_forward_and_back_while_a_function_writes_them(migrating: Migrating) -> None:
    assert migrating.command("advance")[0] == 0
    assert "code that knows no marks may still run" in migrating.command("advance")[1]
    for moment in (Moment.BEFORE, Moment.AFTER):
        for call in ("dynamodb:TransactWriteItems", "dynamodb:PutItem", "dynamodb:Scan"):
            migrating.aws.faults.plan(Fault(function=WORKER, call=call, action=Action.KILL, moment=moment))
        migrating.aws.faults.plan(
            Fault(function=WRITER, call="dynamodb:TransactWriteItems", action=Action.KILL, moment=moment)
        )

    migrating.go("advance", 7)

    items = migrating.items
    assert "point" not in items["c-00", "customer"]
    histories = [key for key in items if key[1].startswith("history#")]
    assert len(histories) == len(CUSTOMERS) + migrating.added
    migrating.go("back", 1)
    items = migrating.items
    assert not [key for key in items if key[1] in {"PROFILE", "BALANCE#POINT"}]
    migrating.check()
    assert sum(int(migrating.invoke(WRITER, {"do": "read", "customer": one, "op": ""})) for one in CUSTOMERS) == (
        OPENING * len(CUSTOMERS) + migrating.added
    )


def test_customers_are_born_and_deleted_where_the_phase_wants_them(migrating: Migrating) -> None:
    migrating.command("advance")
    migrating.go("advance", 3)
    born = {"do": "born", "customer": "new", "op": "born-1"}

    assert eventually(lambda: migrating.invoke(WRITER, born)) == "Committed"

    items = migrating.items
    assert items["new", "customer"]["at_POINT"] == items["new", "BALANCE#POINT"]["at"] == {"S": "DUAL"}
    assert migrating.invoke(WRITER, {**born, "op": "born-2"}) is None
    assert eventually(lambda: migrating.invoke(WRITER, {**born, "do": "gone", "op": "gone-1"})) == "Committed"
    assert [key for key in migrating.items if key[0] == "new" and not key[1].startswith("op#")] == []
