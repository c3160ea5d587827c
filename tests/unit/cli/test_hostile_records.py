"""Stored texts in a terminal: no character of them moves its cursor or changes its colours.

Each stored text in turn ends with an escape sequence, as in a table that something else than the library wrote; then
each command that shows stored texts is run. A text may make its item unreadable: that is reported, likewise.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import boto3
import pytest

from constructs_lib.cli.main import main
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.trial_balance import TrialBalance, _print
from saga_runtime.recovery.proposals import Proposal
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Decision, stored
from tests.unit.support import settling
from tests.unit.support.checked_stack import SWITCH, CheckedStack, checked_stack_in
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.job_saga import REFUSED
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

CALLBACKS = import_module("constructs_lib.cli.callbacks.command")
HOLD = import_module("constructs_lib.cli.hold")
LIST = import_module("constructs_lib.cli.fleet.list")
RESUME = import_module("constructs_lib.cli.fleet.resume")
ANN: Final = "arn:aws:iam::123456789012:user/ann"
HOSTILE: Final = "\x1b[2J\x1b[1;1H\x9b31mforged\r\a\b\u202e"
COMMANDS: Final = (
    ("list",),
    ("list", "--scan"),
    ("inspect", SAGA_ID, "--full"),
    ("doctor", "--full-scan"),
    ("callbacks", "--all"),
    ("hold", "status"),
    ("hold", "status", "--saga", SAGA_ID),
)
KEYS: Final = {"requests": ("id",), "log": ("saga_id", "step"), "tokens": ("id",), SWITCH: ("id",)}


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A parked saga that is held, with decisions, a proposal, and jobs of every kind."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:
        for module in (CALLBACKS, HOLD, LIST):
            monkeypatch.setattr(module, "session_of", lambda _: SimpleNamespace(client=boto3_session.client))
        job = stack.job_saga
        job.register()
        job.reports("e1")
        job.reports("e2", REFUSED)
        job.reports("e3", job_id="their-1")
        job.reports("e4", REFUSED, job_id="their-1")
        job.reports("e5", job_id="their-2")
        update: Any = settling.park(request_id=REQUEST_ID, execution=SAGA_ID, now_ms=NOW_MS)
        update["ExpressionAttributeValues"][":parked_reason"] = {
            "S": json.dumps({"step": "Pick", "error": "Undecided", "detail": "it is not known"})
        }
        aws.dynamodb().update_item(**update)
        world.executions.end(SAGA_ID, ExecutionStatus.FAILED)
        decision = Decision(
            at_ms=NOW_MS,
            who=ANN,
            what="Pick: applied",
            why="I asked",
            parked_reason="Pick: Undecided",
            proposal=1,
            proposed_by=ANN,
        )
        proposal = Proposal(
            number=1,
            at_ms=NOW_MS,
            who=ANN,
            user_id="AIDAANN",
            why="I asked",
            expires_at=NOW_MS + 86_400_000,
            step=None,
            statement=None,
            row_status=None,
            status=stack.operated.record.status,
            owner=stack.operated.record.owner,
            parked_at=stack.operated.record.parked_at,
        )
        kept: Any = {"decisions": stored([decision]), "proposals": {"L": [{"M": proposal.stored}]}}
        stack.update(**kept)
        for words in ((), ("--saga", SAGA_ID)):
            assert main(["hold", "on", *words, "--reason", "it is restored", "--stack", "Shop"]) == 0
        yield stack


def hostile(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An attribute's value with one hostile text in it, of each text; also of those in JSON."""
    ((kind, held),) = value.items()
    if kind == "S":
        yield {"S": f"{held}{HOSTILE}"}
        try:
            said = json.loads(held)
        except ValueError:
            return
        for name, text in said.items() if isinstance(said, dict) else ():
            if isinstance(text, str):
                yield {"S": json.dumps({**said, name: f"{text}{HOSTILE}"})}
    elif kind == "L":
        for index, one in enumerate(held):
            yield from ({"L": [*held[:index], other, *held[index + 1 :]]} for other in hostile(one))
    elif kind == "M":
        for name, one in held.items():
            yield from ({"M": {**held, name: other}} for other in hostile(one))


def run(*words: str) -> str:
    """Run a command: all that it prints."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        main([*words, "--stack", "Shop"])
    return told.getvalue()


def shown(text: str) -> str:
    """Characters of a text that a terminal does not print."""
    return "".join(sorted({char for char in text if not char.isprintable() and char != "\n"}))


@pytest.mark.parametrize("table", KEYS)
def test_no_stored_text_reaches_the_terminal_raw(
    stack: CheckedStack, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    asked: list[str] = []
    answer, readers, seen = stack.world.database.call, [], 0

    def observed(operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(str(body))
        return answer(operation, body)

    monkeypatch.setattr(stack.world.database, "call", observed)
    for command in COMMANDS:
        asked.clear()
        clean = run(*command)
        assert "Traceback" not in clean
        assert not shown(clean)
        if any(f"'{table}'" in body for body in asked):  # another command prints the same, whatever the table has
            readers.append(command)

    for item in stack.world.items(table):
        for name, value in item.items():
            for changed in hostile(value):
                aws.dynamodb().put_item(TableName=table, Item={**item, name: changed})
                for command in readers:
                    told = run(*command)
                    seen += "forged" in told
                    assert not shown(told), (name, changed, command, told)
                if name in KEYS[table]:
                    key = {part: {**item, name: changed}[part] for part in KEYS[table]}
                    aws.dynamodb().delete_item(TableName=table, Key=key)
        aws.dynamodb().put_item(TableName=table, Item=item)

    assert seen, "no command showed any of them"


def test_no_account_reaches_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    balance = TrialBalance(exceeded=[f"account {HOSTILE} is wrong"])
    balance.books["EUR", HOSTILE].total += 1

    _print(balance, accounts=True)

    told = capsys.readouterr().out
    assert (told.count("forged"), shown(told)) == (3, "")


def test_no_proposed_list_reaches_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {"who": HOSTILE, "why": HOSTILE, "confirmed_by": HOSTILE, "list": [(SAGA_ID, "", HOSTILE)]}

    RESUME._show_proposal(listed, [RESUME.Planned(saga_id=SAGA_ID, parked=None)], 0)

    told = capsys.readouterr().out
    assert (told.count("forged"), shown(told)) == (5, "")


def test_no_refusal_reaches_the_terminal_raw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: object) -> int:
        raise CommandError(f"a table has {HOSTILE}\nand more")

    monkeypatch.setattr(LIST, "run", refused)
    assert main(["list", "--stack", "Shop"]) == 1

    told = capsys.readouterr().err
    assert (told.count("forged"), told.count("\n"), shown(told)) == (1, 2, "")
