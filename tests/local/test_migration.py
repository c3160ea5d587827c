"""A deployed migration: its worker with the schedules' events, the command, and functions that write meanwhile."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.cli.main import main
from constructs_lib.testing import Fault, LocalAws
from constructs_lib.testing.fault_plan import Action, Moment
from saga_runtime.protocol import Env

from .migrating_system import CUSTOMERS, OPENING, SEGMENTS, STACK, WORKER, WRITER, MigratingSystem
from .support import eventually

pytestmark = pytest.mark.proof

SPEED: Final = 40.0
"""The shortest ``ended_after``, 15 minutes, takes 22 seconds."""
TIMEOUT: Final = 900


@dataclass(slots=True)
class Operator:
    """The deployed stack, its operator, and a client."""

    system: MigratingSystem
    added: Counter[str] = field(default_factory=Counter)

    def command(self, action: str) -> tuple[int, str]:
        """Run ``cdk-sagas migrate``: exit status and output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            reason = ["--reason", "its gate is open"] if action in ("advance", "back") else []
            status = main(["migrate", action, "--stack", STACK, *reason])
        return status, said.getvalue()

    def add(self) -> None:
        """Add a point, once, however often the function dies."""
        number = self.added.total()
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        event = {"do": "add", "customer": customer, "op": f"op-{number}", "points": 1}
        eventually(lambda: self.system.invoke(WRITER, event))
        self.added[customer] += 1

    def go(self, action: str, to: int) -> None:
        """Change the phase until it is so; work and writes happen in each phase."""
        while self.phase != to:
            self.add()
            self.work()
            eventually(lambda: self.command("verify")[0] == 0 or None)
            eventually(lambda: self.command(action)[0] == 0 or None)
            assert list(self.system.problems(self.added)) == []
        self.work()

    def work(self) -> None:
        """Let the worker run until nothing is left."""
        for segment in SEGMENTS:
            eventually(partial(self.system.passed, "backfill", segment))

    @property
    def phase(self) -> int:
        return int(self.command("status")[1].split("phase ")[1].split(" ")[0])


@pytest.fixture(scope="module")
def deployed() -> Iterator[MigratingSystem]:
    from aws_cdk import App  # here: the CDK takes seconds

    from .migrating.stack import MigratingStack

    with tempfile.TemporaryDirectory() as folder, LocalAws(speed=SPEED, concurrency=3) as aws:
        app = App(outdir=str(Path(folder) / "cdk.out"))
        MigratingStack(app, STACK)
        app.synth()
        outputs = aws.deploy(Path(folder) / "cdk.out")[STACK]
        for function in (WORKER, WRITER):
            name = aws.resolve_function(function)
            aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=TIMEOUT)
        yield MigratingSystem(aws=aws, outputs=outputs)


@pytest.fixture
def operator(deployed: MigratingSystem, monkeypatch: pytest.MonkeyPatch) -> Operator:
    for name, value in (
        ("AWS_ENDPOINT_URL", deployed.aws.endpoint_url),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", deployed.aws.region),
        (Env.CLOCK, deployed.aws.clock),
    ):
        monkeypatch.setenv(name, value)
    deployed.aws.reset()
    deployed.open()
    return Operator(deployed)


def test_items_move_forward_and_back_while_a_function_writes_them(operator: Operator) -> None:
    system, faults = operator.system, operator.system.aws.faults
    assert operator.command("advance")[0] == 0
    assert "code that knows no marks may still run" in operator.command("advance")[1]
    for function, call, moment in (
        *product([WORKER], ("dynamodb:TransactWriteItems", "dynamodb:PutItem", "dynamodb:Scan"), Moment),
        *product([WRITER], ("dynamodb:TransactWriteItems",), Moment),
    ):
        faults.plan(Fault(function=function, call=call, action=Action.KILL, moment=moment))

    operator.go("advance", 7)

    assert "point" not in system.items["c-00", "customer"]
    assert system.rows("history#") == len(CUSTOMERS) + operator.added.total()
    operator.go("back", 1)
    assert not [key for key in system.items if key[1] in {"PROFILE", "BALANCE#POINT"}]
    reads = [system.invoke(WRITER, {"do": "read", "customer": one, "op": ""}) for one in CUSTOMERS]
    assert sum(map(int, reads)) == OPENING * len(CUSTOMERS) + operator.added.total()


def test_customers_are_born_and_deleted_where_the_phase_wants_them(operator: Operator) -> None:
    system = operator.system
    operator.command("advance")
    operator.go("advance", 3)
    born = {"do": "born", "customer": "new", "op": "born-1"}

    assert eventually(lambda: system.invoke(WRITER, born)) == "Committed"

    items = system.items
    assert items["new", "customer"]["at_POINT"] == items["new", "BALANCE#POINT"]["at"] == {"S": "DUAL"}
    assert system.invoke(WRITER, {**born, "op": "born-2"}) is None
    assert eventually(lambda: system.invoke(WRITER, {**born, "do": "gone", "op": "gone-1"})) == "Committed"
    assert [key for key in system.items if key[0] == "new" and not key[1].startswith("op#")] == []
