"""Functions in Node.js behave as on AWS where the bare emulator does not: each test fails without its correction."""

from __future__ import annotations

import io
import json
import os
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import LocalAws
from constructs_lib.testing.logs import read_function_logs

from .support import create_role, eventually

CODE: Final = """
import { writeFileSync } from "node:fs";
class CardDeclined extends Error { constructor(message) { super(message); this.name = "CardDeclined"; } }
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const handler = async ({ kind, ms, began }) => {
  if (kind === "class") throw new CardDeclined("no funds");
  if (kind === "text") throw "just a text";
  if (kind === "exit") process.exit(1);
  if (kind === "words") console.log("some words");
  if (began) writeFileSync(began, "");
  if (ms) await wait(ms);
  return { kind, pid: process.pid, version: process.version, path: process.env.PATH };
};
export const thrower = () => { throw new TypeError("thrown at once"); };
"""
NAME: Final = "in-node"


@dataclass(frozen=True)
class Node:
    """An emulator with a function in Node.js."""

    aws: LocalAws

    def __call__(self, kind: str, *, handler: str = "handler", ms: int = 0) -> dict[str, Any]:
        """Invoke it and return what it answered, error document or result."""
        client = self.aws.client("lambda")
        payload = json.dumps({"kind": kind, "ms": ms})
        answer: dict[str, Any] = json.loads(
            client.invoke(FunctionName=f"{NAME}-{handler}", Payload=payload)["Payload"].read()
        )
        return answer


@pytest.fixture(scope="module")
def node_without() -> Iterator[Callable[..., Node]]:
    """Emulators, each without some corrections, and with a function in Node.js."""
    with ExitStack() as stack:
        made: dict[tuple[str, ...], Node] = {}

        def get(*names: str) -> Node:
            if names not in made:
                made[names] = Node(_with_function(stack.enter_context(LocalAws(without=names))))
            return made[names]

        yield get


def _with_function(aws: LocalAws) -> LocalAws:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as contents:
        contents.writestr("index.mjs", CODE)
    for handler in ("handler", "thrower"):
        aws.client("lambda").create_function(
            FunctionName=f"{NAME}-{handler}",
            Runtime="nodejs22.x",
            Handler=f"index.{handler}",
            Role=create_role(aws),
            Code={"ZipFile": archive.getvalue()},
            Timeout=900,
        )
    return aws


@pytest.fixture(scope="module")
def node(node_without: Callable[..., Node]) -> Node:
    """The function, with every correction."""
    return node_without()


def test_an_error_is_reported_under_its_name_and_the_sandbox_stays(node_without: Callable[..., Node]) -> None:
    def fail_and_call_again(node: Node) -> tuple[str, bool]:
        before = node("ok")["pid"]
        error = node("class")
        return error["errorType"], node("ok")["pid"] == before

    assert fail_and_call_again(node_without()) == ("CardDeclined", True)
    assert fail_and_call_again(node_without("nodejs-errors")) == ("Runtime.HandlerError", False)


def test_an_error_carries_its_message_and_its_trace(node: Node) -> None:
    error = node("class")

    assert error["errorMessage"] == "no funds"
    assert any("index.mjs" in line for line in error["trace"])


def test_a_thrown_error_is_reported_like_a_rejected_promise(node: Node) -> None:
    assert node("any", handler="thrower")["errorType"] == "TypeError"


def test_a_thrown_value_that_is_not_an_error_is_reported_by_its_type(node: Node) -> None:
    error = node("text")

    assert (error["errorType"], error["errorMessage"]) == ("string", "just a text")


def test_a_function_that_ends_its_process_is_reported_as_an_exit(node: Node) -> None:
    assert node("exit")["errorType"] == "Runtime.ExitError"
    assert node("ok")["kind"] == "ok"


def test_a_call_takes_no_longer_than_its_log_needs(node_without: Callable[..., Node]) -> None:
    """The bare emulator waits two seconds for each: none of its calls is faster, and one of ours is."""

    def seconds(node: Node) -> float:
        started = time.perf_counter()
        node("ok")
        return time.perf_counter() - started

    assert min(seconds(node_without("nodejs-logs")) for _ in range(3)) > 1.9
    eventually(lambda: True if seconds(node_without()) < 1.0 else None)


def test_the_log_of_a_call_contains_only_its_output(node: Node) -> None:
    node("words")
    node("ok")

    entries = read_function_logs(node.aws.client("logs"), f"/aws/lambda/{NAME}-handler")

    assert [entry.lines for entry in entries[-2:]] == [("some words",), ()]


def test_the_process_of_a_function_is_node_itself_and_nothing_that_starts_it(node: Node) -> None:
    """Killed, a starter leaves a function running that has timed out."""
    answer = node("ok")

    assert Path(f"/proc/{answer['pid']}/exe").readlink().name == "node"
    parent = Path(f"/proc/{answer['pid']}/stat").read_text("utf-8").rpartition(")")[2].split()[1]
    assert "constructs_lib.testing.emulator" in Path(f"/proc/{parent}/cmdline").read_text("utf-8")


def test_a_call_that_waits_ends_when_the_emulator_is_gone(tmp_path: Path) -> None:
    """The emulator is killed without a chance to end what it started."""

    def outlives(*without: str, within: float = 180.0) -> bool:
        """True if a call that lasts for minutes continues without the emulator."""
        began = tmp_path / "-".join(("began", *without))
        aws = LocalAws(without=without)
        aws.start()
        try:
            node = Node(_with_function(aws))
            pid = int(node("ok")["pid"])
            aws.client("lambda").invoke(
                FunctionName=f"{NAME}-handler",
                InvocationType="Event",
                Payload=json.dumps({"kind": "slow", "ms": 600_000, "began": str(began)}),
            )
            eventually(lambda: began.exists() or None)
            parent = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
            os.kill(parent, signal.SIGKILL)
            with suppress(AssertionError):
                return eventually(lambda: None if Path(f"/proc/{pid}/exe").exists() else False, within=within)
            return True
        finally:
            aws.stop()

    assert not outlives()
    assert outlives("nodejs-ends-with-emulator", within=5.0)
