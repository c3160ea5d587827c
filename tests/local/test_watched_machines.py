"""A hand-written state machine on local AWS: executions time out, are stopped or redriven, or are notified in vain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import Fault, First, LocalAws
from saga_runtime.protocol import WatchStatus
from saga_runtime.watch.rows import EndRow, end_id

SPEED: Final = 30.0
PATIENCE_SECONDS: Final = 240.0
LONG: Final = 100_000
"""Interval in seconds that never ends during a test."""
A_WHILE: Final = 240
"""Seconds that an import takes, of five minutes that it may."""
FUNCTION: Final = "Imports/Release/Function"


@dataclass
class Imports:
    """The deployed system."""

    aws: LocalAws
    outputs: dict[str, str]

    def starts(self, supplier: str, seconds: int = LONG) -> str:
        """Start an import; returns when it has its lock."""
        execution: str = self.aws.client("stepfunctions").start_execution(
            stateMachineArn=self.outputs["MachineArn"],
            input=json.dumps({"supplier": supplier, "seconds": seconds}),
        )["executionArn"]
        self.until(lambda: supplier in self.locks)
        return execution

    def stops(self, execution: str) -> None:
        """Stop an import."""
        self.aws.client("stepfunctions").stop_execution(executionArn=execution, error="Stopped", cause="by hand")

    @property
    def locks(self) -> dict[str, str]:
        """Lock holders, by supplier."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["LocksTable"])["Items"]
        return {item["supplier"]["S"]: item["holder"]["S"] for item in items}

    def row(self, execution: str, redrives: int = 0) -> EndRow | None:
        """Row of an execution's end."""
        key = {"id": {"S": end_id(execution, redrives)}}
        item = self.aws.client("dynamodb").get_item(TableName=self.outputs["EndsTable"], Key=key).get("Item")
        return None if item is None else EndRow.from_item(item)

    def look(self) -> dict[str, Any]:
        """One sweep over lists and due rows."""
        answer = self.aws.client("lambda").invoke(FunctionName=self.outputs["WatchName"], Payload=b"{}")
        said: dict[str, Any] = json.loads(answer["Payload"].read())
        assert answer.get("FunctionError") is None, said
        return said

    def looks_until(self, done: Callable[[], bool]) -> None:
        """Sweep repeatedly."""
        self.until(done, self.look)

    def until(self, done: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for something."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < deadline, self.aws.emulator_log()[-4_000:]
            meanwhile()
            time.sleep(0.2)

    def is_told(self, execution: str) -> bool:
        """True if an execution's end was notified."""
        row = self.row(execution)
        return row is not None and row.status is WatchStatus.NOTIFIED

    def is_over(self, execution: str) -> bool:
        """True if an execution's end is kept, and the grace after it is over."""
        from .watched.stack import GRACE

        row, now_ms = self.row(execution), self.aws.now().timestamp() * 1_000
        return row is not None and now_ms >= row.stopped_at + float(GRACE.to_milliseconds())

    def calls(self, supplier: str) -> list[str]:
        """Notifications about a supplier's import: end, attempt, id."""
        lines = [line for log in self.aws.function_logs(FUNCTION) for line in log.lines]
        return [line.partition(" ")[2].strip() for line in lines if line.startswith(f"{supplier} ")]


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imports]:
    """The deployed system without a running schedule: each test invokes its sweeps."""
    from .watched.stack import synthesize

    with LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(Path(tmp_path_factory.mktemp("watched"))))["Imports"])
        aws.client("events").disable_rule(Name=outputs["ScheduleRule"])
        yield Imports(aws, outputs)


@pytest.fixture(scope="module")
def story(imports: Imports) -> dict[str, str]:
    """Imports that end in different ways at the same time; executions, by supplier."""
    events = imports.aws.client("events")
    imports.aws.faults.plan(
        Fault(
            function=FUNCTION,
            call="dynamodb:DeleteItem",
            action="kill",
            on=First(times=2),
            containing="stubborn",
        )
    )
    story = {name: imports.starts(name) for name in ("slow", "silent", "stopped", "stubborn")}
    events.disable_rule(Name=imports.outputs["AbortedRule"])
    imports.stops(story["silent"])
    events.enable_rule(Name=imports.outputs["AbortedRule"])
    for name in ("stopped", "stubborn"):
        imports.stops(story[name])
    story["redriven"] = imports.starts("redriven", A_WHILE)
    imports.stops(story["redriven"])
    imports.aws.client("stepfunctions").redrive_execution(executionArn=story["redriven"])
    return story


def test_a_stopped_one_is_kept_by_its_event_and_one_without_event_by_its_list(
    imports: Imports, story: dict[str, str]
) -> None:
    imports.until(lambda: imports.row(story["stubborn"]) is not None)
    assert imports.row(story["silent"]) is None

    imports.looks_until(lambda: imports.row(story["silent"]) is not None)

    # On a busy machine the grace may be over: emulated time is fast, and a sweep is not.
    over = {name for name in ("silent", "stopped") if imports.is_over(story[name])}
    assert {*imports.locks} >= {"silent", "stopped"} - over


@pytest.mark.parametrize(("name", "end"), [("stopped", "ABORTED"), ("silent", "ABORTED"), ("slow", "TIMED_OUT")])
def test_its_authors_function_is_notified_once(imports: Imports, story: dict[str, str], name: str, end: str) -> None:
    imports.looks_until(lambda: imports.is_told(story[name]))

    assert name not in imports.locks
    assert imports.calls(name) == [f"{end} 1 {story[name]}#0"]


def test_a_function_that_fails_is_called_until_it_does_not(imports: Imports, story: dict[str, str]) -> None:
    imports.looks_until(lambda: imports.is_told(story["stubborn"]))

    assert "stubborn" not in imports.locks
    assert imports.calls("stubborn")[-1] == f"ABORTED 3 {story['stubborn']}#0"
    imports.aws.faults.report().require_all_fired()


def test_an_execution_redriven_within_the_grace_is_not_notified(imports: Imports, story: dict[str, str]) -> None:
    def has_ended() -> bool:
        described = imports.aws.client("stepfunctions").describe_execution(executionArn=story["redriven"])
        return described["status"] == "SUCCEEDED"

    imports.looks_until(has_ended)

    assert "redriven" not in imports.locks
    assert imports.calls("redriven") == []
    row = imports.row(story["redriven"])
    assert row is None or row.status in (WatchStatus.PENDING, WatchStatus.SUPERSEDED)
